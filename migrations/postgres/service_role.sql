-- What the service's own role may do. Run by `gpuledger migrate --service-role NAME`; SERVICE_ROLE stands for the
-- quoted name. Nothing frozen may be updated or emptied; charges and statements that are not sealed may be swept.
DO $$ BEGIN
    EXECUTE format('GRANT USAGE ON SCHEMA %I TO ', current_schema()) || $role$SERVICE_ROLE$role$;
END $$;
GRANT SELECT, INSERT ON cluster, pool, node, sku, gpu, unit, fact_set, job, team, experiment TO SERVICE_ROLE;
GRANT SELECT, INSERT, UPDATE, DELETE ON
    billing_zone, id_counter, pool_membership, import, row_identity, allocation, segment, segment_activity, roll_up_mark, usage, period,
    open_cost, closing, statement_counter, ledger_account
    TO SERVICE_ROLE;
GRANT SELECT, INSERT, UPDATE, DELETE ON late_usage, open_cost_day, price_mark, task TO SERVICE_ROLE;
GRANT SELECT, INSERT, UPDATE ON node_event, collector_token, head, unit_life, node_watch TO SERVICE_ROLE;
GRANT DELETE ON head TO SERVICE_ROLE;
GRANT SELECT, INSERT, UPDATE, DELETE ON record_aside TO SERVICE_ROLE;
GRANT SELECT, INSERT, DELETE ON charge, statement, statement_line TO SERVICE_ROLE;
GRANT SELECT, INSERT ON catalogue_version, audit_log, charge_digest, entry, entry_line TO SERVICE_ROLE;
GRANT SELECT ON __diesel_schema_migrations TO SERVICE_ROLE;
-- New months of segments are made with the owner's rights.
GRANT EXECUTE ON FUNCTION make_segment_month(bigint) TO SERVICE_ROLE;
