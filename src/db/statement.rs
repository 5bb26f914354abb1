//! Statements as they were issued.

use diesel::prelude::*;
use gpuledger_domain::calendar::Month;
use gpuledger_domain::ids::{PoolName, SkuCode, SkuId, TeamId};
use gpuledger_domain::money::{Printed, Rate};
use gpuledger_domain::pricing::{ChargeKind, EndCause};
use gpuledger_domain::rules::{ServiceClass, Workload};
use gpuledger_domain::time::Instant;
use gpuledger_domain::units::{Fraction, Ratio};

use crate::codes::{Code, ratio};
use crate::schema::{statement, statement_line};
use crate::{Db, DbError, insert_all, on_db};

/// Sums as stored: exact, with what is printed beside them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StoredSums {
    /// How many jobs.
    pub jobs: i64,
    /// Instance-time held, in microseconds.
    pub share_us: i64,
    /// GPU-equivalent time, in microseconds.
    pub gpu_us: Fraction,
    /// Of `share_us`, inferred over gaps.
    pub estimated_us: i64,
    /// Σ quantity × rate in credits.
    pub exact: Fraction,
    /// Σ of the charges' amounts, in micro-credits.
    pub charged_micros: i64,
    /// What is printed, in credits.
    pub amount: Printed<2>,
    /// What is printed, in currency; `None` where the period has no rate.
    pub currency_amount: Option<Printed<2>>,
}

/// An issued statement.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct IssuedStatement {
    /// Its row.
    pub id: i64,
    /// The closing that issued it.
    pub closing_id: i64,
    /// The team.
    pub team: TeamId,
    /// Such as `ST-2017-10-0001`.
    pub number: String,
    /// From 1.
    pub version: i32,
    /// The first instant of the period.
    pub period_start: Instant,
    /// The team's code when it was issued.
    pub team_code: String,
    /// The team's name when it was issued.
    pub team_name: String,
    /// The team's cost centre when it was issued.
    pub cost_centre: String,
    /// The team's first owner when it was issued.
    pub owner_name: String,
    /// Its charges: the first number in the closing.
    pub first_charge: i64,
    /// Its charges: the last number in the closing.
    pub last_charge: i64,
    /// Its totals.
    pub sums: StoredSums,
    /// The currency beside credits and what a credit is worth; `None` where the period has none.
    pub credit_rate: Option<(String, Rate)>,
    /// The closing of the month before, as it was when this was issued: what it is compared with.
    pub compared_closing: Option<i64>,
}

/// A line of an issued statement.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct IssuedLine {
    /// Why.
    pub kind: ChargeKind,
    /// The section.
    pub workload: Workload,
    /// Of what.
    pub sku: SkuId,
    /// Of what, in words.
    pub sku_code: SkuCode,
    /// In which pool.
    pub pool: PoolName,
    /// On what terms.
    pub service_class: ServiceClass,
    /// Credits per hour.
    pub rate: Rate,
    /// The part of the rate that applies.
    pub weight: Ratio,
    /// For an adjustment, the end cause it is made for.
    pub end_cause: Option<EndCause>,
    /// For a correction, the closed month that it corrects.
    pub corrects: Option<Month>,
    /// For a correction, what a credit was worth in that month; `None` where it is worth what the statement says.
    pub credit_rate: Option<Rate>,
    /// Its sums.
    pub sums: StoredSums,
}

#[derive(Clone, Debug, Queryable, Insertable)]
#[diesel(table_name = statement, treat_none_as_default_value = false)]
struct Row {
    id: i64,
    closing_id: i64,
    team_id: i32,
    number: String,
    version: i32,
    period_start_us: i64,
    team_code: String,
    team_name: String,
    cost_centre: String,
    owner_name: String,
    first_charge: i64,
    last_charge: i64,
    jobs: i64,
    share_us: i64,
    gpu_us: String,
    estimated_us: i64,
    exact_amount: String,
    charged_micros: i64,
    amount_hundredths: i64,
    currency: String,
    credit_rate: String,
    currency_hundredths: i64,
    compared_closing_id: i64,
}

#[derive(Clone, Debug, Queryable, Insertable)]
#[diesel(table_name = statement_line, treat_none_as_default_value = false)]
struct LineRow {
    statement_id: i64,
    line: i32,
    kind: i16,
    workload: i16,
    sku_id: i32,
    sku_code: String,
    pool_name: String,
    service_class: i16,
    rate: String,
    weight_part: i32,
    weight_whole: i32,
    jobs: i64,
    share_us: i64,
    gpu_us: String,
    estimated_us: i64,
    exact_amount: String,
    charged_micros: i64,
    amount_hundredths: i64,
    currency_hundredths: i64,
    end_cause: Option<i16>,
    corrected_month: Option<String>,
    credit_rate: Option<String>,
}

fn hundredths(printed: Printed<2>) -> Result<i64, DbError> {
    i64::try_from(printed.0).map_err(|_| DbError::Overflow)
}

fn fraction(text: &str) -> Result<Fraction, DbError> {
    Fraction::parse(text).ok_or_else(|| DbError::Inconsistent(format!("“{text}” is no exact number")))
}

/// Issues a statement with its lines, in the transaction that seals its closing. Its `id` is given here.
///
/// # Errors
/// What the database says; [`DbError::Overflow`] where a sum does not fit.
pub fn insert(db: &mut Db, issued: &IssuedStatement, lines: &[IssuedLine]) -> Result<i64, DbError> {
    let id = db.take_ids("statement", 1)?;
    let (currency, credit_rate) =
        issued.credit_rate.as_ref().map(|(currency, rate)| (currency.clone(), rate.to_string())).unwrap_or_default();
    let sums = &issued.sums;
    let row = Row {
        id,
        closing_id: issued.closing_id,
        team_id: issued.team.0,
        number: issued.number.clone(),
        version: issued.version,
        period_start_us: issued.period_start.micros(),
        team_code: issued.team_code.clone(),
        team_name: issued.team_name.clone(),
        cost_centre: issued.cost_centre.clone(),
        owner_name: issued.owner_name.clone(),
        first_charge: issued.first_charge,
        last_charge: issued.last_charge,
        jobs: sums.jobs,
        share_us: sums.share_us,
        gpu_us: sums.gpu_us.to_string(),
        estimated_us: sums.estimated_us,
        exact_amount: sums.exact.to_string(),
        charged_micros: sums.charged_micros,
        amount_hundredths: hundredths(sums.amount)?,
        currency,
        credit_rate,
        currency_hundredths: hundredths(sums.currency_amount.unwrap_or_default())?,
        compared_closing_id: issued.compared_closing.unwrap_or(0),
    };
    on_db!(db, c => diesel::insert_into(statement::table).values(&row).execute(c))?;
    let lines = (1..).zip(lines).map(|(number, line)| line_row(id, number, line)).collect::<Result<Vec<_>, _>>()?;
    insert_all!(db, statement_line::table, lines.as_slice())?;
    Ok(id)
}

fn line_row(statement_id: i64, number: i32, line: &IssuedLine) -> Result<LineRow, DbError> {
    let sums = &line.sums;
    Ok(LineRow {
        statement_id,
        line: number,
        kind: line.kind.code(),
        workload: line.workload.code(),
        sku_id: line.sku.0,
        sku_code: line.sku_code.to_string(),
        pool_name: line.pool.to_string(),
        service_class: line.service_class.code(),
        rate: line.rate.to_string(),
        weight_part: line.weight.part(),
        weight_whole: line.weight.whole(),
        jobs: sums.jobs,
        share_us: sums.share_us,
        gpu_us: sums.gpu_us.to_string(),
        estimated_us: sums.estimated_us,
        exact_amount: sums.exact.to_string(),
        charged_micros: sums.charged_micros,
        amount_hundredths: hundredths(sums.amount)?,
        currency_hundredths: hundredths(sums.currency_amount.unwrap_or_default())?,
        end_cause: line.end_cause.map(Code::code),
        corrected_month: line.corrects.map(|month| month.to_string()),
        credit_rate: line.credit_rate.map(|rate| rate.to_string()),
    })
}

impl TryFrom<Row> for IssuedStatement {
    type Error = DbError;

    fn try_from(row: Row) -> Result<IssuedStatement, DbError> {
        let credit_rate = match row.currency.as_str() {
            "" => None,
            _ => Some((row.currency, Rate::parse(&row.credit_rate).map_err(DbError::Inconsistent)?)),
        };
        Ok(IssuedStatement {
            id: row.id,
            closing_id: row.closing_id,
            team: TeamId(row.team_id),
            number: row.number,
            version: row.version,
            period_start: Instant::from_micros(row.period_start_us),
            team_code: row.team_code,
            team_name: row.team_name,
            cost_centre: row.cost_centre,
            owner_name: row.owner_name,
            first_charge: row.first_charge,
            last_charge: row.last_charge,
            sums: StoredSums {
                jobs: row.jobs,
                share_us: row.share_us,
                gpu_us: fraction(&row.gpu_us)?,
                estimated_us: row.estimated_us,
                exact: fraction(&row.exact_amount)?,
                charged_micros: row.charged_micros,
                amount: Printed(row.amount_hundredths.into()),
                currency_amount: credit_rate.as_ref().map(|_| Printed(row.currency_hundredths.into())),
            },
            credit_rate,
            compared_closing: (row.compared_closing_id != 0).then_some(row.compared_closing_id),
        })
    }
}

fn line(row: LineRow, has_currency: bool) -> Result<IssuedLine, DbError> {
    Ok(IssuedLine {
        kind: Code::from_code(row.kind)?,
        workload: Code::from_code(row.workload)?,
        sku: SkuId(row.sku_id),
        sku_code: SkuCode::parse(&row.sku_code).map_err(DbError::Inconsistent)?,
        pool: PoolName::parse(&row.pool_name).map_err(DbError::Inconsistent)?,
        service_class: Code::from_code(row.service_class)?,
        rate: Rate::parse(&row.rate).map_err(DbError::Inconsistent)?,
        weight: ratio(row.weight_part, row.weight_whole)?,
        end_cause: row.end_cause.map(Code::from_code).transpose()?,
        corrects: row.corrected_month.as_deref().map(Month::parse).transpose().map_err(DbError::Inconsistent)?,
        credit_rate: row.credit_rate.as_deref().map(Rate::parse).transpose().map_err(DbError::Inconsistent)?,
        sums: StoredSums {
            jobs: row.jobs,
            share_us: row.share_us,
            gpu_us: fraction(&row.gpu_us)?,
            estimated_us: row.estimated_us,
            exact: fraction(&row.exact_amount)?,
            charged_micros: row.charged_micros,
            amount: Printed(row.amount_hundredths.into()),
            currency_amount: has_currency.then_some(Printed(row.currency_hundredths.into())),
        },
    })
}

/// The statements of a closing, by team code.
///
/// # Errors
/// What the database says.
pub fn of_closing(db: &mut Db, closing_id: i64) -> Result<Vec<IssuedStatement>, DbError> {
    let rows: Vec<Row> = on_db!(db, c => statement::table
        .filter(statement::closing_id.eq(closing_id))
        .order((statement::first_charge, statement::number))
        .load(c))?;
    rows.into_iter().map(IssuedStatement::try_from).collect()
}

/// The newest version of a statement by its number.
///
/// # Errors
/// What the database says.
pub fn by_number(db: &mut Db, number: &str) -> Result<Option<IssuedStatement>, DbError> {
    let row: Option<Row> = on_db!(db, c => statement::table
        .filter(statement::number.eq(number))
        .order(statement::version.desc())
        .first(c)
        .optional())?;
    row.map(IssuedStatement::try_from).transpose()
}

/// The lines of a statement, in order.
///
/// # Errors
/// What the database says.
pub fn lines(db: &mut Db, issued: &IssuedStatement) -> Result<Vec<IssuedLine>, DbError> {
    let rows: Vec<LineRow> = on_db!(db, c => statement_line::table
        .filter(statement_line::statement_id.eq(issued.id))
        .order(statement_line::line)
        .load(c))?;
    rows.into_iter().map(|row| line(row, issued.credit_rate.is_some())).collect()
}
