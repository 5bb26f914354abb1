//! The place where GPU-time becomes money.

use super::{EndCause, SuspendedTime, Terms};
use crate::calendar::Month;
use crate::ids::{ExperimentId, FactSetId, JobId, PoolId, SkuId, TeamId};
use crate::metering::{EntryKind, Usage};
use crate::money::{MicroCredits, Rate, exact_cost, rounded_to_micros};
use crate::rules::{ServiceClass, Workload};
use crate::time::Interval;
use crate::units::{Fraction, Overflow, Ratio};

/// Why something is charged.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum ChargeKind {
    /// GPU-time held.
    Usage,
    /// A share of a pool's idle capacity.
    IdleShare,
    /// Capacity set aside.
    Reservation,
    /// Energy.
    Energy,
    /// Less, by agreement.
    Discount,
    /// What the owner of a pool gets for a guest's use.
    OwnerCredit,
    /// More or less, by a stated policy.
    Adjustment,
    /// What a closed period should have held.
    Correction,
}

/// Who a usage is charged to, and as what: what the rules and the pool say of it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Payer {
    /// The team.
    pub team: TeamId,
    /// The pool the GPUs are in.
    pub pool: PoolId,
    /// The service class.
    pub service_class: ServiceClass,
    /// The workload.
    pub workload: Workload,
    /// The experiment; 0 for none.
    pub experiment: ExperimentId,
}

/// What a correction corrects: a charge of a month that is closed.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Corrected {
    /// The month.
    pub month: Month,
    /// How.
    pub entry: EntryKind,
    /// The closing of the month.
    pub closing: i64,
    /// The number of the charge in it; 0 where it made none for this time.
    pub charge: i64,
}

/// Quantity × rate for one slot, team, job, SKU, service class, pool and kind, with all it was made under.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Charge {
    /// Why.
    pub kind: ChargeKind,
    /// Of when.
    pub slot: Interval,
    /// To whom, and as what.
    pub payer: Payer,
    /// For which job.
    pub job: JobId,
    /// By which facts.
    pub facts: FactSetId,
    /// Of what.
    pub sku: SkuId,
    /// How much: microseconds × share × count.
    pub share_us: i64,
    /// Of it, with a process on the unit, where measured.
    pub active_us: i64,
    /// How much of it was measured for `active_us`.
    pub active_measured_us: i64,
    /// Of it, inferred over a gap.
    pub estimated_us: i64,
    /// Of it, while the job was suspended.
    pub suspended_us: i64,
    /// From how many segments.
    pub segments: i32,
    /// Credits per hour.
    pub rate: Rate,
    /// The part of the rate that applies.
    pub weight: Ratio,
    /// The amount, rounded once.
    pub amount: MicroCredits,
    /// For an adjustment, the end cause it is made for.
    pub end_cause: Option<EndCause>,
    /// For a correction, what it corrects. Its slot is the one in which the time was held.
    pub corrects: Option<Corrected>,
}

/// Charges a usage: `share_us` × weight × rate ÷ 3,600 seconds, rounded once to the micro-credit, halves away
/// from zero. Where only running time is charged, `share_us` is the usage's less what it was suspended.
///
/// # Errors
/// [`Overflow`] where the amount cannot be held exactly; nothing may be charged then.
pub fn charge(usage: &Usage, payer: Payer, terms: Terms, suspended: SuspendedTime) -> Result<Charge, Overflow> {
    let share_us = match suspended {
        SuspendedTime::Held => usage.share_us,
        SuspendedTime::Running => usage.share_us - usage.suspended_us,
    };
    let exact = exact_cost(share_us.into(), terms.weight, terms.rate)?;
    Ok(Charge {
        kind: ChargeKind::Usage,
        slot: usage.key.slot,
        payer,
        job: usage.key.job,
        facts: usage.key.facts,
        sku: usage.key.sku,
        share_us,
        active_us: usage.active_us,
        active_measured_us: usage.active_measured_us,
        estimated_us: usage.estimated_us,
        suspended_us: usage.suspended_us,
        segments: usage.segments,
        rate: terms.rate,
        weight: terms.weight,
        amount: rounded_to_micros(exact)?,
        end_cause: None,
        corrects: None,
    })
}

impl Charge {
    /// The charge that takes this one back, because the platform pays for an attempt that ended so. Together they are
    /// zero, exactly and rounded.
    ///
    /// # Errors
    /// [`Overflow`] where its amount has no negative.
    pub fn taken_over(&self, cause: EndCause) -> Result<Charge, Overflow> {
        let negative = |number: i64| number.checked_neg().ok_or(Overflow);
        Ok(Charge {
            kind: ChargeKind::Adjustment,
            share_us: negative(self.share_us)?,
            active_us: negative(self.active_us)?,
            active_measured_us: negative(self.active_measured_us)?,
            estimated_us: negative(self.estimated_us)?,
            suspended_us: negative(self.suspended_us)?,
            amount: MicroCredits(negative(self.amount.0)?),
            end_cause: Some(cause),
            ..*self
        })
    }

    /// The same amount as a correction of a month that is closed.
    #[must_use]
    pub const fn correcting(self, corrects: Corrected) -> Charge {
        Charge { kind: ChargeKind::Correction, corrects: Some(corrects), ..self }
    }

    /// Quantity × rate, before the one rounding.
    ///
    /// # Errors
    /// [`Overflow`] where it cannot be held exactly.
    pub fn exact(&self) -> Result<Fraction, Overflow> {
        exact_cost(self.share_us.into(), self.weight, self.rate)
    }
}
