//! The types that cross the network between collectors and the service, and nothing else.
//!
//! A collector sends a [`Report`]: what it saw of one node. The service answers with an [`Answer`], or refuses the whole
//! report with a [`Refusal`]. Both sides use these types, so neither can mean something else than the other. The
//! folder `golden` keeps one example of each version of the protocol for ever, and a test reads them all.
//!
//! Instants are integer microseconds since 1970-01-01T00:00:00Z, lengths are integer microseconds, and the names of
//! their fields end in `_us`. Fields that a reader does not know are passed over: within one version of the protocol, fields
//! are only added, and what is absent means what it meant before.

mod answer;
mod limits;
mod report;

pub use answer::{Answer, Outcome, RecordAnswer, RecordCode, RecordName, Refusal, RefusalCode, Settings};
pub use limits::{BODY_BYTES_MAX, JOBS_MAX, PACKED_BYTES_MAX, SEGMENTS_MAX, SLICES_MAX, TEXT_BYTES_MAX, UNITS_MAX};
pub use report::{Clocks, Epoch, Facts, Gpu, Job, Report, Segment, State, Telemetry, Total, Unit, UnitKind};

/// The version of the protocol that this crate speaks.
pub const PROTOCOL: u32 = 1;
