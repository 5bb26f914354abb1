//! The unit of record: one unit or *n* of a SKU, one job or none, one interval inside one UTC hour.

use crate::ids::{FactSetId, JobId, NodeId, SkuId, UnitId};
use crate::money::apportion;
use crate::time::{Hour, Instant, Interval};
use crate::units::{Fraction, Overflow};

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

impl State {
    /// The word that people read and programs are given.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            State::Held => "held",
            State::Idle => "idle",
            State::Stranded => "stranded",
            State::OutOfService => "out of service",
            State::Unobserved => "unobserved",
        }
    }
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

/// What was measured during a segment. A family that was not measured is absent.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Measurements {
    /// Time with a kernel running, in microseconds.
    pub busy_us: Option<Measured>,
    /// Energy, in millijoules.
    pub energy_mj: Option<Measured>,
    /// Most memory in use, in bytes.
    pub peak_memory_bytes: Option<i64>,
    /// What the unit's parts did.
    pub activity: Activity,
}

/// What the parts of a unit did, in microseconds: of each the part of its time, or of what could have been in that time.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Activity {
    /// Time with a warp on a multiprocessor, averaged over all of them.
    pub sm_activity: Option<Measured>,
    /// Warps that were there, of those that could have been.
    pub sm_occupancy: Option<Measured>,
    /// Time with the tensor cores at work.
    pub tensor: Option<Measured>,
    /// Bandwidth of memory in use, of what there is.
    pub memory_activity: Option<Measured>,
}

/// A total, and for how long it was measured, in microseconds.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Measured {
    /// The total.
    pub total: i64,
    /// For how long it was measured.
    pub measured_us: i64,
}

impl Segment {
    /// The segment cut at these instants, which are in order: its totals divided by wall time, by largest remainder, so
    /// that those of the parts sum to them. The parts keep its key.
    ///
    /// # Errors
    /// [`Overflow`] where a total cannot be divided.
    pub fn divided_at(&self, edges: &[Instant]) -> Result<Vec<Segment>, Overflow> {
        let pieces = self.interval.cut_at(edges);
        let part = |total: i64, piece: &Interval| {
            let product = i128::from(total) * i128::from(piece.length_us());
            Fraction::new(product, self.interval.length_us().into()).ok_or(Overflow)
        };
        let divide = |total: i64| -> Result<Vec<i64>, Overflow> {
            let exact = pieces.iter().map(|piece| part(total, piece)).collect::<Result<Vec<_>, _>>()?;
            apportion(total.into(), &exact).into_iter().map(|part| i64::try_from(part).map_err(|_| Overflow)).collect()
        };
        let (share, estimated, suspended) =
            (divide(self.share_us)?, divide(self.estimated_us)?, divide(self.suspended_us)?);
        let active = self.active_us.map(divide).transpose()?;
        let at = |totals: &[i64], index: usize| totals.get(index).copied().unwrap_or(0);
        let parts = pieces.iter().enumerate().map(|(index, piece)| Segment {
            interval: *piece,
            share_us: at(&share, index),
            active_us: active.as_ref().map(|active| at(active, index)),
            estimated_us: at(&estimated, index),
            suspended_us: at(&suspended, index),
            ..self.clone()
        });
        Ok(parts.collect())
    }
}
