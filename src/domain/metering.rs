//! From what was held to usage by slot.
//!
//! An [`Allocation`] (imported from a scheduler's books) becomes [`Segment`]s of one UTC hour each; segments,
//! wherever they come from, become [`Usage`] by slot. Time is conserved at each step, to the microsecond.
//! [`observed`] counts what collectors saw of a unit once, and tells what nobody saw.
//! [`corrections`] says what a month that is closed should have held beside what it holds.
//! [`beside_books`] fills what nobody saw from a scheduler's books.
//! [`capacity_of_hour`] compares what was held with what existed.

mod allocation;
mod beside_books;
mod capacity;
mod corrections;
mod observed;
mod segment;
mod unit_life;
mod usage;

pub use allocation::{Allocation, Placement};
pub use beside_books::{BesideBooks, LastHeld, UnitOrder, beside_books};
pub use capacity::{Capacity, Holding, HourCapacity, NodeKey, Outage, Stock, StockKey, capacity_of_hour};
pub use corrections::{EntryKind, UsageEntry, corrections};
pub use observed::{Disagreement, Finding, Observed, UnitLife, observed, union, without};
pub use segment::{Activity, Measured, Measurements, Segment, SegmentKey, Source, State};
pub use unit_life::{KnownUnit, Life, REMAINDER, lives};
pub use usage::{Usage, UsageKey, usage_by_slot};
