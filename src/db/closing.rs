//! Closings: charges are staged where nobody sees them, then sealed with their statements in one short transaction.

use diesel::prelude::*;
use gpuledger_domain::calendar::{Month, Period};
use gpuledger_domain::ids::{ExperimentId, FactSetId, JobId, PoolId, SkuId, TeamId};
use gpuledger_domain::metering::EntryKind;
use gpuledger_domain::money::{MicroCredits, Rate};
use gpuledger_domain::pricing::{Charge, Corrected, Payer};
use gpuledger_domain::time::{Instant, Interval};
use gpuledger_domain::units::Fraction;

use crate::codes::{Code, ratio};
use crate::schema::{charge, closing, period, statement, statement_counter};
use crate::{Db, DbError, insert_all, on_db};

/// The versions of everything a closing was made from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Inputs {
    /// Of the period's usage.
    pub usage: i64,
    /// Of the teams.
    pub teams: i32,
    /// Of the prices.
    pub prices: i32,
    /// Of the rules.
    pub rules: i32,
}

/// A sealed closing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Closing {
    /// Its number.
    pub id: i64,
    /// From 1; a reopened period gets another.
    pub version: i32,
    /// When it was sealed.
    pub sealed_at: Instant,
    /// Who closed.
    pub actor: String,
    /// What it was made from.
    pub inputs: Inputs,
    /// Σ quantity × rate over all its charges, in credits.
    pub exact: Fraction,
}

#[derive(Clone, Debug, PartialEq, Eq, Queryable, Insertable)]
#[diesel(table_name = charge, treat_none_as_default_value = false)]
struct Row {
    closing_id: i64,
    number: i64,
    kind: i16,
    slot_start_us: i64,
    slot_end_us: i64,
    team_id: i32,
    job_id: i64,
    fact_set_id: i32,
    sku_id: i32,
    pool_id: i32,
    service_class: i16,
    workload: i16,
    experiment_id: i32,
    share_us: i64,
    active_us: i64,
    active_measured_us: i64,
    estimated_us: i64,
    suspended_us: i64,
    segments: i32,
    rate: String,
    weight_part: i32,
    weight_whole: i32,
    amount_micros: i64,
    corrects_closing_id: i64,
    corrects_number: i64,
    reason: String,
    end_cause: Option<i16>,
    corrected_month: Option<String>,
}

fn row(closing_id: i64, number: i64, charge: &Charge) -> Row {
    Row {
        closing_id,
        number,
        kind: charge.kind.code(),
        slot_start_us: charge.slot.start().micros(),
        slot_end_us: charge.slot.end().micros(),
        team_id: charge.payer.team.0,
        job_id: charge.job.0,
        fact_set_id: charge.facts.0,
        sku_id: charge.sku.0,
        pool_id: charge.payer.pool.0,
        service_class: charge.payer.service_class.code(),
        workload: charge.payer.workload.code(),
        experiment_id: charge.payer.experiment.0,
        share_us: charge.share_us,
        active_us: charge.active_us,
        active_measured_us: charge.active_measured_us,
        estimated_us: charge.estimated_us,
        suspended_us: charge.suspended_us,
        segments: charge.segments,
        rate: charge.rate.to_string(),
        weight_part: charge.weight.part(),
        weight_whole: charge.weight.whole(),
        amount_micros: charge.amount.0,
        corrects_closing_id: charge.corrects.map_or(0, |corrects| corrects.closing),
        corrects_number: charge.corrects.map_or(0, |corrects| corrects.charge),
        reason: charge.corrects.map_or("", |corrects| entry_word(corrects.entry)).to_owned(),
        end_cause: charge.end_cause.map(Code::code),
        corrected_month: charge.corrects.map(|corrects| corrects.month.to_string()),
    }
}

const ENTRIES: [(&str, EntryKind); 3] =
    [("addition", EntryKind::Addition), ("reversal", EntryKind::Reversal), ("re-entry", EntryKind::Reentry)];

/// The word for how a charge corrects, as it is stored and printed.
#[must_use]
pub fn entry_word(entry: EntryKind) -> &'static str {
    ENTRIES.iter().find(|(_, other)| *other == entry).map_or("", |(word, _)| word)
}

fn corrected(row: &Row) -> Result<Option<Corrected>, DbError> {
    let Some(month) = &row.corrected_month else { return Ok(None) };
    let month = Month::parse(month).map_err(DbError::Inconsistent)?;
    let entry = ENTRIES.iter().find(|(word, _)| *word == row.reason).map(|(_, entry)| *entry);
    let entry = entry.ok_or_else(|| DbError::Inconsistent(format!("“{}” is no way to correct", row.reason)))?;
    Ok(Some(Corrected { month, entry, closing: row.corrects_closing_id, charge: row.corrects_number }))
}

impl TryFrom<Row> for Charge {
    type Error = DbError;

    fn try_from(row: Row) -> Result<Charge, DbError> {
        let corrects = corrected(&row)?;
        let slot = Interval::new(Instant::from_micros(row.slot_start_us), Instant::from_micros(row.slot_end_us))
            .ok_or_else(|| DbError::Inconsistent(format!("charge {} ends before it begins", row.number)))?;
        Ok(Charge {
            kind: Code::from_code(row.kind)?,
            slot,
            payer: Payer {
                team: TeamId(row.team_id),
                pool: PoolId(row.pool_id),
                service_class: Code::from_code(row.service_class)?,
                workload: Code::from_code(row.workload)?,
                experiment: ExperimentId(row.experiment_id),
            },
            job: JobId(row.job_id),
            facts: FactSetId(row.fact_set_id),
            sku: SkuId(row.sku_id),
            share_us: row.share_us,
            active_us: row.active_us,
            active_measured_us: row.active_measured_us,
            estimated_us: row.estimated_us,
            suspended_us: row.suspended_us,
            segments: row.segments,
            rate: Rate::parse(&row.rate).map_err(DbError::Inconsistent)?,
            weight: ratio(row.weight_part, row.weight_whole)?,
            amount: MicroCredits(row.amount_micros),
            end_cause: row.end_cause.map(Code::from_code).transpose()?,
            corrects,
        })
    }
}

/// The charges that a closing made for these jobs, with their numbers, in their order.
///
/// # Errors
/// What the database says.
pub fn charges_of_jobs(db: &mut Db, closing_id: i64, jobs: &[JobId]) -> Result<Vec<(i64, Charge)>, DbError> {
    let mut charges: Vec<(i64, Charge)> = Vec::new();
    for jobs in jobs.chunks(8_192) {
        let ids: Vec<i64> = jobs.iter().map(|job| job.0).collect();
        let rows: Vec<Row> = on_db!(db, c => charge::table
            .filter(charge::closing_id.eq(closing_id).and(charge::job_id.eq_any(&ids)))
            .order(charge::number)
            .load(c))?;
        for row in rows {
            charges.push((row.number, Charge::try_from(row)?));
        }
    }
    charges.sort_by_key(|(number, _)| *number);
    Ok(charges)
}

/// Removes what closings of a period left unsealed. Call it in a transaction that holds the period.
///
/// # Errors
/// What the database says.
pub fn sweep(db: &mut Db, closed: &Period) -> Result<(), DbError> {
    let start = closed.interval.start().micros();
    let unsealed: Vec<i64> = on_db!(db, c => closing::table
        .filter(closing::period_start_us.eq(start).and(closing::sealed_at_us.is_null()))
        .select(closing::id)
        .load(c))?;
    // The closing first: this waits for a chunk that is being staged under it, whose charges are then there to sweep.
    on_db!(db, c => diesel::delete(closing::table.filter(closing::id.eq_any(&unsealed))).execute(c))?;
    on_db!(db, c => diesel::delete(charge::table.filter(charge::closing_id.eq_any(&unsealed))).execute(c))?;
    Ok(())
}

/// Begins a closing of a period: sweeps what earlier ones left unsealed and takes the period's lease from whoever
/// holds it, so that of two closers at once only the later can seal. Call it in a transaction.
///
/// # Errors
/// What the database says.
pub fn begin(db: &mut Db, closed: &Period, inputs: Inputs, actor: &str, at: Instant) -> Result<i64, DbError> {
    let start = closed.interval.start().micros();
    sweep(db, closed)?;
    let sealed: Option<i32> = on_db!(db, c => closing::table
        .filter(closing::period_start_us.eq(start))
        .select(diesel::dsl::max(closing::version))
        .first(c))?;
    let id = db.take_ids("closing", 1)?;
    on_db!(db, c => diesel::insert_into(closing::table).values((
        closing::id.eq(id),
        closing::period_start_us.eq(start),
        closing::version.eq(sealed.unwrap_or(0) + 1),
        closing::actor.eq(actor),
        closing::started_at_us.eq(at.micros()),
        closing::sealed_at_us.eq(None::<i64>),
        closing::usage_version.eq(inputs.usage),
        closing::teams_version.eq(inputs.teams),
        closing::prices_version.eq(inputs.prices),
        closing::rules_version.eq(inputs.rules),
        closing::charges.eq(0),
        closing::exact_amount.eq(Fraction::ZERO.to_string()),
        closing::charged_micros.eq(0),
    )).execute(c))?;
    on_db!(db, c => diesel::update(period::table.find(start)).set(period::closer.eq(id)).execute(c))?;
    Ok(id)
}

/// Stages charges, numbered from `first_number` on; `false`, and nothing staged, if the closing was swept. Call it
/// in a transaction.
///
/// # Errors
/// What the database says.
pub fn stage(db: &mut Db, closing_id: i64, first_number: i64, charges: &[Charge]) -> Result<bool, DbError> {
    let held: Option<i64> = match db {
        Db::Lite(c) => closing::table.find(closing_id).select(closing::id).first(c).optional()?,
        Db::Pg(c) => closing::table.find(closing_id).select(closing::id).for_share().first(c).optional()?,
    };
    if held.is_none() {
        return Ok(false);
    }
    let rows: Vec<Row> =
        (first_number..).zip(charges).map(|(number, charge)| row(closing_id, number, charge)).collect();
    insert_all!(db, charge::table, rows.as_slice())?;
    Ok(true)
}

/// Seals a closing and puts it in force. Call it in the transaction that writes its statements, last.
///
/// # Errors
/// What the database says.
pub fn seal(
    db: &mut Db,
    closed: &Period,
    closing_id: i64,
    at: Instant,
    charges: i64,
    exact: Fraction,
    charged_micros: i64,
) -> Result<(), DbError> {
    on_db!(db, c => diesel::update(closing::table.find(closing_id)).set((
        closing::sealed_at_us.eq(Some(at.micros())),
        closing::charges.eq(charges),
        closing::exact_amount.eq(exact.to_string()),
        closing::charged_micros.eq(charged_micros),
    )).execute(c))?;
    on_db!(db, c => diesel::update(period::table.find(closed.interval.start().micros()))
        .set((period::current_closing_id.eq(closing_id), period::closer.eq(0)))
        .execute(c))?;
    Ok(())
}

/// How many charges a closing has staged. None is added or removed until the transaction ends.
///
/// # Errors
/// What the database says.
pub fn staged(db: &mut Db, closing_id: i64) -> Result<i64, DbError> {
    if let Db::Pg(c) = db {
        closing::table.find(closing_id).select(closing::id).for_update().first::<i64>(c).optional()?;
    }
    Ok(on_db!(db, c => charge::table.filter(charge::closing_id.eq(closing_id)).count().get_result(c))?)
}

/// A sealed closing by its number.
///
/// # Errors
/// What the database says; [`DbError::Inconsistent`] where it is not there or not sealed.
pub fn sealed(db: &mut Db, id: i64) -> Result<Closing, DbError> {
    type Found = (i32, Option<i64>, String, i64, i32, i32, i32, String);
    let found: Option<Found> = on_db!(db, c => closing::table
        .find(id)
        .select((closing::version, closing::sealed_at_us, closing::actor, closing::usage_version,
            closing::teams_version, closing::prices_version, closing::rules_version, closing::exact_amount))
        .first(c)
        .optional())?;
    let (version, sealed_at, actor, usage, teams, prices, rules, exact) =
        found.ok_or_else(|| crate::error::missing(format!("closing {id}")))?;
    Ok(Closing {
        id,
        version,
        sealed_at: Instant::from_micros(
            sealed_at.ok_or_else(|| crate::error::missing(format!("the seal of closing {id}")))?,
        ),
        actor,
        inputs: Inputs { usage, teams, prices, rules },
        exact: Fraction::parse(&exact).ok_or_else(|| DbError::Inconsistent(format!("“{exact}” is no amount")))?,
    })
}

/// Charges of a closing by number, from `first` to `last`, both included.
///
/// # Errors
/// What the database says.
pub fn charges(db: &mut Db, closing_id: i64, first: i64, last: i64) -> Result<Vec<Charge>, DbError> {
    let rows: Vec<Row> = on_db!(db, c => charge::table
        .filter(charge::closing_id.eq(closing_id).and(charge::number.between(first, last)))
        .order(charge::number)
        .load(c))?;
    rows.into_iter().map(Charge::try_from).collect()
}

/// The next `count` statement numbers of a year, as the first of them. Without gaps, since a transaction that is
/// rolled back gives them back.
///
/// # Errors
/// What the database says.
pub fn take_statement_numbers(db: &mut Db, year: i16, count: i32) -> Result<i32, DbError> {
    let last: i32 = on_db!(db, c => diesel::insert_into(statement_counter::table)
        .values((statement_counter::year.eq(i32::from(year)), statement_counter::last.eq(count)))
        .on_conflict(statement_counter::year)
        .do_update()
        .set(statement_counter::last.eq(statement_counter::last + count))
        .returning(statement_counter::last)
        .get_result(c))?;
    Ok(last - count + 1)
}

/// Whether any statement names this team in a sealed closing.
///
/// # Errors
/// What the database says.
pub fn team_has_statements(db: &mut Db, team: TeamId) -> Result<bool, DbError> {
    let count: i64 = on_db!(db, c => statement::table.filter(statement::team_id.eq(team.0)).count().get_result(c))?;
    Ok(count > 0)
}
