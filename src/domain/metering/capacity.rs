//! What existed, what of it was held or out of service, and what is left: idle.
//!
//! Within an hour everything is compared at each instant, then summed: that a GPU is free in the second half of an hour
//! does not make up for one that two jobs held in the first. Nothing here is ever below zero. Where more is held than
//! exists, that is said, and neither number is bent to fit the other.

use std::collections::{BTreeMap, BTreeSet};

use crate::ids::{ClusterName, JobId, PoolName, SkuCode};
use crate::time::{Instant, Interval};
use crate::units::Overflow;

/// What capacity is counted of.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct StockKey<'a> {
    /// In which pool.
    pub pool: &'a PoolName,
    /// Of what, as the price book calls it.
    pub sku: &'a SkuCode,
}

/// A node of a cluster.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct NodeKey<'a> {
    /// The cluster.
    pub cluster: &'a ClusterName,
    /// The node's name in it.
    pub node: &'a str,
}

/// So many of a SKU that exist on a node for a time.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Stock<'a> {
    /// In which pool, of what.
    pub key: StockKey<'a>,
    /// On which node.
    pub node: NodeKey<'a>,
    /// When.
    pub interval: Interval,
    /// How many.
    pub count: i64,
}

/// A node that takes no jobs for a time. It may still run those it has.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Outage<'a> {
    /// Which.
    pub node: NodeKey<'a>,
    /// When.
    pub interval: Interval,
}

/// What a job holds.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Holding<'a> {
    /// In which pool, of what.
    pub key: StockKey<'a>,
    /// On which node, where that is known.
    pub node: Option<NodeKey<'a>>,
    /// Which job.
    pub job: JobId,
    /// When.
    pub interval: Interval,
    /// How many.
    pub count: i32,
    /// Wall time × share × count, in microseconds.
    pub share_us: i64,
}

/// Time of one SKU in one pool, in microseconds × count. Unless more was held than existed,
/// `exists_us = held_us + idle_us + out_of_service_us`; what was held beyond is `excess_us`.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Capacity {
    /// What the inventory has.
    pub exists_us: i128,
    /// Held by jobs.
    pub held_us: i128,
    /// Held by nobody, though it could be.
    pub idle_us: i128,
    /// On nodes out of service, and not held.
    pub out_of_service_us: i128,
    /// Held beyond what existed at that instant.
    pub excess_us: i128,
}

/// The capacity of an hour, and when in it more was held than existed.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct HourCapacity {
    /// The sums.
    pub capacity: Capacity,
    /// In order; empty where all is well.
    pub contradicted: Vec<Interval>,
}

/// Bits after the point of a rate: so many of a SKU that are held at an instant, of which a share may be a part of one.
const RATE_BITS: u32 = 40;

impl Capacity {
    /// The sum of two.
    ///
    /// # Errors
    /// [`Overflow`] where it does not fit.
    pub fn plus(self, other: Capacity) -> Result<Capacity, Overflow> {
        let sum = |a: i128, b: i128| a.checked_add(b).ok_or(Overflow);
        Ok(Capacity {
            exists_us: sum(self.exists_us, other.exists_us)?,
            held_us: sum(self.held_us, other.held_us)?,
            idle_us: sum(self.idle_us, other.idle_us)?,
            out_of_service_us: sum(self.out_of_service_us, other.out_of_service_us)?,
            excess_us: sum(self.excess_us, other.excess_us)?,
        })
    }
}

impl Holding<'_> {
    /// The part of it inside `interval`. The parts of a whole add up to it, to the microsecond.
    #[must_use]
    pub fn within(self, interval: Interval) -> Option<Self> {
        let part = self.interval.intersection(interval)?;
        let share_before = |until: Instant| {
            let passed = i128::from(until.micros()) - i128::from(self.interval.start().micros());
            i128::from(self.share_us) * passed / i128::from(self.interval.length_us())
        };
        let share_us = i64::try_from(share_before(part.end()) - share_before(part.start())).ok()?;
        Some(Self { interval: part, share_us, ..self })
    }

    /// How much of the SKU it holds at an instant.
    fn rate(self) -> i128 {
        (i128::from(self.share_us) << RATE_BITS) / i128::from(self.interval.length_us())
    }

    /// Whether it holds parts, whose time was rounded to the microsecond.
    fn is_shared(self) -> bool {
        i64::from(self.count).checked_mul(self.interval.length_us()) != Some(self.share_us)
    }
}

/// The capacity of one hour, or of a part of one, by pool and SKU. All that is given must lie in it.
///
/// A node out of service may still run jobs: what they hold is held. Where jobs do not say on which node they run, they
/// may run there too, so that no more is out of service than is held by nobody.
///
/// # Errors
/// [`Overflow`] where a sum does not fit.
pub fn capacity_of_hour<'a>(
    stocks: &[Stock<'a>],
    outages: &[Outage<'a>],
    holdings: &[Holding<'a>],
) -> Result<BTreeMap<StockKey<'a>, HourCapacity>, Overflow> {
    let mut down: BTreeMap<NodeKey<'a>, Vec<Interval>> = BTreeMap::new();
    for outage in outages {
        down.entry(outage.node).or_default().push(outage.interval);
    }
    let mut sweeps: BTreeMap<StockKey<'a>, (Vec<Turn<'a>>, i128)> = BTreeMap::new();
    let mut told_down: BTreeSet<(StockKey<'a>, NodeKey<'a>)> = BTreeSet::new();
    for stock in stocks {
        let (turns, _) = sweeps.entry(stock.key).or_default();
        let exists = i128::from(stock.count) << RATE_BITS;
        turns.extend(Turn::both(stock.interval, Some(stock.node), Amounts { exists, ..Amounts::default() }));
        let outages = down.get(&stock.node).filter(|_| told_down.insert((stock.key, stock.node)));
        for interval in outages.into_iter().flatten() {
            turns.extend(Turn::both(*interval, Some(stock.node), Amounts { down: 1, ..Amounts::default() }));
        }
    }
    for holding in holdings {
        let (turns, held_us) = sweeps.entry(holding.key).or_default();
        *held_us = held_us.checked_add(holding.share_us.into()).ok_or(Overflow)?;
        let amounts = Amounts { held: holding.rate(), shared: i128::from(holding.is_shared()), ..Amounts::default() };
        turns.extend(Turn::both(holding.interval, holding.node, amounts));
    }
    sweeps.into_iter().map(|(key, (turns, held_us))| Ok((key, swept(turns, held_us)?))).collect()
}

/// What there is at an instant, or by how much it changes there. `exists` and `held` are rates.
#[derive(Clone, Copy, Default)]
struct Amounts {
    exists: i128,
    held: i128,
    /// How many holdings hold parts.
    shared: i128,
    /// How many events say that the node is down.
    down: i128,
}

impl Amounts {
    fn plus(self, other: Amounts) -> Amounts {
        Amounts {
            exists: self.exists + other.exists,
            held: self.held + other.held,
            shared: self.shared + other.shared,
            down: self.down + other.down,
        }
    }

    fn negated(self) -> Amounts {
        Amounts { exists: -self.exists, held: -self.held, shared: -self.shared, down: -self.down }
    }

    /// What of a node is out of service: all that is not held.
    fn unserved(self) -> i128 {
        if self.down > 0 { (self.exists - self.held).max(0) } else { 0 }
    }
}

/// An instant at which something changes.
#[derive(Clone, Copy)]
struct Turn<'a> {
    at: Instant,
    node: Option<NodeKey<'a>>,
    change: Amounts,
}

impl<'a> Turn<'a> {
    /// The two ends of an interval in which something is added.
    fn both(interval: Interval, node: Option<NodeKey<'a>>, change: Amounts) -> [Turn<'a>; 2] {
        [Turn { at: interval.start(), node, change }, Turn { at: interval.end(), node, change: change.negated() }]
    }
}

/// Goes through the turns in order and sums what lies between them.
fn swept(mut turns: Vec<Turn<'_>>, held_us: i128) -> Result<HourCapacity, Overflow> {
    turns.sort_by_key(|turn| turn.at);
    let mut hour = HourCapacity { capacity: Capacity { held_us, ..Capacity::default() }, ..HourCapacity::default() };
    let mut all = Amounts::default();
    let mut nodes: BTreeMap<NodeKey<'_>, Amounts> = BTreeMap::new();
    let (mut unserved, mut since) = (0i128, None);
    for turn in turns {
        if let Some(part) = since.and_then(|since| Interval::new(since, turn.at)) {
            hour.pass(part, all, unserved)?;
        }
        since = Some(turn.at);
        all = all.plus(turn.change);
        if let Some(node) = turn.node {
            let of_node = nodes.entry(node).or_default();
            unserved -= of_node.unserved();
            *of_node = of_node.plus(turn.change);
            unserved += of_node.unserved();
        }
    }
    hour.settle();
    Ok(hour)
}

impl HourCapacity {
    /// Adds a time in which nothing changes.
    fn pass(&mut self, part: Interval, all: Amounts, unserved: i128) -> Result<(), Overflow> {
        let time = |rate: i128| rate.checked_mul(part.length_us().into()).map(|time| time >> RATE_BITS).ok_or(Overflow);
        let sums = &mut self.capacity;
        sums.exists_us += time(all.exists)?;
        let free = all.exists - all.held;
        sums.out_of_service_us += time(unserved.min(free.max(0)))?;
        let excess_us = time((-free).max(0))?;
        sums.excess_us += excess_us;
        // Times of parts are rounded, each by less than a microsecond.
        if excess_us > all.shared {
            match self.contradicted.last_mut().filter(|last| last.end() == part.start()) {
                Some(last) => *last = Interval::new(last.start(), part.end()).unwrap_or(part),
                None => self.contradicted.push(part),
            }
        }
        Ok(())
    }

    /// What is left is idle. Where parts were rounded, microseconds may lack: they are taken from what is not held.
    fn settle(&mut self) {
        let sums = &mut self.capacity;
        let left = sums.exists_us - sums.held_us + sums.excess_us;
        sums.excess_us += (-left).max(0);
        let left = left.max(0);
        sums.out_of_service_us = sums.out_of_service_us.min(left);
        sums.idle_us = left - sums.out_of_service_us;
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests;
