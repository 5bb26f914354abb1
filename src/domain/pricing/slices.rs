//! SKUs, the slices of a GPU, and how much of the full GPU's price a slice carries.

use std::collections::BTreeMap;

use crate::ids::SkuCode;
use crate::units::{Fraction, Overflow, Ratio};

/// How slices divide the price of a GPU, as a pool chooses.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub enum Basis {
    /// By compute slices.
    #[default]
    Compute,
    /// By memory slices.
    Memory,
    /// By the larger of the two, scaled down where a layout would exceed one GPU.
    Larger,
}

impl Basis {
    /// Reads `compute`, `memory` or `larger`.
    #[must_use]
    pub fn parse(text: &str) -> Option<Basis> {
        match text {
            "compute" => Some(Basis::Compute),
            "memory" => Some(Basis::Memory),
            "larger" => Some(Basis::Larger),
            _ => None,
        }
    }

    /// The word in files.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Basis::Compute => "compute",
            Basis::Memory => "memory",
            Basis::Larger => "larger",
        }
    }
}

/// Which part of its GPU a unit is, by compute and by memory, and its weight under [`Basis::Larger`].
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct SkuSlices {
    /// Its compute slices, of the GPU's.
    pub compute: Ratio,
    /// Its memory slices, of the GPU's.
    pub memory: Ratio,
    /// The larger part, scaled to the layout it lies in; see [`weights`].
    pub larger: Ratio,
}

impl SkuSlices {
    /// A whole GPU.
    pub const FULL: SkuSlices = SkuSlices { compute: Ratio::ONE, memory: Ratio::ONE, larger: Ratio::ONE };

    /// A slice by itself, in no known layout.
    #[must_use]
    pub fn of(compute: Ratio, memory: Ratio) -> SkuSlices {
        let larger = if compute.fraction() >= memory.fraction() { compute } else { memory };
        SkuSlices { compute, memory, larger }
    }

    /// Its weight by this basis.
    #[must_use]
    pub const fn weight(self, basis: Basis) -> Ratio {
        match basis {
            Basis::Compute => self.compute,
            Basis::Memory => self.memory,
            Basis::Larger => self.larger,
        }
    }
}

/// What has a price: a GPU model and a profile of it.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Sku {
    /// `MODEL/PROFILE`, with the profile `full` for a whole GPU.
    pub code: SkuCode,
    /// Which part of the GPU it is.
    pub slices: SkuSlices,
}

impl Sku {
    /// The GPU model: the code up to its last `/`.
    #[must_use]
    pub fn gpu_model(&self) -> &str {
        self.code.as_str().rsplit_once('/').map_or(self.code.as_str(), |(model, _)| model)
    }

    /// The profile: the code after its last `/`; `full` where it has none.
    #[must_use]
    pub fn profile(&self) -> &str {
        self.code.as_str().rsplit_once('/').map_or("full", |(_, profile)| profile)
    }

    /// Whether it is a whole GPU.
    #[must_use]
    pub fn is_full(&self) -> bool {
        self.profile() == "full"
    }

    /// Which part of its GPU it is; `None` for a slice that nothing describes.
    #[must_use]
    pub fn known_slices(&self) -> Option<SkuSlices> {
        (self.is_full() || self.slices != SkuSlices::FULL).then_some(self.slices)
    }
}

/// The weights of the units of one layout, in its order. Under [`Basis::Larger`] each is the larger of its parts,
/// and all are scaled down where they would sum to more than one GPU.
///
/// # Errors
/// [`Overflow`] where a weight cannot be held as a ratio of small numbers.
pub fn weights(basis: Basis, layout: &[SkuSlices]) -> Result<Vec<Ratio>, Overflow> {
    if basis != Basis::Larger {
        return Ok(layout.iter().map(|slices| slices.weight(basis)).collect());
    }
    let larger = |slices: &SkuSlices| slices.compute.fraction().max(slices.memory.fraction());
    let sum = Fraction::sum(layout.iter().map(larger))?.max(Fraction::whole(1));
    layout.iter().map(|slices| small_ratio(larger(slices).over(sum)?)).collect()
}

fn small_ratio(fraction: Fraction) -> Result<Ratio, Overflow> {
    let text = fraction.to_string();
    let (part, whole) = text.split_once('/').ok_or(Overflow)?;
    part.parse().ok().zip(whole.parse().ok()).and_then(|(part, whole)| Ratio::new(part, whole)).ok_or(Overflow)
}

/// The dearest way to cut one GPU into slices of these prices an hour: its price, and how many of each.
///
/// Placement rules of real devices only forbid more layouts, so a GPU that cannot be dearer here cannot be dearer.
/// `None` where no slice is given, or their parts have no small common measure.
#[must_use]
pub fn dearest_layout(slices: &[(SkuCode, SkuSlices, Fraction)]) -> Option<(Fraction, BTreeMap<SkuCode, u32>)> {
    slices.first()?;
    let compute = common_measure(slices.iter().map(|(_, slices, _)| slices.compute))?;
    let memory = common_measure(slices.iter().map(|(_, slices, _)| slices.memory))?;
    let in_measure = |ratio: Ratio, measure: i32| ratio.part() * (measure / ratio.whole());
    let mut best: BTreeMap<(i32, i32), (Fraction, BTreeMap<SkuCode, u32>)> = BTreeMap::new();
    for free_compute in 0..=compute {
        for free_memory in 0..=memory {
            let mut dearest = (Fraction::ZERO, BTreeMap::new());
            for (code, slice, price) in slices {
                let (wants_compute, wants_memory) =
                    (in_measure(slice.compute, compute), in_measure(slice.memory, memory));
                let left = (free_compute - wants_compute, free_memory - wants_memory);
                let Some((cost, layout)) = best.get(&left).filter(|_| left != (free_compute, free_memory)) else {
                    continue;
                };
                let cost = cost.plus(*price).ok()?;
                if cost > dearest.0 {
                    let mut layout = layout.clone();
                    *layout.entry(code.clone()).or_default() += 1;
                    dearest = (cost, layout);
                }
            }
            best.insert((free_compute, free_memory), dearest);
        }
    }
    best.remove(&(compute, memory))
}

/// The finest common measure of these parts: of 1/2 and 3/7, fourteenths.
fn common_measure(parts: impl Iterator<Item = Ratio>) -> Option<i32> {
    const MEASURE_MAX: i32 = 168;
    let mut measure = 1;
    for part in parts {
        let step = measure;
        while measure % part.whole() != 0 {
            measure += step;
            if measure > MEASURE_MAX {
                return None;
            }
        }
    }
    Some(measure)
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use crate::money::Rate;
    use proptest::prelude::*;

    fn slices(compute: i32, memory: i32) -> SkuSlices {
        SkuSlices::of(Ratio::new(compute, 7).unwrap(), Ratio::new(memory, 8).unwrap())
    }

    #[test]
    fn a_layout_never_weighs_more_than_its_gpu() {
        let layout = [slices(3, 4), slices(3, 4)];
        assert_eq!(weights(Basis::Compute, &layout).unwrap(), [Ratio::new(3, 7).unwrap(); 2]);
        assert_eq!(weights(Basis::Larger, &layout).unwrap(), [Ratio::new(1, 2).unwrap(); 2]);
        let layout = [slices(4, 4), slices(3, 4)];
        assert_eq!(weights(Basis::Larger, &layout).unwrap(), [Ratio::new(8, 15).unwrap(), Ratio::new(7, 15).unwrap()]);
    }

    #[test]
    fn the_dearest_layout_is_found() {
        let priced = |code: &str, compute, memory, rate: &str| {
            (SkuCode::parse(code).unwrap(), slices(compute, memory), Rate::parse(rate).unwrap().fraction())
        };
        let (cost, layout) = dearest_layout(&[priced("h/1g", 1, 1, "1"), priced("h/3g", 3, 4, "3.6")]).unwrap();
        assert_eq!(cost, Fraction::new(76, 10).unwrap());
        assert_eq!(
            layout,
            BTreeMap::from([(SkuCode::parse("h/1g").unwrap(), 4), (SkuCode::parse("h/3g").unwrap(), 1)])
        );
        assert!(dearest_layout(&[]).is_none());
        // Parts of different wholes: a half beside three sevenths.
        let half = SkuSlices::of(Ratio::new(1, 2).unwrap(), Ratio::new(1, 2).unwrap());
        let priced_half = |rate: i128| (SkuCode::parse("h/half").unwrap(), half, Fraction::whole(rate));
        assert_eq!(dearest_layout(&[priced_half(30), priced("h/3g", 3, 4, "60")]).unwrap().0, Fraction::whole(120));
        assert_eq!(dearest_layout(&[priced_half(30), priced("h/3g", 3, 4, "30")]).unwrap().0, Fraction::whole(60));
    }

    proptest! {
        #[test]
        fn larger_weights_sum_to_at_most_one(parts in prop::collection::vec((1i32..5, 1i32..5), 1..5)) {
            let layout: Vec<_> = parts.iter().map(|&(compute, memory)| slices(compute, memory)).collect();
            let sum = Fraction::sum(weights(Basis::Larger, &layout).unwrap().iter().map(|w| w.fraction())).unwrap();
            prop_assert!(sum <= Fraction::whole(1) || layout.len() == 1);
        }
    }
}
