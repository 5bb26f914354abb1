-- The time zone of billing days and months, from an instant on.
CREATE TABLE billing_zone (
    from_us BIGINT NOT NULL,
    zone TEXT NOT NULL,
    PRIMARY KEY (from_us)
);

-- Next number for each kind of row that is numbered here; taken in the transaction that uses it.
CREATE TABLE id_counter (
    name TEXT NOT NULL,
    next BIGINT NOT NULL,
    PRIMARY KEY (name)
);

-- Dimensions: natural keys are unique, facts carry the numbers. Row 0 is "none".
CREATE TABLE cluster (
    id INTEGER NOT NULL,
    name TEXT NOT NULL,
    PRIMARY KEY (id),
    UNIQUE (name)
);

CREATE TABLE pool (
    id INTEGER NOT NULL,
    name TEXT NOT NULL,
    PRIMARY KEY (id),
    UNIQUE (name)
);

-- kind: 0 none, 1 machine, 2 stand-in for a pool whose jobs name no node.
CREATE TABLE node (
    id INTEGER NOT NULL,
    cluster_id INTEGER NOT NULL,
    name TEXT NOT NULL,
    kind SMALLINT NOT NULL,
    PRIMARY KEY (id),
    UNIQUE (cluster_id, name)
);

CREATE TABLE pool_membership (
    node_id INTEGER NOT NULL,
    from_us BIGINT NOT NULL,
    pool_id INTEGER NOT NULL,
    PRIMARY KEY (node_id, from_us)
);

CREATE TABLE sku (
    id INTEGER NOT NULL,
    code TEXT NOT NULL,
    compute_slices INTEGER NOT NULL,
    gpu_compute_slices INTEGER NOT NULL,
    memory_slices INTEGER NOT NULL,
    gpu_memory_slices INTEGER NOT NULL,
    larger_part INTEGER NOT NULL,
    larger_whole INTEGER NOT NULL,
    PRIMARY KEY (id),
    UNIQUE (code, compute_slices, gpu_compute_slices, memory_slices, gpu_memory_slices, larger_part, larger_whole)
);

CREATE TABLE gpu (
    id INTEGER NOT NULL,
    uuid TEXT NOT NULL,
    model TEXT NOT NULL,
    PRIMARY KEY (id),
    UNIQUE (uuid)
);

CREATE TABLE unit (
    id INTEGER NOT NULL,
    gpu_id INTEGER NOT NULL,
    uuid TEXT NOT NULL,
    birth_us BIGINT NOT NULL,
    sku_id INTEGER NOT NULL,
    PRIMARY KEY (id),
    UNIQUE (gpu_id, uuid, birth_us)
);

-- The facts of a job that rules look at, as canonical JSON.
CREATE TABLE fact_set (
    id INTEGER NOT NULL,
    sha256 BYTEA NOT NULL,
    body TEXT NOT NULL,
    PRIMARY KEY (id),
    UNIQUE (sha256)
);

-- One attempt of a job: what its source calls the job, and when the attempt began.
CREATE TABLE job (
    id BIGINT NOT NULL,
    cluster_id INTEGER NOT NULL,
    source_id TEXT NOT NULL,
    start_us BIGINT NOT NULL,
    PRIMARY KEY (id),
    UNIQUE (cluster_id, source_id, start_us)
);

CREATE TABLE team (
    id INTEGER NOT NULL,
    code TEXT NOT NULL,
    PRIMARY KEY (id),
    UNIQUE (code)
);

CREATE TABLE experiment (
    id INTEGER NOT NULL,
    team_id INTEGER NOT NULL,
    name TEXT NOT NULL,
    PRIMARY KEY (id),
    UNIQUE (team_id, name)
);

-- Teams, prices and rules as they were applied; kind: 1 teams, 2 prices, 3 rules. Never changed.
CREATE TABLE catalogue_version (
    kind SMALLINT NOT NULL,
    version INTEGER NOT NULL,
    sha256 BYTEA NOT NULL,
    applied_at_us BIGINT NOT NULL,
    applied_by TEXT NOT NULL,
    body TEXT NOT NULL,
    PRIMARY KEY (kind, version)
);

-- Who changed what. Append only.
CREATE TABLE audit_log (
    id BIGINT NOT NULL,
    at_us BIGINT NOT NULL,
    actor TEXT NOT NULL,
    action TEXT NOT NULL,
    object TEXT NOT NULL,
    before TEXT NOT NULL,
    after TEXT NOT NULL,
    PRIMARY KEY (id)
);

-- One row for each import that was begun.
CREATE TABLE import (
    id BIGINT NOT NULL,
    file_name TEXT NOT NULL,
    actor TEXT NOT NULL,
    started_at_us BIGINT NOT NULL,
    finished_at_us BIGINT,
    lines BIGINT NOT NULL,
    added BIGINT NOT NULL,
    known BIGINT NOT NULL,
    revised BIGINT NOT NULL,
    without_gpu_time BIGINT NOT NULL,
    running BIGINT NOT NULL,
    refused BIGINT NOT NULL,
    PRIMARY KEY (id)
);

-- How jobs are told apart in a cluster (by id, or by these columns), and the zone of its times: set by its first import.
CREATE TABLE row_identity (
    cluster_id INTEGER NOT NULL,
    column_names TEXT NOT NULL,
    zone TEXT NOT NULL,
    PRIMARY KEY (cluster_id)
);

-- What a scheduler's books say of an attempt, each telling a revision. Placements: NODE=COUNT, by comma. provisional: 1 where it still ran and the end is when the list was written.
CREATE TABLE allocation (
    job_id BIGINT NOT NULL,
    revision INTEGER NOT NULL,
    node_id INTEGER NOT NULL,
    sku_id INTEGER NOT NULL,
    fact_set_id INTEGER NOT NULL,
    start_us BIGINT NOT NULL,
    end_us BIGINT NOT NULL,
    submit_us BIGINT,
    placements TEXT NOT NULL,
    end_state TEXT NOT NULL,
    provisional SMALLINT NOT NULL,
    sha256 BYTEA NOT NULL,
    import_id BIGINT NOT NULL,
    PRIMARY KEY (job_id, revision)
);

-- The unit of record. Insert only; segments of an older revision of an allocation go when a newer comes.
CREATE TABLE segment (
    hour BIGINT NOT NULL,
    node_id INTEGER NOT NULL,
    epoch BIGINT NOT NULL,
    number BIGINT NOT NULL,
    on_node_id INTEGER NOT NULL,
    unit_id INTEGER NOT NULL,
    sku_id INTEGER NOT NULL,
    job_id BIGINT NOT NULL,
    fact_set_id INTEGER NOT NULL,
    state SMALLINT NOT NULL,
    source SMALLINT NOT NULL,
    start_us BIGINT NOT NULL,
    end_us BIGINT NOT NULL,
    count INTEGER NOT NULL,
    share_us BIGINT NOT NULL,
    active_us BIGINT,
    estimated_us BIGINT NOT NULL,
    suspended_us BIGINT NOT NULL,
    PRIMARY KEY (hour, node_id, epoch, number)
) PARTITION BY RANGE (hour);

-- Billing days of nodes whose usage must be summed again.
CREATE TABLE roll_up_mark (
    node_id INTEGER NOT NULL,
    day_start_us BIGINT NOT NULL,
    touches BIGINT NOT NULL,
    PRIMARY KEY (node_id, day_start_us)
);

-- GPU-time by slot: no price, rule, team or pool changes within one.
CREATE TABLE usage (
    slot_start_us BIGINT NOT NULL,
    node_id INTEGER NOT NULL,
    job_id BIGINT NOT NULL,
    fact_set_id INTEGER NOT NULL,
    sku_id INTEGER NOT NULL,
    state SMALLINT NOT NULL,
    slot_end_us BIGINT NOT NULL,
    share_us BIGINT NOT NULL,
    active_us BIGINT NOT NULL,
    active_measured_us BIGINT NOT NULL,
    estimated_us BIGINT NOT NULL,
    suspended_us BIGINT NOT NULL,
    segments INTEGER NOT NULL,
    PRIMARY KEY (slot_start_us, node_id, job_id, fact_set_id, sku_id, state)
);

-- closer: the closing that holds the lease, 0 for none. current_closing_id: the sealed closing in force, 0 while open.
CREATE TABLE period (
    start_us BIGINT NOT NULL,
    end_us BIGINT NOT NULL,
    name TEXT NOT NULL,
    usage_version BIGINT NOT NULL,
    closer BIGINT NOT NULL,
    current_closing_id BIGINT NOT NULL,
    PRIMARY KEY (start_us),
    UNIQUE (name)
);

-- Cost of open months as last priced, with the versions it was made from.
CREATE TABLE open_cost (
    period_start_us BIGINT NOT NULL,
    pool_id INTEGER NOT NULL,
    day_start_us BIGINT NOT NULL,
    team_id INTEGER NOT NULL,
    sku_id INTEGER NOT NULL,
    service_class SMALLINT NOT NULL,
    kind SMALLINT NOT NULL,
    workload SMALLINT NOT NULL,
    experiment_id INTEGER NOT NULL,
    user_name TEXT NOT NULL,
    share_us BIGINT NOT NULL,
    estimated_us BIGINT NOT NULL,
    amount_micros BIGINT NOT NULL,
    priced SMALLINT NOT NULL,
    usage_version BIGINT NOT NULL,
    teams_version INTEGER NOT NULL,
    prices_version INTEGER NOT NULL,
    rules_version INTEGER NOT NULL,
    PRIMARY KEY (period_start_us, pool_id, day_start_us, team_id, sku_id, service_class, kind, workload, experiment_id, user_name)
);

-- A closing of a period. Sealed, it and all that hangs on it never change.
CREATE TABLE closing (
    id BIGINT NOT NULL,
    period_start_us BIGINT NOT NULL,
    version INTEGER NOT NULL,
    actor TEXT NOT NULL,
    started_at_us BIGINT NOT NULL,
    sealed_at_us BIGINT,
    usage_version BIGINT NOT NULL,
    teams_version INTEGER NOT NULL,
    prices_version INTEGER NOT NULL,
    rules_version INTEGER NOT NULL,
    charges BIGINT NOT NULL,
    exact_amount TEXT NOT NULL,
    charged_micros BIGINT NOT NULL,
    PRIMARY KEY (id),
    UNIQUE (period_start_us, version)
);

-- Numbered in the order of natural keys: team, slot, job, SKU, and so on.
CREATE TABLE charge (
    closing_id BIGINT NOT NULL,
    number BIGINT NOT NULL,
    kind SMALLINT NOT NULL,
    slot_start_us BIGINT NOT NULL,
    slot_end_us BIGINT NOT NULL,
    team_id INTEGER NOT NULL,
    job_id BIGINT NOT NULL,
    fact_set_id INTEGER NOT NULL,
    sku_id INTEGER NOT NULL,
    pool_id INTEGER NOT NULL,
    service_class SMALLINT NOT NULL,
    workload SMALLINT NOT NULL,
    experiment_id INTEGER NOT NULL,
    share_us BIGINT NOT NULL,
    active_us BIGINT NOT NULL,
    active_measured_us BIGINT NOT NULL,
    estimated_us BIGINT NOT NULL,
    suspended_us BIGINT NOT NULL,
    segments INTEGER NOT NULL,
    rate TEXT NOT NULL,
    weight_part INTEGER NOT NULL,
    weight_whole INTEGER NOT NULL,
    amount_micros BIGINT NOT NULL,
    corrects_closing_id BIGINT NOT NULL,
    corrects_number BIGINT NOT NULL,
    reason TEXT NOT NULL,
    PRIMARY KEY (closing_id, number)
);

-- Last statement number of a year; taken in the transaction that seals.
CREATE TABLE statement_counter (
    year INTEGER NOT NULL,
    last INTEGER NOT NULL,
    PRIMARY KEY (year)
);

-- Sums are exact; *_hundredths is what is printed. Fractions are numerator/denominator. compared_closing_id: the closing of the month before, as it was then; 0 for none.
CREATE TABLE statement (
    id BIGINT NOT NULL,
    closing_id BIGINT NOT NULL,
    team_id INTEGER NOT NULL,
    number TEXT NOT NULL,
    version INTEGER NOT NULL,
    period_start_us BIGINT NOT NULL,
    team_code TEXT NOT NULL,
    team_name TEXT NOT NULL,
    cost_centre TEXT NOT NULL,
    owner_name TEXT NOT NULL,
    first_charge BIGINT NOT NULL,
    last_charge BIGINT NOT NULL,
    jobs BIGINT NOT NULL,
    share_us BIGINT NOT NULL,
    gpu_us TEXT NOT NULL,
    estimated_us BIGINT NOT NULL,
    exact_amount TEXT NOT NULL,
    charged_micros BIGINT NOT NULL,
    amount_hundredths BIGINT NOT NULL,
    currency TEXT NOT NULL,
    credit_rate TEXT NOT NULL,
    currency_hundredths BIGINT NOT NULL,
    compared_closing_id BIGINT NOT NULL,
    PRIMARY KEY (id),
    UNIQUE (closing_id, team_id),
    UNIQUE (number, version)
);

CREATE TABLE statement_line (
    statement_id BIGINT NOT NULL,
    line INTEGER NOT NULL,
    kind SMALLINT NOT NULL,
    workload SMALLINT NOT NULL,
    sku_id INTEGER NOT NULL,
    sku_code TEXT NOT NULL,
    pool_name TEXT NOT NULL,
    service_class SMALLINT NOT NULL,
    rate TEXT NOT NULL,
    weight_part INTEGER NOT NULL,
    weight_whole INTEGER NOT NULL,
    jobs BIGINT NOT NULL,
    share_us BIGINT NOT NULL,
    gpu_us TEXT NOT NULL,
    estimated_us BIGINT NOT NULL,
    exact_amount TEXT NOT NULL,
    charged_micros BIGINT NOT NULL,
    amount_hundredths BIGINT NOT NULL,
    currency_hundredths BIGINT NOT NULL,
    PRIMARY KEY (statement_id, line)
);

-- Digest of a statement's charges of a billing day, in their order.
CREATE TABLE charge_digest (
    statement_id BIGINT NOT NULL,
    day_start_us BIGINT NOT NULL,
    charges BIGINT NOT NULL,
    sha256 BYTEA NOT NULL,
    PRIMARY KEY (statement_id, day_start_us)
);

-- side: 1 debit, 2 credit side is the usual one.
CREATE TABLE ledger_account (
    id INTEGER NOT NULL,
    code TEXT NOT NULL,
    name TEXT NOT NULL,
    side SMALLINT NOT NULL,
    PRIMARY KEY (id),
    UNIQUE (code)
);

-- Posted double entries, each hashed with the one before.
CREATE TABLE entry (
    sequence BIGINT NOT NULL,
    statement_id BIGINT NOT NULL,
    pool_id INTEGER NOT NULL,
    kind SMALLINT NOT NULL,
    posted_at_us BIGINT NOT NULL,
    reverses_sequence BIGINT NOT NULL,
    reason TEXT NOT NULL,
    previous_sha256 BYTEA NOT NULL,
    sha256 BYTEA NOT NULL,
    PRIMARY KEY (sequence)
);

CREATE TABLE entry_line (
    sequence BIGINT NOT NULL,
    line SMALLINT NOT NULL,
    account_id INTEGER NOT NULL,
    debit_micros BIGINT NOT NULL,
    credit_micros BIGINT NOT NULL,
    currency TEXT NOT NULL,
    debit_hundredths BIGINT NOT NULL,
    credit_hundredths BIGINT NOT NULL,
    PRIMARY KEY (sequence, line)
);

-- Row 0 of each dimension is "none", so that no key is ever null.
INSERT INTO cluster (id, name) VALUES (0, '');
INSERT INTO pool (id, name) VALUES (0, '');
INSERT INTO node (id, cluster_id, name, kind) VALUES (0, 0, '', 0);
INSERT INTO gpu (id, uuid, model) VALUES (0, '', '');
INSERT INTO unit (id, gpu_id, uuid, birth_us, sku_id) VALUES (0, 0, '', 0, 0);
INSERT INTO fact_set (id, sha256, body) VALUES (0, '', '{}');
INSERT INTO job (id, cluster_id, source_id, start_us) VALUES (0, 0, '', 0);
INSERT INTO team (id, code) VALUES (0, 'unassigned');
INSERT INTO experiment (id, team_id, name) VALUES (0, 0, '');

-- Frozen means frozen: see README.md beside this folder.

CREATE FUNCTION refuse_frozen() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    RAISE EXCEPTION '% is frozen or append-only', TG_TABLE_NAME USING ERRCODE = 'integrity_constraint_violation';
END $$;

CREATE FUNCTION refuse_if_closing_sealed() RETURNS trigger LANGUAGE plpgsql AS $$
DECLARE
    sealed boolean;
BEGIN
    -- Locked, so that a seal waits for this transaction and this one for a seal.
    SELECT sealed_at_us IS NOT NULL FROM closing WHERE id = OLD.closing_id FOR SHARE INTO sealed;
    IF TG_OP = 'UPDATE' AND sealed IS NOT TRUE THEN
        SELECT sealed_at_us IS NOT NULL FROM closing WHERE id = NEW.closing_id FOR SHARE INTO sealed;
    END IF;
    IF sealed THEN
        RAISE EXCEPTION '% of a sealed closing is frozen', TG_TABLE_NAME USING ERRCODE = 'integrity_constraint_violation';
    END IF;
    RETURN CASE TG_OP WHEN 'DELETE' THEN OLD ELSE NEW END;
END $$;

CREATE FUNCTION refuse_rows_of_sealed_closing() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    PERFORM 1 FROM closing WHERE id IN (SELECT closing_id FROM inserted) FOR SHARE;
    IF EXISTS (SELECT 1 FROM (SELECT DISTINCT closing_id FROM inserted) AS i
               LEFT JOIN closing AS c ON c.id = i.closing_id WHERE c.id IS NULL OR c.sealed_at_us IS NOT NULL) THEN
        RAISE EXCEPTION '% of a sealed closing, or of none, is frozen', TG_TABLE_NAME USING ERRCODE = 'integrity_constraint_violation';
    END IF;
    RETURN NULL;
END $$;

CREATE FUNCTION refuse_if_statement_sealed() RETURNS trigger LANGUAGE plpgsql AS $$
DECLARE
    sealed boolean := false;
BEGIN
    IF TG_OP <> 'INSERT' THEN
        SELECT EXISTS (SELECT 1 FROM statement AS s JOIN closing AS c ON c.id = s.closing_id
                       WHERE s.id = OLD.statement_id AND c.sealed_at_us IS NOT NULL) INTO sealed;
    END IF;
    IF TG_OP <> 'DELETE' AND NOT sealed THEN
        SELECT c.sealed_at_us IS NOT NULL FROM statement AS s JOIN closing AS c ON c.id = s.closing_id
        WHERE s.id = NEW.statement_id FOR SHARE OF c INTO sealed;
        -- A line of no statement would be in the one that gets its number.
        sealed := coalesce(sealed, true);
    END IF;
    IF sealed THEN
        RAISE EXCEPTION '% of a sealed closing is frozen', TG_TABLE_NAME USING ERRCODE = 'integrity_constraint_violation';
    END IF;
    RETURN CASE TG_OP WHEN 'DELETE' THEN OLD ELSE NEW END;
END $$;

CREATE FUNCTION refuse_if_charged() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF EXISTS (SELECT 1 FROM charge WHERE job_id = OLD.id) THEN
        RAISE EXCEPTION 'a job that a charge names is kept' USING ERRCODE = 'integrity_constraint_violation';
    END IF;
    RETURN OLD;
END $$;

CREATE FUNCTION refuse_if_period_closed() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF OLD.current_closing_id <> 0 AND (TG_OP = 'DELETE' OR NEW.current_closing_id <> OLD.current_closing_id
        OR NEW.start_us <> OLD.start_us OR NEW.end_us <> OLD.end_us OR NEW.name <> OLD.name) THEN
        RAISE EXCEPTION 'a closed period is frozen' USING ERRCODE = 'integrity_constraint_violation';
    END IF;
    RETURN CASE TG_OP WHEN 'DELETE' THEN OLD ELSE NEW END;
END $$;

CREATE FUNCTION refuse_if_sealed() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF OLD.sealed_at_us IS NOT NULL THEN
        RAISE EXCEPTION 'a sealed closing is frozen' USING ERRCODE = 'integrity_constraint_violation';
    END IF;
    RETURN CASE TG_OP WHEN 'DELETE' THEN OLD ELSE NEW END;
END $$;

-- Makes the month of segments that holds an hour, unless it is there; gives the hours it begins and ends at. Runs
-- with the rights of the schema's owner, so that the service's role need own nothing.
CREATE FUNCTION make_segment_month(an_hour bigint, OUT first_hour bigint, OUT end_hour bigint)
LANGUAGE plpgsql SECURITY DEFINER SET search_path FROM CURRENT AS $$
DECLARE
    first_day timestamp := date_trunc('month', to_timestamp(an_hour * 3600) AT TIME ZONE 'UTC');
    month_name text := 'segment_' || to_char(first_day, 'YYYY_MM');
BEGIN
    first_hour := extract(epoch FROM first_day AT TIME ZONE 'UTC')::bigint / 3600;
    end_hour := extract(epoch FROM (first_day + interval '1 month') AT TIME ZONE 'UTC')::bigint / 3600;
    IF to_regclass(format('%I.%I', current_schema(), month_name)) IS NULL THEN
        PERFORM pg_advisory_xact_lock(hashtext('make_segment_month'));
        IF to_regclass(format('%I.%I', current_schema(), month_name)) IS NULL THEN
            EXECUTE format('CREATE TABLE %I (LIKE segment, CHECK (hour >= %s AND hour < %s))', month_name, first_hour, end_hour);
            EXECUTE format('ALTER TABLE segment ATTACH PARTITION %I FOR VALUES FROM (%s) TO (%s)', month_name, first_hour, end_hour);
        END IF;
    END IF;
END $$;
REVOKE ALL ON FUNCTION make_segment_month(bigint) FROM PUBLIC;

CREATE TRIGGER charge_frozen BEFORE UPDATE OR DELETE ON charge FOR EACH ROW EXECUTE FUNCTION refuse_if_closing_sealed();
CREATE TRIGGER charge_insert_frozen AFTER INSERT ON charge REFERENCING NEW TABLE AS inserted
    FOR EACH STATEMENT EXECUTE FUNCTION refuse_rows_of_sealed_closing();
CREATE TRIGGER statement_frozen BEFORE UPDATE OR DELETE ON statement FOR EACH ROW EXECUTE FUNCTION refuse_if_closing_sealed();
CREATE TRIGGER statement_insert_frozen AFTER INSERT ON statement REFERENCING NEW TABLE AS inserted
    FOR EACH STATEMENT EXECUTE FUNCTION refuse_rows_of_sealed_closing();
CREATE TRIGGER statement_line_frozen BEFORE INSERT OR UPDATE OR DELETE ON statement_line FOR EACH ROW EXECUTE FUNCTION refuse_if_statement_sealed();
CREATE TRIGGER charge_digest_frozen BEFORE UPDATE OR DELETE ON charge_digest FOR EACH ROW EXECUTE FUNCTION refuse_if_statement_sealed();
CREATE TRIGGER closing_frozen BEFORE UPDATE OR DELETE ON closing FOR EACH ROW EXECUTE FUNCTION refuse_if_sealed();
CREATE TRIGGER catalogue_version_append BEFORE UPDATE OR DELETE ON catalogue_version FOR EACH ROW EXECUTE FUNCTION refuse_frozen();
CREATE TRIGGER audit_log_append BEFORE UPDATE OR DELETE ON audit_log FOR EACH ROW EXECUTE FUNCTION refuse_frozen();
CREATE TRIGGER entry_append BEFORE UPDATE OR DELETE ON entry FOR EACH ROW EXECUTE FUNCTION refuse_frozen();
CREATE TRIGGER entry_line_append BEFORE UPDATE OR DELETE ON entry_line FOR EACH ROW EXECUTE FUNCTION refuse_frozen();
CREATE TRIGGER period_frozen BEFORE UPDATE OR DELETE ON period FOR EACH ROW EXECUTE FUNCTION refuse_if_period_closed();
-- Words that statements print are never changed.
CREATE TRIGGER cluster_once BEFORE UPDATE OR DELETE ON cluster FOR EACH ROW EXECUTE FUNCTION refuse_frozen();
CREATE TRIGGER pool_once BEFORE UPDATE OR DELETE ON pool FOR EACH ROW EXECUTE FUNCTION refuse_frozen();
CREATE TRIGGER team_once BEFORE UPDATE OR DELETE ON team FOR EACH ROW EXECUTE FUNCTION refuse_frozen();
CREATE TRIGGER experiment_once BEFORE UPDATE OR DELETE ON experiment FOR EACH ROW EXECUTE FUNCTION refuse_frozen();
CREATE TRIGGER sku_once BEFORE UPDATE OR DELETE ON sku FOR EACH ROW EXECUTE FUNCTION refuse_frozen();
CREATE TRIGGER fact_set_once BEFORE UPDATE OR DELETE ON fact_set FOR EACH ROW EXECUTE FUNCTION refuse_frozen();
CREATE TRIGGER node_once BEFORE UPDATE OR DELETE ON node FOR EACH ROW EXECUTE FUNCTION refuse_frozen();
CREATE TRIGGER job_kept BEFORE DELETE ON job FOR EACH ROW EXECUTE FUNCTION refuse_if_charged();
CREATE TRIGGER job_once BEFORE UPDATE ON job FOR EACH ROW EXECUTE FUNCTION refuse_frozen();
CREATE TRIGGER period_truncate BEFORE TRUNCATE ON period FOR EACH STATEMENT EXECUTE FUNCTION refuse_frozen();
CREATE TRIGGER closing_truncate BEFORE TRUNCATE ON closing FOR EACH STATEMENT EXECUTE FUNCTION refuse_frozen();
CREATE TRIGGER charge_truncate BEFORE TRUNCATE ON charge FOR EACH STATEMENT EXECUTE FUNCTION refuse_frozen();
CREATE TRIGGER statement_truncate BEFORE TRUNCATE ON statement FOR EACH STATEMENT EXECUTE FUNCTION refuse_frozen();
CREATE TRIGGER statement_line_truncate BEFORE TRUNCATE ON statement_line FOR EACH STATEMENT EXECUTE FUNCTION refuse_frozen();
CREATE TRIGGER charge_digest_truncate BEFORE TRUNCATE ON charge_digest FOR EACH STATEMENT EXECUTE FUNCTION refuse_frozen();
CREATE TRIGGER catalogue_version_truncate BEFORE TRUNCATE ON catalogue_version FOR EACH STATEMENT EXECUTE FUNCTION refuse_frozen();
CREATE TRIGGER audit_log_truncate BEFORE TRUNCATE ON audit_log FOR EACH STATEMENT EXECUTE FUNCTION refuse_frozen();
CREATE TRIGGER entry_truncate BEFORE TRUNCATE ON entry FOR EACH STATEMENT EXECUTE FUNCTION refuse_frozen();
CREATE TRIGGER entry_line_truncate BEFORE TRUNCATE ON entry_line FOR EACH STATEMENT EXECUTE FUNCTION refuse_frozen();

-- Functions look in this schema and nowhere before it: a temporary table of the same name must not stand in for a real one.
DO $$ DECLARE
    function_name text;
BEGIN
    FOREACH function_name IN ARRAY ARRAY['refuse_frozen()','refuse_if_closing_sealed()','refuse_rows_of_sealed_closing()','refuse_if_statement_sealed()','refuse_if_charged()','refuse_if_period_closed()','refuse_if_sealed()','make_segment_month(bigint)'] LOOP
        EXECUTE format('ALTER FUNCTION %s SET search_path = %I, pg_temp', function_name, current_schema());
    END LOOP;
END $$;
