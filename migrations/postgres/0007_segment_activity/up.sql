-- What the parts of a unit did during a segment, where its device measures that: time with a multiprocessor busy, warps of those
-- that could be, tensor cores, bandwidth of memory; each with how long it was measured. Key as that of segment.
CREATE TABLE segment_activity (
    hour BIGINT NOT NULL,
    node_id INTEGER NOT NULL,
    epoch BIGINT NOT NULL,
    number BIGINT NOT NULL,
    sm_activity_us BIGINT,
    sm_activity_measured_us BIGINT,
    sm_occupancy_us BIGINT,
    sm_occupancy_measured_us BIGINT,
    tensor_us BIGINT,
    tensor_measured_us BIGINT,
    memory_activity_us BIGINT,
    memory_activity_measured_us BIGINT,
    PRIMARY KEY (hour, node_id, epoch, number)
);
