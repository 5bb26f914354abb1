DROP TRIGGER late_usage_truncate ON late_usage;
DROP TRIGGER late_usage_frozen ON late_usage;
DROP FUNCTION refuse_if_late_usage_charged();
ALTER TABLE statement_line DROP COLUMN credit_rate;
ALTER TABLE statement_line DROP COLUMN corrected_month;
ALTER TABLE charge DROP COLUMN corrected_month;
DROP TABLE late_usage;
ALTER TABLE segment DROP COLUMN superseded_at_us;
ALTER TABLE segment DROP COLUMN late_at_us;
