//! Instants and half-open intervals, in microseconds of UTC.
//!
//! The scale is POSIX: a leap second has no number of its own, `23:59:60` is the instant after `23:59:59`.
//! Nothing here knows a local time zone; see [`crate::calendar`].

use std::fmt;

/// Microseconds in one second.
pub const SECOND_US: i64 = 1_000_000;
/// Microseconds in one hour.
pub const HOUR_US: i64 = 3_600 * SECOND_US;

/// An instant: microseconds since 1970-01-01T00:00:00Z, UTC.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Instant(i64);

impl Instant {
    /// The earliest instant the calendar can name (year −9999).
    pub const MIN: Instant = Instant(-377_705_023_201_000_000);
    /// The latest instant the calendar can name (year 9999).
    pub const MAX: Instant = Instant(253_402_207_200_000_000);

    /// The instant so many microseconds after the Unix epoch.
    #[must_use]
    pub const fn from_micros(micros: i64) -> Instant {
        Instant(micros)
    }

    /// Microseconds since the Unix epoch.
    #[must_use]
    pub const fn micros(self) -> i64 {
        self.0
    }

    /// The UTC hour this instant lies in.
    #[must_use]
    pub const fn hour(self) -> Hour {
        Hour(self.0.div_euclid(HOUR_US))
    }

    /// This instant moved by `micros`, or `None` where that leaves the calendar.
    #[must_use]
    pub fn plus_micros(self, micros: i64) -> Option<Instant> {
        self.0.checked_add(micros).map(Instant).filter(|instant| (Instant::MIN..=Instant::MAX).contains(instant))
    }

    /// Reads RFC 3339 with an offset, such as `2017-10-01T00:00:00Z`. A second of `60` is the next minute's `00`.
    ///
    /// # Errors
    /// A sentence that says what is wrong with the text.
    pub fn parse(text: &str) -> Result<Instant, String> {
        let (text, leap) = without_leap_second(text);
        let parsed: jiff::Timestamp = text.parse().map_err(|_| {
            format!("“{text}” is not an instant; write it like 2017-10-01T00:00:00Z, with Z or an offset")
        })?;
        if parsed.subsec_nanosecond() % 1_000 != 0 {
            return Err(format!("“{text}” is finer than a microsecond, which cannot be held exactly"));
        }
        Instant(parsed.as_microsecond())
            .plus_micros(if leap { SECOND_US } else { 0 })
            .ok_or_else(|| format!("“{text}” lies outside the calendar"))
    }
}

impl fmt::Display for Instant {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match jiff::Timestamp::from_microsecond(self.0) {
            Ok(timestamp) => write!(f, "{timestamp}"),
            Err(_) => write!(f, "{} µs", self.0),
        }
    }
}

/// A text with its leap second, if it names one, turned into second 59, and whether it did.
///
/// Servers, drivers and schedulers count POSIX seconds; the caller adds the second back.
#[must_use]
pub fn without_leap_second(text: &str) -> (std::borrow::Cow<'_, str>, bool) {
    let bytes = text.as_bytes();
    let leap = bytes
        .windows(6)
        .position(|w| matches!(w, [b':', a, b, b':', b'6', b'0'] if a.is_ascii_digit() && b.is_ascii_digit()));
    match leap {
        Some(at) => {
            let mut changed = text.to_owned();
            changed.replace_range(at + 4..at + 6, "59");
            (changed.into(), true)
        }
        None => (text.into(), false),
    }
}

/// A UTC hour: whole hours since the Unix epoch. The first part of every segment's key.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Hour(i64);

impl Hour {
    /// The hour with this number.
    #[must_use]
    pub const fn from_number(number: i64) -> Hour {
        Hour(number)
    }

    /// Whole hours since the Unix epoch.
    #[must_use]
    pub const fn number(self) -> i64 {
        self.0
    }

    /// The instant at which the hour begins.
    #[must_use]
    pub const fn start(self) -> Instant {
        Instant(self.0.saturating_mul(HOUR_US))
    }

    /// The hour after this one.
    #[must_use]
    pub const fn next(self) -> Hour {
        Hour(self.0.saturating_add(1))
    }
}

/// A half-open, non-empty interval: its start belongs to it, its end does not.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Interval {
    start: Instant,
    end: Instant,
}

impl Interval {
    /// The interval from `start` to `end`, or `None` unless `start` is before `end`.
    #[must_use]
    pub fn new(start: Instant, end: Instant) -> Option<Interval> {
        (start < end).then_some(Interval { start, end })
    }

    /// The first instant of the interval.
    #[must_use]
    pub const fn start(self) -> Instant {
        self.start
    }

    /// The first instant after the interval.
    #[must_use]
    pub const fn end(self) -> Instant {
        self.end
    }

    /// Its length in microseconds; always above zero.
    #[must_use]
    pub const fn length_us(self) -> i64 {
        self.end.0.saturating_sub(self.start.0)
    }

    /// Whether the instant lies in the interval.
    #[must_use]
    pub fn contains(self, instant: Instant) -> bool {
        self.start <= instant && instant < self.end
    }

    /// What both intervals have in common.
    #[must_use]
    pub fn intersection(self, other: Interval) -> Option<Interval> {
        Interval::new(self.start.max(other.start), self.end.min(other.end))
    }

    /// The interval cut at each of `cuts` that lies strictly inside it. `cuts` must be sorted.
    #[must_use]
    pub fn cut_at(self, cuts: &[Instant]) -> Vec<Interval> {
        let mut parts = Vec::new();
        let mut start = self.start;
        for &cut in cuts.iter().filter(|cut| self.start < **cut && **cut < self.end) {
            parts.extend(Interval::new(start, cut));
            start = cut;
        }
        parts.extend(Interval::new(start, self.end));
        parts
    }

    /// The UTC hours the interval touches, in order.
    pub fn hours(self) -> impl Iterator<Item = Hour> {
        let last = Instant(self.end.0.saturating_sub(1)).hour();
        (self.start.hour().0..=last.0).map(Hour)
    }

    /// The interval cut at every UTC hour, each part with its hour.
    pub fn by_hour(self) -> impl Iterator<Item = (Hour, Interval)> {
        self.hours().filter_map(move |hour| {
            let whole = Interval::new(hour.start(), hour.next().start())?;
            Some((hour, self.intersection(whole)?))
        })
    }
}

impl fmt::Display for Interval {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "[{}, {})", self.start, self.end)
    }
}

/// When something is in force: from an instant on, until another or without end.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Validity {
    from: Instant,
    until: Instant,
}

impl Validity {
    /// In force always.
    pub const ALWAYS: Validity = Validity { from: Instant::MIN, until: Instant::MAX };

    /// In force from `from` (`None`: ever since) until `until` (`None`: without end); `None` if it is empty.
    #[must_use]
    pub fn new(from: Option<Instant>, until: Option<Instant>) -> Option<Validity> {
        let validity = Validity { from: from.unwrap_or(Instant::MIN), until: until.unwrap_or(Instant::MAX) };
        (validity.from < validity.until).then_some(validity)
    }

    /// Whether it is in force at the instant.
    #[must_use]
    pub fn contains(self, instant: Instant) -> bool {
        self.from <= instant && instant < self.until
    }

    /// The instant it comes into force; [`Instant::MIN`] where it always was.
    #[must_use]
    pub const fn from(self) -> Instant {
        self.from
    }

    /// The instant it ends; [`Instant::MAX`] where it does not.
    #[must_use]
    pub const fn until(self) -> Instant {
        self.until
    }

    /// Whether two validities share an instant.
    #[must_use]
    pub fn overlaps(self, other: Validity) -> bool {
        self.from < other.until && other.from < self.until
    }

    /// The part of it inside `interval`.
    #[must_use]
    pub fn within(self, interval: Interval) -> Option<Interval> {
        Interval::new(self.from.max(interval.start()), self.until.min(interval.end()))
    }

    /// The instants at which it changes something: its start and its end, where they are real.
    pub fn changes(self) -> impl Iterator<Item = Instant> {
        [self.from, self.until].into_iter().filter(|at| *at != Instant::MIN && *at != Instant::MAX)
    }
}

impl fmt::Display for Validity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (self.from == Instant::MIN, self.until == Instant::MAX) {
            (true, true) => write!(f, "always"),
            (true, false) => write!(f, "until {}", self.until),
            (false, true) => write!(f, "from {}", self.from),
            (false, false) => write!(f, "[{}, {})", self.from, self.until),
        }
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn at(text: &str) -> Instant {
        Instant::parse(text).unwrap()
    }

    #[test]
    fn tim_02_a_leap_second_is_the_first_second_of_the_next_day() {
        assert_eq!(at("2016-12-31T23:59:60Z").micros(), 1_483_228_800 * SECOND_US);
        let row = Interval::new(at("2016-12-31T23:59:50Z"), at("2017-01-01T00:00:10Z")).unwrap();
        let parts = row.cut_at(&[at("2017-01-01T00:00:00Z")]);
        assert_eq!(parts.iter().map(|part| part.length_us() / SECOND_US).collect::<Vec<_>>(), [10, 10]);
        let events = [at("2016-12-31T23:59:59.9Z"), at("2016-12-31T23:59:60Z"), at("2017-01-01T00:00:00.1Z")];
        assert!(events.is_sorted());
    }

    #[test]
    fn an_instant_without_an_offset_is_refused() {
        assert!(Instant::parse("2017-10-01T00:00:00").is_err());
        assert!(Instant::parse("01/04/2025").is_err());
        assert!(Instant::parse("2017-10-01T00:00:00.0000001Z").is_err());
    }

    proptest! {
        #[test]
        fn cutting_an_interval_anywhere_keeps_its_length(
            start in -4_000_000_000_000_000i64..4_000_000_000_000_000, length in 1i64..1_000_000_000_000,
            mut cuts in prop::collection::vec(-4_000_000_000_000_000i64..4_000_000_000_000_000, 0..9),
        ) {
            let whole = Interval::new(Instant(start), Instant(start + length)).unwrap();
            cuts.extend([start + length / 3, start + length / 2]);
            cuts.sort_unstable();
            let cuts: Vec<Instant> = cuts.into_iter().map(Instant).collect();
            let parts = whole.cut_at(&cuts);
            prop_assert_eq!(parts.iter().map(|part| part.length_us()).sum::<i64>(), length);
            prop_assert!(parts.windows(2).all(|pair| pair[0].end() == pair[1].start()));
            let hours: Vec<_> = whole.by_hour().collect();
            prop_assert_eq!(hours.iter().map(|(_, part)| part.length_us()).sum::<i64>(), length);
            for (hour, part) in hours {
                prop_assert!(part.start().hour() == hour && part.length_us() <= HOUR_US);
            }
        }
    }
}
