//! The inventory in the words of the price book: what exists, by pool and SKU, cut as the layouts say.

use std::collections::{BTreeMap, BTreeSet};

use gpuledger_domain::ids::{PoolName, SkuCode};
use gpuledger_domain::inventory::{GpuGroup, Inventory};
use gpuledger_domain::metering::{NodeKey, Stock, StockKey};
use gpuledger_domain::pricing::PriceBook;
use gpuledger_domain::time::Interval;
use gpuledger_domain::units::{Fraction, Overflow};

/// All that exists in an interval.
pub(super) struct Stocks<'a> {
    nodes: Vec<NodeStock<'a>>,
    skus: Vec<SkuCode>,
    places: BTreeMap<SkuCode, usize>,
    /// Which part of a GPU each SKU is, where that is known.
    pub(super) parts: BTreeMap<SkuCode, Fraction>,
    /// What cannot be said of a layout, and why.
    pub(super) notes: BTreeSet<String>,
}

/// A node with its GPUs: the place of each SKU, and how many.
struct NodeStock<'a> {
    node: NodeKey<'a>,
    pool: &'a PoolName,
    interval: Interval,
    units: Vec<(usize, i64)>,
}

/// The SKU that a name means, and which part of its GPU it is, where that is known. A name that the price book does not
/// know stands for itself.
pub(super) fn meant(prices: &PriceBook, name: &SkuCode) -> (SkuCode, Option<Fraction>) {
    match prices.sku(name.as_str()) {
        Some(sku) => {
            let part = sku.known_slices().map(|slices| slices.compute.fraction());
            (sku.code, part)
        }
        None => (name.clone(), None),
    }
}

impl<'a> Stocks<'a> {
    pub(super) fn of(inventory: &'a Inventory, prices: &PriceBook, interval: Interval) -> Result<Stocks<'a>, Overflow> {
        let mut stocks = Stocks {
            nodes: Vec::new(),
            skus: Vec::new(),
            places: BTreeMap::new(),
            parts: BTreeMap::new(),
            notes: BTreeSet::new(),
        };
        for node in inventory.within(interval) {
            let mut units = Vec::new();
            for group in node.terms.gpus.iter() {
                stocks.cut(prices, group, &mut units)?;
            }
            let key = NodeKey { cluster: node.cluster, node: node.node };
            stocks.nodes.push(NodeStock { node: key, pool: &node.terms.pool, interval: node.interval, units });
        }
        Ok(stocks)
    }

    /// What exists in a part of the interval.
    pub(super) fn within(&self, interval: Interval) -> Vec<Stock<'_>> {
        let mut stocks = Vec::new();
        for node in &self.nodes {
            let Some(part) = node.interval.intersection(interval) else { continue };
            for (place, count) in &node.units {
                let Some(sku) = self.skus.get(*place) else { continue };
                let key = StockKey { pool: node.pool, sku };
                stocks.push(Stock { key, node: node.node, interval: part, count: *count });
            }
        }
        stocks
    }

    /// Adds the GPUs of a group, whole or as their slices and what is left of each.
    fn cut(&mut self, prices: &PriceBook, group: &GpuGroup, units: &mut Vec<(usize, i64)>) -> Result<(), Overflow> {
        let count = i64::from(group.count);
        let (whole, part) = meant(prices, &group.sku);
        if group.slices.is_empty() {
            units.push((self.place(whole, part), count));
            return Ok(());
        }
        let mut left = Some(Fraction::whole(1));
        for (name, each) in &group.slices {
            let (slice, part) = meant(prices, name);
            left = match left.zip(part) {
                None => None,
                Some((left, part)) => Some(left.minus(part.times(Fraction::whole((*each).into()))?)?),
            };
            units.push((self.place(slice, part), count.checked_mul((*each).into()).ok_or(Overflow)?));
        }
        match left {
            None => {
                self.notes.insert(format!(
                    "what is left of {whole} beside its slices is not known: the price book does not say which part of it each slice is"
                ));
            }
            Some(left) if left < Fraction::ZERO => {
                self.notes.insert(format!(
                    "{whole} is cut into more than there is of it, as the price book describes its slices; correct either"
                ));
            }
            Some(left) if !left.is_zero() => {
                let model = whole.as_str().rsplit_once('/').map_or(whole.as_str(), |(model, _)| model);
                if let Ok(remainder) = SkuCode::parse(&format!("{model}/remainder ({left})")) {
                    units.push((self.place(remainder, Some(left)), count));
                }
            }
            Some(_) => {}
        }
        Ok(())
    }

    fn place(&mut self, sku: SkuCode, part: Option<Fraction>) -> usize {
        if let Some(place) = self.places.get(&sku) {
            return *place;
        }
        let place = self.skus.len();
        self.parts.extend(part.map(|part| (sku.clone(), part)));
        self.skus.push(sku.clone());
        self.places.insert(sku, place);
        place
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use gpuledger_domain::ids::ClusterName;
    use gpuledger_domain::inventory::{NodeEntry, NodeTerms};
    use gpuledger_domain::pricing::{Sku, SkuSlices};
    use gpuledger_domain::time::{Instant, Validity};
    use gpuledger_domain::units::Ratio;
    use proptest::prelude::*;

    fn sku(text: &str) -> SkuCode {
        SkuCode::parse(text).unwrap()
    }

    /// A book that knows the slices of A100, by other names than the inventory's.
    fn book() -> PriceBook {
        let mut book = PriceBook::default();
        book.describe_sku(&Sku { code: sku("A100/full"), slices: SkuSlices::FULL });
        for compute in 1..=3 {
            let slices = SkuSlices::of(Ratio::new(compute, 7).unwrap(), Ratio::new(compute, 8).unwrap());
            book.describe_sku(&Sku { code: sku(&format!("A100/{compute}g")), slices });
            book.add_alias(&format!("a100_{compute}g"), &sku(&format!("A100/{compute}g"))).unwrap();
        }
        book
    }

    fn inventory(groups: Vec<GpuGroup>) -> Inventory {
        let pool = PoolName::parse("p").unwrap();
        let terms = NodeTerms { validity: Validity::ALWAYS, pool, gpus: groups.into() };
        let cluster = ClusterName::parse("c").unwrap();
        Inventory::new(BTreeMap::new(), &[NodeEntry { cluster, names: vec!["n".into()], terms }]).unwrap()
    }

    fn hour() -> Interval {
        Interval::new(Instant::from_micros(0), Instant::from_micros(3_600_000_000)).unwrap()
    }

    proptest! {
        #[test]
        fn the_parts_of_cut_gpus_are_the_gpus(
            layouts in prop::collection::vec((1i32..9, prop::collection::vec(1i32..4, 0..8)), 1..4),
        ) {
            let layouts: Vec<_> =
                layouts.into_iter().filter(|(_, slices)| slices.iter().sum::<i32>() <= 7).collect();
            let gpus: i32 = layouts.iter().map(|(count, _)| count).sum();
            let groups = layouts.into_iter().map(|(count, compute)| {
                let mut slices = BTreeMap::new();
                for compute in compute {
                    *slices.entry(sku(&format!("a100_{compute}g"))).or_default() += 1;
                }
                GpuGroup { sku: sku("A100"), count, slices }
            });
            let inventory = inventory(groups.collect());
            let stocks = Stocks::of(&inventory, &book(), hour()).unwrap();
            let parts = stocks.within(hour()).into_iter().map(|stock| {
                let part = stocks.parts.get(stock.key.sku).copied().unwrap();
                part.times(Fraction::whole(stock.count.into())).unwrap()
            });
            prop_assert_eq!(Fraction::sum(parts).unwrap(), Fraction::whole(gpus.into()));
            prop_assert!(stocks.notes.is_empty());
        }
    }

    #[test]
    fn what_is_left_beside_unknown_slices_is_not_guessed() {
        let layout = |name: &str, count| GpuGroup { sku: sku("a"), count: 1, slices: [(sku(name), count)].into() };
        let inventory = inventory(vec![layout("other", 2), layout("a100_3g", 3)]);
        let stocks = Stocks::of(&inventory, &book(), hour()).unwrap();
        let found: Vec<String> = stocks.within(hour()).iter().map(|stock| stock.key.sku.to_string()).collect();
        assert_eq!(found, ["other", "A100/3g"]);
        let notes: Vec<&str> = stocks.notes.iter().map(String::as_str).collect();
        assert!(notes[0].starts_with("a is cut into more than there is of it"), "{notes:?}");
        assert!(notes[1].starts_with("what is left of a beside its slices is not known"), "{notes:?}");
    }
}
