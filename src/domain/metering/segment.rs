//! The unit of record: one unit or *n* of a SKU, one job or none, one interval inside one UTC hour.

use crate::ids::{FactSetId, JobId, NodeId, SkuId, UnitId};
use crate::time::{Hour, Interval};

/// What a unit was doing.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum State {
    /// A job held it, busy or not.
    Held,
    /// Nobody held it.
    Idle,
    /// Nobody could: no placement of the layout fits it.
    Stranded,
    /// It was lost, being reconfigured or its node was down.
    OutOfService,
    /// Nobody saw it.
    Unobserved,
}

/// Who says so.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Source {
    /// A collector on the node.
    Agent,
    /// A scheduler's books.
    Scheduler,
}

/// The identity of a segment. The same key with the same content is the same segment, however often it comes.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct SegmentKey {
    /// The UTC hour that holds the whole segment.
    pub hour: Hour,
    /// The node that reported it, or the stand-in for the pool of an import.
    pub node: NodeId,
    /// The agent's epoch; for an import the job, whose attempts are one each.
    pub epoch: i64,
    /// The number within hour and epoch; for an import see [`super::Allocation::segments`].
    pub number: i64,
}

/// A segment with its exact totals.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Segment {
    /// Its identity.
    pub key: SegmentKey,
    /// The node the GPUs are in, where an import names it; else [`NodeId`] 0.
    pub on_node: NodeId,
    /// The unit; [`UnitId`] 0 where an import names none.
    pub unit: UnitId,
    /// The SKU with its slice counts.
    pub sku: SkuId,
    /// The job; [`JobId`] 0 for none.
    pub job: JobId,
    /// The facts by which rules find the team.
    pub facts: FactSetId,
    /// What the unit was doing.
    pub state: State,
    /// Who says so.
    pub source: Source,
    /// From when to when, inside the hour.
    pub interval: Interval,
    /// How many of the SKU.
    pub count: i32,
    /// Wall time × share × count, in microseconds.
    pub share_us: i64,
    /// Of it, with a process of the job on the unit; `None` where nobody measured.
    pub active_us: Option<i64>,
    /// Of it, inferred over a gap.
    pub estimated_us: i64,
    /// Of it, while the job was suspended.
    pub suspended_us: i64,
}
