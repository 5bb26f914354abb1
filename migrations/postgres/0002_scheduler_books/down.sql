ALTER TABLE statement_line DROP COLUMN end_cause;
ALTER TABLE charge DROP COLUMN end_cause;
DROP INDEX allocation_listed_id;
DROP INDEX allocation_provisional;
ALTER TABLE allocation DROP COLUMN suspended_us;
ALTER TABLE allocation DROP COLUMN listed_id;
