//! Instants and lengths of time as other systems write them.

use gpuledger_domain::time::{Instant, SECOND_US, without_leap_second};
use jiff::fmt::strtime::BrokenDownTime;
use jiff::tz::TimeZone;

use crate::files::mapping::TimeFormat;

/// Reads instants of one format and zone.
#[derive(Debug)]
pub(super) struct InstantReader {
    format: TimeFormat,
    zone: Option<TimeZone>,
    zone_name: String,
}

impl InstantReader {
    /// A reader; the zone was checked with the mapping.
    pub(super) fn new(format: &TimeFormat, zone: Option<&str>) -> InstantReader {
        InstantReader {
            format: format.clone(),
            zone: zone.and_then(|zone| TimeZone::get(zone).ok()),
            zone_name: zone.unwrap_or_default().to_owned(),
        }
    }

    /// Reads an instant.
    pub(super) fn read(&self, text: &str) -> Result<Instant, String> {
        match &self.format {
            TimeFormat::Rfc3339 => Instant::parse(text),
            TimeFormat::UnixSeconds => scaled_decimal(text, SECOND_US).and_then(in_calendar),
            TimeFormat::UnixMilliseconds => scaled_decimal(text, 1_000).and_then(in_calendar),
            TimeFormat::Pattern(pattern) => self.by_pattern(text, pattern),
        }
    }

    fn by_pattern(&self, text: &str, pattern: &str) -> Result<Instant, String> {
        let wrong = || format!("“{text}” does not have the form {pattern}");
        let (plain, leap) = without_leap_second(text);
        let parsed = BrokenDownTime::parse(pattern, plain.as_bytes()).map_err(|_| wrong())?;
        let timestamp = match (parsed.offset().is_some() || pattern.contains("%s"), &self.zone) {
            (true, _) => parsed.to_timestamp().map_err(|_| wrong())?,
            (false, Some(zone)) => {
                let local = parsed
                    .to_datetime()
                    .or_else(|_| parsed.to_date().map(|date| date.at(0, 0, 0, 0)))
                    .map_err(|_| wrong())?;
                zone.to_ambiguous_timestamp(local).unambiguous().map_err(|_| {
                    format!(
                        "“{text}” comes twice or not at all in {}, where clocks change; export times in UTC",
                        self.zone_name
                    )
                })?
            }
            (false, None) => return Err(format!("“{text}” has no offset, and the mapping states no zone")),
        };
        let leap_us = if leap { SECOND_US } else { 0 };
        Instant::from_micros(timestamp.as_microsecond()).plus_micros(leap_us).ok_or_else(wrong)
    }
}

fn in_calendar(micros: i64) -> Result<Instant, String> {
    if micros == 0 {
        return Err("it is 0, which sources write for “unknown”; leave the cell empty".to_owned());
    }
    Instant::from_micros(micros).plus_micros(0).ok_or_else(|| "it lies outside the calendar".to_owned())
}

/// Reads a decimal number of a unit, exactly, as microseconds.
pub(super) fn scaled_decimal(text: &str, unit_us: i64) -> Result<i64, String> {
    let wrong = || format!("“{text}” is no decimal number");
    let (sign, digits) = text.strip_prefix('-').map_or((1, text), |digits| (-1, digits));
    let (whole, rest) = digits.split_once('.').unwrap_or((digits, ""));
    let all_digits = |part: &str| part.bytes().all(|byte| byte.is_ascii_digit());
    if (whole.is_empty() && rest.is_empty()) || !all_digits(whole) || !all_digits(rest) {
        return Err(wrong());
    }
    let rest = rest.trim_end_matches('0');
    let places = u32::try_from(rest.len()).map_err(|_| wrong())?;
    let number = |part: &str| if part.is_empty() { Ok(0) } else { part.parse::<i128>().map_err(|_| wrong()) };
    let one = 10i128.checked_pow(places).filter(|_| places <= 18).ok_or_else(wrong)?;
    let micros = (number(whole)?.checked_mul(one).ok_or_else(wrong)? + number(rest)?)
        .checked_mul(unit_us.into())
        .ok_or_else(wrong)?;
    if micros % one != 0 {
        return Err(format!("“{text}” is finer than a microsecond, which cannot be held exactly"));
    }
    i64::try_from(sign * (micros / one)).map_err(|_| wrong())
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn decimals_are_read_exactly() {
        for (text, right) in
            [("66.0", 66_000_000), ("0.000001", 1), ("-1.5", -1_500_000), (".5", 500_000), ("7.", 7_000_000)]
        {
            assert_eq!(scaled_decimal(text, SECOND_US).unwrap(), right, "{text}");
        }
        for bad in
            ["", ".", "1e3", "1,5", "0.0000001", "+1", "9999999999999999999999", "NaN", "1.0000000000000000000001"]
        {
            assert!(scaled_decimal(bad, SECOND_US).is_err(), "{bad}");
        }
    }

    #[test]
    fn local_times_need_to_be_unambiguous() {
        let reader = |zone| InstantReader::new(&TimeFormat::Pattern("%Y-%m-%d %H:%M:%S".into()), Some(zone));
        assert_eq!(reader("Europe/Berlin").read("2025-10-26 01:30:00").unwrap().to_string(), "2025-10-25T23:30:00Z");
        for text in ["2025-10-26 02:30:00", "2025-03-30 02:30:00"] {
            assert!(reader("Europe/Berlin").read(text).unwrap_err().contains("twice or not at all in Europe/Berlin"));
        }
        assert_eq!(reader("UTC").read("2016-12-31 23:59:60").unwrap().to_string(), "2017-01-01T00:00:00Z");
        assert!(reader("UTC").read("2017-01-01").is_err());
    }

    #[test]
    fn a_pattern_with_an_offset_needs_no_zone() {
        let reader = InstantReader::new(&TimeFormat::Pattern("%Y-%m-%dT%H:%M:%S%z".into()), None);
        assert_eq!(reader.read("2025-01-01T01:00:00+0100").unwrap().to_string(), "2025-01-01T00:00:00Z");
        let reader = InstantReader::new(&TimeFormat::UnixSeconds, None);
        assert_eq!(reader.read("1483228800").unwrap().to_string(), "2017-01-01T00:00:00Z");
        assert!(reader.read("0").unwrap_err().contains("unknown"));
    }
}
