//! What came of closed months becomes corrections, priced as those months were.

use std::collections::BTreeMap;

use gpuledger_db::{Db, closing, period};
use gpuledger_domain::calendar::{BillingCalendar, Month};
use gpuledger_domain::ids::JobId;
use gpuledger_domain::metering::{EntryKind, Usage, UsageEntry};
use gpuledger_domain::pricing::{Charge, ChargeKind, Corrected};

use super::{Pricer, UnpricedUsage};
use crate::error::AppError;

/// The charges that closed months made for some jobs, by the number of their closing.
type ThenCharged = BTreeMap<Month, (i64, Vec<(i64, Charge)>)>;

impl Pricer<'_> {
    /// A correction for each entry that is held, by kind of entry in the order of entries, and what has no price.
    pub(super) fn corrections(
        &mut self,
        db: &mut Db,
        calendar: &BillingCalendar,
        entries: &[UsageEntry],
    ) -> Result<(Vec<Charge>, Vec<UnpricedUsage>), AppError> {
        let (mut corrections, mut unpriced) = (Vec::new(), Vec::new());
        if entries.is_empty() {
            return Ok((corrections, unpriced));
        }
        let then = charged_then(db, calendar, entries)?;
        // Each kind by itself: under two names of one SKU, what is taken back must not be summed with what is added.
        for kind in [EntryKind::Addition, EntryKind::Reversal, EntryKind::Reentry] {
            let usages: Vec<Usage> =
                entries.iter().filter(|entry| entry.kind == kind).map(|entry| entry.usage).collect();
            let (charges, without_price) = self.price(db, &usages)?;
            for charge in charges {
                let month = calendar.period_of(charge.slot.start()).month;
                let (closing, charges) = then.get(&month).map_or((0, &[][..]), |(id, charges)| (*id, charges));
                let found = charges.iter().find(|(_, other)| is_of_same_time(other, &charge));
                let corrected = found.map_or(0, |(number, _)| *number);
                corrections.push(charge.correcting(Corrected { month, entry: kind, closing, charge: corrected }));
            }
            unpriced.extend(without_price);
        }
        Ok((corrections, unpriced))
    }
}

/// What the months of these entries charged for their jobs when they were closed.
fn charged_then(db: &mut Db, calendar: &BillingCalendar, entries: &[UsageEntry]) -> Result<ThenCharged, AppError> {
    let mut jobs: BTreeMap<Month, Vec<JobId>> = BTreeMap::new();
    for entry in entries {
        let month = calendar.period_of(entry.usage.key.slot.start()).month;
        jobs.entry(month).or_default().push(entry.usage.key.job);
    }
    let mut then = ThenCharged::new();
    for (month, mut jobs) in jobs {
        jobs.sort_unstable();
        jobs.dedup();
        if let Some(closing_id) = period::find(db, month)?.and_then(|state| state.closing) {
            then.insert(month, (closing_id, closing::charges_of_jobs(db, closing_id, &jobs)?));
        }
    }
    Ok(then)
}

/// Whether a charge that was made is for the same time, job and holding.
fn is_of_same_time(then: &Charge, now: &Charge) -> bool {
    let of = |charge: &Charge| (charge.slot, charge.job, charge.facts, charge.sku, charge.payer.pool);
    then.kind == ChargeKind::Usage && of(then) == of(now)
}
