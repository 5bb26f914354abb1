-- What the parts of a unit did during a segment, where its device measures that: time with a multiprocessor busy, warps of those
-- that could be, tensor cores, bandwidth of memory; each with how long it was measured. Key as that of segment.
CREATE TABLE segment_activity (
    hour INTEGER NOT NULL,
    node_id INTEGER NOT NULL,
    epoch INTEGER NOT NULL,
    number INTEGER NOT NULL,
    sm_activity_us INTEGER,
    sm_activity_measured_us INTEGER,
    sm_occupancy_us INTEGER,
    sm_occupancy_measured_us INTEGER,
    tensor_us INTEGER,
    tensor_measured_us INTEGER,
    memory_activity_us INTEGER,
    memory_activity_measured_us INTEGER,
    PRIMARY KEY (hour, node_id, epoch, number)
) STRICT, WITHOUT ROWID;
