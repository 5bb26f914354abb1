DROP INDEX unit_life_unit;
ALTER TABLE record_aside DROP COLUMN replaced_at_us;
DROP TABLE task;
DROP TABLE price_mark;
DROP TABLE open_cost_day;
DROP TABLE open_cost;
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
