//! What open months come to is worked out beside reports, a marked billing day at a time, for whoever only looks.
//!
//! A day is marked where its usage changed, where teams, prices, rules or pools did, and where an attempt is told to have ended
//! otherwise. It is priced by one process: on PostgreSQL the others pass it over, and where that one dies, its lock is gone
//! and the mark is still there.

use std::collections::BTreeMap;

use gpuledger_db::open_cost::{self, CostDay, OpenCost, OpenCostKey, Stamp};
use gpuledger_db::{Db, catalogue, dimensions, period, usage};
use gpuledger_domain::calendar::{BillingCalendar, Period};
use gpuledger_domain::ids::{ExperimentId, FactSetId};
use gpuledger_domain::money::MicroCredits;
use gpuledger_domain::pricing::{ChargeKind, Payer};
use gpuledger_domain::rules::{ServiceClass, Workload};
use gpuledger_domain::time::{Instant, Interval};
use gpuledger_domain::units::Overflow;

use super::books::Books;
use super::price_period::{Chargeable, NewWords, PricedUsage, price};
use super::roll_up::Checked;
use super::{job_facts, late_facts};
use crate::error::AppError;

/// The day that stands for what a month charges of earlier ones.
#[must_use]
pub fn of_earlier_months(period: &Period) -> CostDay {
    let period_start = period.interval.start();
    CostDay { period_start, day_start: period_start.plus_micros(-1).unwrap_or(period_start) }
}

/// The days of a month, with what it charges of earlier ones.
#[must_use]
pub fn days_of(calendar: &BillingCalendar, period: &Period) -> Vec<CostDay> {
    let period_start = period.interval.start();
    let days = calendar.days(period.interval).into_iter().map(|day| CostDay { period_start, day_start: day.start() });
    std::iter::once(of_earlier_months(period)).chain(days).collect()
}

/// Marks what hangs on the usage of a day of an open month: the day itself; what its month charges of earlier ones, where
/// it is its first day; and what later open months charge of this one.
///
/// # Errors
/// The database's.
pub(super) fn mark_day(db: &mut Db, period: &Period, day: Interval) -> Result<(), AppError> {
    let period_start = period.interval.start();
    let mut days = vec![CostDay { period_start, day_start: day.start() }];
    if day.start() == period_start {
        days.push(of_earlier_months(period));
    }
    let later = period::all(db)?.into_iter().filter(|state| state.period.month > period.month);
    days.extend(later.filter(|state| state.closing.is_none()).map(|state| of_earlier_months(&state.period)));
    Ok(open_cost::mark(db, &days)?)
}

/// Marks all that a month comes to, since an attempt is told to have ended otherwise in it.
///
/// # Errors
/// The database's.
pub(super) fn mark_month(db: &mut Db, period: &Period) -> Result<(), AppError> {
    let priced = open_cost::priced_days(db)?.into_keys();
    let of_month = priced.filter(|day| day.period_start == period.interval.start());
    Ok(open_cost::mark(db, &of_month.chain([of_earlier_months(period)]).collect::<Vec<_>>())?)
}

/// Marks the days of open months that have usage and were never priced.
///
/// # Errors
/// The database's.
pub fn mark_unpriced(db: &mut Db, calendar: &BillingCalendar) -> Result<(), AppError> {
    let priced = open_cost::priced_days(db)?;
    let mut missing = Vec::new();
    for state in period::all(db)?.into_iter().filter(|state| state.closing.is_none()) {
        for day in days_of(calendar, &state.period).into_iter().filter(|day| !priced.contains_key(day)) {
            let within = calendar.day_of(day.day_start);
            if day == of_earlier_months(&state.period) || !usage::nodes_of_interval(db, within)?.is_empty() {
                missing.push(day);
            }
        }
    }
    Ok(open_cost::mark(db, &missing)?)
}

/// Remembers between two pricings what does not change often.
#[derive(Debug, Default)]
pub struct Repricer {
    books: Option<Books>,
    users: BTreeMap<FactSetId, String>,
}

/// Users kept in memory.
const USERS_MAX: usize = 65_536;

impl Repricer {
    /// Prices the marked days, newest first; how many there were. Days that are only to be checked are not among them.
    ///
    /// # Errors
    /// The database's, or a sum that does not fit. Days done before stay done.
    pub fn reprice(
        &mut self,
        db: &mut Db,
        calendar: &BillingCalendar,
        clock: impl Fn() -> Instant,
    ) -> Result<usize, AppError> {
        for day in open_cost::of_closed_months(db)? {
            db.transaction(|db| open_cost::forget(db, day))?;
        }
        let marks = open_cost::marks(db)?;
        Ok(self.days(db, calendar, marks, clock)?.days)
    }

    /// Prices at most so many of the days that are only to be checked, and compares.
    ///
    /// # Errors
    /// As [`Repricer::reprice`].
    pub fn check(
        &mut self,
        db: &mut Db,
        calendar: &BillingCalendar,
        most: i64,
        clock: impl Fn() -> Instant,
    ) -> Result<Checked, AppError> {
        let marks = open_cost::checks(db, most)?;
        self.days(db, calendar, marks, clock)
    }

    fn days(
        &mut self,
        db: &mut Db,
        calendar: &BillingCalendar,
        days: Vec<CostDay>,
        clock: impl Fn() -> Instant,
    ) -> Result<Checked, AppError> {
        let mut done = Checked::default();
        for day in days {
            let differs = match db {
                // One writer at a time: who only reads must not hold the others up.
                Db::Lite(_) => self.day(db, calendar, day, &clock)?,
                Db::Pg(_) => db.transaction(|db| self.day(db, calendar, day, &clock))?,
            };
            done.days += usize::from(differs.is_some());
            done.differences += usize::from(differs == Some(true));
        }
        Ok(done)
    }

    /// Prices a day: whether it differed though it was only to be checked; `None` where there was nothing to do.
    fn day(
        &mut self,
        db: &mut Db,
        calendar: &BillingCalendar,
        day: CostDay,
        clock: &impl Fn() -> Instant,
    ) -> Result<Option<bool>, AppError> {
        catalogue::hold(db, catalogue::Hold::ToUse)?;
        let Some(touches) = open_cost::take(db, day)? else { return Ok(None) };
        let period = calendar.period_of(day.period_start);
        let Some(stamp) = stamp(db, &period, clock())? else {
            db.transaction(|db| open_cost::forget(db, day))?;
            return Ok(None);
        };
        let wanted = self.costs(db, calendar, &period, day)?;
        db.transaction(|db| {
            // On SQLite teams, prices or rules may have changed since: then the day is marked and priced again. Usage that
            // changed since has marked it, too.
            let now = self::stamp(db, &period, stamp.priced_at)?;
            if now.is_none_or(|now| (now.catalogues, now.pools) != (stamp.catalogues, stamp.pools)) {
                return Ok(None);
            }
            let differs = open_cost::replace_day(db, day, &wanted, &stamp, touches)? && touches == 0;
            if differs {
                tracing::error!(month = %period.month, day = %day.day_start, "an open day's cost was not what its usage comes to; it is mended");
            }
            Ok(Some(differs))
        })
    }

    /// What a day comes to, in the order of its keys.
    fn costs(
        &mut self,
        db: &mut Db,
        calendar: &BillingCalendar,
        period: &Period,
        day: CostDay,
    ) -> Result<Vec<OpenCost>, AppError> {
        let books = self.books(db, calendar)?.clone();
        let of_earlier = day.day_start < period.interval.start();
        let (usages, late) = if of_earlier {
            // Only where the platform pays for how jobs ended does a month charge anything of earlier ones but corrections.
            let pays = books.prices.end_causes.entries().any(|(_, causes)| !causes.is_empty());
            // Jobs that ran before it held GPUs when it began.
            let first = calendar.day_of(period.interval.start());
            let usages = if pays { usage::of_interval(db, first)? } else { Vec::new() };
            (usages, late_facts::open_entries(db, calendar, period)?)
        } else {
            (usage::of_interval(db, calendar.day_of(day.day_start))?, Vec::new())
        };
        let chargeable = Chargeable { usages: &usages, late: &late };
        let PricedUsage { charges, unpriced, .. } =
            price(db, calendar, period, &books, chargeable, NewWords::Interned)?;
        let mut sums: BTreeMap<_, OpenCost> = BTreeMap::new();
        for charge in charges.iter().filter(|charge| (charge.slot.start() < period.interval.start()) == of_earlier) {
            let user = self.user(db, charge.facts)?;
            let key = OpenCostKey { payer: charge.payer, sku: charge.sku, kind: charge.kind, user };
            add(&mut sums, key, (charge.share_us, charge.estimated_us, charge.amount.0), true)?;
        }
        for lacking in
            unpriced.iter().filter(|lacking| (lacking.interval.start() < period.interval.start()) == of_earlier)
        {
            let (sku, pool) = lacking.numbers;
            let payer = Payer {
                team: lacking.team,
                pool,
                service_class: lacking.service_class,
                workload: Workload::Other,
                experiment: ExperimentId(0),
            };
            let key = OpenCostKey { payer, sku, kind: ChargeKind::Usage, user: String::new() };
            add(&mut sums, key, (i64::try_from(lacking.share_us).map_err(|_| Overflow)?, 0, 0), false)?;
        }
        Ok(sums.into_values().collect())
    }

    fn books(&mut self, db: &mut Db, calendar: &BillingCalendar) -> Result<&Books, AppError> {
        let versions = catalogue::versions(db)?;
        if self.books.as_ref().is_none_or(|books| books.versions != versions) {
            self.books = Some(Books::in_force(db, calendar)?);
        }
        self.books.as_ref().ok_or_else(|| AppError::Changed("catalogues changed; try again".into()))
    }

    fn user(&mut self, db: &mut Db, facts: FactSetId) -> Result<String, AppError> {
        if let Some(user) = self.users.get(&facts) {
            return Ok(user.clone());
        }
        if self.users.len() >= USERS_MAX {
            self.users.clear();
        }
        let user = job_facts::from_body(&dimensions::fact_set_body(db, facts)?)?.user;
        self.users.insert(facts, user.clone());
        Ok(user)
    }
}

/// What a pricing of a month is made from now; `None` where the month is closed.
fn stamp(db: &mut Db, period: &Period, priced_at: Instant) -> Result<Option<Stamp>, AppError> {
    let state = period::find(db, period.month)?;
    if state.is_some_and(|state| state.closing.is_some()) {
        return Ok(None);
    }
    Ok(Some(Stamp {
        priced_at,
        usage: state.map_or(0, |state| state.usage_version),
        catalogues: catalogue::versions(db)?,
        pools: dimensions::membership_count(db)?,
    }))
}

type SumKey = (i32, i32, i32, ServiceClass, ChargeKind, Workload, i32, String);

fn add(
    sums: &mut BTreeMap<SumKey, OpenCost>,
    key: OpenCostKey,
    (share_us, estimated_us, micros): (i64, i64, i64),
    priced: bool,
) -> Result<(), Overflow> {
    let payer = &key.payer;
    let order = (
        payer.team.0,
        payer.pool.0,
        key.sku.0,
        payer.service_class,
        key.kind,
        payer.workload,
        payer.experiment.0,
        key.user.clone(),
    );
    let none = || OpenCost { key, share_us: 0, estimated_us: 0, amount: MicroCredits(0), priced: true };
    let sum = sums.entry(order).or_insert_with(none);
    let plus = |a: i64, b: i64| a.checked_add(b).ok_or(Overflow);
    sum.share_us = plus(sum.share_us, share_us)?;
    sum.estimated_us = plus(sum.estimated_us, estimated_us)?;
    sum.amount = MicroCredits(plus(sum.amount.0, micros)?);
    sum.priced &= priced;
    Ok(())
}
