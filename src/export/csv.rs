//! Statements as CSV: RFC 4180, plain digits, no figure that depends on the machine or the moment.

use gpuledger_db::closing::entry_word;
use gpuledger_db::statement::IssuedStatement;
use gpuledger_domain::metering::Source;
use gpuledger_domain::money::Printed;
use gpuledger_domain::pricing::EndCause;
use gpuledger_domain::units::{Fraction, Overflow};

use crate::error::AppError;
use crate::workflows::evidence::{ChargeEvidence, SegmentEvidence};
use crate::workflows::price_period::UnpricedUsage;
use crate::workflows::statements::{PeriodStatements, StatementView, seconds};

/// The list of a period's statements; the last row makes it add up.
///
/// # Errors
/// A number that cannot be held.
pub fn list(period: &PeriodStatements) -> Result<String, AppError> {
    let mut rows = vec![texts([
        "period",
        "team",
        "name",
        "cost_centre",
        "number",
        "version",
        "jobs",
        "held_seconds",
        "gpu_seconds",
        "credits",
        "credits_exact",
        "currency",
        "currency_amount",
        "unpriced_gpu_seconds",
    ])];
    for view in &period.statements {
        let head = &view.head;
        let sums = &head.sums;
        let priced = view.unpriced.is_empty();
        let amount = |text: String| if priced { text } else { String::new() };
        rows.push(vec![
            period.period.month.to_string(),
            cell(&head.team_code),
            cell(&head.team_name),
            cell(&head.cost_centre),
            head.number.clone(),
            version(head.version),
            sums.jobs.to_string(),
            six(seconds(Fraction::whole(sums.share_us.into()))?)?,
            six(seconds(sums.gpu_us)?)?,
            amount(sums.amount.to_string()),
            amount(six(sums.exact)?),
            head.credit_rate.as_ref().map(|(currency, _)| currency.clone()).unwrap_or_default(),
            amount(sums.currency_amount.map(|printed| printed.to_string()).unwrap_or_default()),
            six(unpriced_seconds(view)?)?,
        ]);
    }
    let rounding = &period.rounding;
    let currency = rounding.currency_amount.map(|printed| printed.to_string());
    rows.push(vec![
        period.period.month.to_string(),
        "rounding".into(),
        String::new(),
        String::new(),
        String::new(),
        String::new(),
        String::new(),
        String::new(),
        rounding.gpu_seconds_exact.to_string(),
        rounding.amount.to_string(),
        rounding.amount_exact.to_string(),
        String::new(),
        currency.unwrap_or_default(),
        String::new(),
    ]);
    written(rows)
}

/// The lines of one statement; the last row is the total.
///
/// # Errors
/// A number that cannot be held.
pub fn statement(view: &StatementView) -> Result<String, AppError> {
    let head = &view.head;
    let mut rows = vec![texts([
        "number",
        "team",
        "kind",
        "workload",
        "sku",
        "pool",
        "class",
        "rate",
        "weight",
        "jobs",
        "held_seconds",
        "gpu_seconds",
        "estimated_seconds",
        "credits",
        "credits_exact",
        "currency_amount",
        "end_cause",
        "corrected_month",
    ])];
    let figures = |sums: &gpuledger_db::statement::StoredSums| -> Result<Vec<String>, AppError> {
        Ok(vec![
            sums.jobs.to_string(),
            six(seconds(Fraction::whole(sums.share_us.into()))?)?,
            six(seconds(sums.gpu_us)?)?,
            six(seconds(Fraction::whole(sums.estimated_us.into()))?)?,
            sums.amount.to_string(),
            six(sums.exact)?,
            sums.currency_amount.map(|printed| printed.to_string()).unwrap_or_default(),
        ])
    };
    for line in &view.lines {
        let mut row = vec![
            head.number.clone(),
            cell(&head.team_code),
            super::text::kind(line.kind).to_owned(),
            line.workload.as_str().to_owned(),
            cell(line.sku_code.as_str()),
            cell(line.pool.as_str()),
            line.service_class.as_str().to_owned(),
            line.rate.to_string(),
            line.weight.to_string(),
        ];
        row.extend(figures(&line.sums)?);
        row.push(line.end_cause.map_or("", EndCause::as_str).to_owned());
        row.push(line.corrects.map(|month| month.to_string()).unwrap_or_default());
        rows.push(row);
    }
    for row in &view.unpriced {
        rows.push(unpriced(head, row)?);
    }
    let mut total = vec![head.number.clone(), cell(&head.team_code), "total".into()];
    total.extend(std::iter::repeat_n(String::new(), 6));
    let mut sums = figures(&head.sums)?;
    if !view.unpriced.is_empty() {
        // What is not known is not zero: a total of only what has a price would look like a bill.
        sums.truncate(4);
        sums.resize(7, String::new());
    }
    total.extend(sums);
    total.extend([String::new(), String::new()]);
    rows.push(total);
    written(rows)
}

/// A row of a draft for what has no price.
fn unpriced(head: &IssuedStatement, row: &UnpricedUsage) -> Result<Vec<String>, AppError> {
    let mut cells = vec![head.number.clone(), cell(&head.team_code), "unpriced".into(), String::new()];
    cells.extend([cell(row.sku.code.as_str()), cell(row.pool.as_str()), row.service_class.as_str().to_owned()]);
    cells.extend([String::new(), String::new(), row.jobs.len().to_string()]);
    cells.extend([six(seconds(Fraction::whole(row.share_us))?)?, six(seconds(row.gpu_us)?)?]);
    cells.extend(std::iter::repeat_n(String::new(), 6));
    Ok(cells)
}

/// The charges of a statement, each with what it was made from.
///
/// # Errors
/// A number that cannot be held.
pub fn charges(charges: &[ChargeEvidence]) -> Result<String, AppError> {
    let mut rows = vec![texts([
        "charge",
        "slot_start",
        "slot_end",
        "cluster",
        "job",
        "job_start",
        "kind",
        "workload",
        "experiment",
        "sku",
        "pool",
        "class",
        "held_seconds",
        "gpu_seconds",
        "rate",
        "weight",
        "credits",
        "segments",
        "end_cause",
        "suspended_seconds",
        "corrected_month",
        "corrected_charge",
        "entry",
    ])];
    for evidence in charges {
        let (charge, payer) = (&evidence.charge, &evidence.charge.payer);
        let held = Fraction::whole(charge.share_us.into());
        let gpu = held.times(evidence.sku.slices.compute.fraction())?;
        // A row without an id has no start of its own in its name.
        let start = evidence.attempt.start;
        let start = if start.micros() == 0 { String::new() } else { start.to_string() };
        rows.push(vec![
            evidence.number.to_string(),
            charge.slot.start().to_string(),
            charge.slot.end().to_string(),
            cell(&evidence.cluster),
            cell(&evidence.attempt.source_id),
            start,
            super::text::kind(charge.kind).to_owned(),
            payer.workload.as_str().to_owned(),
            cell(evidence.experiment.as_deref().unwrap_or("")),
            cell(evidence.sku.code.as_str()),
            cell(evidence.pool.as_str()),
            payer.service_class.as_str().to_owned(),
            six(seconds(held)?)?,
            six(seconds(gpu)?)?,
            charge.rate.to_string(),
            charge.weight.to_string(),
            Printed::<6>(charge.amount.0.into()).to_string(),
            charge.segments.to_string(),
            charge.end_cause.map_or("", EndCause::as_str).to_owned(),
            six(seconds(Fraction::whole(charge.suspended_us.into()))?)?,
            charge.corrects.map(|corrects| corrects.month.to_string()).unwrap_or_default(),
            charge
                .corrects
                .map(|corrects| corrects.charge)
                .filter(|number| *number != 0)
                .map_or_else(String::new, |number| number.to_string()),
            charge.corrects.map_or("", |corrects| entry_word(corrects.entry)).to_owned(),
        ]);
    }
    written(rows)
}

/// The segments behind a charge.
///
/// # Errors
/// A number that cannot be held.
pub fn segments(segments: &[SegmentEvidence]) -> Result<String, AppError> {
    let mut rows =
        vec![texts(["hour", "node", "start", "end", "count", "held_seconds", "source", "suspended_seconds"])];
    for SegmentEvidence { segment, interval, share_us, suspended_us, node } in segments {
        let source = match segment.source {
            Source::Agent => "agent",
            Source::Scheduler => "scheduler",
        };
        rows.push(vec![
            segment.key.hour.start().to_string(),
            cell(node),
            interval.start().to_string(),
            interval.end().to_string(),
            segment.count.to_string(),
            six(seconds(*share_us)?)?,
            source.to_owned(),
            six(seconds(*suspended_us)?)?,
        ]);
    }
    written(rows)
}

/// GPU-seconds of a statement that have no price.
pub(super) fn unpriced_seconds(view: &StatementView) -> Result<Fraction, Overflow> {
    seconds(Fraction::sum(view.unpriced.iter().map(|unpriced| unpriced.gpu_us))?)
}

/// Six places, as files print exact amounts.
pub(super) fn six(exact: Fraction) -> Result<String, Overflow> {
    Ok(Printed::<6>::rounded(exact)?.to_string())
}

fn version(version: i32) -> String {
    if version == 0 { String::new() } else { version.to_string() }
}

fn texts<const N: usize>(cells: [&str; N]) -> Vec<String> {
    cells.map(str::to_owned).to_vec()
}

/// A text that a spreadsheet must not run as a formula gets a leading `'`.
#[must_use]
pub fn cell(text: &str) -> String {
    if text.starts_with(['=', '+', '-', '@', '\t', '\r', '\0']) { format!("'{text}") } else { text.to_owned() }
}

fn written(rows: Vec<Vec<String>>) -> Result<String, AppError> {
    let failed = |error: &dyn std::fmt::Display| AppError::Refused(format!("CSV cannot be written: {error}"));
    let mut writer = csv::WriterBuilder::new().terminator(csv::Terminator::CRLF).from_writer(Vec::new());
    for row in rows {
        writer.write_record(&row).map_err(|error| failed(&error))?;
    }
    let bytes = writer.into_inner().map_err(|error| failed(&error))?;
    String::from_utf8(bytes).map_err(|error| failed(&error))
}
