//! Who held which GPU and which slice of a node.
//!
//! Reading order: [`sample`] is what a node was like at an instant, which [`join`] makes of what probes read; [`attribute`] turns two samples into pieces of time with
//! one holder each, by [`sharing`] where several jobs are on one GPU; [`counter`] reads counters that restart; [`segments`] adds pieces up
//! to segments with names.
//!
//! None of these looks at a clock, a file or a driver: they are values in, values out. [`node`] looks, through the probes, and makes
//! reports; [`mapping`] adds what a scheduler gave to jobs before they used it. [`probe`] is the seam to whoever looks. What it reports waits in an
//! [`outbox`], whose finished part the [`spool`] keeps on disk, until the [`delivery`] has brought it to the service by the [`uplink`].
//! [`counts`] and [`metrics`] tell a monitoring system what happens, [`mod@print`] a person.

pub mod attribute;
pub mod config;
pub mod counter;
pub mod counts;
pub mod delivery;
mod events;
pub mod join;
pub mod mapping;
pub mod metrics;
pub mod metrics_server;
pub mod node;
pub mod outbox;
pub mod print;
pub mod probe;
pub mod sample;
pub mod segments;
pub mod sharing;
pub mod spool;
pub mod uplink;
