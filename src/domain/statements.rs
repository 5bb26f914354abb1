//! Charges of a team become a statement whose printed columns add up.

mod change;
mod statement;

pub use change::{Change, MonthCost, SkuCost, change};
pub use statement::{
    EndCauseLine, ExperimentLine, LineKey, MoneyColumn, Names, Statement, StatementLine, Sums, rounding_row,
};
