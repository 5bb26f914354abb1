//! How an attempt ended, and who pays for that.

use std::collections::BTreeSet;
use std::fmt;

use crate::time::{Instant, Validity};

/// Why an attempt ended.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum EndCause {
    /// It did what it was to do.
    Completed,
    /// It ended with an error of its own.
    Failed,
    /// It took more memory than it had asked for.
    OutOfMemory,
    /// It reached its time limit or deadline.
    Timeout,
    /// Someone ended it.
    Cancelled,
    /// Its node failed, or could not be started for it.
    NodeFailure,
    /// Another job took its place.
    PreEmpted,
    /// The platform needed its node.
    Maintenance,
}

impl EndCause {
    /// Every cause, in the order of statements.
    pub const ALL: [EndCause; 8] = [
        EndCause::Completed,
        EndCause::Failed,
        EndCause::OutOfMemory,
        EndCause::Timeout,
        EndCause::Cancelled,
        EndCause::NodeFailure,
        EndCause::PreEmpted,
        EndCause::Maintenance,
    ];

    /// The words in files and on statements.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            EndCause::Completed => "completed",
            EndCause::Failed => "failed",
            EndCause::OutOfMemory => "out of memory",
            EndCause::Timeout => "timeout",
            EndCause::Cancelled => "cancelled",
            EndCause::NodeFailure => "node failure",
            EndCause::PreEmpted => "pre-empted",
            EndCause::Maintenance => "maintenance",
        }
    }

    /// Reads the words of [`EndCause::as_str`].
    #[must_use]
    pub fn parse(text: &str) -> Option<EndCause> {
        EndCause::ALL.into_iter().find(|cause| cause.as_str() == text)
    }

    /// What a source's word for an end means: Slurm's job states (`man sacct`, "JOB STATE CODES") with whatever stands
    /// behind them, such as `CANCELLED by 1001`, and the words of [`EndCause::as_str`]. `None` for a word that is no
    /// end, or that this does not know: nothing is assumed of it.
    #[must_use]
    pub fn of_source(word: &str) -> Option<EndCause> {
        let first = word.split([' ', '+', ',']).next().unwrap_or_default();
        Some(match first.to_ascii_uppercase().as_str() {
            "COMPLETED" => EndCause::Completed,
            "FAILED" => EndCause::Failed,
            "OUT_OF_MEMORY" => EndCause::OutOfMemory,
            "TIMEOUT" | "DEADLINE" => EndCause::Timeout,
            // A job that is put back into the queue: by whom, the books do not say.
            "CANCELLED" | "REVOKED" | "REQUEUED" => EndCause::Cancelled,
            "NODE_FAIL" | "BOOT_FAIL" => EndCause::NodeFailure,
            "PREEMPTED" => EndCause::PreEmpted,
            "MAINTENANCE" => EndCause::Maintenance,
            _ => return EndCause::parse(word),
        })
    }
}

impl fmt::Display for EndCause {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// For which end causes the platform pays, over time. Where nothing is said, the team pays for every end.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct EndCausePolicy {
    /// In order, none overlapping another.
    entries: Vec<(Validity, BTreeSet<EndCause>)>,
}

impl EndCausePolicy {
    /// Adds an entry: from when, until when, and for which causes the platform pays.
    ///
    /// # Errors
    /// A sentence where it overlaps an earlier one.
    pub fn add(&mut self, validity: Validity, platform_pays: BTreeSet<EndCause>) -> Result<(), String> {
        if self.entries.iter().any(|(other, _)| other.overlaps(validity)) {
            return Err("it is in force at the same time as an earlier entry; end that one with until".to_owned());
        }
        self.entries.push((validity, platform_pays));
        Ok(())
    }

    /// All entries, in the order they were given.
    pub fn entries(&self) -> impl Iterator<Item = (Validity, &BTreeSet<EndCause>)> {
        self.entries.iter().map(|(validity, causes)| (*validity, causes))
    }

    /// For which causes the platform pays where an attempt ends at this instant.
    #[must_use]
    pub fn platform_pays(&self, at: Instant) -> Option<&BTreeSet<EndCause>> {
        self.entries.iter().find(|(validity, _)| validity.contains(at)).map(|(_, causes)| causes)
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn the_words_of_slurm_are_understood() {
        for (word, cause) in [
            ("COMPLETED", Some(EndCause::Completed)),
            ("CANCELLED by 1001", Some(EndCause::Cancelled)),
            ("CANCELLED+", Some(EndCause::Cancelled)),
            ("NODE_FAIL", Some(EndCause::NodeFailure)),
            ("BOOT_FAIL", Some(EndCause::NodeFailure)),
            ("PREEMPTED", Some(EndCause::PreEmpted)),
            ("OUT_OF_MEMORY", Some(EndCause::OutOfMemory)),
            ("DEADLINE", Some(EndCause::Timeout)),
            ("node failure", Some(EndCause::NodeFailure)),
            ("RUNNING", None),
            ("", None),
            ("something new", None),
        ] {
            assert_eq!(EndCause::of_source(word), cause, "{word}");
        }
        assert!(EndCause::ALL.iter().all(|cause| EndCause::parse(cause.as_str()) == Some(*cause)));
    }
}
