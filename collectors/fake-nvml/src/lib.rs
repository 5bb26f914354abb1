//! The NVIDIA driver's library, played from a scenario: for development and tests, and never shipped.
//!
//! It exports the C functions that the collector calls, so that the real bindings load it like the real library. A copy of the
//! file loads with a state of its own: `node1.so` plays `node1.toml` beside it, or what `GPULEDGER_FAKE_NVML` names.
//!
//! Time is the seconds since it was started, or, where a file like the scenario's with the ending `.clock` exists, the
//! microseconds that are written in it, so that an hour can pass in a moment.

pub mod scenario;

mod calls;
mod played;
