DROP TRIGGER late_usage_delete_frozen;
DROP TRIGGER late_usage_update_frozen;
DROP TRIGGER late_usage_insert_frozen;
ALTER TABLE statement_line DROP COLUMN credit_rate;
ALTER TABLE statement_line DROP COLUMN corrected_month;
ALTER TABLE charge DROP COLUMN corrected_month;
DROP TABLE late_usage;
ALTER TABLE segment DROP COLUMN superseded_at_us;
ALTER TABLE segment DROP COLUMN late_at_us;
