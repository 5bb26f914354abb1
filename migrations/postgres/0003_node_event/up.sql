-- When nodes were out of service, as a scheduler tells. end_us: none while it is still so.
CREATE TABLE node_event (
    node_id INTEGER NOT NULL,
    start_us BIGINT NOT NULL,
    end_us BIGINT,
    state TEXT NOT NULL,
    reason TEXT NOT NULL,
    import_id BIGINT NOT NULL,
    PRIMARY KEY (node_id, start_us)
);
