-- What people call the attempt where its id is another: 7400_3 of an array, 8100+1 of a job of several parts.
ALTER TABLE allocation ADD COLUMN listed_id TEXT COLLATE "C";
-- For how long the attempt was suspended, by this telling.
ALTER TABLE allocation ADD COLUMN suspended_us BIGINT;
CREATE INDEX allocation_provisional ON allocation (end_us) WHERE provisional = 1;
CREATE INDEX allocation_listed_id ON allocation (listed_id) WHERE listed_id IS NOT NULL;

-- For an adjustment: which end cause it was made for.
ALTER TABLE charge ADD COLUMN end_cause SMALLINT;
ALTER TABLE statement_line ADD COLUMN end_cause SMALLINT;
