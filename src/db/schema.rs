//! The tables as both databases have them. A test compares this with what the migrations make.

#![allow(missing_docs, unreachable_pub)]

diesel::table! {
    billing_zone (from_us) {
        from_us -> BigInt,
        zone -> Text,
    }
}

diesel::table! {
    id_counter (name) {
        name -> Text,
        next -> BigInt,
    }
}

diesel::table! {
    cluster (id) {
        id -> Integer,
        name -> Text,
    }
}

diesel::table! {
    pool (id) {
        id -> Integer,
        name -> Text,
    }
}

diesel::table! {
    node (id) {
        id -> Integer,
        cluster_id -> Integer,
        name -> Text,
        kind -> SmallInt,
    }
}

diesel::table! {
    pool_membership (node_id, from_us) {
        node_id -> Integer,
        from_us -> BigInt,
        pool_id -> Integer,
    }
}

diesel::table! {
    sku (id) {
        id -> Integer,
        code -> Text,
        compute_slices -> Integer,
        gpu_compute_slices -> Integer,
        memory_slices -> Integer,
        gpu_memory_slices -> Integer,
        larger_part -> Integer,
        larger_whole -> Integer,
    }
}

diesel::table! {
    gpu (id) {
        id -> Integer,
        uuid -> Text,
        model -> Text,
    }
}

diesel::table! {
    unit (id) {
        id -> Integer,
        gpu_id -> Integer,
        uuid -> Text,
        birth_us -> BigInt,
        sku_id -> Integer,
    }
}

diesel::table! {
    fact_set (id) {
        id -> Integer,
        sha256 -> Binary,
        body -> Text,
    }
}

diesel::table! {
    job (id) {
        id -> BigInt,
        cluster_id -> Integer,
        source_id -> Text,
        start_us -> BigInt,
    }
}

diesel::table! {
    team (id) {
        id -> Integer,
        code -> Text,
    }
}

diesel::table! {
    experiment (id) {
        id -> Integer,
        team_id -> Integer,
        name -> Text,
    }
}

diesel::table! {
    catalogue_version (kind, version) {
        kind -> SmallInt,
        version -> Integer,
        sha256 -> Binary,
        applied_at_us -> BigInt,
        applied_by -> Text,
        body -> Text,
    }
}

diesel::table! {
    audit_log (id) {
        id -> BigInt,
        at_us -> BigInt,
        actor -> Text,
        action -> Text,
        object -> Text,
        before -> Text,
        after -> Text,
    }
}

diesel::table! {
    import (id) {
        id -> BigInt,
        file_name -> Text,
        actor -> Text,
        started_at_us -> BigInt,
        finished_at_us -> Nullable<BigInt>,
        lines -> BigInt,
        added -> BigInt,
        known -> BigInt,
        revised -> BigInt,
        without_gpu_time -> BigInt,
        running -> BigInt,
        refused -> BigInt,
    }
}

diesel::table! {
    row_identity (cluster_id) {
        cluster_id -> Integer,
        column_names -> Text,
        zone -> Text,
    }
}

diesel::table! {
    allocation (job_id, revision) {
        job_id -> BigInt,
        revision -> Integer,
        node_id -> Integer,
        sku_id -> Integer,
        fact_set_id -> Integer,
        start_us -> BigInt,
        end_us -> BigInt,
        submit_us -> Nullable<BigInt>,
        placements -> Text,
        end_state -> Text,
        provisional -> SmallInt,
        sha256 -> Binary,
        import_id -> BigInt,
        listed_id -> Nullable<Text>,
        suspended_us -> Nullable<BigInt>,
    }
}

diesel::table! {
    segment (hour, node_id, epoch, number) {
        hour -> BigInt,
        node_id -> Integer,
        epoch -> BigInt,
        number -> BigInt,
        on_node_id -> Integer,
        unit_id -> Integer,
        sku_id -> Integer,
        job_id -> BigInt,
        fact_set_id -> Integer,
        state -> SmallInt,
        source -> SmallInt,
        start_us -> BigInt,
        end_us -> BigInt,
        count -> Integer,
        share_us -> BigInt,
        active_us -> Nullable<BigInt>,
        estimated_us -> BigInt,
        suspended_us -> BigInt,
        busy_us -> Nullable<BigInt>,
        busy_measured_us -> Nullable<BigInt>,
        energy_mj -> Nullable<BigInt>,
        energy_measured_us -> Nullable<BigInt>,
        peak_memory_bytes -> Nullable<BigInt>,
        provisional -> Nullable<SmallInt>,
        late_at_us -> Nullable<BigInt>,
        superseded_at_us -> Nullable<BigInt>,
    }
}

diesel::table! {
    segment_activity (hour, node_id, epoch, number) {
        hour -> BigInt,
        node_id -> Integer,
        epoch -> BigInt,
        number -> BigInt,
        sm_activity_us -> Nullable<BigInt>,
        sm_activity_measured_us -> Nullable<BigInt>,
        sm_occupancy_us -> Nullable<BigInt>,
        sm_occupancy_measured_us -> Nullable<BigInt>,
        tensor_us -> Nullable<BigInt>,
        tensor_measured_us -> Nullable<BigInt>,
        memory_activity_us -> Nullable<BigInt>,
        memory_activity_measured_us -> Nullable<BigInt>,
    }
}

diesel::table! {
    roll_up_mark (node_id, day_start_us) {
        node_id -> Integer,
        day_start_us -> BigInt,
        touches -> BigInt,
    }
}

diesel::table! {
    usage (slot_start_us, node_id, job_id, fact_set_id, sku_id, state) {
        slot_start_us -> BigInt,
        node_id -> Integer,
        job_id -> BigInt,
        fact_set_id -> Integer,
        sku_id -> Integer,
        state -> SmallInt,
        slot_end_us -> BigInt,
        share_us -> BigInt,
        active_us -> BigInt,
        active_measured_us -> BigInt,
        estimated_us -> BigInt,
        suspended_us -> BigInt,
        segments -> Integer,
    }
}

diesel::table! {
    late_usage (closing_id, slot_start_us, node_id, job_id, fact_set_id, sku_id, state, entry) {
        closing_id -> BigInt,
        slot_start_us -> BigInt,
        node_id -> Integer,
        job_id -> BigInt,
        fact_set_id -> Integer,
        sku_id -> Integer,
        state -> SmallInt,
        entry -> SmallInt,
        slot_end_us -> BigInt,
        share_us -> BigInt,
        active_us -> BigInt,
        active_measured_us -> BigInt,
        estimated_us -> BigInt,
        suspended_us -> BigInt,
        segments -> Integer,
    }
}

diesel::table! {
    period (start_us) {
        start_us -> BigInt,
        end_us -> BigInt,
        name -> Text,
        usage_version -> BigInt,
        closer -> BigInt,
        current_closing_id -> BigInt,
    }
}

diesel::table! {
    open_cost (period_start_us, day_start_us, team_id, pool_id, sku_id, service_class, kind, workload, experiment_id, user_name) {
        period_start_us -> BigInt,
        day_start_us -> BigInt,
        team_id -> Integer,
        pool_id -> Integer,
        sku_id -> Integer,
        service_class -> SmallInt,
        kind -> SmallInt,
        workload -> SmallInt,
        experiment_id -> Integer,
        user_name -> Text,
        share_us -> BigInt,
        estimated_us -> BigInt,
        amount_micros -> BigInt,
        priced -> SmallInt,
    }
}

diesel::table! {
    open_cost_day (period_start_us, day_start_us) {
        period_start_us -> BigInt,
        day_start_us -> BigInt,
        priced_at_us -> BigInt,
        usage_version -> BigInt,
        teams_version -> Integer,
        prices_version -> Integer,
        rules_version -> Integer,
        pools_version -> BigInt,
    }
}

diesel::table! {
    price_mark (period_start_us, day_start_us) {
        period_start_us -> BigInt,
        day_start_us -> BigInt,
        touches -> BigInt,
    }
}

diesel::table! {
    task (name) {
        name -> Text,
        due_at_us -> BigInt,
        done_at_us -> Nullable<BigInt>,
    }
}

diesel::table! {
    closing (id) {
        id -> BigInt,
        period_start_us -> BigInt,
        version -> Integer,
        actor -> Text,
        started_at_us -> BigInt,
        sealed_at_us -> Nullable<BigInt>,
        usage_version -> BigInt,
        teams_version -> Integer,
        prices_version -> Integer,
        rules_version -> Integer,
        charges -> BigInt,
        exact_amount -> Text,
        charged_micros -> BigInt,
    }
}

diesel::table! {
    charge (closing_id, number) {
        closing_id -> BigInt,
        number -> BigInt,
        kind -> SmallInt,
        slot_start_us -> BigInt,
        slot_end_us -> BigInt,
        team_id -> Integer,
        job_id -> BigInt,
        fact_set_id -> Integer,
        sku_id -> Integer,
        pool_id -> Integer,
        service_class -> SmallInt,
        workload -> SmallInt,
        experiment_id -> Integer,
        share_us -> BigInt,
        active_us -> BigInt,
        active_measured_us -> BigInt,
        estimated_us -> BigInt,
        suspended_us -> BigInt,
        segments -> Integer,
        rate -> Text,
        weight_part -> Integer,
        weight_whole -> Integer,
        amount_micros -> BigInt,
        corrects_closing_id -> BigInt,
        corrects_number -> BigInt,
        reason -> Text,
        end_cause -> Nullable<SmallInt>,
        corrected_month -> Nullable<Text>,
    }
}

diesel::table! {
    statement_counter (year) {
        year -> Integer,
        last -> Integer,
    }
}

diesel::table! {
    statement (id) {
        id -> BigInt,
        closing_id -> BigInt,
        team_id -> Integer,
        number -> Text,
        version -> Integer,
        period_start_us -> BigInt,
        team_code -> Text,
        team_name -> Text,
        cost_centre -> Text,
        owner_name -> Text,
        first_charge -> BigInt,
        last_charge -> BigInt,
        jobs -> BigInt,
        share_us -> BigInt,
        gpu_us -> Text,
        estimated_us -> BigInt,
        exact_amount -> Text,
        charged_micros -> BigInt,
        amount_hundredths -> BigInt,
        currency -> Text,
        credit_rate -> Text,
        currency_hundredths -> BigInt,
        compared_closing_id -> BigInt,
    }
}

diesel::table! {
    statement_line (statement_id, line) {
        statement_id -> BigInt,
        line -> Integer,
        kind -> SmallInt,
        workload -> SmallInt,
        sku_id -> Integer,
        sku_code -> Text,
        pool_name -> Text,
        service_class -> SmallInt,
        rate -> Text,
        weight_part -> Integer,
        weight_whole -> Integer,
        jobs -> BigInt,
        share_us -> BigInt,
        gpu_us -> Text,
        estimated_us -> BigInt,
        exact_amount -> Text,
        charged_micros -> BigInt,
        amount_hundredths -> BigInt,
        currency_hundredths -> BigInt,
        end_cause -> Nullable<SmallInt>,
        corrected_month -> Nullable<Text>,
        credit_rate -> Nullable<Text>,
    }
}

diesel::table! {
    charge_digest (statement_id, day_start_us) {
        statement_id -> BigInt,
        day_start_us -> BigInt,
        charges -> BigInt,
        sha256 -> Binary,
    }
}

diesel::table! {
    ledger_account (id) {
        id -> Integer,
        code -> Text,
        name -> Text,
        side -> SmallInt,
    }
}

diesel::table! {
    entry (sequence) {
        sequence -> BigInt,
        statement_id -> BigInt,
        pool_id -> Integer,
        kind -> SmallInt,
        posted_at_us -> BigInt,
        reverses_sequence -> BigInt,
        reason -> Text,
        previous_sha256 -> Binary,
        sha256 -> Binary,
    }
}

diesel::table! {
    entry_line (sequence, line) {
        sequence -> BigInt,
        line -> SmallInt,
        account_id -> Integer,
        debit_micros -> BigInt,
        credit_micros -> BigInt,
        currency -> Text,
        debit_hundredths -> BigInt,
        credit_hundredths -> BigInt,
    }
}

diesel::table! {
    node_event (node_id, start_us) {
        node_id -> Integer,
        start_us -> BigInt,
        end_us -> Nullable<BigInt>,
        state -> Text,
        reason -> Text,
        import_id -> BigInt,
    }
}

diesel::table! {
    collector_token (id) {
        id -> Text,
        cluster_id -> Integer,
        node_name -> Text,
        secret_sha256 -> Binary,
        note -> Text,
        created_at_us -> BigInt,
        created_by -> Text,
        revoked_at_us -> Nullable<BigInt>,
        last_used_at_us -> Nullable<BigInt>,
    }
}

diesel::table! {
    head (node_id) {
        node_id -> Integer,
        epoch -> BigInt,
        sequence -> BigInt,
        received_at_us -> BigInt,
        body -> Text,
    }
}

diesel::table! {
    unit_life (node_id, unit_id) {
        node_id -> Integer,
        unit_id -> Integer,
        death_us -> Nullable<BigInt>,
    }
}

diesel::table! {
    node_watch (node_id) {
        node_id -> Integer,
        from_us -> BigInt,
        settled_until_us -> BigInt,
        retired_at_us -> Nullable<BigInt>,
    }
}

diesel::table! {
    record_aside (node_id, epoch, hour, number, sha256) {
        node_id -> Integer,
        epoch -> BigInt,
        hour -> BigInt,
        number -> BigInt,
        sha256 -> Binary,
        reason -> SmallInt,
        received_at_us -> BigInt,
        body -> Text,
        replaced_at_us -> Nullable<BigInt>,
    }
}

diesel::allow_tables_to_appear_in_same_query!(
    billing_zone,
    id_counter,
    cluster,
    pool,
    node,
    pool_membership,
    sku,
    gpu,
    unit,
    fact_set,
    job,
    team,
    experiment,
    catalogue_version,
    audit_log,
    import,
    row_identity,
    allocation,
    segment,
    segment_activity,
    roll_up_mark,
    usage,
    late_usage,
    period,
    open_cost,
    open_cost_day,
    price_mark,
    task,
    closing,
    charge,
    statement_counter,
    statement,
    statement_line,
    charge_digest,
    ledger_account,
    entry,
    entry_line,
    node_event,
    collector_token,
    head,
    unit_life,
    node_watch,
    record_aside
);
