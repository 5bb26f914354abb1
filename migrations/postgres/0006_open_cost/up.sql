-- What open months come to, by billing day, worked out beside reports. In the order in which a team's page reads it. Nothing
-- was ever written to the table of this name before. day_start_us: for what a month charges of earlier ones, the microsecond
-- before it begins. priced: 0 where some of the time has no price.
DROP TABLE open_cost;
CREATE TABLE open_cost (
    period_start_us BIGINT NOT NULL,
    day_start_us BIGINT NOT NULL,
    team_id INTEGER NOT NULL,
    pool_id INTEGER NOT NULL,
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
    PRIMARY KEY (period_start_us, day_start_us, team_id, pool_id, sku_id, service_class, kind, workload, experiment_id, user_name)
);

-- When a day was priced last, and what it was made from.
CREATE TABLE open_cost_day (
    period_start_us BIGINT NOT NULL,
    day_start_us BIGINT NOT NULL,
    priced_at_us BIGINT NOT NULL,
    usage_version BIGINT NOT NULL,
    teams_version INTEGER NOT NULL,
    prices_version INTEGER NOT NULL,
    rules_version INTEGER NOT NULL,
    pools_version BIGINT NOT NULL,
    PRIMARY KEY (period_start_us, day_start_us)
);

-- Days that must be priced again. touches: 0 where it is only to be compared with what is held.
CREATE TABLE price_mark (
    period_start_us BIGINT NOT NULL,
    day_start_us BIGINT NOT NULL,
    touches BIGINT NOT NULL,
    PRIMARY KEY (period_start_us, day_start_us)
);

-- What the service does by the clock: when each is due, and when it was done last.
CREATE TABLE task (
    name TEXT NOT NULL,
    due_at_us BIGINT NOT NULL,
    done_at_us BIGINT,
    PRIMARY KEY (name)
);

-- When a record of a node whose clock was off was stored where it belongs; it stays listed.
ALTER TABLE record_aside ADD COLUMN replaced_at_us BIGINT;

-- Which nodes tell of the units of a GPU.
CREATE INDEX unit_life_unit ON unit_life (unit_id);
