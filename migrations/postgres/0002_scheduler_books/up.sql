-- What people call the attempt where its id is another: 7400_3 of an array, 8100+1 of a job of several parts.
ALTER TABLE allocation ADD COLUMN listed_id TEXT;
CREATE INDEX allocation_listed_id ON allocation (listed_id) WHERE listed_id IS NOT NULL;

-- For an adjustment: which end cause it was made for.
ALTER TABLE charge ADD COLUMN end_cause SMALLINT;
ALTER TABLE statement_line ADD COLUMN end_cause SMALLINT;
