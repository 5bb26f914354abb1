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

/// When each unit of a node existed within an interval, in the order given. A unit ends when that was told, and at the
/// latest when another is made that excludes it. The order of `units` decides nothing.
#[must_use]
pub fn lives(units: &[KnownUnit], within: Interval) -> Vec<(&KnownUnit, Interval)> {
    let life = |unit: &KnownUnit| {
        let later = units.iter().filter(|other| other.order() > unit.order() && other.excludes(unit));
        let ends = later.map(|other| other.birth).chain(unit.death);
        Interval::new(unit.birth, ends.min().unwrap_or(within.end()))?.intersection(within)
    };
    units.iter().filter_map(|unit| Some((unit, life(unit)?))).collect()
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
            .map(|(unit, life)| (unit.unit.0, life.start().micros(), life.end().micros()))
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
    fn a_second_sight_of_a_whole_gpu_by_another_epoch_does_not_double_it() {
        assert_eq!(told(&[unit(2, "", 400, None), unit(1, "", 50, None)]), [(2, 400, 1_000), (1, 100, 400)]);
        assert_eq!(told(&[unit(1, "", 50, Some(60)), unit(2, "", 2_000, None)]), []);
    }
}
