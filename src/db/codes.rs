//! The small numbers that stand for words of the domain in tables. They never change their meaning.

use gpuledger_domain::metering::{Source, State};
use gpuledger_domain::pricing::{ChargeKind, EndCause};
use gpuledger_domain::rules::{ServiceClass, Workload};
use gpuledger_domain::units::Ratio;

use crate::DbError;

/// A word of the domain that is stored as a number.
pub(crate) trait Code: Copy + Eq + Sized + 'static {
    /// What it is called in an error.
    const NAME: &'static str;
    /// Every word with its number.
    const CODES: &'static [(i16, Self)];

    fn code(self) -> i16 {
        Self::CODES.iter().find(|(_, word)| *word == self).map_or(0, |(code, _)| *code)
    }

    fn from_code(code: i16) -> Result<Self, DbError> {
        let word = Self::CODES.iter().find(|(number, _)| *number == code).map(|(_, word)| *word);
        word.ok_or_else(|| DbError::Inconsistent(format!("{code} is no {}", Self::NAME)))
    }
}

impl Code for State {
    const NAME: &'static str = "state";
    const CODES: &'static [(i16, State)] =
        &[(1, State::Held), (2, State::Idle), (3, State::Stranded), (4, State::OutOfService), (5, State::Unobserved)];
}

impl Code for Source {
    const NAME: &'static str = "source";
    const CODES: &'static [(i16, Source)] = &[(1, Source::Agent), (2, Source::Scheduler)];
}

impl Code for ServiceClass {
    const NAME: &'static str = "service class";
    const CODES: &'static [(i16, ServiceClass)] =
        &[(1, ServiceClass::OnDemand), (2, ServiceClass::Preemptible), (3, ServiceClass::Reserved)];
}

impl Code for Workload {
    const NAME: &'static str = "workload";
    const CODES: &'static [(i16, Workload)] = &[
        (1, Workload::Training),
        (2, Workload::Serving),
        (3, Workload::Notebook),
        (4, Workload::Evaluation),
        (5, Workload::Other),
    ];
}

impl Code for ChargeKind {
    const NAME: &'static str = "kind of charge";
    const CODES: &'static [(i16, ChargeKind)] = &[
        (1, ChargeKind::Usage),
        (2, ChargeKind::IdleShare),
        (3, ChargeKind::Reservation),
        (4, ChargeKind::Energy),
        (5, ChargeKind::Discount),
        (6, ChargeKind::OwnerCredit),
        (7, ChargeKind::Adjustment),
        (8, ChargeKind::Correction),
    ];
}

impl Code for EndCause {
    const NAME: &'static str = "end cause";
    const CODES: &'static [(i16, EndCause)] = &[
        (1, EndCause::Completed),
        (2, EndCause::Failed),
        (3, EndCause::OutOfMemory),
        (4, EndCause::Timeout),
        (5, EndCause::Cancelled),
        (6, EndCause::NodeFailure),
        (7, EndCause::PreEmpted),
        (8, EndCause::Maintenance),
    ];
}

/// A ratio from its two columns.
pub(crate) fn ratio(part: i32, whole: i32) -> Result<Ratio, DbError> {
    Ratio::new(part, whole).ok_or_else(|| DbError::Inconsistent(format!("{part}/{whole} is no ratio")))
}
