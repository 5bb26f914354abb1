//! What GPU-time costs.
//!
//! [`PriceBook::terms`] finds the rate and weight that are in force for a slot; [`charge`] multiplies and rounds,
//! once. What has no price is unpriced, which is not zero.

mod charge;
mod end_cause;
mod mig_profile;
mod price_book;
mod slices;
mod suspended;

pub use charge::{Charge, ChargeKind, Corrected, Payer, charge};
pub use end_cause::{EndCause, EndCausePolicy};
pub use mig_profile::MigProfile;
pub use price_book::{Gap, PoolTerms, PriceBook, PriceKey, PriceRow, Terms, Unpriced};
pub use slices::{Basis, Sku, SkuSlices, dearest_layout, weights};
pub use suspended::{SuspendedPolicy, SuspendedTime};
