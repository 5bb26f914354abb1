//! Whose a process is, as the host tells.
//!
//! A GPU's driver knows processes by number. [`Host`] reads what Linux says of such a number under a root that is a parameter
//! (`/proc`, or the host's, mounted into a container) and says which run of it this is ([`ProcessKey`]), who it belongs to
//! ([`Owner`]) and what a scheduler wrote into its environment ([`SlurmEnvironment`]).
//!
//! It only reads. It never guesses: what Linux does not say is left out, and where the root is not the host's, nobody is
//! named at all, since numbers mean other processes there.

mod cgroup;
mod device_list;
mod environ;
mod job_mapping;
mod owner;
mod process;
mod stat;

pub use cgroup::owner_of;
pub use device_list::DeviceLists;
pub use environ::{SlurmEnvironment, VARIABLES};
pub use job_mapping::{JobMapping, MappedGpu};
pub use owner::{Container, Owner, Pod, QosClass, Runtime, SlurmStep};
pub use process::{Disagreement, Host, Namespace, Process, ProcessKey, ReadError};
pub use stat::{RunState, Stat, StatError};
