//! gpuledger: every GPU-second priced exactly, on a statement with the evidence behind it.
//!
//! The modules in reading order. The meaning of it all is in the crate `gpuledger-domain` (`src/domain`), the SQL in
//! `gpuledger-db` (`src/db`).

pub mod config; // settings: file, then environment, read once
pub mod clock; // the only reader of the wall clock
pub mod diagnostics; // every mistake in what people wrote, and where it stands
pub mod error; // what a command that fails says, and its exit code
pub mod files; // what people write: teams, prices, rules, mappings
pub mod import; // other systems' exports, read as streams
pub mod workflows; // one use case a file
pub mod export; // statements as text, CSV, JSON and HTML
pub mod web; // pages over HTTP
pub mod demo; // a real month from nothing
pub mod cli; // one file a command
