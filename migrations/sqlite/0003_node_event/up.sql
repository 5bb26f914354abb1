-- When nodes were out of service, as a scheduler tells. end_us: none while it is still so.
CREATE TABLE node_event (
    node_id INTEGER NOT NULL,
    start_us INTEGER NOT NULL,
    end_us INTEGER,
    state TEXT NOT NULL,
    reason TEXT NOT NULL,
    import_id INTEGER NOT NULL,
    PRIMARY KEY (node_id, start_us)
) STRICT, WITHOUT ROWID;
