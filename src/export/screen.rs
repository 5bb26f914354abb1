//! Numbers as people read them: grouped, with a real minus sign, in hours. Files take their plain form from the
//! numbers themselves.

use gpuledger_domain::money::{Column, Printed, Rate};
use gpuledger_domain::time::HOUR_US;
use gpuledger_domain::units::{Fraction, Overflow, Ratio};

/// Digits grouped by thousands, U+2212 for negative: `−1,152.00`.
#[must_use]
pub fn grouped<const PLACES: u32>(printed: Printed<PLACES>) -> String {
    let plain = printed.to_string();
    let unsigned = plain.strip_prefix('-').unwrap_or(&plain);
    let (whole, rest) = unsigned.split_once('.').unwrap_or((unsigned, ""));
    let mut digits = String::new();
    for (index, digit) in whole.chars().enumerate() {
        if index > 0 && (whole.len() - index).is_multiple_of(3) {
            digits.push(',');
        }
        digits.push(digit);
    }
    let sign = if printed.0 < 0 { "−" } else { "" };
    let point = if rest.is_empty() { "" } else { "." };
    format!("{sign}{digits}{point}{rest}")
}

/// The same with a sign where it is above zero too, and an en dash for nothing: `+12,480.15`, `–`.
#[must_use]
pub fn signed<const PLACES: u32>(printed: Printed<PLACES>) -> String {
    match printed.0 {
        0 => "–".into(),
        1.. => format!("+{}", grouped(printed)),
        _ => grouped(printed),
    }
}

/// As [`signed`], and no text for nothing.
#[must_use]
pub fn signed_unless_nothing<const PLACES: u32>(printed: Printed<PLACES>) -> String {
    if printed.0 == 0 { String::new() } else { signed(printed) }
}

/// Microseconds as hours with two places, a column that adds up.
///
/// # Errors
/// [`Overflow`] where a number cannot be held exactly.
pub fn hours(us: &[Fraction]) -> Result<Column<2>, Overflow> {
    let hour = Fraction::whole(HOUR_US.into());
    let hours = us.iter().map(|us| us.over(hour)).collect::<Result<Vec<_>, _>>()?;
    Printed::column(&hours)
}

/// How much of held time was measured rather than inferred, in percent with two places. `100` only when exact.
#[must_use]
pub fn measured(share_us: i64, estimated_us: i64) -> String {
    if share_us == 0 {
        return "–".into();
    }
    if estimated_us == 0 {
        return "100\u{202f}%".into();
    }
    let part = Fraction::new((i128::from(share_us) - i128::from(estimated_us)) * 10_000, share_us.into());
    let hundredths = part.map_or(0, Fraction::floor);
    format!("{}\u{202f}%", Printed::<2>(hundredths))
}

/// Credits for one hour of the SKU: two places where they say it all, else six.
///
/// # Errors
/// [`Overflow`] where it cannot be held exactly.
pub fn rate_text(rate: Rate, weight: Ratio) -> Result<String, Overflow> {
    let exact = rate.fraction().times(weight.fraction())?;
    let short = Printed::<2>::rounded(exact)?;
    if short.fraction() == exact { Ok(grouped(short)) } else { Ok(grouped(Printed::<6>::rounded(exact)?)) }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_grouped_and_signed() {
        assert_eq!(grouped(Printed::<2>(-115_200)), "−1,152.00");
        assert_eq!(grouped(Printed::<2>(59_698_846)), "596,988.46");
        assert_eq!(grouped(Printed::<0>(1_591_443_406)), "1,591,443,406");
        assert_eq!(grouped(Printed::<2>(0)), "0.00");
        assert_eq!(
            (signed(Printed::<2>(5)), signed(Printed::<2>(0)), signed(Printed::<2>(-5))),
            ("+0.05".into(), "–".into(), "−0.05".into())
        );
    }

    #[test]
    fn all_measured_is_said_only_when_it_is_exact() {
        assert_eq!(measured(1_000_000, 0), "100\u{202f}%");
        assert_eq!(measured(1_000_000_000, 1), "99.99\u{202f}%");
        assert_eq!(measured(0, 0), "–");
    }
}
