//! GPUs, the units that they are cut into, and which node has them.

use std::collections::BTreeMap;

use diesel::prelude::*;
use diesel::upsert::excluded;
use gpuledger_domain::ids::{GpuId, NodeId, SkuId, UnitId};
use gpuledger_domain::metering::KnownUnit;
use gpuledger_domain::time::Instant;

use crate::schema::{gpu, unit, unit_life};
use crate::{Db, DbError, on_db};

/// The number of a GPU, by its UUID; new if it was not known.
///
/// # Errors
/// What the database says.
pub fn intern_gpu(db: &mut Db, uuid: &str, model: &str) -> Result<GpuId, DbError> {
    crate::dimensions::intern!(db, gpu, gpu::uuid.eq(uuid), (gpu::uuid.eq(uuid), gpu::model.eq(model))).map(GpuId)
}

/// The number of a unit, by GPU, place and birth; new if it was not known. The place is what [`KnownUnit::place`] says.
///
/// # Errors
/// What the database says.
pub fn intern_unit(db: &mut Db, of: GpuId, place: &str, birth: Instant, sku: SkuId) -> Result<UnitId, DbError> {
    let key = unit::gpu_id.eq(of.0).and(unit::uuid.eq(place)).and(unit::birth_us.eq(birth.micros()));
    let values =
        (unit::gpu_id.eq(of.0), unit::uuid.eq(place), unit::birth_us.eq(birth.micros()), unit::sku_id.eq(sku.0));
    crate::dimensions::intern!(db, unit, key, values).map(UnitId)
}

/// Notes that a node has a unit, and when it ended if that is told; whether that was news. Of several tellings the
/// earliest end counts, so that their order does not matter.
///
/// # Errors
/// What the database says.
pub fn note_life(db: &mut Db, node: NodeId, of: UnitId, death: Option<Instant>) -> Result<bool, DbError> {
    let known: Option<Option<i64>> = on_db!(db, c => unit_life::table
        .find((node.0, of.0)).select(unit_life::death_us).first(c).optional())?;
    let news = match (known, death) {
        (None, _) => true,
        (Some(None), death) => death.is_some(),
        (Some(Some(known)), death) => death.is_some_and(|death| death.micros() < known),
    };
    if news {
        let death_us = death.map(Instant::micros);
        // Another process may tell of another end at the same time.
        let earlier = unit_life::death_us
            .is_null()
            .or(unit_life::death_us.gt(death_us))
            .and(excluded(unit_life::death_us).is_not_null());
        on_db!(db, c => {
            let statement = diesel::insert_into(unit_life::table)
                .values((unit_life::node_id.eq(node.0), unit_life::unit_id.eq(of.0), unit_life::death_us.eq(death_us)))
                .on_conflict((unit_life::node_id, unit_life::unit_id))
                .do_update()
                .set(unit_life::death_us.eq(excluded(unit_life::death_us)));
            diesel::query_dsl::methods::FilterDsl::filter(statement, earlier).execute(c)
        })?;
    }
    Ok(news)
}

/// The units that a node has or had, in the order of their numbers.
///
/// # Errors
/// What the database says.
pub fn of_node(db: &mut Db, node: NodeId) -> Result<Vec<KnownUnit>, DbError> {
    let rows: Vec<(i32, i32, String, i64, i32, Option<i64>)> = on_db!(db, c => unit_life::table
        .inner_join(unit::table.on(unit::id.eq(unit_life::unit_id)))
        .filter(unit_life::node_id.eq(node.0))
        .order(unit::id)
        .select((unit::id, unit::gpu_id, unit::uuid, unit::birth_us, unit::sku_id, unit_life::death_us))
        .load(c))?;
    let known = |(id, of, place, birth, sku, death): (i32, i32, String, i64, i32, Option<i64>)| KnownUnit {
        unit: UnitId(id),
        gpu: GpuId(of),
        sku: SkuId(sku),
        place,
        birth: Instant::from_micros(birth),
        death: death.map(Instant::from_micros),
    };
    Ok(rows.into_iter().map(known).collect())
}

/// The units of other nodes that are of GPUs of which a node tells too.
///
/// # Errors
/// What the database says.
pub fn shared_with(db: &mut Db, node: NodeId) -> Result<Vec<(NodeId, KnownUnit)>, DbError> {
    let gpus: Vec<i32> = on_db!(db, c => unit_life::table
        .inner_join(unit::table.on(unit::id.eq(unit_life::unit_id)))
        .filter(unit_life::node_id.eq(node.0))
        .select(unit::gpu_id)
        .distinct()
        .load(c))?;
    type Row = (i32, i32, i32, String, i64, i32, Option<i64>);
    let rows: Vec<Row> = on_db!(db, c => unit_life::table
        .inner_join(unit::table.on(unit::id.eq(unit_life::unit_id)))
        .filter(unit::gpu_id.eq_any(&gpus).and(unit_life::node_id.ne(node.0)))
        .order((unit_life::node_id, unit::id))
        .select((unit_life::node_id, unit::id, unit::gpu_id, unit::uuid, unit::birth_us, unit::sku_id,
            unit_life::death_us))
        .load(c))?;
    let known = |(node, id, of, place, birth, sku, death): Row| {
        let (birth, death) = (Instant::from_micros(birth), death.map(Instant::from_micros));
        (NodeId(node), KnownUnit { unit: UnitId(id), gpu: GpuId(of), sku: SkuId(sku), place, birth, death })
    };
    Ok(rows.into_iter().map(known).collect())
}

/// The UUIDs of some GPUs, by number.
///
/// # Errors
/// What the database says.
pub fn uuids_of(db: &mut Db, gpus: &[GpuId]) -> Result<BTreeMap<GpuId, String>, DbError> {
    let ids: Vec<i32> = gpus.iter().map(|gpu| gpu.0).collect();
    let rows: Vec<(i32, String)> =
        on_db!(db, c => gpu::table.filter(gpu::id.eq_any(&ids)).select((gpu::id, gpu::uuid)).load(c))?;
    Ok(rows.into_iter().map(|(id, uuid)| (GpuId(id), uuid)).collect())
}

/// The nodes that have or had units: those on which a collector reports.
///
/// # Errors
/// What the database says.
pub fn nodes(db: &mut Db) -> Result<Vec<NodeId>, DbError> {
    let rows: Vec<i32> =
        on_db!(db, c => unit_life::table.select(unit_life::node_id).distinct().order(unit_life::node_id).load(c))?;
    Ok(rows.into_iter().map(NodeId).collect())
}

/// The UUIDs of GPUs by number.
///
/// # Errors
/// What the database says.
pub fn gpu_uuids(db: &mut Db) -> Result<BTreeMap<GpuId, String>, DbError> {
    let rows: Vec<(i32, String)> = on_db!(db, c => gpu::table.select((gpu::id, gpu::uuid)).order(gpu::id).load(c))?;
    Ok(rows.into_iter().map(|(id, uuid)| (GpuId(id), uuid)).collect())
}
