//! What people write: teams, prices, rules, the inventory and mappings. Each file is read as a whole, and every mistake in it is
//! told at once, with line, column and remedy. Nothing of a file with a mistake is used.

pub(crate) mod host_list;
pub mod inventory;
pub mod mapping;
mod price_policies;
pub mod prices;
pub mod prices_csv;
pub mod rules;
mod source;
pub mod teams;

pub use source::{SourceText, When};
