//! Whether the time for which a job was suspended is charged: its GPUs stay with it, but it does not run.

use crate::time::{Instant, Validity};

/// What of a job's time is charged.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub enum SuspendedTime {
    /// All the time for which it held its GPUs, as Slurm's `sreport` counts them.
    #[default]
    Held,
    /// Only the time for which it ran, as Slurm's `sacct` tells in `Elapsed`.
    Running,
}

impl SuspendedTime {
    /// The word in files.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            SuspendedTime::Held => "held",
            SuspendedTime::Running => "running",
        }
    }

    /// Reads `held` or `running`.
    #[must_use]
    pub fn parse(text: &str) -> Option<SuspendedTime> {
        [SuspendedTime::Held, SuspendedTime::Running].into_iter().find(|time| time.as_str() == text)
    }
}

/// What is charged of suspended jobs, by cluster and over time. Where nothing is said, all the time held.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct SuspendedPolicy {
    /// By cluster, none overlapping another of its cluster.
    entries: Vec<(String, Validity, SuspendedTime)>,
}

impl SuspendedPolicy {
    /// Adds an entry.
    ///
    /// # Errors
    /// A sentence where it overlaps an earlier one of its cluster.
    pub fn add(&mut self, cluster: &str, validity: Validity, time: SuspendedTime) -> Result<(), String> {
        if self.entries.iter().any(|(name, other, _)| name == cluster && other.overlaps(validity)) {
            return Err(format!("{cluster} has an entry at the same time already; end that one with until"));
        }
        self.entries.push((cluster.to_owned(), validity, time));
        Ok(())
    }

    /// What is charged of a cluster's jobs at an instant.
    #[must_use]
    pub fn of(&self, cluster: &str, at: Instant) -> SuspendedTime {
        let entry = self.entries.iter().find(|(name, validity, _)| name == cluster && validity.contains(at));
        entry.map_or_else(SuspendedTime::default, |(_, _, time)| *time)
    }

    /// All entries, in the order they were given.
    pub fn entries(&self) -> impl Iterator<Item = (&str, Validity, SuspendedTime)> {
        self.entries.iter().map(|(cluster, validity, time)| (cluster.as_str(), *validity, *time))
    }
}
