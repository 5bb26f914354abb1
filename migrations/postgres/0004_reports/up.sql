-- Tokens of collectors; the secret itself is not stored. node_name: empty where any node of the cluster may use it.
CREATE TABLE collector_token (
    id TEXT NOT NULL,
    cluster_id INTEGER NOT NULL,
    node_name TEXT NOT NULL,
    secret_sha256 BYTEA NOT NULL,
    note TEXT NOT NULL,
    created_at_us BIGINT NOT NULL,
    created_by TEXT NOT NULL,
    revoked_at_us BIGINT,
    last_used_at_us BIGINT,
    PRIMARY KEY (id)
);

-- Unlogged, with room for new versions beside the old: it is replaced each minute, and after a crash of the server the next
-- report brings it again. What is still open on a node, replaced whole by each report. body: the report's units, jobs and open segments.
CREATE UNLOGGED TABLE head (
    node_id INTEGER NOT NULL,
    epoch BIGINT NOT NULL,
    sequence BIGINT NOT NULL,
    received_at_us BIGINT NOT NULL,
    body TEXT NOT NULL,
    PRIMARY KEY (node_id)
) WITH (fillfactor = 45);

-- Which units a node has, and when each ended; none while it exists. When it began is in its key, in the table unit.
CREATE TABLE unit_life (
    node_id INTEGER NOT NULL,
    unit_id INTEGER NOT NULL,
    death_us BIGINT,
    PRIMARY KEY (node_id, unit_id)
);

-- Nodes on which collectors report: since when they are watched, up to where unobserved time was summed, and from when
-- they are no more.
CREATE TABLE node_watch (
    node_id INTEGER NOT NULL,
    from_us BIGINT NOT NULL,
    settled_until_us BIGINT NOT NULL,
    retired_at_us BIGINT,
    PRIMARY KEY (node_id)
);

-- Records that are not counted and not thrown away. reason: 1 other content under an identity that is held,
-- 2 the node's clock was off, 3 the month is closed. body: the record as it was reported, with its unit and job.
CREATE TABLE record_aside (
    node_id INTEGER NOT NULL,
    epoch BIGINT NOT NULL,
    hour BIGINT NOT NULL,
    number BIGINT NOT NULL,
    sha256 BYTEA NOT NULL,
    reason SMALLINT NOT NULL,
    received_at_us BIGINT NOT NULL,
    body TEXT NOT NULL,
    PRIMARY KEY (node_id, epoch, hour, number, sha256)
);

-- What was measured during a segment of a collector; none where it was not. provisional: 1 where it was made from a
-- head, until the finished segment comes.
ALTER TABLE segment ADD COLUMN busy_us BIGINT;
ALTER TABLE segment ADD COLUMN busy_measured_us BIGINT;
ALTER TABLE segment ADD COLUMN energy_mj BIGINT;
ALTER TABLE segment ADD COLUMN energy_measured_us BIGINT;
ALTER TABLE segment ADD COLUMN peak_memory_bytes BIGINT;
ALTER TABLE segment ADD COLUMN provisional SMALLINT;
