//! Charges of a team become a statement whose printed columns add up.

mod change;
mod statement;

pub use change::{Change, MonthCost, SkuCost, change};
pub use statement::{
    CreditRates, EndCauseLine, ExperimentLine, LineKey, MoneyColumn, Names, Statement, StatementLine, Sums,
    in_currency, rounding_row,
};
