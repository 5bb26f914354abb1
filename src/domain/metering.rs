//! From what was held to usage by slot.
//!
//! An [`Allocation`] (imported from a scheduler's books) becomes [`Segment`]s of one UTC hour each; segments,
//! wherever they come from, become [`Usage`] by slot. Time is conserved at each step, to the microsecond.

mod allocation;
mod segment;
mod usage;

pub use allocation::{Allocation, Placement};
pub use segment::{Segment, SegmentKey, Source, State};
pub use usage::{Usage, UsageKey, usage_by_slot};
