-- late_at_us: when a segment came, if a month that it lies in was closed by then. superseded_at_us: when the finished one
-- took its place, if it was provisional and counted in a closed month; such rows are kept under a negative number.
ALTER TABLE segment ADD COLUMN late_at_us BIGINT;
ALTER TABLE segment ADD COLUMN superseded_at_us BIGINT;

-- What closed months should have held beside what they hold, by slot. closing_id: the closing of the later month that
-- charged it; 0 while that month is open. entry: 1 addition, 2 reversal, 3 re-entry.
CREATE TABLE late_usage (
    closing_id BIGINT NOT NULL,
    slot_start_us BIGINT NOT NULL,
    node_id INTEGER NOT NULL,
    job_id BIGINT NOT NULL,
    fact_set_id INTEGER NOT NULL,
    sku_id INTEGER NOT NULL,
    state SMALLINT NOT NULL,
    entry SMALLINT NOT NULL,
    slot_end_us BIGINT NOT NULL,
    share_us BIGINT NOT NULL,
    active_us BIGINT NOT NULL,
    active_measured_us BIGINT NOT NULL,
    estimated_us BIGINT NOT NULL,
    suspended_us BIGINT NOT NULL,
    segments INTEGER NOT NULL,
    PRIMARY KEY (closing_id, slot_start_us, node_id, job_id, fact_set_id, sku_id, state, entry)
);
CREATE INDEX late_usage_slot ON late_usage (slot_start_us, node_id);

-- The closed month that a correction is for, such as 2025-01, and what a credit was worth in it; none for other kinds.
ALTER TABLE charge ADD COLUMN corrected_month TEXT;
ALTER TABLE statement_line ADD COLUMN corrected_month TEXT;
ALTER TABLE statement_line ADD COLUMN credit_rate TEXT;

CREATE FUNCTION refuse_if_late_usage_charged() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF OLD.closing_id <> 0 THEN
        RAISE EXCEPTION 'late usage that was charged is frozen' USING ERRCODE = 'integrity_constraint_violation';
    END IF;
    RETURN CASE TG_OP WHEN 'DELETE' THEN OLD ELSE NEW END;
END $$;
CREATE TRIGGER late_usage_frozen BEFORE UPDATE OR DELETE ON late_usage FOR EACH ROW EXECUTE FUNCTION refuse_if_late_usage_charged();
CREATE TRIGGER late_usage_truncate BEFORE TRUNCATE ON late_usage FOR EACH STATEMENT EXECUTE FUNCTION refuse_frozen();
DO $$ BEGIN
    EXECUTE format('ALTER FUNCTION refuse_if_late_usage_charged() SET search_path = %I, pg_temp', current_schema());
END $$;
