//! A counter that only grows, but for restarts and twitches.

/// A counter of energy, as of the last reading.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counter {
    highest: Option<u64>,
    grown: Option<u64>,
}

/// The counter fell though nothing was restarted: what it grew is not known.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RanBackwards;

impl Counter {
    /// Takes a reading. After a restart it began at zero; without one, a lower value is noise under the highest seen, unless it
    /// fell by half: then it restarted unseen, and what it grew meanwhile is not known.
    ///
    /// # Errors
    /// [`RanBackwards`] where it is lower than it was; there is no growth then.
    pub fn take(&mut self, reading: Option<u64>, restarted: bool) -> Result<(), RanBackwards> {
        self.grown = None;
        let (Some(reading), Some(highest)) = (reading, self.highest) else {
            // Growth over readings that are missing is not of this time alone.
            self.highest = reading;
            return Ok(());
        };
        if reading >= highest {
            self.grown = Some(reading - highest);
            self.highest = Some(reading);
            return Ok(());
        }
        if restarted {
            self.grown = Some(reading);
            self.highest = Some(reading);
            return Ok(());
        }
        if reading < highest / 2 {
            self.highest = Some(reading);
        }
        Err(RanBackwards)
    }

    /// By how much it grew since the reading before; `None` where that is not known.
    #[must_use]
    pub const fn since_last(&self) -> Option<u64> {
        self.grown
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn grown(readings: &[(Option<u64>, bool)]) -> Vec<Option<u64>> {
        let mut counter = Counter::default();
        let take = |(reading, restarted): &(Option<u64>, bool)| {
            let _ = counter.take(*reading, *restarted);
            counter.since_last()
        };
        readings.iter().map(take).collect()
    }

    #[test]
    fn tim_05_a_restart_counts_from_zero_and_a_twitch_is_no_restart() {
        let restarted = [(Some(900), false), (Some(1000), false), (Some(50), true), (Some(200), false)];
        assert_eq!(grown(&restarted), [None, Some(100), Some(50), Some(150)]);
        let twitched = [(Some(100_000), false), (Some(99_998), false), (Some(100_998), false)];
        assert_eq!(grown(&twitched), [None, None, Some(998)]);
        let unseen = [(Some(100_000), false), (Some(10), false), (Some(30), false)];
        assert_eq!(grown(&unseen), [None, None, Some(20)]);
        assert_eq!(
            grown(&[(Some(5), false), (None, false), (Some(9), false), (Some(10), false)]),
            [None, None, None, Some(1)]
        );
    }
}
