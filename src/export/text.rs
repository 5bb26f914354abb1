//! Statements as text for a terminal.

use gpuledger_db::statement::IssuedLine;
use gpuledger_domain::calendar::BillingCalendar;
use gpuledger_domain::money::Printed;
use gpuledger_domain::pricing::{ChargeKind, SuspendedTime};
use gpuledger_domain::units::Fraction;

use super::screen::{grouped, hours, measured, rate_text, signed};
use super::table::Table;
use crate::error::AppError;
use crate::workflows::ends::SuspendedRow;
use crate::workflows::statements::{
    ChangeFromLastMonth, Life, PeriodStatements, StatementDetails, StatementView, seconds,
};

/// The word for a kind of charge.
#[must_use]
pub const fn kind(kind: ChargeKind) -> &'static str {
    match kind {
        ChargeKind::Usage => "usage",
        ChargeKind::IdleShare => "idle-share",
        ChargeKind::Reservation => "reservation",
        ChargeKind::Energy => "energy",
        ChargeKind::Discount => "discount",
        ChargeKind::OwnerCredit => "owner-credit",
        ChargeKind::Adjustment => "adjustment",
        ChargeKind::Correction => "correction",
    }
}

/// The word for where a period is in its life.
#[must_use]
pub const fn life(life: Life) -> &'static str {
    match life {
        Life::Open => "open",
        Life::InReview => "in review",
        Life::Closed { .. } => "closed",
    }
}

/// The list of a period's statements, its rounding row, and its total.
///
/// # Errors
/// A number that cannot be held.
pub fn list(period: &PeriodStatements) -> Result<String, AppError> {
    let mut table = Table::new(&["statement", "team", "name", "jobs", "GPU-seconds", "credits"]);
    let mut unpriced = String::new();
    for view in &period.statements {
        let head = &view.head;
        let number = if head.number.is_empty() { "draft".to_owned() } else { head.number.clone() };
        let amount = if view.unpriced.is_empty() { grouped(head.sums.amount) } else { "unpriced".into() };
        let gpu_seconds = Printed::<0>::rounded(seconds(head.sums.gpu_us)?)?;
        table.row([
            number,
            head.team_code.clone(),
            head.team_name.clone(),
            head.sums.jobs.to_string(),
            grouped(gpu_seconds),
            amount,
        ]);
        for row in &view.unpriced {
            let held = grouped(Printed::<0>::rounded(seconds(row.gpu_us)?)?);
            unpriced += &format!(
                "unpriced: team {}, {}, pool {}, {held} GPU-seconds: {}\n",
                head.team_code, row.sku.code, row.pool, row.reason
            );
        }
    }
    let rounding = &period.rounding;
    if rounding.amount.0 != 0 || rounding.gpu_seconds.0 != 0 {
        table.row(
            ["", "rounding", "", "", &grouped(rounding.gpu_seconds), &grouped(rounding.amount)].map(str::to_owned),
        );
    }
    if unpriced.is_empty() {
        let total = Printed::<2>::rounded(period.exact)?;
        let all = Fraction::sum(period.statements.iter().map(|view| view.head.sums.gpu_us))?;
        let all = Printed::<0>::rounded(seconds(all)?)?;
        table.row(["total", "", "", "", &grouped(all), &grouped(total)].map(str::to_owned));
    }
    let life = match period.life {
        Life::Open => "open: these are estimates by today's rules and prices\n",
        Life::InReview => "in review: the month is over and not closed\n",
        Life::Closed { .. } => "",
    };
    Ok(format!("{}{unpriced}{life}", table.text()))
}

/// A team's lines of a month, whether they are issued or would be now.
///
/// # Errors
/// A number that cannot be held.
pub fn draft(month: gpuledger_domain::calendar::Month, view: &StatementView) -> Result<String, AppError> {
    let head = &view.head;
    let what = if head.number.is_empty() { "Draft" } else { head.number.as_str() };
    let mut text = format!("{what}, {month}: {} ({})\n\n{}", head.team_name, head.team_code, lines(view)?);
    for row in &view.unpriced {
        let held = grouped(Printed::<0>::rounded(seconds(row.gpu_us)?)?);
        text += &format!("unpriced: {}, pool {}, {held} GPU-seconds: {}\n", row.sku.code, row.pool, row.reason);
    }
    Ok(text)
}

/// One statement: header, lines, experiments, change.
///
/// # Errors
/// A number that cannot be held.
pub fn statement(
    calendar: &BillingCalendar,
    view: &StatementView,
    details: &StatementDetails,
) -> Result<String, AppError> {
    let head = &view.head;
    let period = calendar.period_of(head.period_start);
    let mut text = format!(
        "Statement {}, version {}\n{} ({}), cost centre {}\n1–{} {} {}, {}\n\n",
        head.number,
        head.version,
        head.team_name,
        head.team_code,
        or_dash(&head.cost_centre),
        period.month.days(),
        period.month.name(),
        period.month.year(),
        calendar.zone_name()
    );
    text += &lines(view)?;
    let mut table = Table::new(&["experiment", "jobs", "credits"]);
    for row in &details.experiments {
        table.row([row.name.clone().unwrap_or_else(|| "none named".into()), row.jobs.to_string(), grouped(row.amount)]);
    }
    text += &format!("\n{}{}\n{}", table.text(), ends(details)?, change(&details.change));
    Ok(text)
}

/// What a line is of: its workload, and for what the platform takes over, why.
fn work(line: &IssuedLine) -> String {
    let workload = line.workload.as_str();
    let work = match line.corrects {
        Some(month) => format!("correction for {} {}: {workload}", month.name(), month.year()),
        None => workload.to_owned(),
    };
    match line.end_cause {
        Some(cause) => format!("{work}, paid by platform: {cause}"),
        None => work,
    }
}

/// How jobs ended and who paid, and what was charged of suspended ones; nothing where nothing is told.
fn ends(details: &StatementDetails) -> Result<String, AppError> {
    let mut text = String::new();
    if !details.ends.is_empty() {
        let mut table = Table::new(&["ended by", "jobs", "paid by", "GPU-hours", "credits"]);
        let gpu = hours(&details.ends.iter().map(|row| row.gpu_us).collect::<Vec<_>>())?;
        for (row, gpu) in details.ends.iter().zip(&gpu.parts) {
            let cause = row.cause.map_or_else(|| "not told".to_owned(), |cause| cause.to_string());
            let (jobs, paid_by) = (row.jobs.to_string(), row.paid_by.as_str().to_owned());
            table.row([cause, jobs, paid_by, grouped(*gpu), grouped(row.amount)]);
        }
        text += &format!("\n{}", table.text());
    }
    for row in &details.suspended {
        text += &format!("{}\n", suspended(row)?);
    }
    Ok(text)
}

/// What was charged of suspended jobs, as a sentence.
pub(super) fn suspended(row: &SuspendedRow) -> Result<String, AppError> {
    let held = grouped(Printed::<0>::rounded(seconds(Fraction::whole(row.instance_us))?)?);
    let charged = match row.charged {
        SuspendedTime::Held => "is charged: the GPUs stayed with them",
        SuspendedTime::Running => "is not charged: only running time is",
    };
    Ok(format!("Suspended jobs of cluster {} held their GPUs for {held} GPU-seconds, which {charged}.", row.cluster))
}

/// The lines of a statement, with their total.
fn lines(view: &StatementView) -> Result<String, AppError> {
    let head = &view.head;
    let unpriced = &view.unpriced;
    let held = view.lines.iter().map(|line| i128::from(line.sums.share_us));
    let held = held.chain(unpriced.iter().map(|row| row.share_us)).map(Fraction::whole);
    let held = hours(&held.collect::<Vec<_>>())?;
    let gpu = view.lines.iter().map(|line| line.sums.gpu_us).chain(unpriced.iter().map(|row| row.gpu_us));
    let gpu = hours(&gpu.collect::<Vec<_>>())?;
    let at = |column: &gpuledger_domain::money::Column<2>, index: usize| {
        column.parts.get(index).copied().map(grouped).unwrap_or_default()
    };
    let currency = head.credit_rate.as_ref().map_or("", |(currency, _)| currency.as_str());
    let mut table = Table::new(&[
        "workload",
        "SKU",
        "pool",
        "class",
        "hours held",
        "GPU-hours",
        "measured",
        "an hour",
        "credits",
        currency,
    ]);
    for (index, line) in view.lines.iter().enumerate() {
        // The time that the platform pays for is told where it was charged.
        let time = |text: String| if line.end_cause.is_some() { String::new() } else { text };
        table.row([
            work(line),
            line.sku_code.to_string(),
            line.pool.to_string(),
            line.service_class.as_str().to_owned(),
            time(at(&held, index)),
            time(at(&gpu, index)),
            time(measured(line.sums.share_us, line.sums.estimated_us)),
            rate_text(line.rate, line.weight)?,
            grouped(line.sums.amount),
            line.sums.currency_amount.map(grouped).unwrap_or_default(),
        ]);
    }
    for (index, row) in (view.lines.len()..).zip(unpriced) {
        let (held, gpu) = (at(&held, index), at(&gpu, index));
        let (sku, pool) = (row.sku.code.as_str(), row.pool.as_str());
        table.row(["", sku, pool, row.service_class.as_str(), &held, &gpu, "", "", "unpriced", ""].map(str::to_owned));
    }
    let (amount, currency_amount) = if unpriced.is_empty() {
        (grouped(head.sums.amount), head.sums.currency_amount.map(grouped).unwrap_or_default())
    } else {
        ("unpriced".to_owned(), String::new())
    };
    let measured = measured(head.sums.share_us, head.sums.estimated_us);
    let (held, gpu) = (grouped(held.total), grouped(gpu.total));
    table.row(["total", "", "", "", &held, &gpu, &measured, "", &amount, &currency_amount].map(str::to_owned));
    Ok(table.text())
}

fn change(change: &ChangeFromLastMonth) -> String {
    match change {
        ChangeFromLastMonth::NotClosed => {
            "Last month was not closed when this was issued, so there is nothing to compare with.\n".into()
        }
        ChangeFromLastMonth::NoChargesThen => "The team had no charges last month.\n".into(),
        ChangeFromLastMonth::Drivers(change) => {
            let mut table = Table::new(&["change from last month", ""]);
            table.row(["last month, charged".into(), grouped(change.from)]);
            table.row(["GPU-hours".into(), signed(change.hours)]);
            table.row(["mix of SKUs".into(), signed(change.mix)]);
            table.row(["rates".into(), signed(change.rates)]);
            if change.taken_over.0 != 0 {
                table.row(["paid by platform".into(), signed(change.taken_over)]);
            }
            if change.corrections.0 != 0 {
                table.row(["corrections of earlier months".into(), signed(change.corrections)]);
            }
            table.row(["this month, charged".into(), grouped(change.to)]);
            table.text()
        }
    }
}

fn or_dash(text: &str) -> &str {
    if text.is_empty() { "–" } else { text }
}
