-- late_at_us: when a segment came, if a month that it lies in was closed by then. superseded_at_us: when the finished one
-- took its place, if it was provisional and counted in a closed month; such rows are kept under a negative number.
ALTER TABLE segment ADD COLUMN late_at_us INTEGER;
ALTER TABLE segment ADD COLUMN superseded_at_us INTEGER;

-- What closed months should have held beside what they hold, by slot. closing_id: the closing of the later month that
-- charged it; 0 while that month is open. entry: 1 addition, 2 reversal, 3 re-entry.
CREATE TABLE late_usage (
    closing_id INTEGER NOT NULL,
    slot_start_us INTEGER NOT NULL,
    node_id INTEGER NOT NULL,
    job_id INTEGER NOT NULL,
    fact_set_id INTEGER NOT NULL,
    sku_id INTEGER NOT NULL,
    state INTEGER NOT NULL,
    entry INTEGER NOT NULL,
    slot_end_us INTEGER NOT NULL,
    share_us INTEGER NOT NULL,
    active_us INTEGER NOT NULL,
    active_measured_us INTEGER NOT NULL,
    estimated_us INTEGER NOT NULL,
    suspended_us INTEGER NOT NULL,
    segments INTEGER NOT NULL,
    PRIMARY KEY (closing_id, slot_start_us, node_id, job_id, fact_set_id, sku_id, state, entry)
) STRICT, WITHOUT ROWID;
CREATE INDEX late_usage_slot ON late_usage (slot_start_us, node_id);

-- The closed month that a correction is for, such as 2025-01, and what a credit was worth in it; none for other kinds.
ALTER TABLE charge ADD COLUMN corrected_month TEXT;
ALTER TABLE statement_line ADD COLUMN corrected_month TEXT;
ALTER TABLE statement_line ADD COLUMN credit_rate TEXT;

CREATE TRIGGER late_usage_insert_frozen BEFORE INSERT ON late_usage
WHEN EXISTS (SELECT 1 FROM late_usage AS x WHERE NEW.closing_id <> 0 AND x.closing_id = NEW.closing_id
    AND x.slot_start_us = NEW.slot_start_us AND x.node_id = NEW.node_id AND x.job_id = NEW.job_id
    AND x.fact_set_id = NEW.fact_set_id AND x.sku_id = NEW.sku_id AND x.state = NEW.state AND x.entry = NEW.entry)
BEGIN SELECT RAISE(ABORT, 'late usage that was charged is frozen'); END;

CREATE TRIGGER late_usage_update_frozen BEFORE UPDATE ON late_usage
WHEN OLD.closing_id <> 0
BEGIN SELECT RAISE(ABORT, 'late usage that was charged is frozen'); END;

CREATE TRIGGER late_usage_delete_frozen BEFORE DELETE ON late_usage
WHEN OLD.closing_id <> 0
BEGIN SELECT RAISE(ABORT, 'late usage that was charged is frozen'); END;
