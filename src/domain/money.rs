//! Credits, rates and currency; the one rounding rule; splits that add up.
//!
//! * A charge is whole micro-credits: quantity × rate, rounded once, halves away from zero ([`Fraction::rounded`]).
//! * A total is the exact Σ quantity × rate, rounded once where it is printed, to hundredths.
//! * The lines under a total are split by largest remainder ([`apportion`]), so every printed column adds up.

use std::fmt;
use std::str::FromStr;

use rust_decimal::Decimal;

use crate::time::HOUR_US;
use crate::units::{Fraction, Overflow, Ratio};

/// Micro-credits in one credit.
pub const CREDIT_MICROS: i128 = 1_000_000;
/// Most decimal places a rate may have.
pub const RATE_PLACES_MAX: u32 = 9;

/// An amount of credits of one charge, in millionths of a credit.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub struct MicroCredits(pub i64);

/// Credits per SKU-hour: an exact decimal, at least 0, with at most nine decimal places.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Rate(Decimal);

/// What one credit is worth in a currency.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct CreditRate {
    /// ISO 4217, such as `USD`.
    pub currency: String,
    /// Currency per credit.
    pub rate: Rate,
}

impl Rate {
    /// Reads plain decimal digits with `.`, such as `2.50`.
    ///
    /// # Errors
    /// A sentence that says what is wrong and how to write it.
    pub fn parse(text: &str) -> Result<Rate, String> {
        let plain = text.bytes().all(|byte| byte.is_ascii_digit() || byte == b'.' || byte == b'-');
        if text.contains(',') {
            return Err(format!("“{text}” holds a comma; write the decimal point as “.” and no thousands mark"));
        }
        let decimal = Decimal::from_str(text).ok().filter(|_| plain);
        let decimal = decimal.ok_or_else(|| format!("“{text}” is not a decimal number; write it like 2.50"))?;
        if decimal.is_sign_negative() && !decimal.is_zero() {
            Err(format!("“{text}” is negative; a rate is 0 or more"))
        } else if decimal.normalize().scale() > RATE_PLACES_MAX {
            Err(format!("“{text}” has more than {RATE_PLACES_MAX} decimal places"))
        } else if decimal >= Decimal::from(1_000_000_000) {
            Err(format!("“{text}” is 1,000,000,000 or more, which no GPU costs an hour"))
        } else {
            Ok(Rate(decimal.normalize()))
        }
    }

    /// The exact value.
    #[must_use]
    pub fn fraction(self) -> Fraction {
        let denominator = 10i128.pow(self.0.scale().min(28));
        Fraction::new(self.0.mantissa(), denominator).unwrap_or(Fraction::ZERO)
    }
}

impl fmt::Display for Rate {
    /// The canonical text: no trailing zeros.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.0.normalize())
    }
}

/// The exact cost in credits of holding a SKU: `share_us` × weight × rate ÷ one hour. Multiplied first, divided
/// once, not rounded.
///
/// # Errors
/// [`Overflow`] where it cannot be held exactly.
pub fn exact_cost(share_us: i128, weight: Ratio, rate: Rate) -> Result<Fraction, Overflow> {
    let hours = Fraction::new(share_us, HOUR_US.into()).ok_or(Overflow)?;
    hours.times(weight.fraction())?.times(rate.fraction())
}

/// An exact amount rounded once, to whole micro-credits.
///
/// # Errors
/// [`Overflow`] where it does not fit a charge (about 9.2 trillion credits).
pub fn rounded_to_micros(exact: Fraction) -> Result<MicroCredits, Overflow> {
    let micros = exact.times(Fraction::whole(CREDIT_MICROS))?.rounded();
    i64::try_from(micros).map(MicroCredits).map_err(|_| Overflow)
}

/// A number with a fixed count of decimal places, as it is printed: `Printed::<2>(1050)` is `10.50`.
///
/// `Display` is the plain form of files: no grouping, `-` for negative, never `-0.00`.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub struct Printed<const PLACES: u32>(pub i128);

impl<const PLACES: u32> Printed<PLACES> {
    const ONE: i128 = 10i128.pow(PLACES);

    /// An exact number rounded once to these places.
    ///
    /// # Errors
    /// [`Overflow`] where it cannot be held exactly.
    pub fn rounded(exact: Fraction) -> Result<Self, Overflow> {
        Ok(Printed(scaled::<PLACES>(exact)?.rounded()))
    }

    /// The printed form of a total, and of the parts that make it up: each is its exact value rounded up or down
    /// by largest remainder, so that the column adds. Ties go to the first.
    ///
    /// # Errors
    /// [`Overflow`] where a number cannot be held exactly.
    pub fn column(exact: &[Fraction]) -> Result<Column<PLACES>, Overflow> {
        let total = Self::rounded(Fraction::sum(exact.iter().copied())?)?;
        Self::column_of(total, exact)
    }

    /// As [`Printed::column`], under a total that was rounded elsewhere.
    ///
    /// # Errors
    /// [`Overflow`] where a number cannot be held exactly.
    pub fn column_of(total: Self, exact: &[Fraction]) -> Result<Column<PLACES>, Overflow> {
        let exact = exact.iter().map(|exact| scaled::<PLACES>(*exact)).collect::<Result<Vec<_>, _>>()?;
        let parts = apportion(total.0, &exact).into_iter().map(Printed).collect();
        Ok(Column { total, parts })
    }

    /// The exact value of what is printed.
    #[must_use]
    pub fn fraction(self) -> Fraction {
        Fraction::new(self.0, Self::ONE).unwrap_or(Fraction::ZERO)
    }

    /// Digits before and after the point, without sign.
    #[must_use]
    pub fn digits(self) -> (u128, u128) {
        let (one, size) = (Self::ONE.unsigned_abs(), self.0.unsigned_abs());
        (size / one, size % one)
    }
}

fn scaled<const PLACES: u32>(exact: Fraction) -> Result<Fraction, Overflow> {
    exact.times(Fraction::whole(Printed::<PLACES>::ONE))
}

impl<const PLACES: u32> fmt::Display for Printed<PLACES> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (whole, rest) = self.digits();
        let sign = if self.0 < 0 { "-" } else { "" };
        match usize::try_from(PLACES).unwrap_or(0) {
            0 => write!(f, "{sign}{whole}"),
            places => write!(f, "{sign}{whole}.{rest:0places$}"),
        }
    }
}

/// A printed total with parts that add up to it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Column<const PLACES: u32> {
    /// The total, rounded once.
    pub total: Printed<PLACES>,
    /// The parts, in the order given.
    pub parts: Vec<Printed<PLACES>>,
}

/// Splits `total` into whole parts near `exact` by largest remainder: each is rounded down, then the units left go
/// one each to the largest remainders, ties to the first. The parts always sum to `total`.
///
/// The result depends on the order of `exact` only where remainders are equal, so callers order by natural keys
/// and get the same split every time. Where `total` is further from Σ `exact` than rounding explains, the
/// difference is dealt out in whole rounds first.
#[must_use]
pub fn apportion(total: i128, exact: &[Fraction]) -> Vec<i128> {
    let mut parts: Vec<i128> = exact.iter().map(|exact| exact.floor()).collect();
    let count = i128::try_from(parts.len()).unwrap_or(i128::MAX);
    if count == 0 {
        return parts;
    }
    let left = total - parts.iter().sum::<i128>();
    let (rounds, extra) = (left.div_euclid(count), left.rem_euclid(count));
    let mut by_remainder: Vec<usize> = (0..parts.len()).collect();
    by_remainder.sort_by_cached_key(|&index| std::cmp::Reverse(exact.get(index).map(|exact| exact.remainder())));
    for (rank, index) in by_remainder.into_iter().enumerate() {
        if let Some(part) = parts.get_mut(index) {
            *part += rounds + i128::from(i128::try_from(rank).is_ok_and(|rank| rank < extra));
        }
    }
    parts
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn exact(text: &str) -> Fraction {
        let decimal = Decimal::from_str(text).unwrap();
        Fraction::new(decimal.mantissa(), 10i128.pow(decimal.scale())).unwrap()
    }

    fn cents(texts: &[&str]) -> (String, Vec<String>) {
        let column = Printed::<2>::column(&texts.iter().map(|text| exact(text)).collect::<Vec<_>>()).unwrap();
        (column.total.to_string(), column.parts.iter().map(ToString::to_string).collect())
    }

    #[test]
    fn rnd_02_halves_go_away_from_zero() {
        let cases = [
            ("0.125", "0.13"),
            ("0.135", "0.14"),
            ("2.675", "2.68"),
            ("1.005", "1.01"),
            ("0.005", "0.01"),
            ("-0.125", "-0.13"),
            ("0.015", "0.02"),
            ("0.025", "0.03"),
            ("-0.005", "-0.01"),
            ("0.0049999", "0.00"),
        ];
        for (text, right) in cases {
            assert_eq!(Printed::<2>::rounded(exact(text)).unwrap().to_string(), right, "{text}");
        }
    }

    #[test]
    fn rnd_01_seven_sevenths_of_ten_add_up_to_ten() {
        let seventh = Fraction::new(10, 7).unwrap();
        let column = Printed::<2>::column(&[seventh; 7]).unwrap();
        assert_eq!(column.parts, [143, 143, 143, 143, 143, 143, 142].map(Printed));
        assert_eq!(column.total.to_string(), "10.00");
        let idle = Fraction::new(40, 7).unwrap();
        let column = Printed::<2>::column(&[seventh, seventh, seventh, idle]).unwrap();
        assert_eq!(column.parts, [143, 143, 143, 571].map(Printed));
    }

    #[test]
    fn rnd_03_tiny_rows_lines_and_minus_zero() {
        assert_eq!(cents(&["0.004"; 1000]).0, "4.00");
        assert_eq!(
            cents(&["33.335", "33.335", "33.33"]),
            ("100.00".into(), ["33.34", "33.33", "33.33"].map(String::from).to_vec())
        );
        assert_eq!(cents(&["-0.004"]), ("0.00".into(), vec!["0.00".into()]));
    }

    #[test]
    fn a_rate_is_read_exactly_or_refused_with_the_remedy() {
        assert_eq!(Rate::parse("3.750").unwrap().to_string(), "3.75");
        assert_eq!(Rate::parse("0.000231").unwrap().fraction(), Fraction::new(231, 1_000_000).unwrap());
        assert_eq!(Rate::parse("0").unwrap().fraction(), Fraction::ZERO);
        for bad in ["2,50", "-1", "1e3", "", "abc", "0.0000000001", "1000000000", "NaN", "1_000", "+1"] {
            assert!(Rate::parse(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn a_charge_that_does_not_fit_is_refused() {
        assert_eq!(rounded_to_micros(Fraction::whole(9_223_372_036_855)), Err(Overflow));
        assert_eq!(rounded_to_micros(exact("0.0000005")), Ok(MicroCredits(1)));
    }

    proptest! {
        #[test]
        fn a_split_adds_up_and_stays_within_one_unit(
            parts in prop::collection::vec((-1_000_000i128..1_000_000, prop::sample::select(vec![1i128, 7, 8, 900, 3_600])), 1..40),
        ) {
            let exact: Vec<Fraction> = parts.iter().map(|(n, d)| Fraction::new(*n, *d).unwrap()).collect();
            let total = Fraction::sum(exact.iter().copied()).unwrap().rounded();
            let split = apportion(total, &exact);
            prop_assert_eq!(split.iter().sum::<i128>(), total);
            for (part, exact) in split.iter().zip(&exact) {
                prop_assert!(*part == exact.floor() || *part == exact.floor() + 1);
            }
        }

        #[test]
        fn a_split_does_not_depend_on_order_where_no_remainders_tie(
            numerators in prop::collection::btree_set(0i128..10_000, 1..20), rotate in 0usize..20,
        ) {
            let exact: Vec<Fraction> = numerators.iter().map(|n| Fraction::new(*n, 10_007).unwrap()).collect();
            let total = Fraction::sum(exact.iter().copied()).unwrap().rounded();
            let mut turned = exact.clone();
            turned.rotate_left(rotate % exact.len());
            let mut split = apportion(total, &exact);
            split.rotate_left(rotate % exact.len());
            prop_assert_eq!(split, apportion(total, &turned));
        }

        #[test]
        fn an_interval_cut_anywhere_costs_the_same(
            share in 1i128..10_000_000_000_000, cut in 0i128..10_000_000_000_000, part in 1i32..8, micros in 0i64..99_000_000,
        ) {
            let rate = Rate(Decimal::new(micros, 6));
            let weight = Ratio::new(part, 7).unwrap();
            let cut = cut.min(share);
            let halves = exact_cost(cut, weight, rate).unwrap().plus(exact_cost(share - cut, weight, rate).unwrap());
            prop_assert_eq!(halves.unwrap(), exact_cost(share, weight, rate).unwrap());
        }

        #[test]
        fn a_far_total_is_still_met(total in -1_000i128..1_000, n in prop::collection::vec(0i128..50, 1..9)) {
            let exact: Vec<Fraction> = n.iter().map(|n| Fraction::new(*n, 7).unwrap()).collect();
            prop_assert_eq!(apportion(total, &exact).iter().sum::<i128>(), total);
        }
    }
}
