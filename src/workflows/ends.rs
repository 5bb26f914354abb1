//! How the jobs of a statement ended and who paid for that, and what was charged of those that were suspended.

use std::collections::{BTreeMap, BTreeSet};

use gpuledger_db::catalogue::{self, CatalogueKind};
use gpuledger_db::closing::Inputs;
use gpuledger_db::{Db, allocation, dimensions};
use gpuledger_domain::calendar::BillingCalendar;
use gpuledger_domain::ids::{FactSetId, JobId};
use gpuledger_domain::money::Printed;
use gpuledger_domain::pricing::{Charge, ChargeKind, EndCause, SuspendedTime};
use gpuledger_domain::statements::{Names, Statement};
use gpuledger_domain::time::Interval;
use gpuledger_domain::units::Fraction;

use super::job_facts;
use crate::error::AppError;
use crate::files::{SourceText, prices};

/// Who pays for jobs that ended alike.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PaidBy {
    /// The team.
    Team,
    /// The platform: what they are charged is taken back.
    Platform,
    /// The one for some, the other for others: the policy changed within the month.
    Both,
}

impl PaidBy {
    /// The word on statements.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            PaidBy::Team => "team",
            PaidBy::Platform => "platform",
            PaidBy::Both => "team and platform",
        }
    }
}

/// Jobs that ended alike.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EndRow {
    /// By what; `None` for jobs that go on after the month, or whose end is not told.
    pub cause: Option<EndCause>,
    /// Who pays.
    pub paid_by: PaidBy,
    /// How many jobs.
    pub jobs: usize,
    /// GPU-equivalent time in the month, in microseconds.
    pub gpu_us: Fraction,
    /// What it comes to, in credits; nothing where the platform pays.
    pub amount: Printed<2>,
    /// In currency.
    pub currency_amount: Option<Printed<2>>,
}

/// Time for which jobs of a cluster were suspended, and what becomes of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SuspendedRow {
    /// The cluster.
    pub cluster: String,
    /// Whether it is charged.
    pub charged: SuspendedTime,
    /// Instance-time in microseconds.
    pub instance_us: i128,
}

/// The rows by end cause, in the order of causes, "not told" last; none where no end is told at all.
///
/// # Errors
/// The database's, or a sum that does not fit.
pub(super) fn ends(
    db: &mut Db,
    period: Interval,
    made: &Statement,
    charges: &[Charge],
    names: &impl Names,
) -> Result<Vec<EndRow>, AppError> {
    let jobs: BTreeSet<JobId> = charges.iter().map(|charge| charge.job).collect();
    let mut causes: BTreeMap<JobId, EndCause> = BTreeMap::new();
    for end in allocation::ends(db, &jobs.into_iter().collect::<Vec<_>>())? {
        // What ends later did not end in this month, whatever is known of it by now.
        if !end.provisional && end.interval.end() <= period.end() {
            causes.extend(EndCause::of_source(&end.end_state).map(|cause| (end.job, cause)));
        }
    }
    if causes.is_empty() {
        return Ok(Vec::new());
    }
    let taken_over: BTreeSet<JobId> =
        charges.iter().filter(|charge| charge.kind == ChargeKind::Adjustment).map(|charge| charge.job).collect();
    let lines = made.by_end_cause(charges, names, |job| causes.get(&job).copied())?;
    let lines = lines.ok_or_else(|| super::statements::lost("a word behind a charge"))?;
    let row = |line: gpuledger_domain::statements::EndCauseLine| {
        let platform = line.sums.jobs.iter().filter(|job| taken_over.contains(job)).count();
        EndRow {
            cause: line.cause,
            paid_by: match platform {
                0 => PaidBy::Team,
                all if all == line.sums.jobs.len() => PaidBy::Platform,
                _ => PaidBy::Both,
            },
            jobs: line.sums.jobs.len(),
            gpu_us: line.sums.gpu_us,
            amount: line.amount,
            currency_amount: line.currency_amount,
        }
    };
    Ok(lines.into_iter().map(row).collect())
}

/// What was charged of suspended jobs, by cluster.
///
/// # Errors
/// The database's.
pub(super) fn suspended(
    db: &mut Db,
    calendar: &BillingCalendar,
    inputs: Inputs,
    charges: &[Charge],
) -> Result<Vec<SuspendedRow>, AppError> {
    let charges: Vec<&Charge> =
        charges.iter().filter(|charge| charge.kind == ChargeKind::Usage && charge.suspended_us > 0).collect();
    if charges.is_empty() {
        return Ok(Vec::new());
    }
    let stored = catalogue::version(db, CatalogueKind::Prices, inputs.prices)?;
    let source = SourceText::new(&format!("prices version {}", stored.version), &stored.body);
    let book = prices::parse(&source, calendar, prices::Checks::Stored)?;
    let mut clusters: BTreeMap<FactSetId, String> = BTreeMap::new();
    let mut rows: BTreeMap<(String, SuspendedTime), i128> = BTreeMap::new();
    for charge in charges {
        let cluster = match clusters.get(&charge.facts) {
            Some(cluster) => cluster.clone(),
            None => {
                let facts = job_facts::from_body(&dimensions::fact_set_body(db, charge.facts)?)?;
                clusters.insert(charge.facts, facts.cluster.clone());
                facts.cluster
            }
        };
        let charged = book.suspended.of(&cluster, charge.slot.start());
        *rows.entry((cluster, charged)).or_default() += i128::from(charge.suspended_us);
    }
    let row = |((cluster, charged), instance_us)| SuspendedRow { cluster, charged, instance_us };
    Ok(rows.into_iter().map(row).collect())
}
