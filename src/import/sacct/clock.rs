//! Instants and lengths as Slurm writes them, mostly in local time without an offset.

use gpuledger_domain::time::{Instant, SECOND_US, without_leap_second};
use jiff::civil::DateTime;
use jiff::tz::TimeZone;

/// What a cell says of an instant.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Told {
    /// `Unknown`: not yet. `None`: never. Neither is a time.
    Nothing,
    /// This one.
    At(Instant),
    /// One of these two: local clocks showed it twice.
    Twice(Instant, Instant),
}

impl Told {
    /// Every instant it may be.
    pub(super) fn candidates(self) -> Vec<Instant> {
        match self {
            Told::Nothing => Vec::new(),
            Told::At(at) => vec![at],
            Told::Twice(first, second) => vec![first, second],
        }
    }
}

/// Reads instants.
#[derive(Debug)]
pub(super) struct Clock {
    zone: Option<(String, TimeZone)>,
    /// The last whole hour that was read: its local start, and its first instant.
    last_hour: Option<(DateTime, Instant)>,
}

impl Clock {
    /// Of times without an offset in a zone, or of such that need none.
    pub(super) fn new(zone: Option<(String, TimeZone)>) -> Clock {
        Clock { zone, last_hour: None }
    }

    /// Reads a cell: `2026-11-30T17:12:09`, the same with an offset, or seconds since 1970.
    pub(super) fn read(&mut self, text: &str) -> Result<Told, String> {
        if is_nothing(text) {
            return Ok(Told::Nothing);
        }
        if text.len() >= 9 && text.bytes().all(|byte| byte.is_ascii_digit()) {
            let seconds = text.parse::<i64>().ok().and_then(|seconds| seconds.checked_mul(SECOND_US));
            let instant = seconds.and_then(|micros| Instant::from_micros(0).plus_micros(micros));
            return instant.map(Told::At).ok_or_else(|| format!("“{text}” lies outside the calendar"));
        }
        match local(text) {
            Some(local) => self.in_zone(text, local),
            None => Ok(Told::At(with_offset(text)?)),
        }
    }

    fn in_zone(&mut self, text: &str, local: DateTime) -> Result<Told, String> {
        let Some((name, zone)) = &self.zone else {
            return Err(format!(
                "“{text}” has no offset; say in which zone the list was written with --zone, like --zone Europe/Berlin, or export it with TZ=UTC and give --zone UTC"
            ));
        };
        let within = i64::from(local.minute()) * 60 + i64::from(local.second());
        let hour = DateTime::from_parts(local.date(), jiff::civil::time(local.hour(), 0, 0, 0));
        let micros = within * SECOND_US;
        if let Some((known, start)) = self.last_hour
            && known == hour
        {
            return start
                .plus_micros(micros)
                .map(Told::At)
                .ok_or_else(|| format!("“{text}” lies outside the calendar"));
        }
        let at = |local: DateTime, offset: jiff::tz::Offset| {
            let timestamp = offset.to_timestamp(local).map_err(|_| format!("“{text}” lies outside the calendar"))?;
            Ok::<Instant, String>(Instant::from_micros(timestamp.as_microsecond()))
        };
        use jiff::tz::AmbiguousOffset;
        match zone.to_ambiguous_timestamp(local).offset() {
            AmbiguousOffset::Unambiguous { offset } => {
                let told = at(local, offset)?;
                // A whole hour of one offset need not be looked up again.
                let last = DateTime::from_parts(local.date(), jiff::civil::time(local.hour(), 59, 59, 0));
                let same = |edge| matches!(zone.to_ambiguous_timestamp(edge).offset(), AmbiguousOffset::Unambiguous { offset: other } if other == offset);
                if same(hour) && same(last) {
                    self.last_hour = Some((hour, at(hour, offset)?));
                }
                Ok(Told::At(told))
            }
            AmbiguousOffset::Fold { before, after } => Ok(Told::Twice(at(local, before)?, at(local, after)?)),
            AmbiguousOffset::Gap { .. } => {
                Err(format!("“{text}” never was in {name}, where clocks were put forward over it; is the zone right?"))
            }
        }
    }
}

/// What Slurm writes where there is no time.
pub(super) fn is_nothing(text: &str) -> bool {
    matches!(text, "" | "Unknown" | "None" | "N/A" | "(null)" | "0" | "NONE" | "UNKNOWN")
}

/// `2026-11-30T17:12:09`, by its places.
fn local(text: &str) -> Option<DateTime> {
    let bytes = text.as_bytes();
    let (19, Some(b'-'), Some(b'-'), Some(b'T' | b' '), Some(b':'), Some(b':')) =
        (bytes.len(), bytes.get(4), bytes.get(7), bytes.get(10), bytes.get(13), bytes.get(16))
    else {
        return None;
    };
    let number = |range: std::ops::Range<usize>| {
        let part = text.get(range)?;
        part.bytes().all(|byte| byte.is_ascii_digit()).then(|| part.parse::<i16>().ok()).flatten()
    };
    let small = |range| i8::try_from(number(range)?).ok();
    let (year, month, day) = (number(0..4)?, small(5..7)?, small(8..10)?);
    let (hour, minute, second) = (small(11..13)?, small(14..16)?, small(17..19)?);
    // A leap second is the first of the next minute, as POSIX counts.
    let leap = second == 60;
    let local = DateTime::new(year, month, day, hour, minute, if leap { 59 } else { second }, 0).ok()?;
    if leap { local.checked_add(jiff::Span::new().seconds(1)).ok() } else { Some(local) }
}

fn with_offset(text: &str) -> Result<Instant, String> {
    let wrong = || format!("“{text}” is no time like 2026-11-30T17:12:09, with or without an offset");
    let (plain, leap) = without_leap_second(text);
    let parsed = jiff::fmt::strtime::BrokenDownTime::parse("%Y-%m-%dT%H:%M:%S%z", plain.as_bytes())
        .and_then(|parsed| parsed.to_timestamp())
        .or_else(|_| plain.parse::<jiff::Timestamp>())
        .map_err(|_| wrong())?;
    let leap_us = if leap { SECOND_US } else { 0 };
    Instant::from_micros(parsed.as_microsecond()).plus_micros(leap_us).ok_or_else(wrong)
}

/// A length such as `1-02:03:04`, `02:03:04` or `03:04`, in microseconds; fractions of a second are allowed.
pub(super) fn length(text: &str) -> Result<Option<i64>, String> {
    if is_nothing(text) || text == "INVALID" {
        return Ok((text == "0").then_some(0));
    }
    let wrong = || format!("“{text}” is no length like 1-02:03:04");
    let number = |part: &str| {
        let digits = !part.is_empty() && part.len() <= 9 && part.bytes().all(|byte| byte.is_ascii_digit());
        digits.then(|| part.parse::<i64>().ok()).flatten().ok_or_else(wrong)
    };
    let (days, clock) = match text.split_once('-') {
        Some((days, clock)) => (number(days)?, clock),
        None => (0, text),
    };
    let (clock, micros) = match clock.split_once('.') {
        Some((clock, part)) if part.len() <= 6 => (clock, number(&format!("{part:0<6}"))?),
        Some(_) => return Err(wrong()),
        None => (clock, 0),
    };
    let mut parts = clock.rsplit(':');
    let seconds = number(parts.next().unwrap_or_default())?;
    let minutes = number(parts.next().ok_or_else(wrong)?)?;
    let hours = parts.next().map_or(Ok(0), number)?;
    if parts.next().is_some() || minutes > 59 || seconds > 60 {
        return Err(wrong());
    }
    let total = days * 86_400 + hours * 3_600 + minutes * 60 + seconds;
    total.checked_mul(SECOND_US).and_then(|total| total.checked_add(micros)).map(Some).ok_or_else(wrong)
}

/// A length in whole seconds, in microseconds.
pub(super) fn seconds(text: &str) -> Result<Option<i64>, String> {
    if text.is_empty() {
        return Ok(None);
    }
    let digits = text.len() <= 12 && text.bytes().all(|byte| byte.is_ascii_digit());
    let micros = text.parse::<i64>().ok().filter(|_| digits).and_then(|seconds| seconds.checked_mul(SECOND_US));
    micros.map(Some).ok_or_else(|| format!("“{text}” is no number of seconds"))
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    fn clock(zone: &str) -> Clock {
        Clock::new(Some((zone.to_owned(), TimeZone::get(zone).unwrap())))
    }

    fn at(text: &str) -> Told {
        Told::At(Instant::parse(text).unwrap())
    }

    #[test]
    fn times_are_read_in_their_zone() {
        let mut berlin = clock("Europe/Berlin");
        assert_eq!(berlin.read("2025-07-01T12:00:00").unwrap(), at("2025-07-01T10:00:00Z"));
        assert_eq!(berlin.read("2025-07-01T12:59:59").unwrap(), at("2025-07-01T10:59:59Z"));
        assert_eq!(berlin.read("2025-01-01T12:00:00+0200").unwrap(), at("2025-01-01T10:00:00Z"));
        assert_eq!(berlin.read("2025-01-01T12:00:00Z").unwrap(), at("2025-01-01T12:00:00Z"));
        assert_eq!(berlin.read("1483228800").unwrap(), at("2017-01-01T00:00:00Z"));
        let Told::Twice(first, second) = berlin.read("2025-10-26T02:30:00").unwrap() else { panic!() };
        assert_eq!(
            (first.to_string(), second.to_string()),
            ("2025-10-26T00:30:00Z".into(), "2025-10-26T01:30:00Z".into())
        );
        assert!(berlin.read("2025-03-30T02:30:00").unwrap_err().contains("never was in Europe/Berlin"));
        // The hour before the clocks change is not the hour after.
        assert_eq!(berlin.read("2025-10-26T01:30:00").unwrap(), at("2025-10-25T23:30:00Z"));
        assert_eq!(berlin.read("2025-10-26T03:30:00").unwrap(), at("2025-10-26T02:30:00Z"));
        assert_eq!(clock("UTC").read("2016-12-31T23:59:60").unwrap(), at("2017-01-01T00:00:00Z"));
        for nothing in ["Unknown", "None", "", "N/A"] {
            assert_eq!(berlin.read(nothing).unwrap(), Told::Nothing);
        }
        for bad in ["yesterday", "2025-13-01T00:00:00", "12", "2025-01-01"] {
            assert!(berlin.read(bad).is_err(), "{bad}");
        }
        assert!(Clock::new(None).read("2025-01-01T00:00:00").unwrap_err().contains("--zone"));
    }

    #[test]
    fn lengths() {
        assert_eq!(length("1-02:03:04").unwrap(), Some(93_784_000_000));
        assert_eq!(length("00:00:12").unwrap(), Some(12_000_000));
        assert_eq!(length("22:53.824").unwrap(), Some(1_373_824_000));
        assert_eq!(length("Unknown").unwrap(), None);
        assert!(length("12").is_err() && length("1-").is_err() && length("00:61:00").is_err());
        assert_eq!(seconds("70").unwrap(), Some(70_000_000));
        assert!(seconds("-1").is_err());
    }
}
