//! Exact quantities: small ratios and fractions that never round by themselves.

use std::cmp::Ordering;
use std::fmt;

/// A number left the range that can be held exactly. Nothing was rounded and nothing may be charged.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Overflow;

impl fmt::Display for Overflow {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "a quantity or amount is too large to be held exactly")
    }
}

impl std::error::Error for Overflow {}

/// A part of a whole counted in slices, such as 3 of 7.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Ratio {
    part: i32,
    whole: i32,
}

impl Ratio {
    /// The whole.
    pub const ONE: Ratio = Ratio { part: 1, whole: 1 };

    /// `part` of `whole`; `None` unless 0 ≤ `part` and 0 < `whole`.
    #[must_use]
    pub fn new(part: i32, whole: i32) -> Option<Ratio> {
        (part >= 0 && whole > 0).then_some(Ratio { part, whole })
    }

    /// How many slices.
    #[must_use]
    pub const fn part(self) -> i32 {
        self.part
    }

    /// Of how many.
    #[must_use]
    pub const fn whole(self) -> i32 {
        self.whole
    }

    /// The same value as a fraction in lowest terms.
    #[must_use]
    pub fn fraction(self) -> Fraction {
        Fraction::lowest(self.part.into(), self.whole.into())
    }
}

impl fmt::Display for Ratio {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.part, self.whole)
    }
}

/// An exact number: numerator over denominator, in lowest terms, the denominator above zero.
///
/// All arithmetic is checked: it gives the exact result or [`Overflow`].
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Fraction {
    numerator: i128,
    denominator: i128,
}

impl Fraction {
    /// Nothing.
    pub const ZERO: Fraction = Fraction { numerator: 0, denominator: 1 };

    /// A whole number.
    #[must_use]
    pub fn whole(number: i128) -> Fraction {
        Fraction { numerator: number, denominator: 1 }
    }

    /// `numerator` over `denominator`; `None` unless the denominator is above zero.
    #[must_use]
    pub fn new(numerator: i128, denominator: i128) -> Option<Fraction> {
        (denominator > 0 && numerator != i128::MIN).then(|| Fraction::lowest(numerator, denominator))
    }

    fn lowest(numerator: i128, denominator: i128) -> Fraction {
        let divisor = greatest_common_divisor(numerator, denominator);
        Fraction { numerator: numerator / divisor, denominator: denominator / divisor }
    }

    /// The sum.
    ///
    /// # Errors
    /// [`Overflow`] where it cannot be held exactly.
    pub fn plus(self, other: Fraction) -> Result<Fraction, Overflow> {
        let divisor = greatest_common_divisor(self.denominator, other.denominator);
        let (left, right) = (other.denominator / divisor, self.denominator / divisor);
        let numerator = product(self.numerator, left)?.checked_add(product(other.numerator, right)?);
        Ok(Fraction::lowest(numerator.ok_or(Overflow)?, product(self.denominator, left)?))
    }

    /// The difference.
    ///
    /// # Errors
    /// [`Overflow`] where it cannot be held exactly.
    pub fn minus(self, other: Fraction) -> Result<Fraction, Overflow> {
        self.plus(Fraction { numerator: -other.numerator, denominator: other.denominator })
    }

    /// The product.
    ///
    /// # Errors
    /// [`Overflow`] where it cannot be held exactly.
    pub fn times(self, other: Fraction) -> Result<Fraction, Overflow> {
        let cross = greatest_common_divisor(self.numerator, other.denominator);
        let across = greatest_common_divisor(other.numerator, self.denominator);
        Ok(Fraction {
            numerator: product(self.numerator / cross, other.numerator / across)?,
            denominator: product(self.denominator / across, other.denominator / cross)?,
        })
    }

    /// The quotient; zero has none.
    ///
    /// # Errors
    /// [`Overflow`] where it cannot be held exactly, or the divisor is zero.
    pub fn over(self, divisor: Fraction) -> Result<Fraction, Overflow> {
        let sign = divisor.numerator.signum();
        let flipped = Fraction::new(product(divisor.denominator, sign)?, divisor.numerator.abs()).ok_or(Overflow)?;
        self.times(flipped)
    }

    /// The sum of many.
    ///
    /// # Errors
    /// [`Overflow`] where it cannot be held exactly.
    pub fn sum(fractions: impl IntoIterator<Item = Fraction>) -> Result<Fraction, Overflow> {
        fractions.into_iter().try_fold(Fraction::ZERO, Fraction::plus)
    }

    /// The nearest whole number, halves away from zero: the one rounding rule of the product.
    #[must_use]
    pub fn rounded(self) -> i128 {
        let whole = self.numerator / self.denominator;
        let rest = (self.numerator % self.denominator).abs();
        // Compared without doubling, which could leave the range.
        if rest >= self.denominator - rest { whole + self.numerator.signum() } else { whole }
    }

    /// The largest whole number not above it.
    #[must_use]
    pub fn floor(self) -> i128 {
        self.numerator.div_euclid(self.denominator)
    }

    /// What is left above [`Fraction::floor`]: at least 0, below 1.
    #[must_use]
    pub fn remainder(self) -> Fraction {
        Fraction { numerator: self.numerator.rem_euclid(self.denominator), denominator: self.denominator }
    }

    /// Whether it is exactly zero.
    #[must_use]
    pub const fn is_zero(self) -> bool {
        self.numerator == 0
    }

    /// Reads the canonical form that `Display` writes, such as `91265987/900`.
    #[must_use]
    pub fn parse(text: &str) -> Option<Fraction> {
        let (numerator, denominator) = text.split_once('/')?;
        let fraction = Fraction::new(numerator.parse().ok()?, denominator.parse().ok()?)?;
        (fraction.to_string() == text).then_some(fraction)
    }
}

impl fmt::Display for Fraction {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.numerator, self.denominator)
    }
}

impl PartialOrd for Fraction {
    fn partial_cmp(&self, other: &Fraction) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Fraction {
    /// Compares whole parts, then the reciprocals of what is left: no product, so no overflow.
    fn cmp(&self, other: &Fraction) -> Ordering {
        let (mut left, mut right, mut turned) = (*self, *other, false);
        loop {
            let order = left.floor().cmp(&right.floor());
            let (a, b) = (left.remainder(), right.remainder());
            let order = match (order, a.numerator, b.numerator) {
                (Ordering::Equal, 0, 0) => Ordering::Equal,
                (Ordering::Equal, 0, _) => Ordering::Less,
                (Ordering::Equal, _, 0) => Ordering::Greater,
                (Ordering::Equal, _, _) => {
                    left = Fraction { numerator: a.denominator, denominator: a.numerator };
                    right = Fraction { numerator: b.denominator, denominator: b.numerator };
                    turned = !turned;
                    continue;
                }
                (order, _, _) => order,
            };
            return if turned { order.reverse() } else { order };
        }
    }
}

fn product(a: i128, b: i128) -> Result<i128, Overflow> {
    a.checked_mul(b).filter(|product| *product != i128::MIN).ok_or(Overflow)
}

/// At least 1, also where both are zero.
fn greatest_common_divisor(a: i128, b: i128) -> i128 {
    let (mut a, mut b) = (a.unsigned_abs(), b.unsigned_abs());
    while b != 0 {
        (a, b) = (b, a % b);
    }
    i128::try_from(a.max(1)).unwrap_or(1)
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn f(numerator: i128, denominator: i128) -> Fraction {
        Fraction::new(numerator, denominator).unwrap()
    }

    #[test]
    fn seven_sevenths_are_exactly_one() {
        assert_eq!(Fraction::sum([f(1, 7); 7]), Ok(Fraction::whole(1)));
    }

    #[test]
    fn what_cannot_be_held_is_an_error_not_a_wrong_number() {
        assert_eq!(f(i128::MAX, 1).plus(f(1, 1)), Err(Overflow));
        assert_eq!(f(i128::MAX, 2).times(f(5, 1)), Err(Overflow));
        assert_eq!(f(1, 2).over(Fraction::ZERO), Err(Overflow));
    }

    #[test]
    fn huge_fractions_compare_without_overflow() {
        let (a, b) = (f(i128::MAX - 1, i128::MAX), f(i128::MAX - 2, i128::MAX - 1));
        assert!(a > b);
        assert_eq!((b.cmp(&a), a.cmp(&a)), (Ordering::Less, Ordering::Equal));
        assert!(f(-1, 3) < f(-1, 4));
    }

    proptest! {
        #[test]
        fn arithmetic_agrees_with_cross_multiplication(
            a in -1_000_000i128..1_000_000, b in 1i128..1_000, c in -1_000_000i128..1_000_000, d in 1i128..1_000,
        ) {
            let (x, y) = (f(a, b), f(c, d));
            prop_assert_eq!(x.plus(y).unwrap(), f(a * d + c * b, b * d));
            prop_assert_eq!(x.minus(y).unwrap(), f(a * d - c * b, b * d));
            prop_assert_eq!(x.times(y).unwrap(), f(a * c, b * d));
            prop_assert_eq!(x.cmp(&y), (a * d).cmp(&(c * b)));
            if c != 0 {
                prop_assert_eq!(x.over(y).unwrap().times(y).unwrap(), x);
            }
            prop_assert_eq!(Fraction::parse(&x.to_string()), Some(x));
            prop_assert_eq!(Fraction::whole(x.floor()).plus(x.remainder()).unwrap(), x);
            let off = Fraction::whole(x.rounded()).minus(x).unwrap();
            prop_assert!(off <= f(1, 2) && off >= f(-1, 2));
        }
    }
}
