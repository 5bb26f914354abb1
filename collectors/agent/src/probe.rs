//! The seam between whoever looks at a node and whoever attributes its time.
//!
//! A look asks each probe in turn. A probe adds what it knows to a [`Sighting`] and may read what those before it found: the host
//! says whose the processes are that the driver listed. One that fails says why, and the others go on; what it did not add is
//! not known, which is never the same as nobody.

pub mod allocation;
pub mod host;
pub mod nvml;

use gpuledger_host::JobMapping;
use gpuledger_nvml::Sweep;
use gpuledger_wire::Clocks;

use crate::join::Owners;

/// When a look is made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Moment {
    /// Now.
    pub now: Clocks,
    /// The look before; `None` for the first.
    pub before: Option<Clocks>,
}

/// What probes saw of a node at a moment.
#[derive(Clone, Debug, Default)]
pub struct Sighting {
    /// The devices and what runs on them; `None` where no driver answered, so that there is no look at all.
    pub sweep: Option<Sweep>,
    /// Whose the processes are.
    pub owners: Owners,
    /// GPUs that a scheduler gave to jobs, used or not.
    pub given: JobMapping,
    /// What is wrong, one line each.
    pub findings: Vec<String>,
}

/// One way to look at a node.
pub trait Probe: std::fmt::Debug {
    /// Its name, for findings and metrics.
    fn name(&self) -> &'static str;

    /// Adds what it sees.
    ///
    /// # Errors
    /// Why it could see nothing, in words for a log.
    fn look(&mut self, moment: &Moment, sighting: &mut Sighting) -> Result<(), String>;
}
