//! Why a statement changed from last month, by driver; the drivers add up to the change.
//!
//! With H the GPU-time and P the amount of last month (0) and this (1), in all and for each SKU k:
//!
//! * more or fewer GPU-hours: (H₁ − H₀) × P₀ ÷ H₀
//! * dearer or cheaper mix: Σₖ Hₖ₁ × Pₖ₀ ÷ Hₖ₀ − H₁ × P₀ ÷ H₀, where a SKU without last month's rate takes this month's
//! * rates: what is left of P₁ − P₀
//!
//! P is what usage comes to. What the platform takes over, and corrections of closed months, stand apart: each the
//! difference of both months.
//!
//! This is the usual price-volume-mix division. Each driver is rounded to the micro-credit, the last takes the rest.

use std::collections::BTreeMap;

use crate::ids::SkuCode;
use crate::money::{CREDIT_MICROS, Printed};
use crate::units::{Fraction, Overflow};

/// GPU-time and amount of one SKU in one month.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct SkuCost {
    /// GPU-equivalent time in microseconds.
    pub gpu_us: Fraction,
    /// Σ quantity × rate in credits.
    pub exact: Fraction,
}

/// What a month comes to.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct MonthCost {
    /// Usage, by SKU.
    pub by_sku: BTreeMap<SkuCode, SkuCost>,
    /// What the platform took over, in credits: zero or less.
    pub taken_over: Fraction,
    /// Corrections of earlier months, in credits.
    pub corrections: Fraction,
}

/// The change from one month to the next, in printed credits. `hours + mix + rates + taken_over + corrections = to − from`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Change {
    /// Last month's printed total.
    pub from: Printed<2>,
    /// This month's printed total.
    pub to: Printed<2>,
    /// More or fewer GPU-hours.
    pub hours: Printed<2>,
    /// A dearer or cheaper mix of SKUs.
    pub mix: Printed<2>,
    /// Other rates for the same SKU.
    pub rates: Printed<2>,
    /// More or less that the platform takes over.
    pub taken_over: Printed<2>,
    /// More or less that is corrected of earlier months.
    pub corrections: Printed<2>,
}

/// Divides the change between two months by driver; `None` where the earlier month held no GPU-time.
///
/// # Errors
/// [`Overflow`] where a product cannot be held.
pub fn change(
    before: &MonthCost,
    after: &MonthCost,
    from: Printed<2>,
    to: Printed<2>,
) -> Result<Option<Change>, Overflow> {
    let in_micros = |credits: Fraction| Ok::<i128, Overflow>(credits.times(Fraction::whole(CREDIT_MICROS))?.rounded());
    let taken_over = in_micros(after.taken_over)? - in_micros(before.taken_over)?;
    let corrections = in_micros(after.corrections)? - in_micros(before.corrections)?;
    let (before, after) = (&before.by_sku, &after.by_sku);
    let time = |costs: &BTreeMap<SkuCode, SkuCost>| whole_sum(costs.values().map(|cost| cost.gpu_us));
    let micros = |costs: &BTreeMap<SkuCode, SkuCost>| {
        whole_sum(
            costs
                .values()
                .map(|cost| cost.exact.times(Fraction::whole(CREDIT_MICROS)))
                .collect::<Result<Vec<_>, _>>()?,
        )
    };
    let (hours_before, hours_after) = (time(before)?, time(after)?);
    let (cost_before, cost_after) = (micros(before)?, micros(after)?);
    if hours_before == 0 {
        return Ok(None);
    }
    let hours = scaled(cost_before, hours_after - hours_before, hours_before)?;
    let mut at_old_rates = 0;
    for (sku, cost) in after {
        let old = before.get(sku).filter(|old| old.gpu_us.rounded() != 0).unwrap_or(cost);
        let old_micros = old.exact.times(Fraction::whole(CREDIT_MICROS))?.rounded();
        at_old_rates += match old.gpu_us.rounded() {
            0 => 0,
            old_time => scaled(old_micros, cost.gpu_us.rounded(), old_time)?,
        };
    }
    let mix = at_old_rates - (cost_before + hours);
    let rates = cost_after - cost_before - hours - mix;
    let exact = [hours, mix, rates, taken_over, corrections]
        .map(|micros| Fraction::new(micros, CREDIT_MICROS).unwrap_or(Fraction::ZERO));
    let column = Printed::column_of(Printed(to.0 - from.0), &exact)?;
    let [hours, mix, rates, taken_over, corrections] = *column.parts.as_slice() else { return Ok(None) };
    Ok(Some(Change { from, to, hours, mix, rates, taken_over, corrections }))
}

fn whole_sum(fractions: impl IntoIterator<Item = Fraction>) -> Result<i128, Overflow> {
    Ok(Fraction::sum(fractions)?.rounded())
}

/// `amount × times ÷ over`, rounded.
fn scaled(amount: i128, times: i128, over: i128) -> Result<i128, Overflow> {
    let ratio = Fraction::new(times, over).ok_or(Overflow)?;
    Ok(Fraction::whole(amount).times(ratio)?.rounded())
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn costs(rows: &[(&str, i128, i128)]) -> MonthCost {
        let cost = |hours: i128, rate: i128| SkuCost {
            gpu_us: Fraction::whole(hours * 3_600_000_000),
            exact: Fraction::new(hours * rate, 100).unwrap(),
        };
        let by_sku =
            rows.iter().map(|(sku, hours, cents)| (SkuCode::parse(sku).unwrap(), cost(*hours, *cents))).collect();
        MonthCost { by_sku, taken_over: Fraction::ZERO, corrections: Fraction::ZERO }
    }

    fn total(costs: &MonthCost) -> Printed<2> {
        Printed::rounded(Fraction::sum(costs.by_sku.values().map(|cost| cost.exact)).unwrap()).unwrap()
    }

    fn drivers(before: &[(&str, i128, i128)], after: &[(&str, i128, i128)]) -> [String; 3] {
        let (before, after) = (costs(before), costs(after));
        let change = change(&before, &after, total(&before), total(&after)).unwrap().unwrap();
        [change.hours, change.mix, change.rates].map(|driver| driver.to_string())
    }

    #[test]
    fn each_driver_alone_shows_alone() {
        assert_eq!(drivers(&[("a", 10, 100)], &[("a", 15, 100)]), ["5.00", "0.00", "0.00"]);
        assert_eq!(drivers(&[("a", 10, 100)], &[("a", 10, 130)]), ["0.00", "0.00", "3.00"]);
        assert_eq!(
            drivers(&[("a", 5, 100), ("b", 5, 300)], &[("a", 0, 100), ("b", 10, 300)]),
            ["0.00", "10.00", "0.00"]
        );
        assert_eq!(drivers(&[("a", 10, 100)], &[("b", 10, 200)]), ["0.00", "10.00", "0.00"]);
    }

    #[test]
    fn after_a_month_without_gpu_time_there_is_nothing_to_compare() {
        let after = costs(&[("a", 1, 100)]);
        assert_eq!(change(&costs(&[]), &after, Printed(0), total(&after)), Ok(None));
    }

    proptest! {
        #[test]
        fn drivers_add_up_to_the_change(
            before in prop::collection::vec((0i128..100_000, 0i128..5_000), 1..5), after in prop::collection::vec((0i128..100_000, 0i128..5_000), 1..5),
        ) {
            let named = |rows: &[(i128, i128)]| costs(&["a", "b", "c", "d"].iter().zip(rows).map(|(sku, (h, r))| (*sku, *h, *r)).collect::<Vec<_>>());
            let (before, after) = (named(&before), named(&after));
            if let Some(change) = change(&before, &after, total(&before), total(&after)).unwrap() {
                prop_assert_eq!(change.hours.0 + change.mix.0 + change.rates.0 + change.taken_over.0 + change.corrections.0, change.to.0 - change.from.0);
            }
        }
    }
}
