//! The price book: effective-dated rates per SKU-hour, by service class and pool.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use super::{Basis, EndCausePolicy, Sku, SkuSlices, SuspendedPolicy};
use crate::calendar::Month;
use crate::ids::{PoolName, SkuCode};
use crate::money::{CreditRate, Rate};
use crate::rules::ServiceClass;
use crate::time::{Instant, Interval, Validity};
use crate::units::Ratio;

/// What a row of prices is for. A row for one pool goes before a row for any.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct PriceKey {
    /// The SKU.
    pub sku: SkuCode,
    /// The pool; `None` for any.
    pub pool: Option<PoolName>,
    /// The service class.
    pub service_class: ServiceClass,
}

/// A rate for a time.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct PriceRow {
    /// What it is for.
    pub key: PriceKey,
    /// From when; `None`: ever since.
    pub from: Option<Instant>,
    /// Until when; `None`: until the next row of the same key, or without end.
    pub until: Option<Instant>,
    /// Credits per SKU-hour; `None` is unpriced, by decision.
    pub rate: Option<Rate>,
}

/// What holds for a pool.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct PoolTerms {
    /// How slices without a rate of their own divide the full GPU's.
    pub basis: Basis,
}

/// The rate and weight that price a slot.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Terms {
    /// Credits per hour.
    pub rate: Rate,
    /// 1 for a SKU with a rate of its own; else its part of the full GPU, whose rate this is.
    pub weight: Ratio,
}

/// Why there is no amount.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Unpriced {
    /// No row of the price book is in force.
    NoPrice,
    /// A row is in force whose price is left empty.
    LeftEmpty,
    /// The price book knows nothing of this name.
    UnknownSku,
    /// It has no rate of its own, and nothing says which part of a GPU it is.
    UnknownSlice,
}

/// A time between two rows of the same key in which it has no price.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Gap {
    /// Of what.
    pub key: PriceKey,
    /// When.
    pub interval: Interval,
}

impl fmt::Display for PriceKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}, {}", self.sku, self.service_class.as_str())?;
        self.pool.as_ref().map_or(Ok(()), |pool| write!(f, ", pool {pool}"))
    }
}

impl fmt::Display for Unpriced {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Unpriced::NoPrice => "no price is in force",
            Unpriced::LeftEmpty => "its price is left empty",
            Unpriced::UnknownSku => {
                "the price book knows no SKU or alias of this name; add it to the aliases of a SKU, or a price"
            }
            Unpriced::UnknownSlice => "the price book neither prices it nor says which part of a GPU it is",
        })
    }
}

/// All prices, over time.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct PriceBook {
    prices: BTreeMap<PriceKey, Vec<(Validity, Option<Rate>)>>,
    skus: BTreeMap<SkuCode, SkuSlices>,
    aliases: BTreeMap<String, SkuCode>,
    pools: BTreeMap<PoolName, PoolTerms>,
    credit_rates: BTreeMap<Month, CreditRate>,
    /// Who pays for an attempt by how it ended.
    pub end_causes: EndCausePolicy,
    /// What is charged of jobs that were suspended.
    pub suspended: SuspendedPolicy,
}

impl PriceBook {
    /// A book of these rows.
    ///
    /// # Errors
    /// The index of the first row that does not fit its key's other rows, and a sentence that says why.
    pub fn new(rows: &[PriceRow]) -> Result<PriceBook, (usize, String)> {
        let mut book = PriceBook::default();
        let mut by_key: BTreeMap<&PriceKey, Vec<(usize, &PriceRow)>> = BTreeMap::new();
        for (index, row) in rows.iter().enumerate() {
            by_key.entry(&row.key).or_default().push((index, row));
        }
        for (key, mut rows) in by_key {
            rows.sort_by_key(|(index, row)| (row.from, *index));
            let nexts = rows.iter().skip(1).map(Some).chain([None]);
            let mut series = Vec::new();
            for ((index, row), next) in rows.iter().zip(nexts) {
                let until = match (row.until, next) {
                    (_, Some((next, other))) if other.from == row.from => {
                        return Err((
                            *next,
                            format!("a second price for {key} from the same instant; keep one of the two"),
                        ));
                    }
                    (Some(until), Some((next, other))) if other.from < Some(until) => {
                        return Err((*next, format!("it begins before the earlier price for {key} ends at {until}")));
                    }
                    (None, Some((_, other))) => other.from,
                    (until, _) => until,
                };
                let validity = Validity::new(row.from, until)
                    .ok_or_else(|| (*index, format!("the price for {key} ends before it begins")))?;
                series.push((validity, row.rate));
            }
            book.skus.entry(key.sku.clone()).or_insert(SkuSlices::FULL);
            book.prices.insert(key.clone(), series);
        }
        Ok(book)
    }

    /// Adds what is known of a SKU's slices.
    pub fn describe_sku(&mut self, sku: &Sku) {
        self.skus.insert(sku.code.clone(), sku.slices);
    }

    /// Adds a name by which a source calls a SKU.
    ///
    /// # Errors
    /// A sentence that names the other SKU which has this name already. Describe all SKUs before the aliases.
    pub fn add_alias(&mut self, name: &str, sku: &SkuCode) -> Result<(), String> {
        let own = |code: &SkuCode| code.as_str() == name || *code == SkuCode::full(name);
        if let Some(other) = self.skus.keys().find(|code| *code != sku && own(code)) {
            return Err(format!("“{name}” is itself the SKU {other}"));
        }
        match self.aliases.insert(name.to_owned(), sku.clone()) {
            Some(other) if other != *sku => Err(format!("“{name}” is a name of {other} already")),
            _ => Ok(()),
        }
    }

    /// Sets what holds for a pool.
    pub fn describe_pool(&mut self, pool: &PoolName, terms: PoolTerms) {
        self.pools.insert(pool.clone(), terms);
    }

    /// Sets what a credit is worth from the start of a month on.
    pub fn set_credit_rate(&mut self, from: Month, rate: CreditRate) {
        self.credit_rates.insert(from, rate);
    }

    /// The SKU that a source means by `name`: an alias, a code, or the whole GPU of a model.
    #[must_use]
    pub fn sku(&self, name: &str) -> Option<Sku> {
        let known = |code: SkuCode| self.skus.get(&code).map(|slices| Sku { code: code.clone(), slices: *slices });
        let alias = self.aliases.get(name).cloned().and_then(known);
        alias.or_else(|| {
            SkuCode::parse(name)
                .ok()
                .and_then(|code| known(code.clone()).or_else(|| known(SkuCode::full(code.as_str()))))
        })
    }

    /// The rate and weight in force for a SKU in a pool at an instant.
    ///
    /// A rate for the pool goes before one for any pool. A slice for which the book never gives a rate is priced by
    /// its part of the full GPU, by the pool's basis. Nothing else is guessed.
    ///
    /// # Errors
    /// Why it is unpriced.
    pub fn terms(&self, sku: &Sku, pool: &PoolName, class: ServiceClass, at: Instant) -> Result<Terms, Unpriced> {
        let known = |code: &SkuCode| self.skus.contains_key(code);
        if !known(&sku.code) && !known(&SkuCode::full(sku.gpu_model())) {
            return Err(Unpriced::UnknownSku);
        }
        let (given, own) = self.rate_of(&sku.code, pool, class, at);
        if given || sku.is_full() {
            return own.map(|rate| Terms { rate, weight: Ratio::ONE });
        }
        if sku.slices == SkuSlices::FULL {
            return Err(Unpriced::UnknownSlice);
        }
        let basis = self.pools.get(pool).copied().unwrap_or_default().basis;
        let (_, full) = self.rate_of(&SkuCode::full(sku.gpu_model()), pool, class, at);
        full.map(|rate| Terms { rate, weight: sku.slices.weight(basis) })
    }

    /// Whether the book has any row for this SKU and class, and the rate in force.
    fn rate_of(
        &self,
        sku: &SkuCode,
        pool: &PoolName,
        class: ServiceClass,
        at: Instant,
    ) -> (bool, Result<Rate, Unpriced>) {
        let mut given = false;
        for pool in [Some(pool.clone()), None] {
            let key = PriceKey { sku: sku.clone(), pool, service_class: class };
            let Some(series) = self.prices.get(&key) else { continue };
            given = true;
            if let Some((_, rate)) = series.iter().find(|(validity, _)| validity.contains(at)) {
                return (true, rate.ok_or(Unpriced::LeftEmpty));
            }
        }
        (given, Err(Unpriced::NoPrice))
    }

    /// What a credit is worth in a month, if the book says.
    #[must_use]
    pub fn credit_rate(&self, month: Month) -> Option<&CreditRate> {
        self.credit_rates.range(..=month).next_back().map(|(_, rate)| rate)
    }

    /// Every instant at which a price, or what is charged of suspended jobs, changes. Who pays for an end is asked
    /// once, at the end, and cuts nothing.
    #[must_use]
    pub fn changes(&self) -> BTreeSet<Instant> {
        let prices = self.prices.values().flatten().flat_map(|(validity, _)| validity.changes());
        prices.chain(self.suspended.entries().flat_map(|(_, validity, _)| validity.changes())).collect()
    }

    /// The holes between two rows of one key.
    #[must_use]
    pub fn gaps(&self) -> Vec<Gap> {
        let hole = |key: &PriceKey, pair: &[(Validity, Option<Rate>)]| match pair {
            [(before, _), (after, _)] => {
                Interval::new(before.until(), after.from()).map(|interval| Gap { key: key.clone(), interval })
            }
            _ => None,
        };
        self.prices.iter().flat_map(|(key, series)| series.windows(2).filter_map(move |pair| hole(key, pair))).collect()
    }

    /// All rows, by key and time.
    pub fn rows(&self) -> impl Iterator<Item = (&PriceKey, Validity, Option<Rate>)> {
        self.prices.iter().flat_map(|(key, series)| series.iter().map(move |(validity, rate)| (key, *validity, *rate)))
    }

    /// All SKUs the book knows.
    pub fn skus(&self) -> impl Iterator<Item = Sku> {
        self.skus.iter().map(|(code, slices)| Sku { code: code.clone(), slices: *slices })
    }

    /// All names by which sources call SKUs.
    pub fn aliases(&self) -> impl Iterator<Item = (&str, &SkuCode)> {
        self.aliases.iter().map(|(name, code)| (name.as_str(), code))
    }

    /// All pools the book describes.
    pub fn pools(&self) -> impl Iterator<Item = (&PoolName, PoolTerms)> {
        self.pools.iter().map(|(name, terms)| (name, *terms))
    }

    /// All rates of the credit, by the month they begin.
    pub fn credit_rates(&self) -> impl Iterator<Item = (Month, &CreditRate)> {
        self.credit_rates.iter().map(|(month, rate)| (*month, rate))
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    fn at(text: &str) -> Instant {
        Instant::parse(text).unwrap()
    }

    fn row(sku: &str, from: &str, until: Option<&str>, rate: &str) -> PriceRow {
        PriceRow {
            key: PriceKey { sku: SkuCode::parse(sku).unwrap(), pool: None, service_class: ServiceClass::OnDemand },
            from: Some(at(from)),
            until: until.map(at),
            rate: (!rate.is_empty()).then(|| Rate::parse(rate).unwrap()),
        }
    }

    fn terms(book: &PriceBook, sku: &str, when: &str) -> Result<String, Unpriced> {
        let sku = book.sku(sku).unwrap();
        let terms = book.terms(&sku, &PoolName::parse("p").unwrap(), ServiceClass::OnDemand, at(when))?;
        Ok(format!("{} × {}", terms.rate, terms.weight))
    }

    #[test]
    fn pri_01_each_second_has_the_price_in_force_at_that_second() {
        let book = PriceBook::new(&[
            row("A100/full", "2025-04-01T00:00:00Z", None, "2.00"),
            row("A100/full", "2025-04-15T14:30:00Z", None, "3.00"),
        ])
        .unwrap();
        assert_eq!(terms(&book, "A100", "2025-04-15T14:29:59.999999Z").unwrap(), "2 × 1/1");
        assert_eq!(terms(&book, "A100", "2025-04-15T14:30:00Z").unwrap(), "3 × 1/1");
        assert_eq!(book.changes().len(), 2);
    }

    #[test]
    fn pri_02_no_valid_price_is_not_a_price_of_zero() {
        let book = PriceBook::new(&[
            row("H100/full", "2025-04-01T00:00:00Z", Some("2025-05-01T00:00:00Z"), "5.00"),
            row("L4/full", "2025-04-01T00:00:00Z", None, "0.00"),
            row("T4/full", "2025-04-01T00:00:00Z", None, ""),
        ])
        .unwrap();
        assert_eq!(terms(&book, "H100", "2025-04-30T22:00:00Z").unwrap(), "5 × 1/1");
        assert_eq!(terms(&book, "H100", "2025-05-01T00:00:00Z"), Err(Unpriced::NoPrice));
        assert_eq!(terms(&book, "H100", "2025-03-31T00:00:00Z"), Err(Unpriced::NoPrice));
        assert_eq!(terms(&book, "L4", "2025-05-01T00:00:00Z").unwrap(), "0 × 1/1");
        assert_eq!(terms(&book, "T4", "2025-05-01T00:00:00Z"), Err(Unpriced::LeftEmpty));
        assert!(book.sku("B200").is_none());
    }

    #[test]
    fn two_prices_for_one_instant_are_refused() {
        let twice = [
            row("H100/full", "2025-04-01T00:00:00Z", None, "3.75"),
            row("H100/full", "2025-04-01T00:00:00Z", None, "4"),
        ];
        assert_eq!(PriceBook::new(&twice).unwrap_err().0, 1);
        let overlap = [
            row("H100/full", "2025-04-01T00:00:00Z", Some("2025-06-01T00:00:00Z"), "3"),
            row("H100/full", "2025-05-01T00:00:00Z", None, "4"),
        ];
        assert_eq!(PriceBook::new(&overlap).unwrap_err().0, 1);
    }

    #[test]
    fn a_hole_between_two_prices_is_named() {
        let book = PriceBook::new(&[
            row("H100/full", "2025-04-01T00:00:00Z", Some("2025-05-01T00:00:00Z"), "3"),
            row("H100/full", "2025-06-01T00:00:00Z", None, "4"),
        ])
        .unwrap();
        assert_eq!(
            book.gaps().first().map(|gap| gap.interval.to_string()),
            Some("[2025-05-01T00:00:00Z, 2025-06-01T00:00:00Z)".into())
        );
    }

    #[test]
    fn a_slice_without_a_rate_of_its_own_is_part_of_the_full_gpu_by_the_pools_basis() {
        let mut book = PriceBook::new(&[row("h100/full", "2025-04-01T00:00:00Z", None, "7")]).unwrap();
        let slices = SkuSlices::of(Ratio::new(3, 7).unwrap(), Ratio::new(4, 8).unwrap());
        book.describe_sku(&Sku { code: SkuCode::parse("h100/3g.40gb").unwrap(), slices });
        for (basis, right) in [(Basis::Compute, "7 × 3/7"), (Basis::Memory, "7 × 4/8"), (Basis::Larger, "7 × 4/8")] {
            book.describe_pool(&PoolName::parse("p").unwrap(), PoolTerms { basis });
            assert_eq!(terms(&book, "h100/3g.40gb", "2025-04-02T00:00:00Z").unwrap(), right);
        }
    }

    #[test]
    fn a_slice_that_nothing_describes_is_unpriced_not_a_whole_gpu() {
        let book = PriceBook::new(&[row("h100/full", "2025-04-01T00:00:00Z", None, "7")]).unwrap();
        let slice = Sku { code: SkuCode::parse("h100/1g.10gb").unwrap(), slices: SkuSlices::FULL };
        let (pool, at) = (PoolName::parse("p").unwrap(), at("2025-04-02T00:00:00Z"));
        assert_eq!(book.terms(&slice, &pool, ServiceClass::OnDemand, at), Err(Unpriced::UnknownSlice));
    }

    #[test]
    fn a_price_for_the_pool_goes_before_one_for_any() {
        let mut special = row("h100/full", "2025-04-01T00:00:00Z", Some("2025-05-01T00:00:00Z"), "9");
        special.key.pool = Some(PoolName::parse("p").unwrap());
        let book = PriceBook::new(&[row("h100/full", "2025-04-01T00:00:00Z", None, "7"), special]).unwrap();
        assert_eq!(terms(&book, "h100", "2025-04-02T00:00:00Z").unwrap(), "9 × 1/1");
        assert_eq!(terms(&book, "h100", "2025-05-02T00:00:00Z").unwrap(), "7 × 1/1");
    }
}
