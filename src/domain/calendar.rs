//! The billing calendar: billing days and months of an IANA time zone, as instants.
//!
//! A month is from one local midnight to another; how many hours lie between is for the zone to say. The zone
//! only says where a day begins: it never moves a price or a second. The time-zone database is compiled in, so
//! that a month has the same length on every machine that runs this version.

use std::fmt;

use jiff::civil::Date;
use jiff::tz::TimeZone;

use crate::time::{Instant, Interval};

/// The calendar of one IANA time zone.
#[derive(Clone, Debug)]
pub struct BillingCalendar {
    zone: TimeZone,
    name: String,
}

/// A calendar month, such as `2017-10`, in no particular zone.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Month {
    year: i16,
    month: i8,
}

/// A calendar month of a billing calendar: what is charged together.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Period {
    /// Which month.
    pub month: Month,
    /// From when to when.
    pub interval: Interval,
}

impl Month {
    /// The month of a year; `None` unless 1 ≤ `month` ≤ 12 and the year has four digits.
    #[must_use]
    pub fn new(year: i16, month: i8) -> Option<Month> {
        ((1..=12).contains(&month) && (1..=9998).contains(&year)).then_some(Month { year, month })
    }

    /// Reads `2017-10`.
    ///
    /// # Errors
    /// A sentence that says how to write it.
    pub fn parse(text: &str) -> Result<Month, String> {
        let wrong = || format!("“{text}” is not a month; write it like 2017-10");
        let (year, month) = text.split_once('-').ok_or_else(wrong)?;
        let digits = |part: &str, length| part.len() == length && part.bytes().all(|byte| byte.is_ascii_digit());
        if !digits(year, 4) || !digits(month, 2) {
            return Err(wrong());
        }
        year.parse().ok().zip(month.parse().ok()).and_then(|(y, m)| Month::new(y, m)).ok_or_else(wrong)
    }

    /// The year.
    #[must_use]
    pub const fn year(self) -> i16 {
        self.year
    }

    /// The month before.
    #[must_use]
    pub const fn previous(self) -> Month {
        match self.month {
            1 => Month { year: self.year - 1, month: 12 },
            month => Month { year: self.year, month: month - 1 },
        }
    }

    /// The month after.
    #[must_use]
    pub const fn next(self) -> Month {
        match self.month {
            12 => Month { year: self.year + 1, month: 1 },
            month => Month { year: self.year, month: month + 1 },
        }
    }

    /// Its English name, such as `October`.
    #[must_use]
    pub fn name(self) -> &'static str {
        const NAMES: [&str; 12] = [
            "January",
            "February",
            "March",
            "April",
            "May",
            "June",
            "July",
            "August",
            "September",
            "October",
            "November",
            "December",
        ];
        usize::try_from(self.month - 1).ok().and_then(|index| NAMES.get(index)).copied().unwrap_or("")
    }

    /// How many days it has.
    #[must_use]
    pub fn days(self) -> i8 {
        self.first_day().days_in_month()
    }

    fn first_day(self) -> Date {
        Date::new(self.year, self.month, 1).unwrap_or(Date::MIN)
    }
}

impl fmt::Display for Month {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:04}-{:02}", self.year, self.month)
    }
}

impl BillingCalendar {
    /// The calendar of an IANA zone such as `Europe/Berlin`.
    ///
    /// # Errors
    /// A sentence that names the unknown zone.
    pub fn new(name: &str) -> Result<BillingCalendar, String> {
        let zone = TimeZone::get(name)
            .map_err(|_| format!("“{name}” is not an IANA time zone; write it like UTC or Europe/Berlin"))?;
        Ok(BillingCalendar { name: zone.iana_name().unwrap_or(name).to_owned(), zone })
    }

    /// The zone's IANA name.
    #[must_use]
    pub fn zone_name(&self) -> &str {
        &self.name
    }

    /// The month as a billing period.
    #[must_use]
    pub fn period(&self, month: Month) -> Period {
        let (start, end) = (self.day_start(month.first_day()), self.day_start(month.next().first_day()));
        // Two months begin at different instants in every zone, so the other branch is never taken.
        let interval = Interval::new(start, end).unwrap_or_else(|| unreachable_interval(start));
        Period { month, interval }
    }

    /// The period an instant lies in.
    #[must_use]
    pub fn period_of(&self, instant: Instant) -> Period {
        let date = self.date_of(instant);
        self.period(Month { year: date.year(), month: date.month() })
    }

    /// The billing day an instant lies in.
    #[must_use]
    pub fn day_of(&self, instant: Instant) -> Interval {
        let date = self.date_of(instant);
        let start = self.day_start(date);
        let end = self.day_start(date.tomorrow().unwrap_or(Date::MAX));
        Interval::new(start, end).unwrap_or_else(|| unreachable_interval(start))
    }

    /// The billing days that touch the interval, whole, in order.
    #[must_use]
    pub fn days(&self, interval: Interval) -> Vec<Interval> {
        let mut days = Vec::new();
        let mut day = self.day_of(interval.start());
        while day.start() < interval.end() {
            days.push(day);
            day = self.day_of(day.end());
        }
        days
    }

    /// The first instant of a billing day given as `2025-04-01`.
    ///
    /// # Errors
    /// A sentence that says how to write the day.
    pub fn parse_day(&self, text: &str) -> Result<Instant, String> {
        let iso = text.len() == 10 && text.bytes().filter(|byte| *byte == b'-').count() == 2;
        let date: Option<Date> = if iso { text.parse().ok() } else { None };
        date.map(|date| self.day_start(date)).ok_or_else(|| format!("“{text}” is not a day; write it like 2025-04-01"))
    }

    /// Day, month name and year of an instant in this zone, such as `3 November 2026`.
    #[must_use]
    pub fn date_text(&self, instant: Instant) -> String {
        let date = self.date_of(instant);
        let month = Month { year: date.year(), month: date.month() };
        format!("{} {} {}", date.day(), month.name(), date.year())
    }

    fn date_of(&self, instant: Instant) -> Date {
        let timestamp = jiff::Timestamp::from_microsecond(instant.micros()).unwrap_or_default();
        self.zone.to_datetime(timestamp).date()
    }

    fn day_start(&self, date: Date) -> Instant {
        match date.to_zoned_datetime(self.zone.clone()).and_then(|noon| noon.start_of_day()) {
            Ok(start) => Instant::from_micros(start.timestamp().as_microsecond()),
            Err(_) => Instant::MAX,
        }
    }
}

/// One microsecond from `start`: stands where the calendar's own edge (year 9999) leaves no day.
fn unreachable_interval(start: Instant) -> Interval {
    let end = Instant::from_micros(start.micros().saturating_add(1));
    Interval::new(start, end).unwrap_or_else(|| unreachable_interval(Instant::MIN))
}

/// The slots of a billing day: the day cut at every instant at which a price, rule, team or pool changes.
///
/// Within a slot everything that decides an amount is constant, so usage may be summed first and priced once.
/// `changes` must be sorted.
#[must_use]
pub fn slots(day: Interval, changes: &[Instant]) -> Vec<Interval> {
    day.cut_at(changes)
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use crate::time::HOUR_US;
    use proptest::prelude::*;

    fn half_hours(zone: &str, month: &str) -> i64 {
        let calendar = BillingCalendar::new(zone).unwrap();
        let length = calendar.period(Month::parse(month).unwrap()).interval.length_us();
        assert_eq!(length % (HOUR_US / 2), 0);
        length / (HOUR_US / 2)
    }

    #[test]
    fn months_have_the_length_their_zone_gives_them() {
        assert_eq!(half_hours("UTC", "2017-10"), 2 * 744);
        assert_eq!(half_hours("Europe/Berlin", "2026-03"), 2 * 743);
        assert_eq!(half_hours("Europe/Berlin", "2026-10"), 2 * 745);
        assert_eq!(half_hours("America/New_York", "2026-03"), 2 * 743);
        assert_eq!(half_hours("America/New_York", "2026-11"), 2 * 721);
        assert_eq!(half_hours("Australia/Lord_Howe", "2026-04"), 1441);
        assert_eq!(half_hours("Australia/Lord_Howe", "2026-10"), 1487);
    }

    #[test]
    fn a_month_in_kolkata_begins_on_a_half_hour() {
        let calendar = BillingCalendar::new("Asia/Kolkata").unwrap();
        let period = calendar.period(Month::parse("2026-09").unwrap());
        assert_eq!(period.interval.to_string(), "[2026-08-31T18:30:00Z, 2026-09-30T18:30:00Z)");
    }

    #[test]
    fn tim_01_days_of_23_and_25_hours() {
        let calendar = BillingCalendar::new("Europe/Berlin").unwrap();
        let day = |text: &str| calendar.day_of(calendar.parse_day(text).unwrap());
        assert_eq!(day("2025-10-26").to_string(), "[2025-10-25T22:00:00Z, 2025-10-26T23:00:00Z)");
        assert_eq!(day("2025-10-26").length_us(), 25 * HOUR_US);
        assert_eq!(day("2025-03-30").length_us(), 23 * HOUR_US);
        assert_eq!(half_hours("Europe/Berlin", "2025-10"), 2 * 745);
        assert_eq!(half_hours("Europe/Berlin", "2025-03"), 2 * 743);
    }

    #[test]
    fn words_that_are_no_month_are_refused() {
        for text in ["2017-13", "2017-1", "17-10", "October", "2017-10-01", "+017-10", ""] {
            assert!(Month::parse(text).is_err(), "{text}");
        }
    }

    proptest! {
        #[test]
        fn days_and_months_tile_time_without_gap(
            micros in 0i64..4_000_000_000_000_000,
            zone in prop::sample::select(vec!["UTC", "Europe/Berlin", "Australia/Lord_Howe", "Asia/Kolkata",
                "America/Santiago", "Asia/Beirut", "Pacific/Apia", "America/St_Johns"]),
        ) {
            let calendar = BillingCalendar::new(zone).unwrap();
            let instant = Instant::from_micros(micros);
            let (day, period) = (calendar.day_of(instant), calendar.period_of(instant));
            prop_assert!(day.contains(instant) && period.interval.contains(instant));
            prop_assert_eq!(calendar.period_of(period.interval.end()).interval.start(), period.interval.end());
            let days = calendar.days(period.interval);
            prop_assert_eq!(days.iter().map(|day| day.length_us()).sum::<i64>(), period.interval.length_us());
            prop_assert_eq!(days.first().map(|day| day.start()), Some(period.interval.start()));
        }
    }
}
