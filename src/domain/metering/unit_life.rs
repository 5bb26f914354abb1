//! When units existed. A collector tells when a unit was made, and sometimes when it ended; the rest follows from
//! what stands in its place.

use crate::ids::{GpuId, SkuId, UnitId};
use crate::time::{Instant, Interval};

/// A unit of a node, as collectors told of it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct KnownUnit {
    /// Its number.
    pub unit: UnitId,
    /// The GPU that it is, or is a part of.
    pub gpu: GpuId,
    /// Its SKU.
    pub sku: SkuId,
    /// What it is of the GPU: empty for the whole, [`REMAINDER`] for what is left beside slices, else the UUID of the
    /// slice, which a slice that is made again in the same place has again.
    pub place: String,
    /// When it was made or first seen.
    pub birth: Instant,
    /// When it ended, if that was told.
    pub death: Option<Instant>,
}

/// The place of a remainder.
pub const REMAINDER: &str = "remainder";

impl KnownUnit {
    /// Whether two units cannot exist at once: both in one place, or one of them the whole GPU.
    fn excludes(&self, other: &KnownUnit) -> bool {
        self.gpu == other.gpu && (self.place == other.place || self.place.is_empty() || other.place.is_empty())
    }

    fn order(&self) -> (Instant, &str, UnitId) {
        (self.birth, &self.place, self.unit)
    }
}

/// One unit, and when it existed.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Life<'a> {
    /// The unit, as it was told of first.
    pub unit: &'a KnownUnit,
    /// All tellings of it: its own number, and those of later sights of it.
    pub sights: Vec<UnitId>,
    /// When it existed.
    pub interval: Interval,
}

/// When each unit of a node existed within an interval. A unit ends when that was told, and at the latest when another
/// is made that excludes it. Whoever sees a unit for the first time tells of another birth: a later sight of the same
/// place and SKU is the same unit, unless it ended before or was excluded in between. Of ends that several told, the
/// last counts, and none if one of them still sees it. The order of `units` decides nothing.
#[must_use]
pub fn lives(units: &[KnownUnit], within: Interval) -> Vec<Life<'_>> {
    let mut sorted: Vec<&KnownUnit> = units.iter().collect();
    sorted.sort_by_key(|unit| unit.order());
    let mut runs: Vec<(Vec<&KnownUnit>, Option<Instant>)> = Vec::new();
    for unit in &sorted {
        let same = |first: &KnownUnit| (first.gpu, &first.place, first.sku) == (unit.gpu, &unit.place, unit.sku);
        let run = runs.iter_mut().rev().find(|(sights, _)| sights.first().is_some_and(|first| same(first)));
        let goes_on = run.filter(|(sights, death)| {
            let ended = death.is_some_and(|death| death < unit.birth);
            let first = sights.first();
            !ended
                && !first.is_some_and(|first| {
                    let between = |other: &&&KnownUnit| other.order() > first.order() && other.order() < unit.order();
                    sorted.iter().filter(between).any(|other| other.excludes(first) && !same(other))
                })
        });
        match goes_on {
            Some((sights, death)) => {
                sights.push(unit);
                *death = death.zip(unit.death).map(|(one, other)| one.max(other));
            }
            None => runs.push((vec![unit], unit.death)),
        }
    }
    let life = |(sights, death): &(Vec<&'_ KnownUnit>, Option<Instant>)| {
        let unit = *sights.first()?;
        let later = sorted.iter().filter(|other| other.order() > unit.order() && other.excludes(unit));
        let later = later.filter(|other| !sights.iter().any(|sight| sight.unit == other.unit));
        let ends = later.map(|other| other.birth).chain(*death);
        let interval = Interval::new(unit.birth, ends.min().unwrap_or(within.end()))?.intersection(within)?;
        Some(Life {
            unit: units.iter().find(|known| known.unit == unit.unit)?,
            sights: sights.iter().map(|sight| sight.unit).collect(),
            interval,
        })
    };
    runs.iter().filter_map(life).collect()
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    fn unit(id: i32, place: &str, birth: i64, death: Option<i64>) -> KnownUnit {
        KnownUnit {
            unit: UnitId(id),
            gpu: GpuId(1),
            sku: SkuId(id),
            place: place.to_owned(),
            birth: Instant::from_micros(birth),
            death: death.map(Instant::from_micros),
        }
    }

    fn told(units: &[KnownUnit]) -> Vec<(i32, i64, i64)> {
        let within = Interval::new(Instant::from_micros(100), Instant::from_micros(1_000)).unwrap();
        lives(units, within)
            .into_iter()
            .map(|life| (life.unit.unit.0, life.interval.start().micros(), life.interval.end().micros()))
            .collect()
    }

    #[test]
    fn a_gpu_that_is_cut_anew_exists_once_at_each_instant() {
        let units = [
            unit(1, "", 0, None),
            unit(2, "MIG-a", 300, None),
            unit(3, "MIG-b", 300, Some(400)),
            unit(4, REMAINDER, 300, None),
            // The same slice made again, and what is left beside it.
            unit(5, "MIG-a", 500, None),
            unit(6, REMAINDER, 500, None),
            unit(7, "", 900, None),
        ];
        let wanted =
            [(1, 100, 300), (2, 300, 500), (3, 300, 400), (4, 300, 500), (5, 500, 900), (6, 500, 900), (7, 900, 1_000)];
        assert_eq!(told(&units), wanted);
    }

    #[test]
    fn a_second_sight_of_a_unit_is_the_same_unit() {
        let sight = |id, birth, death| KnownUnit { sku: SkuId(1), ..unit(id, "", birth, death) };
        assert_eq!(told(&[sight(2, 400, None), sight(1, 50, None)]), [(1, 100, 1_000)]);
        // A second collector that saw it for a while, and whichever came first.
        assert_eq!(told(&[sight(1, 50, None), sight(2, 400, Some(500))]), [(1, 100, 1_000)]);
        assert_eq!(told(&[sight(1, 50, Some(450)), sight(2, 400, Some(500))]), [(1, 100, 500)]);
        // It ended, and was made again.
        assert_eq!(told(&[sight(1, 50, Some(300)), sight(2, 400, None)]), [(1, 100, 300), (2, 400, 1_000)]);
        // It was cut into slices in between.
        let cut = [sight(1, 50, None), unit(3, "MIG-a", 200, None), sight(2, 400, None)];
        assert_eq!(told(&cut), [(1, 100, 200), (3, 200, 400), (2, 400, 1_000)]);
        assert_eq!(told(&[sight(1, 50, Some(60)), sight(2, 2_000, None)]), []);
    }
}
