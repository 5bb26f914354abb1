ALTER TABLE statement_line DROP COLUMN end_cause;
ALTER TABLE charge DROP COLUMN end_cause;
DROP INDEX allocation_listed_id;
ALTER TABLE allocation DROP COLUMN listed_id;
