//! What an open month comes to so far, as it was worked out beside reports: read, never priced.

use std::collections::{BTreeMap, BTreeSet};

use gpuledger_db::open_cost::{self, OpenCost};
use gpuledger_db::{Db, period};
use gpuledger_domain::calendar::{BillingCalendar, Month};
use gpuledger_domain::ids::{SkuCode, TeamCode};
use gpuledger_domain::money::Printed;
use gpuledger_domain::pricing::ChargeKind;
use gpuledger_domain::rules::Workload;
use gpuledger_domain::time::Instant;

use super::price_period::Words;
use super::reprice::days_of;
use super::statements::lost;
use crate::error::AppError;

/// What is the same for all cost in a row.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct OpenRowKey {
    /// Who pays.
    pub team: TeamCode,
    /// Why.
    pub kind: ChargeKind,
    /// For what.
    pub workload: Workload,
    /// Of what, as the price book calls it.
    pub sku: SkuCode,
}

/// What a team's time of a SKU comes to.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct OpenSums {
    /// Instance-time in microseconds.
    pub share_us: i128,
    /// Of it, inferred over gaps.
    pub estimated_us: i128,
    /// Σ of the charges' amounts, in micro-credits, each rounded.
    pub micros: i128,
    /// Whether some of the time has no price, so that the amount is too small.
    pub lacks_a_price: bool,
}

/// An open month so far.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OpenMonth {
    /// Which.
    pub month: Month,
    /// By team, kind, workload and SKU.
    pub rows: BTreeMap<OpenRowKey, OpenSums>,
    /// When the day was priced that was priced longest ago; `None` where none was.
    pub priced_at: Option<Instant>,
    /// Days of which something changed since they were priced.
    pub waiting: usize,
}

impl OpenSums {
    /// The amount in credits, to six places: every charge is rounded to these.
    #[must_use]
    pub const fn amount(&self) -> Printed<6> {
        Printed(self.micros)
    }

    fn add(&mut self, cost: &OpenCost) {
        self.share_us += i128::from(cost.share_us);
        self.estimated_us += i128::from(cost.estimated_us);
        self.micros += i128::from(cost.amount.0);
        self.lacks_a_price |= !cost.priced;
    }
}

/// What an open month comes to so far, for a team or for all.
///
/// # Errors
/// [`AppError::Refused`] where the month is closed: its statements say what it comes to. [`AppError::Missing`] where there
/// is no such team. The database's.
pub fn open_month(
    db: &mut Db,
    calendar: &BillingCalendar,
    month: Month,
    team: Option<&TeamCode>,
) -> Result<OpenMonth, AppError> {
    if period::find(db, month)?.is_some_and(|state| state.closing.is_some()) {
        return Err(AppError::Refused(format!(
            "{month} is closed; look with `gpuledger statement list --period {month}`"
        )));
    }
    let words = Words::load(db)?;
    let wanted = match team {
        None => None,
        Some(code) => {
            let known = words.teams.iter().find(|(_, known)| *known == code).map(|(id, _)| *id);
            Some(known.ok_or_else(|| AppError::Missing(format!("there is no team {code}")))?)
        }
    };
    let days = days_of(calendar, &calendar.period(month));
    let stamps = open_cost::priced_days(db)?;
    let marked: BTreeSet<_> = open_cost::marks(db)?.into_iter().collect();
    let mut rows: BTreeMap<OpenRowKey, OpenSums> = BTreeMap::new();
    for (_, cost) in open_cost::of_days(db, &days, wanted)? {
        let team = words.teams.get(&cost.key.payer.team).cloned().ok_or_else(|| lost("a team"))?;
        let sku = words.skus.get(&cost.key.sku).map(|sku| sku.code.clone()).ok_or_else(|| lost("a SKU"))?;
        let key = OpenRowKey { team, kind: cost.key.kind, workload: cost.key.payer.workload, sku };
        rows.entry(key).or_default().add(&cost);
    }
    Ok(OpenMonth {
        month,
        rows,
        priced_at: days.iter().filter_map(|day| stamps.get(day)).map(|stamp| stamp.priced_at).min(),
        waiting: days.iter().filter(|day| marked.contains(day)).count(),
    })
}
