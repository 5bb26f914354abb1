//! The meaning of gpuledger, and nothing else.
//!
//! Read the modules in this order; each may use the vocabulary and what stands above it:
//!
//! * vocabulary: [`time`], [`calendar`], [`units`], [`money`], [`ids`], [`teams`],
//!   [`inventory`]
//! * [`metering`]: allocations become segments, segments become usage by slot
//! * [`rules`]: a job's facts become a team, a workload, an experiment and a service class
//! * [`pricing`]: usage and the price book become charges
//! * [`statements`]: charges become a statement whose printed columns add up
//!
//! This crate never reads a clock, a file, a database or a random number, never serialises, and holds no
//! floating-point number. A function that cannot answer says so in its type.

pub mod calendar;
pub mod ids;
pub mod inventory;
pub mod metering;
pub mod money;
pub mod pricing;
pub mod rules;
pub mod statements;
pub mod teams;
pub mod time;
pub mod units;
