-- The time zone of billing days and months, from an instant on.
CREATE TABLE billing_zone (
    from_us INTEGER NOT NULL,
    zone TEXT NOT NULL,
    PRIMARY KEY (from_us)
) STRICT;

-- Next number for each kind of row that is numbered here; taken in the transaction that uses it.
CREATE TABLE id_counter (
    name TEXT NOT NULL,
    next INTEGER NOT NULL,
    PRIMARY KEY (name)
) STRICT, WITHOUT ROWID;

-- Dimensions: natural keys are unique, facts carry the numbers. Row 0 is "none".
CREATE TABLE cluster (
    id INTEGER NOT NULL,
    name TEXT NOT NULL,
    PRIMARY KEY (id),
    UNIQUE (name)
) STRICT;

CREATE TABLE pool (
    id INTEGER NOT NULL,
    name TEXT NOT NULL,
    PRIMARY KEY (id),
    UNIQUE (name)
) STRICT;

-- kind: 0 none, 1 machine, 2 stand-in for a pool whose jobs name no node.
CREATE TABLE node (
    id INTEGER NOT NULL,
    cluster_id INTEGER NOT NULL,
    name TEXT NOT NULL,
    kind INTEGER NOT NULL,
    PRIMARY KEY (id),
    UNIQUE (cluster_id, name)
) STRICT;

CREATE TABLE pool_membership (
    node_id INTEGER NOT NULL,
    from_us INTEGER NOT NULL,
    pool_id INTEGER NOT NULL,
    PRIMARY KEY (node_id, from_us)
) STRICT, WITHOUT ROWID;

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
) STRICT;

CREATE TABLE gpu (
    id INTEGER NOT NULL,
    uuid TEXT NOT NULL,
    model TEXT NOT NULL,
    PRIMARY KEY (id),
    UNIQUE (uuid)
) STRICT;

CREATE TABLE unit (
    id INTEGER NOT NULL,
    gpu_id INTEGER NOT NULL,
    uuid TEXT NOT NULL,
    birth_us INTEGER NOT NULL,
    sku_id INTEGER NOT NULL,
    PRIMARY KEY (id),
    UNIQUE (gpu_id, uuid, birth_us)
) STRICT;

-- The facts of a job that rules look at, as canonical JSON.
CREATE TABLE fact_set (
    id INTEGER NOT NULL,
    sha256 BLOB NOT NULL,
    body TEXT NOT NULL,
    PRIMARY KEY (id),
    UNIQUE (sha256)
) STRICT;

-- One attempt of a job: what its source calls the job, and when the attempt began.
CREATE TABLE job (
    id INTEGER NOT NULL,
    cluster_id INTEGER NOT NULL,
    source_id TEXT NOT NULL,
    start_us INTEGER NOT NULL,
    PRIMARY KEY (id),
    UNIQUE (cluster_id, source_id, start_us)
) STRICT;

CREATE TABLE team (
    id INTEGER NOT NULL,
    code TEXT NOT NULL,
    PRIMARY KEY (id),
    UNIQUE (code)
) STRICT;

CREATE TABLE experiment (
    id INTEGER NOT NULL,
    team_id INTEGER NOT NULL,
    name TEXT NOT NULL,
    PRIMARY KEY (id),
    UNIQUE (team_id, name)
) STRICT;

-- Teams, prices and rules as they were applied; kind: 1 teams, 2 prices, 3 rules. Never changed.
CREATE TABLE catalogue_version (
    kind INTEGER NOT NULL,
    version INTEGER NOT NULL,
    sha256 BLOB NOT NULL,
    applied_at_us INTEGER NOT NULL,
    applied_by TEXT NOT NULL,
    body TEXT NOT NULL,
    PRIMARY KEY (kind, version)
) STRICT, WITHOUT ROWID;

-- Who changed what. Append only.
CREATE TABLE audit_log (
    id INTEGER NOT NULL,
    at_us INTEGER NOT NULL,
    actor TEXT NOT NULL,
    action TEXT NOT NULL,
    object TEXT NOT NULL,
    before TEXT NOT NULL,
    after TEXT NOT NULL,
    PRIMARY KEY (id)
) STRICT;

-- One row for each import that was begun.
CREATE TABLE import (
    id INTEGER NOT NULL,
    file_name TEXT NOT NULL,
    actor TEXT NOT NULL,
    started_at_us INTEGER NOT NULL,
    finished_at_us INTEGER,
    lines INTEGER NOT NULL,
    added INTEGER NOT NULL,
    known INTEGER NOT NULL,
    revised INTEGER NOT NULL,
    without_gpu_time INTEGER NOT NULL,
    running INTEGER NOT NULL,
    refused INTEGER NOT NULL,
    PRIMARY KEY (id)
) STRICT;

-- How jobs are told apart in a cluster (by id, or by these columns), and the zone of its times: set by its first import.
CREATE TABLE row_identity (
    cluster_id INTEGER NOT NULL,
    column_names TEXT NOT NULL,
    zone TEXT NOT NULL,
    PRIMARY KEY (cluster_id)
) STRICT;

-- What a scheduler's books say of an attempt, each telling a revision. Placements: NODE=COUNT, by comma. provisional: 1 where it still ran and the end is when the list was written.
CREATE TABLE allocation (
    job_id INTEGER NOT NULL,
    revision INTEGER NOT NULL,
    node_id INTEGER NOT NULL,
    sku_id INTEGER NOT NULL,
    fact_set_id INTEGER NOT NULL,
    start_us INTEGER NOT NULL,
    end_us INTEGER NOT NULL,
    submit_us INTEGER,
    placements TEXT NOT NULL,
    end_state TEXT NOT NULL,
    provisional INTEGER NOT NULL,
    sha256 BLOB NOT NULL,
    import_id INTEGER NOT NULL,
    PRIMARY KEY (job_id, revision)
) STRICT, WITHOUT ROWID;

-- The unit of record. Insert only; segments of an older revision of an allocation go when a newer comes.
CREATE TABLE segment (
    hour INTEGER NOT NULL,
    node_id INTEGER NOT NULL,
    epoch INTEGER NOT NULL,
    number INTEGER NOT NULL,
    on_node_id INTEGER NOT NULL,
    unit_id INTEGER NOT NULL,
    sku_id INTEGER NOT NULL,
    job_id INTEGER NOT NULL,
    fact_set_id INTEGER NOT NULL,
    state INTEGER NOT NULL,
    source INTEGER NOT NULL,
    start_us INTEGER NOT NULL,
    end_us INTEGER NOT NULL,
    count INTEGER NOT NULL,
    share_us INTEGER NOT NULL,
    active_us INTEGER,
    estimated_us INTEGER NOT NULL,
    suspended_us INTEGER NOT NULL,
    PRIMARY KEY (hour, node_id, epoch, number)
) STRICT, WITHOUT ROWID;

-- Billing days of nodes whose usage must be summed again.
CREATE TABLE roll_up_mark (
    node_id INTEGER NOT NULL,
    day_start_us INTEGER NOT NULL,
    touches INTEGER NOT NULL,
    PRIMARY KEY (node_id, day_start_us)
) STRICT, WITHOUT ROWID;

-- GPU-time by slot: no price, rule, team or pool changes within one.
CREATE TABLE usage (
    slot_start_us INTEGER NOT NULL,
    node_id INTEGER NOT NULL,
    job_id INTEGER NOT NULL,
    fact_set_id INTEGER NOT NULL,
    sku_id INTEGER NOT NULL,
    state INTEGER NOT NULL,
    slot_end_us INTEGER NOT NULL,
    share_us INTEGER NOT NULL,
    active_us INTEGER NOT NULL,
    active_measured_us INTEGER NOT NULL,
    estimated_us INTEGER NOT NULL,
    suspended_us INTEGER NOT NULL,
    segments INTEGER NOT NULL,
    PRIMARY KEY (slot_start_us, node_id, job_id, fact_set_id, sku_id, state)
) STRICT, WITHOUT ROWID;

-- closer: the closing that holds the lease, 0 for none. current_closing_id: the sealed closing in force, 0 while open.
CREATE TABLE period (
    start_us INTEGER NOT NULL,
    end_us INTEGER NOT NULL,
    name TEXT NOT NULL,
    usage_version INTEGER NOT NULL,
    closer INTEGER NOT NULL,
    current_closing_id INTEGER NOT NULL,
    PRIMARY KEY (start_us),
    UNIQUE (name)
) STRICT;

-- Cost of open months as last priced, with the versions it was made from.
CREATE TABLE open_cost (
    period_start_us INTEGER NOT NULL,
    pool_id INTEGER NOT NULL,
    day_start_us INTEGER NOT NULL,
    team_id INTEGER NOT NULL,
    sku_id INTEGER NOT NULL,
    service_class INTEGER NOT NULL,
    kind INTEGER NOT NULL,
    workload INTEGER NOT NULL,
    experiment_id INTEGER NOT NULL,
    user_name TEXT NOT NULL,
    share_us INTEGER NOT NULL,
    estimated_us INTEGER NOT NULL,
    amount_micros INTEGER NOT NULL,
    priced INTEGER NOT NULL,
    usage_version INTEGER NOT NULL,
    teams_version INTEGER NOT NULL,
    prices_version INTEGER NOT NULL,
    rules_version INTEGER NOT NULL,
    PRIMARY KEY (period_start_us, pool_id, day_start_us, team_id, sku_id, service_class, kind, workload, experiment_id, user_name)
) STRICT, WITHOUT ROWID;

-- A closing of a period. Sealed, it and all that hangs on it never change.
CREATE TABLE closing (
    id INTEGER NOT NULL,
    period_start_us INTEGER NOT NULL,
    version INTEGER NOT NULL,
    actor TEXT NOT NULL,
    started_at_us INTEGER NOT NULL,
    sealed_at_us INTEGER,
    usage_version INTEGER NOT NULL,
    teams_version INTEGER NOT NULL,
    prices_version INTEGER NOT NULL,
    rules_version INTEGER NOT NULL,
    charges INTEGER NOT NULL,
    exact_amount TEXT NOT NULL,
    charged_micros INTEGER NOT NULL,
    PRIMARY KEY (id),
    UNIQUE (period_start_us, version)
) STRICT;

-- Numbered in the order of natural keys: team, slot, job, SKU, and so on.
CREATE TABLE charge (
    closing_id INTEGER NOT NULL,
    number INTEGER NOT NULL,
    kind INTEGER NOT NULL,
    slot_start_us INTEGER NOT NULL,
    slot_end_us INTEGER NOT NULL,
    team_id INTEGER NOT NULL,
    job_id INTEGER NOT NULL,
    fact_set_id INTEGER NOT NULL,
    sku_id INTEGER NOT NULL,
    pool_id INTEGER NOT NULL,
    service_class INTEGER NOT NULL,
    workload INTEGER NOT NULL,
    experiment_id INTEGER NOT NULL,
    share_us INTEGER NOT NULL,
    active_us INTEGER NOT NULL,
    active_measured_us INTEGER NOT NULL,
    estimated_us INTEGER NOT NULL,
    suspended_us INTEGER NOT NULL,
    segments INTEGER NOT NULL,
    rate TEXT NOT NULL,
    weight_part INTEGER NOT NULL,
    weight_whole INTEGER NOT NULL,
    amount_micros INTEGER NOT NULL,
    corrects_closing_id INTEGER NOT NULL,
    corrects_number INTEGER NOT NULL,
    reason TEXT NOT NULL,
    PRIMARY KEY (closing_id, number)
) STRICT, WITHOUT ROWID;

-- Last statement number of a year; taken in the transaction that seals.
CREATE TABLE statement_counter (
    year INTEGER NOT NULL,
    last INTEGER NOT NULL,
    PRIMARY KEY (year)
) STRICT;

-- Sums are exact; *_hundredths is what is printed. Fractions are numerator/denominator. compared_closing_id: the closing of the month before, as it was then; 0 for none.
CREATE TABLE statement (
    id INTEGER NOT NULL,
    closing_id INTEGER NOT NULL,
    team_id INTEGER NOT NULL,
    number TEXT NOT NULL,
    version INTEGER NOT NULL,
    period_start_us INTEGER NOT NULL,
    team_code TEXT NOT NULL,
    team_name TEXT NOT NULL,
    cost_centre TEXT NOT NULL,
    owner_name TEXT NOT NULL,
    first_charge INTEGER NOT NULL,
    last_charge INTEGER NOT NULL,
    jobs INTEGER NOT NULL,
    share_us INTEGER NOT NULL,
    gpu_us TEXT NOT NULL,
    estimated_us INTEGER NOT NULL,
    exact_amount TEXT NOT NULL,
    charged_micros INTEGER NOT NULL,
    amount_hundredths INTEGER NOT NULL,
    currency TEXT NOT NULL,
    credit_rate TEXT NOT NULL,
    currency_hundredths INTEGER NOT NULL,
    compared_closing_id INTEGER NOT NULL,
    PRIMARY KEY (id),
    UNIQUE (closing_id, team_id),
    UNIQUE (number, version)
) STRICT;

CREATE TABLE statement_line (
    statement_id INTEGER NOT NULL,
    line INTEGER NOT NULL,
    kind INTEGER NOT NULL,
    workload INTEGER NOT NULL,
    sku_id INTEGER NOT NULL,
    sku_code TEXT NOT NULL,
    pool_name TEXT NOT NULL,
    service_class INTEGER NOT NULL,
    rate TEXT NOT NULL,
    weight_part INTEGER NOT NULL,
    weight_whole INTEGER NOT NULL,
    jobs INTEGER NOT NULL,
    share_us INTEGER NOT NULL,
    gpu_us TEXT NOT NULL,
    estimated_us INTEGER NOT NULL,
    exact_amount TEXT NOT NULL,
    charged_micros INTEGER NOT NULL,
    amount_hundredths INTEGER NOT NULL,
    currency_hundredths INTEGER NOT NULL,
    PRIMARY KEY (statement_id, line)
) STRICT, WITHOUT ROWID;

-- Digest of a statement's charges of a billing day, in their order.
CREATE TABLE charge_digest (
    statement_id INTEGER NOT NULL,
    day_start_us INTEGER NOT NULL,
    charges INTEGER NOT NULL,
    sha256 BLOB NOT NULL,
    PRIMARY KEY (statement_id, day_start_us)
) STRICT, WITHOUT ROWID;

-- side: 1 debit, 2 credit side is the usual one.
CREATE TABLE ledger_account (
    id INTEGER NOT NULL,
    code TEXT NOT NULL,
    name TEXT NOT NULL,
    side INTEGER NOT NULL,
    PRIMARY KEY (id),
    UNIQUE (code)
) STRICT;

-- Posted double entries, each hashed with the one before.
CREATE TABLE entry (
    sequence INTEGER NOT NULL,
    statement_id INTEGER NOT NULL,
    pool_id INTEGER NOT NULL,
    kind INTEGER NOT NULL,
    posted_at_us INTEGER NOT NULL,
    reverses_sequence INTEGER NOT NULL,
    reason TEXT NOT NULL,
    previous_sha256 BLOB NOT NULL,
    sha256 BLOB NOT NULL,
    PRIMARY KEY (sequence)
) STRICT;

CREATE TABLE entry_line (
    sequence INTEGER NOT NULL,
    line INTEGER NOT NULL,
    account_id INTEGER NOT NULL,
    debit_micros INTEGER NOT NULL,
    credit_micros INTEGER NOT NULL,
    currency TEXT NOT NULL,
    debit_hundredths INTEGER NOT NULL,
    credit_hundredths INTEGER NOT NULL,
    PRIMARY KEY (sequence, line)
) STRICT, WITHOUT ROWID;

-- Row 0 of each dimension is "none", so that no key is ever null.
INSERT INTO cluster (id, name) VALUES (0, '');
INSERT INTO pool (id, name) VALUES (0, '');
INSERT INTO node (id, cluster_id, name, kind) VALUES (0, 0, '', 0);
INSERT INTO gpu (id, uuid, model) VALUES (0, '', '');
INSERT INTO unit (id, gpu_id, uuid, birth_us, sku_id) VALUES (0, 0, '', 0, 0);
INSERT INTO fact_set (id, sha256, body) VALUES (0, X'', '{}');
INSERT INTO job (id, cluster_id, source_id, start_us) VALUES (0, 0, '', 0);
INSERT INTO team (id, code) VALUES (0, 'unassigned');
INSERT INTO experiment (id, team_id, name) VALUES (0, 0, '');

-- Frozen means frozen: see README.md beside this folder.

CREATE TRIGGER charge_insert_frozen BEFORE INSERT ON charge
WHEN NOT EXISTS (SELECT 1 FROM closing WHERE id = NEW.closing_id AND sealed_at_us IS NULL)
BEGIN SELECT RAISE(ABORT, 'charge of a sealed closing is frozen'); END;

CREATE TRIGGER charge_update_frozen BEFORE UPDATE ON charge
WHEN EXISTS (SELECT 1 FROM closing WHERE id = OLD.closing_id AND sealed_at_us IS NOT NULL) OR EXISTS (SELECT 1 FROM closing WHERE id = NEW.closing_id AND sealed_at_us IS NOT NULL)
BEGIN SELECT RAISE(ABORT, 'charge of a sealed closing is frozen'); END;

CREATE TRIGGER charge_delete_frozen BEFORE DELETE ON charge
WHEN EXISTS (SELECT 1 FROM closing WHERE id = OLD.closing_id AND sealed_at_us IS NOT NULL)
BEGIN SELECT RAISE(ABORT, 'charge of a sealed closing is frozen'); END;

CREATE TRIGGER statement_insert_frozen BEFORE INSERT ON statement
WHEN NOT EXISTS (SELECT 1 FROM closing WHERE id = NEW.closing_id AND sealed_at_us IS NULL)
BEGIN SELECT RAISE(ABORT, 'statement of a sealed closing is frozen'); END;

CREATE TRIGGER statement_update_frozen BEFORE UPDATE ON statement
WHEN EXISTS (SELECT 1 FROM closing WHERE id = OLD.closing_id AND sealed_at_us IS NOT NULL) OR EXISTS (SELECT 1 FROM closing WHERE id = NEW.closing_id AND sealed_at_us IS NOT NULL)
BEGIN SELECT RAISE(ABORT, 'statement of a sealed closing is frozen'); END;

CREATE TRIGGER statement_delete_frozen BEFORE DELETE ON statement
WHEN EXISTS (SELECT 1 FROM closing WHERE id = OLD.closing_id AND sealed_at_us IS NOT NULL)
BEGIN SELECT RAISE(ABORT, 'statement of a sealed closing is frozen'); END;

CREATE TRIGGER period_insert_frozen BEFORE INSERT ON period
WHEN EXISTS (SELECT 1 FROM period AS p WHERE p.current_closing_id <> 0
    AND (p.start_us = NEW.start_us OR p.name = NEW.name)
    AND (p.start_us <> NEW.start_us OR p.end_us <> NEW.end_us OR p.name <> NEW.name OR NEW.current_closing_id <> 0 OR NEW.usage_version <> 0))
BEGIN SELECT RAISE(ABORT, 'a closed period is frozen'); END;

CREATE TRIGGER period_update_frozen BEFORE UPDATE ON period
WHEN (OLD.current_closing_id <> 0 AND (NEW.current_closing_id <> OLD.current_closing_id OR NEW.start_us <> OLD.start_us
    OR NEW.end_us <> OLD.end_us OR NEW.name <> OLD.name))
    OR EXISTS (SELECT 1 FROM period AS p WHERE p.current_closing_id <> 0 AND p.start_us <> OLD.start_us
    AND (p.start_us = NEW.start_us OR p.name = NEW.name))
BEGIN SELECT RAISE(ABORT, 'a closed period is frozen'); END;

CREATE TRIGGER period_delete_frozen BEFORE DELETE ON period
WHEN OLD.current_closing_id <> 0
BEGIN SELECT RAISE(ABORT, 'a closed period is frozen'); END;

-- Words that statements print are never changed; what would replace one is left out.

CREATE TRIGGER cluster_insert_once BEFORE INSERT ON cluster
WHEN EXISTS (SELECT 1 FROM cluster AS x WHERE x.id = NEW.id OR (x.name = NEW.name))
BEGIN SELECT RAISE(IGNORE); END;

CREATE TRIGGER pool_insert_once BEFORE INSERT ON pool
WHEN EXISTS (SELECT 1 FROM pool AS x WHERE x.id = NEW.id OR (x.name = NEW.name))
BEGIN SELECT RAISE(IGNORE); END;

CREATE TRIGGER team_insert_once BEFORE INSERT ON team
WHEN EXISTS (SELECT 1 FROM team AS x WHERE x.id = NEW.id OR (x.code = NEW.code))
BEGIN SELECT RAISE(IGNORE); END;

CREATE TRIGGER experiment_insert_once BEFORE INSERT ON experiment
WHEN EXISTS (SELECT 1 FROM experiment AS x WHERE x.id = NEW.id OR (x.team_id = NEW.team_id AND x.name = NEW.name))
BEGIN SELECT RAISE(IGNORE); END;

CREATE TRIGGER sku_insert_once BEFORE INSERT ON sku
WHEN EXISTS (SELECT 1 FROM sku AS x WHERE x.id = NEW.id OR (x.code = NEW.code AND x.compute_slices = NEW.compute_slices AND x.gpu_compute_slices = NEW.gpu_compute_slices
    AND x.memory_slices = NEW.memory_slices AND x.gpu_memory_slices = NEW.gpu_memory_slices AND x.larger_part = NEW.larger_part
    AND x.larger_whole = NEW.larger_whole))
BEGIN SELECT RAISE(IGNORE); END;

CREATE TRIGGER fact_set_insert_once BEFORE INSERT ON fact_set
WHEN EXISTS (SELECT 1 FROM fact_set AS x WHERE x.id = NEW.id OR (x.sha256 = NEW.sha256))
BEGIN SELECT RAISE(IGNORE); END;

CREATE TRIGGER node_insert_once BEFORE INSERT ON node
WHEN EXISTS (SELECT 1 FROM node AS x WHERE x.id = NEW.id OR (x.cluster_id = NEW.cluster_id AND x.name = NEW.name))
BEGIN SELECT RAISE(IGNORE); END;

CREATE TRIGGER cluster_update_once BEFORE UPDATE ON cluster
WHEN 1
BEGIN SELECT RAISE(ABORT, 'cluster is append-only'); END;

CREATE TRIGGER pool_update_once BEFORE UPDATE ON pool
WHEN 1
BEGIN SELECT RAISE(ABORT, 'pool is append-only'); END;

CREATE TRIGGER team_update_once BEFORE UPDATE ON team
WHEN 1
BEGIN SELECT RAISE(ABORT, 'team is append-only'); END;

CREATE TRIGGER experiment_update_once BEFORE UPDATE ON experiment
WHEN 1
BEGIN SELECT RAISE(ABORT, 'experiment is append-only'); END;

CREATE TRIGGER sku_update_once BEFORE UPDATE ON sku
WHEN 1
BEGIN SELECT RAISE(ABORT, 'sku is append-only'); END;

CREATE TRIGGER fact_set_update_once BEFORE UPDATE ON fact_set
WHEN 1
BEGIN SELECT RAISE(ABORT, 'fact_set is append-only'); END;

CREATE TRIGGER job_update_once BEFORE UPDATE ON job
WHEN 1
BEGIN SELECT RAISE(ABORT, 'job is append-only'); END;

CREATE TRIGGER node_update_once BEFORE UPDATE ON node
WHEN 1
BEGIN SELECT RAISE(ABORT, 'node is append-only'); END;

CREATE TRIGGER cluster_delete_once BEFORE DELETE ON cluster
WHEN 1
BEGIN SELECT RAISE(ABORT, 'cluster is append-only'); END;

CREATE TRIGGER pool_delete_once BEFORE DELETE ON pool
WHEN 1
BEGIN SELECT RAISE(ABORT, 'pool is append-only'); END;

CREATE TRIGGER team_delete_once BEFORE DELETE ON team
WHEN 1
BEGIN SELECT RAISE(ABORT, 'team is append-only'); END;

CREATE TRIGGER experiment_delete_once BEFORE DELETE ON experiment
WHEN 1
BEGIN SELECT RAISE(ABORT, 'experiment is append-only'); END;

CREATE TRIGGER sku_delete_once BEFORE DELETE ON sku
WHEN 1
BEGIN SELECT RAISE(ABORT, 'sku is append-only'); END;

CREATE TRIGGER fact_set_delete_once BEFORE DELETE ON fact_set
WHEN 1
BEGIN SELECT RAISE(ABORT, 'fact_set is append-only'); END;

CREATE TRIGGER node_delete_once BEFORE DELETE ON node
WHEN 1
BEGIN SELECT RAISE(ABORT, 'node is append-only'); END;

CREATE TRIGGER job_delete_once BEFORE DELETE ON job
WHEN EXISTS (SELECT 1 FROM charge WHERE job_id = OLD.id)
BEGIN SELECT RAISE(ABORT, 'a job that a charge names is kept'); END;

CREATE TRIGGER statement_replace_frozen BEFORE INSERT ON statement
WHEN EXISTS (SELECT 1 FROM statement AS s JOIN closing AS c ON c.id = s.closing_id WHERE c.sealed_at_us IS NOT NULL
    AND (s.id = NEW.id OR (s.number = NEW.number AND s.version = NEW.version)))
BEGIN SELECT RAISE(ABORT, 'statement of a sealed closing is frozen'); END;

CREATE TRIGGER statement_update_replace_frozen BEFORE UPDATE ON statement
WHEN EXISTS (SELECT 1 FROM statement AS s JOIN closing AS c ON c.id = s.closing_id WHERE c.sealed_at_us IS NOT NULL
    AND (s.id = NEW.id OR (s.number = NEW.number AND s.version = NEW.version)))
BEGIN SELECT RAISE(ABORT, 'statement of a sealed closing is frozen'); END;

CREATE TRIGGER statement_line_insert_frozen BEFORE INSERT ON statement_line
WHEN NOT EXISTS (SELECT 1 FROM statement AS s JOIN closing AS c ON c.id = s.closing_id
    WHERE s.id = NEW.statement_id AND c.sealed_at_us IS NULL)
BEGIN SELECT RAISE(ABORT, 'statement_line of a sealed closing is frozen'); END;

CREATE TRIGGER statement_line_update_frozen BEFORE UPDATE ON statement_line
WHEN EXISTS (SELECT 1 FROM statement AS s JOIN closing AS c ON c.id = s.closing_id
    WHERE s.id = OLD.statement_id AND c.sealed_at_us IS NOT NULL) OR EXISTS (SELECT 1 FROM statement AS s JOIN closing AS c ON c.id = s.closing_id
    WHERE s.id = NEW.statement_id AND c.sealed_at_us IS NOT NULL)
BEGIN SELECT RAISE(ABORT, 'statement_line of a sealed closing is frozen'); END;

CREATE TRIGGER statement_line_delete_frozen BEFORE DELETE ON statement_line
WHEN EXISTS (SELECT 1 FROM statement AS s JOIN closing AS c ON c.id = s.closing_id
    WHERE s.id = OLD.statement_id AND c.sealed_at_us IS NOT NULL)
BEGIN SELECT RAISE(ABORT, 'statement_line of a sealed closing is frozen'); END;

CREATE TRIGGER charge_digest_insert_frozen BEFORE INSERT ON charge_digest
WHEN EXISTS (SELECT 1 FROM charge_digest AS d WHERE d.statement_id = NEW.statement_id AND d.day_start_us = NEW.day_start_us)
BEGIN SELECT RAISE(ABORT, 'charge_digest of a sealed closing is frozen'); END;

CREATE TRIGGER charge_digest_update_frozen BEFORE UPDATE ON charge_digest
WHEN EXISTS (SELECT 1 FROM statement AS s JOIN closing AS c ON c.id = s.closing_id
    WHERE s.id = OLD.statement_id AND c.sealed_at_us IS NOT NULL) OR EXISTS (SELECT 1 FROM statement AS s JOIN closing AS c ON c.id = s.closing_id
    WHERE s.id = NEW.statement_id AND c.sealed_at_us IS NOT NULL)
BEGIN SELECT RAISE(ABORT, 'charge_digest of a sealed closing is frozen'); END;

CREATE TRIGGER charge_digest_delete_frozen BEFORE DELETE ON charge_digest
WHEN EXISTS (SELECT 1 FROM statement AS s JOIN closing AS c ON c.id = s.closing_id
    WHERE s.id = OLD.statement_id AND c.sealed_at_us IS NOT NULL)
BEGIN SELECT RAISE(ABORT, 'charge_digest of a sealed closing is frozen'); END;

CREATE TRIGGER closing_insert_frozen BEFORE INSERT ON closing
WHEN EXISTS (SELECT 1 FROM closing AS c WHERE c.sealed_at_us IS NOT NULL
    AND (c.id = NEW.id OR (c.period_start_us = NEW.period_start_us AND c.version = NEW.version)))
BEGIN SELECT RAISE(ABORT, 'a sealed closing is frozen'); END;

CREATE TRIGGER closing_update_frozen BEFORE UPDATE ON closing
WHEN OLD.sealed_at_us IS NOT NULL OR EXISTS (SELECT 1 FROM closing AS c WHERE c.sealed_at_us IS NOT NULL
    AND (c.id = NEW.id OR (c.period_start_us = NEW.period_start_us AND c.version = NEW.version)))
BEGIN SELECT RAISE(ABORT, 'a sealed closing is frozen'); END;

CREATE TRIGGER closing_delete_frozen BEFORE DELETE ON closing
WHEN OLD.sealed_at_us IS NOT NULL
BEGIN SELECT RAISE(ABORT, 'a sealed closing is frozen'); END;

CREATE TRIGGER catalogue_version_insert_append BEFORE INSERT ON catalogue_version
WHEN EXISTS (SELECT 1 FROM catalogue_version AS x WHERE x.kind = NEW.kind AND x.version = NEW.version)
BEGIN SELECT RAISE(ABORT, 'catalogue_version is append-only'); END;

CREATE TRIGGER catalogue_version_update_append BEFORE UPDATE ON catalogue_version
WHEN 1
BEGIN SELECT RAISE(ABORT, 'catalogue_version is append-only'); END;

CREATE TRIGGER catalogue_version_delete_append BEFORE DELETE ON catalogue_version
WHEN 1
BEGIN SELECT RAISE(ABORT, 'catalogue_version is append-only'); END;

CREATE TRIGGER audit_log_insert_append BEFORE INSERT ON audit_log
WHEN EXISTS (SELECT 1 FROM audit_log AS x WHERE x.id = NEW.id)
BEGIN SELECT RAISE(ABORT, 'audit_log is append-only'); END;

CREATE TRIGGER audit_log_update_append BEFORE UPDATE ON audit_log
WHEN 1
BEGIN SELECT RAISE(ABORT, 'audit_log is append-only'); END;

CREATE TRIGGER audit_log_delete_append BEFORE DELETE ON audit_log
WHEN 1
BEGIN SELECT RAISE(ABORT, 'audit_log is append-only'); END;

CREATE TRIGGER entry_insert_append BEFORE INSERT ON entry
WHEN EXISTS (SELECT 1 FROM entry AS x WHERE x.sequence = NEW.sequence)
BEGIN SELECT RAISE(ABORT, 'entry is append-only'); END;

CREATE TRIGGER entry_update_append BEFORE UPDATE ON entry
WHEN 1
BEGIN SELECT RAISE(ABORT, 'entry is append-only'); END;

CREATE TRIGGER entry_delete_append BEFORE DELETE ON entry
WHEN 1
BEGIN SELECT RAISE(ABORT, 'entry is append-only'); END;

CREATE TRIGGER entry_line_insert_append BEFORE INSERT ON entry_line
WHEN EXISTS (SELECT 1 FROM entry_line AS x WHERE x.sequence = NEW.sequence AND x.line = NEW.line)
BEGIN SELECT RAISE(ABORT, 'entry_line is append-only'); END;

CREATE TRIGGER entry_line_update_append BEFORE UPDATE ON entry_line
WHEN 1
BEGIN SELECT RAISE(ABORT, 'entry_line is append-only'); END;

CREATE TRIGGER entry_line_delete_append BEFORE DELETE ON entry_line
WHEN 1
BEGIN SELECT RAISE(ABORT, 'entry_line is append-only'); END;
