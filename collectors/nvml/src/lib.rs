//! GPUs, their slices and the processes on them, as the NVIDIA driver tells.
//!
//! [`Driver::look`] reads every device once and gives a [`Sweep`]: plain values, which whoever attributes time turns into
//! holders. What is read is checked first (`processes`, `placement`): a number that cannot be is absent, and a list that
//! cannot be is rejected whole, since nothing in it can be trusted then.
//!
//! It only reads. A device that fails is [`Condition::Lost`], or lacks what could not be read; the others go on. Nothing here
//! looks at the clock or knows who owns a process.

mod accounts;
mod activity;
mod driver;
mod placement;
mod processes;
mod raw;
mod reading;

pub use driver::{Driver, LoadError, Since};
pub use placement::{Placement, Profile, has_room};
pub use processes::{ListError, Listed, merge};
pub use reading::{
    Activity, Condition, Device, EndedProcess, Event, EventKind, GpuProcess, Identity, InstanceIds, MigInstance,
    MigState, Processes, SliceCounts, SmSample, Sweep,
};
