//! What stays of an attempt's time where its month is closed.

use gpuledger_domain::time::Interval;

/// What stays of a telling because it lies in closed periods.
#[derive(Default)]
pub(super) struct Kept {
    /// When.
    pub(super) intervals: Vec<Interval>,
    /// How much of it was suspended.
    pub(super) suspended_us: i128,
}

/// An interval made to begin and end with a UTC hour.
pub(super) fn whole_hours(interval: Interval) -> Option<Interval> {
    let (first, last) = (interval.hours().next()?, interval.hours().last()?);
    Interval::new(first.start(), last.next().start())
}

/// What of an interval lies in none of these.
pub(super) fn outside<'i>(interval: Interval, excluded: impl Iterator<Item = &'i Interval>) -> Vec<Interval> {
    let mut parts = vec![interval];
    for excluded in excluded {
        let cut = |part: Interval| {
            let Some(both) = part.intersection(*excluded) else { return vec![part] };
            let before = Interval::new(part.start(), both.start());
            before.into_iter().chain(Interval::new(both.end(), part.end())).collect()
        };
        parts = parts.into_iter().flat_map(cut).collect();
    }
    parts
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use gpuledger_domain::time::{HOUR_US, Instant};

    fn of(start: i64, end: i64) -> Interval {
        Interval::new(Instant::from_micros(start * HOUR_US / 2), Instant::from_micros(end * HOUR_US / 2)).unwrap()
    }

    #[test]
    fn what_lies_outside_is_what_is_left() {
        assert_eq!(outside(of(0, 10), [of(2, 4), of(6, 8)].iter()), [of(0, 2), of(4, 6), of(8, 10)]);
        assert_eq!(outside(of(0, 10), [of(-5, 3), of(8, 20)].iter()), [of(3, 8)]);
        assert_eq!(outside(of(0, 10), [of(-5, 20)].iter()), []);
        assert_eq!(outside(of(0, 10), [].iter()), [of(0, 10)]);
        assert_eq!(whole_hours(of(1, 5)), Some(of(0, 6)));
        assert_eq!(whole_hours(of(2, 4)), Some(of(2, 4)));
    }
}
