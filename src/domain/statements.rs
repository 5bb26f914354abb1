//! Charges of a team become a statement whose printed columns add up.

mod change;
mod statement;

pub use change::{Change, SkuCost, change};
pub use statement::{ExperimentLine, LineKey, MoneyColumn, Names, Statement, StatementLine, Sums, rounding_row};
