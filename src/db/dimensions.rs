//! Dimensions: what facts are about. Each natural key is interned once and given a number.

use std::collections::BTreeMap;

use diesel::prelude::*;
use gpuledger_domain::ids::{
    ClusterName, ExperimentId, FactSetId, NodeId, PoolId, PoolName, SkuCode, SkuId, TeamCode, TeamId,
};
use gpuledger_domain::pricing::{Sku, SkuSlices};
use gpuledger_domain::time::Instant;

use crate::codes::ratio;
use crate::error::missing;
use crate::schema::{cluster, experiment, fact_set, node, pool, pool_membership, sku, team};
use crate::{Db, DbError, insert_all, on_db};

/// The number of a cluster.
pub type ClusterId = i32;

/// The code of a machine among nodes.
const MACHINE: i16 = 1;

/// What a node is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NodeKind {
    /// A machine.
    Machine,
    /// The stand-in for a pool whose jobs name no node.
    PoolStandIn,
}

/// Finds a row by its natural key, or inserts it with the next number.
macro_rules! intern {
    ($db:expr, $table:ident, $filter:expr, $values:expr) => {{
        let found: Option<i32> =
            on_db!($db, c => $table::table.filter($filter).select($table::id).first(c).optional())?;
        match found {
            Some(id) => Ok::<i32, DbError>(id),
            None => {
                let id = i32::try_from($db.take_ids(stringify!($table), 1)?)
                    .map_err(|_| DbError::Inconsistent(concat!("too many rows in ", stringify!($table)).into()))?;
                let inserted = on_db!($db, c => diesel::insert_into($table::table).values(($table::id.eq(id), $values)).on_conflict_do_nothing().execute(c))?;
                match inserted {
                    1 => Ok(id),
                    // Another process was first; its row is the one.
                    _ => Ok(on_db!($db, c => $table::table.filter($filter).select($table::id).first(c))?),
                }
            }
        }
    }};
}

pub(crate) use intern;

/// The number of a cluster, new if it was not known.
///
/// # Errors
/// What the database says.
pub fn intern_cluster(db: &mut Db, name: &ClusterName) -> Result<ClusterId, DbError> {
    intern!(db, cluster, cluster::name.eq(name.as_str()), cluster::name.eq(name.as_str()))
}

/// The number of a cluster, if it is known.
///
/// # Errors
/// What the database says.
pub fn find_cluster(db: &mut Db, name: &ClusterName) -> Result<Option<ClusterId>, DbError> {
    Ok(on_db!(db, c => cluster::table.filter(cluster::name.eq(name.as_str())).select(cluster::id).first(c).optional())?)
}

/// The canonical body of a set of facts.
///
/// # Errors
/// What the database says; a number without a set is an error.
pub fn fact_set_body(db: &mut Db, id: FactSetId) -> Result<String, DbError> {
    Ok(on_db!(db, c => fact_set::table.find(id.0).select(fact_set::body).first(c))?)
}

/// The number of a pool, new if it was not known.
///
/// # Errors
/// What the database says.
pub fn intern_pool(db: &mut Db, name: &PoolName) -> Result<PoolId, DbError> {
    intern!(db, pool, pool::name.eq(name.as_str()), pool::name.eq(name.as_str())).map(PoolId)
}

/// The number of a node of a cluster, new if it was not known.
///
/// # Errors
/// What the database says.
pub fn intern_node(db: &mut Db, cluster: ClusterId, name: &str, kind: NodeKind) -> Result<NodeId, DbError> {
    let code: i16 = match kind {
        NodeKind::Machine => MACHINE,
        NodeKind::PoolStandIn => 2,
    };
    intern!(
        db,
        node,
        node::cluster_id.eq(cluster).and(node::name.eq(name)),
        (node::cluster_id.eq(cluster), node::name.eq(name), node::kind.eq(code))
    )
    .map(NodeId)
}

/// The machine of this name in a cluster, if it is known.
///
/// # Errors
/// What the database says.
pub fn find_machine(db: &mut Db, cluster: ClusterId, name: &str) -> Result<Option<NodeId>, DbError> {
    let found: Option<i32> = on_db!(db, c => node::table
        .filter(node::cluster_id.eq(cluster).and(node::name.eq(name)).and(node::kind.eq(MACHINE)))
        .select(node::id)
        .first(c)
        .optional())?;
    Ok(found.map(NodeId))
}

/// The node that stands for a pool of a cluster, always a member of that pool. Its name cannot be a machine's.
///
/// # Errors
/// What the database says.
pub fn intern_pool_stand_in(db: &mut Db, cluster: ClusterId, name: &PoolName) -> Result<NodeId, DbError> {
    let node = intern_node(db, cluster, &format!("pool:{name}"), NodeKind::PoolStandIn)?;
    put_into_pool(db, node, Instant::MIN, name)?;
    Ok(node)
}

/// Whether a node was ever put into a pool.
///
/// # Errors
/// What the database says.
pub fn is_in_a_pool(db: &mut Db, node: NodeId) -> Result<bool, DbError> {
    let found: Option<i32> = on_db!(db, c => pool_membership::table
        .filter(pool_membership::node_id.eq(node.0)).select(pool_membership::pool_id).first(c).optional())?;
    Ok(found.is_some())
}

/// Puts a node into a pool from an instant on; a pool that it has from that instant stays.
///
/// # Errors
/// What the database says.
pub fn put_into_pool(db: &mut Db, node: NodeId, from: Instant, name: &PoolName) -> Result<(), DbError> {
    let pool = intern_pool(db, name)?;
    on_db!(db, c => diesel::insert_into(pool_membership::table)
        .values((pool_membership::node_id.eq(node.0), pool_membership::from_us.eq(from.micros()),
            pool_membership::pool_id.eq(pool.0)))
        .on_conflict_do_nothing().execute(c))?;
    Ok(())
}

/// The number of a SKU with its slices, new if it was not known.
///
/// # Errors
/// What the database says.
pub fn intern_sku(db: &mut Db, wanted: &Sku) -> Result<SkuId, DbError> {
    let SkuSlices { compute, memory, larger } = wanted.slices;
    intern!(
        db,
        sku,
        sku::code
            .eq(wanted.code.as_str())
            .and(sku::compute_slices.eq(compute.part()))
            .and(sku::gpu_compute_slices.eq(compute.whole()))
            .and(sku::memory_slices.eq(memory.part()))
            .and(sku::gpu_memory_slices.eq(memory.whole()))
            .and(sku::larger_part.eq(larger.part()))
            .and(sku::larger_whole.eq(larger.whole())),
        (
            sku::code.eq(wanted.code.as_str()),
            sku::compute_slices.eq(compute.part()),
            sku::gpu_compute_slices.eq(compute.whole()),
            sku::memory_slices.eq(memory.part()),
            sku::gpu_memory_slices.eq(memory.whole()),
            sku::larger_part.eq(larger.part()),
            sku::larger_whole.eq(larger.whole()),
        )
    )
    .map(SkuId)
}

/// The number of a set of job facts, by the SHA-256 of its canonical body; new if it was not known.
///
/// # Errors
/// What the database says.
pub fn intern_fact_set(db: &mut Db, sha256: &[u8], body: &str) -> Result<FactSetId, DbError> {
    intern!(db, fact_set, fact_set::sha256.eq(sha256), (fact_set::sha256.eq(sha256), fact_set::body.eq(body)))
        .map(FactSetId)
}

/// The numbers of sets of job facts, each its SHA-256 and canonical body, in their order; new where not known. No two
/// of them may be the same.
///
/// # Errors
/// What the database says.
pub fn intern_fact_sets(db: &mut Db, wanted: &[(&[u8], &str)]) -> Result<Vec<FactSetId>, DbError> {
    let mut known: BTreeMap<Vec<u8>, i32> = BTreeMap::new();
    for wanted in wanted.chunks(8_192) {
        let hashes: Vec<&[u8]> = wanted.iter().map(|(sha256, _)| *sha256).collect();
        let rows: Vec<(Vec<u8>, i32)> = on_db!(db, c => fact_set::table
            .filter(fact_set::sha256.eq_any(&hashes)).select((fact_set::sha256, fact_set::id)).load(c))?;
        known.extend(rows);
    }
    let mut ids = Vec::with_capacity(wanted.len());
    let missing = wanted.iter().filter(|(sha256, _)| !known.contains_key(*sha256)).count();
    let mut next =
        if missing == 0 { 0 } else { db.take_ids("fact_set", i64::try_from(missing).map_err(|_| DbError::Overflow)?)? };
    let mut rows = Vec::with_capacity(missing);
    for (sha256, body) in wanted {
        let id = match known.get(*sha256) {
            Some(id) => *id,
            None => {
                let id = i32::try_from(next).map_err(|_| DbError::Overflow)?;
                next += 1;
                rows.push((
                    fact_set::id.eq(id),
                    fact_set::sha256.eq(sha256.to_vec()),
                    fact_set::body.eq((*body).to_owned()),
                ));
                id
            }
        };
        ids.push(FactSetId(id));
    }
    insert_all!(db, fact_set::table, rows.as_slice())?;
    Ok(ids)
}

/// The nodes that stand for the pools of a cluster.
///
/// # Errors
/// What the database says.
pub fn stand_ins(db: &mut Db, cluster: ClusterId) -> Result<Vec<NodeId>, DbError> {
    let ids: Vec<i32> = on_db!(db, c => node::table
        .filter(node::cluster_id.eq(cluster).and(node::kind.eq(2))).order(node::id).select(node::id).load(c))?;
    Ok(ids.into_iter().map(NodeId).collect())
}

/// The number of a team, new if it was not known.
///
/// # Errors
/// What the database says.
pub fn intern_team(db: &mut Db, code: &TeamCode) -> Result<TeamId, DbError> {
    intern!(db, team, team::code.eq(code.as_str()), team::code.eq(code.as_str())).map(TeamId)
}

/// The number of a team's experiment, new if it was not known.
///
/// # Errors
/// What the database says.
pub fn intern_experiment(db: &mut Db, owner: TeamId, name: &str) -> Result<ExperimentId, DbError> {
    intern!(
        db,
        experiment,
        experiment::team_id.eq(owner.0).and(experiment::name.eq(name)),
        (experiment::team_id.eq(owner.0), experiment::name.eq(name))
    )
    .map(ExperimentId)
}

/// All SKUs by number.
///
/// # Errors
/// What the database says.
pub fn skus(db: &mut Db) -> Result<BTreeMap<SkuId, Sku>, DbError> {
    type Row = (i32, String, i32, i32, i32, i32, i32, i32);
    let rows: Vec<Row> = on_db!(db, c => sku::table.order(sku::id).load(c))?;
    rows.into_iter()
        .map(|(id, code, compute, compute_of, memory, memory_of, larger, larger_of)| {
            let slices = SkuSlices {
                compute: ratio(compute, compute_of)?,
                memory: ratio(memory, memory_of)?,
                larger: ratio(larger, larger_of)?,
            };
            let code = SkuCode::parse(&code).map_err(DbError::Inconsistent)?;
            Ok((SkuId(id), Sku { code, slices }))
        })
        .collect()
}

/// All pools by number.
///
/// # Errors
/// What the database says.
pub fn pools(db: &mut Db) -> Result<BTreeMap<PoolId, PoolName>, DbError> {
    let rows: Vec<(i32, String)> = on_db!(db, c => pool::table.filter(pool::id.ne(0)).order(pool::id).load(c))?;
    rows.into_iter()
        .map(|(id, name)| Ok((PoolId(id), PoolName::parse(&name).map_err(DbError::Inconsistent)?)))
        .collect()
}

/// All teams by number.
///
/// # Errors
/// What the database says.
pub fn teams(db: &mut Db) -> Result<BTreeMap<TeamId, TeamCode>, DbError> {
    let rows: Vec<(i32, String)> = on_db!(db, c => team::table.order(team::id).load(c))?;
    rows.into_iter()
        .map(|(id, code)| Ok((TeamId(id), TeamCode::parse(&code).map_err(DbError::Inconsistent)?)))
        .collect()
}

/// All experiments by number, with their team.
///
/// # Errors
/// What the database says.
pub fn experiments(db: &mut Db) -> Result<BTreeMap<ExperimentId, (TeamId, String)>, DbError> {
    let rows: Vec<(i32, i32, String)> =
        on_db!(db, c => experiment::table.filter(experiment::id.ne(0)).order(experiment::id).load(c))?;
    Ok(rows.into_iter().map(|(id, team, name)| (ExperimentId(id), (TeamId(team), name))).collect())
}

/// All fact sets by number, as their canonical bodies.
///
/// # Errors
/// What the database says.
pub fn fact_sets(db: &mut Db) -> Result<BTreeMap<FactSetId, String>, DbError> {
    let rows: Vec<(i32, String)> =
        on_db!(db, c => fact_set::table.select((fact_set::id, fact_set::body)).order(fact_set::id).load(c))?;
    Ok(rows.into_iter().map(|(id, body)| (FactSetId(id), body)).collect())
}

/// Which pools nodes belong to, and since when.
#[derive(Clone, Debug, Default)]
pub struct Memberships {
    by_node: BTreeMap<(NodeId, Instant), PoolId>,
}

impl Memberships {
    /// The pool of a node at an instant.
    #[must_use]
    pub fn pool(&self, node: NodeId, at: Instant) -> Option<PoolId> {
        self.by_node.range((node, Instant::MIN)..=(node, at)).next_back().map(|(_, pool)| *pool)
    }

    /// Every node that is in a pool at some time; it may come more than once.
    pub fn nodes(&self) -> impl Iterator<Item = NodeId> {
        self.by_node.keys().map(|(node, _)| *node)
    }

    /// Every instant at which a node changes its pool.
    #[must_use]
    pub fn changes(&self) -> Vec<Instant> {
        self.by_node.keys().map(|(_, from)| *from).filter(|from| *from != Instant::MIN).collect()
    }
}

/// How many times nodes came into pools: more whenever [`memberships`] differ.
///
/// # Errors
/// What the database says.
pub fn membership_count(db: &mut Db) -> Result<i64, DbError> {
    Ok(on_db!(db, c => pool_membership::table.count().get_result(c))?)
}

/// Which pools nodes belong to.
///
/// # Errors
/// What the database says.
pub fn memberships(db: &mut Db) -> Result<Memberships, DbError> {
    let rows: Vec<(i32, i64, i32)> = on_db!(db, c => pool_membership::table.load(c))?;
    let by_node =
        rows.into_iter().map(|(node, from, pool)| ((NodeId(node), Instant::from_micros(from)), PoolId(pool))).collect();
    Ok(Memberships { by_node })
}

/// The name of a node.
///
/// # Errors
/// What the database says.
pub fn node_name(db: &mut Db, id: NodeId) -> Result<String, DbError> {
    on_db!(db, c => node::table.find(id.0).select(node::name).first(c).optional())?
        .ok_or_else(|| missing(format!("node {}", id.0)))
}

/// The cluster that a node is in.
///
/// # Errors
/// What the database says.
pub fn cluster_of(db: &mut Db, id: NodeId) -> Result<ClusterId, DbError> {
    on_db!(db, c => node::table.find(id.0).select(node::cluster_id).first(c).optional())?
        .ok_or_else(|| missing(format!("node {}", id.0)))
}

/// All clusters by number.
///
/// # Errors
/// What the database says.
pub fn clusters(db: &mut Db) -> Result<BTreeMap<ClusterId, ClusterName>, DbError> {
    let rows: Vec<(ClusterId, String)> =
        on_db!(db, c => cluster::table.filter(cluster::id.ne(0)).order(cluster::id).load(c))?;
    rows.into_iter().map(|(id, name)| Ok((id, ClusterName::parse(&name).map_err(DbError::Inconsistent)?))).collect()
}

/// All machines by number, each with its cluster and name.
///
/// # Errors
/// What the database says.
pub fn machines(db: &mut Db) -> Result<BTreeMap<NodeId, (ClusterId, String)>, DbError> {
    let rows: Vec<(i32, ClusterId, String)> = on_db!(db, c => node::table
        .filter(node::kind.eq(MACHINE))
        .select((node::id, node::cluster_id, node::name))
        .order(node::id)
        .load(c))?;
    Ok(rows.into_iter().map(|(id, cluster, name)| (NodeId(id), (cluster, name))).collect())
}
