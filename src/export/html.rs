//! Statements as pages that a browser shows and prints. Templates only place texts; every text is made here.

use std::path::Path;

use askama::Template;
use gpuledger_db::Db;
use gpuledger_domain::calendar::{BillingCalendar, Month};
use gpuledger_domain::money::Printed;
use gpuledger_domain::pricing::EndCause;
use gpuledger_domain::time::Instant;
use gpuledger_domain::units::{Fraction, Overflow};

mod sections;

use sections::{Section, sections};

use super::screen::{grouped, hours, measured, signed, signed_unless_nothing};
use crate::config::Config;
use crate::error::AppError;
use crate::workflows::statements::{
    self, ChangeFromLastMonth, Life, PeriodStatements, StatementDetails, StatementView, seconds,
};

/// What a page needs besides its text, as (name, type, bytes).
pub const ASSETS: [(&str, &str, &[u8]); 3] = [
    ("statement.css", "text/css; charset=utf-8", include_bytes!("../../static/statement.css")),
    ("icon.svg", "image/svg+xml", include_bytes!("../../static/icon.svg")),
    ("inter-latin-wght-normal.woff2", "font/woff2", include_bytes!("../../static/inter-latin-wght-normal.woff2")),
];

/// How pages refer to each other: files in a folder, or addresses of a server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Links {
    /// Files side by side.
    Files,
    /// Addresses.
    Server,
}

impl Links {
    fn assets(self) -> &'static str {
        match self {
            Links::Files => "assets",
            Links::Server => "/static",
        }
    }

    fn list(self) -> &'static str {
        match self {
            Links::Files => "index.html",
            Links::Server => "/statements",
        }
    }

    fn statement(self, number: &str) -> String {
        match self {
            Links::Files => format!("{number}.html"),
            Links::Server => format!("/statements/{number}"),
        }
    }

    fn csv(self, number: &str) -> String {
        match self {
            Links::Files => format!("{number}.csv"),
            Links::Server => format!("/statements/{number}.csv"),
        }
    }
}

#[derive(Template)]
#[template(path = "statements/statement.html")]
struct StatementPage<'a> {
    assets: &'a str,
    list_link: &'a str,
    csv_link: String,
    symbol: &'a str,
    credit_name: &'a str,
    notice: Option<&'a str>,
    number: &'a str,
    version: i32,
    team_name: &'a str,
    team_code: &'a str,
    cost_centre: &'a str,
    owner_name: &'a str,
    issuer: &'a crate::config::Issuer,
    days: String,
    month: String,
    month_before: String,
    issued: String,
    total: String,
    currency: Option<CurrencyTexts>,
    sections: Vec<Section>,
    hours_total: String,
    gpu_hours_total: String,
    measured_total: String,
    experiments: Vec<ExperimentTexts>,
    ends: Vec<EndTexts>,
    suspended: Vec<String>,
    change: ChangeTexts,
    jobs: String,
    exact: String,
    all_measured: bool,
    has_slices: bool,
    prices_version: i32,
    rules_version: i32,
}

struct CurrencyTexts {
    code: String,
    rate: String,
    total: String,
}

struct EndTexts {
    cause: &'static str,
    paid_by: &'static str,
    jobs: String,
    gpu_hours: String,
    amount: String,
    currency_amount: String,
}

struct ExperimentTexts {
    name: String,
    jobs: String,
    gpu_hours: String,
    amount: String,
    currency_amount: String,
}

enum ChangeTexts {
    Drivers {
        from: String,
        hours: String,
        mix: String,
        rates: String,
        taken_over: String,
        corrections: String,
        to: String,
    },
    Sentence(String),
}

#[derive(Template)]
#[template(path = "statements/list.html")]
struct ListPage<'a> {
    assets: &'a str,
    symbol: &'a str,
    notice: Option<&'a str>,
    issuer: &'a str,
    zone: &'a str,
    months: Vec<MonthTexts>,
}

struct MonthTexts {
    id: String,
    title: String,
    sentence: String,
    currency: Option<String>,
    rows: Vec<RowTexts>,
    rounding: Option<RowTexts>,
    total: RowTexts,
}

#[derive(Default)]
struct RowTexts {
    link: String,
    number: String,
    team: String,
    code: String,
    jobs: String,
    gpu_hours: String,
    amount: String,
    currency_amount: String,
}

fn written(template: &impl Template) -> Result<String, AppError> {
    template.render().map_err(|error| AppError::Refused(format!("a page cannot be written: {error}")))
}

/// The page of an issued statement.
///
/// # Errors
/// A number that cannot be held.
pub fn statement_page(
    config: &Config,
    links: Links,
    view: &StatementView,
    details: &StatementDetails,
) -> Result<String, AppError> {
    let (head, calendar) = (&view.head, &config.calendar);
    let period = calendar.period_of(head.period_start);
    let held = hours(&view.lines.iter().map(|line| Fraction::whole(line.sums.share_us.into())).collect::<Vec<_>>())?;
    let gpu = hours(&view.lines.iter().map(|line| line.sums.gpu_us).collect::<Vec<_>>())?;
    let issued = match details.life {
        Life::Closed { at } => calendar.date_text(at),
        Life::Open | Life::InReview => String::new(),
    };
    written(&StatementPage {
        assets: links.assets(),
        list_link: links.list(),
        csv_link: links.csv(&head.number),
        symbol: &config.credit.symbol,
        credit_name: &config.credit.name,
        notice: config.notice.as_deref(),
        number: &head.number,
        version: head.version,
        team_name: &head.team_name,
        team_code: &head.team_code,
        cost_centre: &head.cost_centre,
        owner_name: &head.owner_name,
        issuer: &config.issuer,
        days: days_text(calendar, period.month),
        month: format!("{} {}", period.month.name(), period.month.year()),
        month_before: period.month.previous().name().to_owned(),
        issued,
        total: grouped(head.sums.amount),
        currency: head.credit_rate.as_ref().zip(head.sums.currency_amount).map(|((code, rate), total)| CurrencyTexts {
            code: code.clone(),
            rate: rate.to_string(),
            total: grouped(total),
        }),
        sections: sections(&view.lines, &held, &gpu)?,
        hours_total: grouped(held.total),
        gpu_hours_total: grouped(gpu.total),
        measured_total: measured(head.sums.share_us, head.sums.estimated_us),
        experiments: experiments(details)?,
        ends: ends(details)?,
        suspended: details.suspended.iter().map(super::text::suspended).collect::<Result<_, _>>()?,
        change: change_texts(&details.change, period.month),
        jobs: grouped(Printed::<0>(head.sums.jobs.into())),
        exact: grouped(Printed::<6>::rounded(head.sums.exact)?),
        all_measured: head.sums.estimated_us == 0,
        has_slices: view.lines.iter().any(|line| line.sums.gpu_us != Fraction::whole(line.sums.share_us.into())),
        prices_version: details.inputs.prices,
        rules_version: details.inputs.rules,
    })
}

fn days_text(calendar: &BillingCalendar, month: Month) -> String {
    format!("1–{} {} {} ({})", month.days(), month.name(), month.year(), calendar.zone_name())
}

fn experiments(details: &StatementDetails) -> Result<Vec<ExperimentTexts>, Overflow> {
    let gpu = hours(&details.experiments.iter().map(|row| row.gpu_us).collect::<Vec<_>>())?;
    let texts = details.experiments.iter().zip(&gpu.parts).map(|(row, gpu)| ExperimentTexts {
        name: row.name.clone().unwrap_or_else(|| "No experiment named".into()),
        jobs: grouped(Printed::<0>(i128::try_from(row.jobs).unwrap_or(i128::MAX))),
        gpu_hours: grouped(*gpu),
        amount: grouped(row.amount),
        currency_amount: row.currency_amount.map(grouped).unwrap_or_default(),
    });
    Ok(texts.collect())
}

fn ends(details: &StatementDetails) -> Result<Vec<EndTexts>, Overflow> {
    let gpu = hours(&details.ends.iter().map(|row| row.gpu_us).collect::<Vec<_>>())?;
    let texts = details.ends.iter().zip(&gpu.parts).map(|(row, gpu)| EndTexts {
        cause: row.cause.map_or("Not told", title),
        paid_by: row.paid_by.as_str(),
        jobs: grouped(Printed::<0>(i128::try_from(row.jobs).unwrap_or(i128::MAX))),
        gpu_hours: grouped(*gpu),
        amount: grouped(row.amount),
        currency_amount: row.currency_amount.map(grouped).unwrap_or_default(),
    });
    Ok(texts.collect())
}

const fn title(cause: EndCause) -> &'static str {
    match cause {
        EndCause::Completed => "Completed",
        EndCause::Failed => "Failed",
        EndCause::OutOfMemory => "Out of memory",
        EndCause::Timeout => "Timeout",
        EndCause::Cancelled => "Cancelled",
        EndCause::NodeFailure => "Node failure",
        EndCause::PreEmpted => "Pre-empted",
        EndCause::Maintenance => "Maintenance",
    }
}

fn change_texts(change: &ChangeFromLastMonth, month: Month) -> ChangeTexts {
    let before = month.previous();
    match change {
        ChangeFromLastMonth::Drivers(change) => ChangeTexts::Drivers {
            from: grouped(change.from),
            hours: signed(change.hours),
            mix: signed(change.mix),
            rates: signed(change.rates),
            taken_over: signed_unless_nothing(change.taken_over),
            corrections: signed_unless_nothing(change.corrections),
            to: grouped(change.to),
        },
        ChangeFromLastMonth::NoChargesThen => {
            ChangeTexts::Sentence(format!("No charges in {}: all of this month is new.", before.name()))
        }
        ChangeFromLastMonth::NotClosed => ChangeTexts::Sentence(format!(
            "{} {} was not closed when this was issued, so there is nothing to compare with.",
            before.name(),
            before.year()
        )),
    }
}

/// The page that lists the statements of closed months, newest first.
///
/// # Errors
/// A number that cannot be held.
pub fn list_page(config: &Config, links: Links, periods: &[PeriodStatements]) -> Result<String, AppError> {
    let months = periods.iter().map(|period| month_texts(config, links, period));
    written(&ListPage {
        assets: links.assets(),
        symbol: &config.credit.symbol,
        notice: config.notice.as_deref(),
        issuer: &config.issuer.name,
        zone: config.calendar.zone_name(),
        months: months.collect::<Result<_, _>>()?,
    })
}

fn month_texts(config: &Config, links: Links, period: &PeriodStatements) -> Result<MonthTexts, AppError> {
    let month = period.period.month;
    let gpu = hours(&period.statements.iter().map(|view| view.head.sums.gpu_us).collect::<Vec<_>>())?;
    let rows = period.statements.iter().zip(&gpu.parts).map(|(view, gpu_hours)| {
        let head = &view.head;
        RowTexts {
            link: links.statement(&head.number),
            number: head.number.clone(),
            team: head.team_name.clone(),
            code: head.team_code.clone(),
            jobs: grouped(Printed::<0>(head.sums.jobs.into())),
            gpu_hours: grouped(*gpu_hours),
            amount: grouped(head.sums.amount),
            currency_amount: head.sums.currency_amount.map(grouped).unwrap_or_default(),
        }
    });
    let rounding = &period.rounding;
    let currency_sum = period
        .statements
        .iter()
        .filter_map(|view| view.head.sums.currency_amount)
        .map(|printed| printed.0)
        .sum::<i128>();
    let jobs: i64 = period.statements.iter().map(|view| view.head.sums.jobs).sum();
    let total = Printed::<2>::rounded(period.exact)?;
    let all_seconds =
        Printed::<0>::rounded(seconds(Fraction::sum(period.statements.iter().map(|view| view.head.sums.gpu_us))?)?)?;
    let closed = match period.life {
        Life::Closed { at } => format!("closed {}", config.calendar.date_text(at)),
        Life::Open => "open".into(),
        Life::InReview => "in review".into(),
    };
    Ok(MonthTexts {
        id: month.to_string(),
        title: format!("{} {}", month.name(), month.year()),
        sentence: format!(
            "{} teams held {} GPU-seconds ({} GPU-hours) and were charged {} {}; {closed}.",
            period.statements.len(),
            grouped(all_seconds),
            grouped(gpu.total),
            grouped(total),
            config.credit.name
        ),
        currency: period
            .statements
            .iter()
            .find_map(|view| view.head.credit_rate.as_ref())
            .map(|(code, _)| code.clone()),
        rows: rows.collect(),
        rounding: (rounding.amount.0 != 0 || rounding.currency_amount.is_some_and(|amount| amount.0 != 0)).then(|| {
            RowTexts {
                team: "Rounding".into(),
                amount: grouped(rounding.amount),
                currency_amount: rounding.currency_amount.map(grouped).unwrap_or_default(),
                ..RowTexts::default()
            }
        }),
        total: RowTexts {
            team: "Total".into(),
            jobs: grouped(Printed::<0>(jobs.into())),
            gpu_hours: grouped(gpu.total),
            amount: grouped(total),
            currency_amount: rounding
                .currency_amount
                .map(|amount| grouped(Printed::<2>(currency_sum + amount.0)))
                .unwrap_or_default(),
            ..RowTexts::default()
        },
    })
}

/// Writes the statements of a closed month as files in a folder: a page and a CSV each, a list, and what they need.
///
/// # Errors
/// [`AppError::Refused`] where the month is not closed; [`AppError::File`] where the folder cannot be written.
pub fn render(db: &mut Db, config: &Config, month: Month, out: &Path, now: Instant) -> Result<usize, AppError> {
    let period = statements::of_period(db, &config.calendar, month, now)?;
    if !matches!(period.life, Life::Closed { .. }) {
        return Err(AppError::Refused(format!(
            "{month} is not closed, so its statements are not issued; close it with `gpuledger close {month}`"
        )));
    }
    let assets = out.join(Links::Files.assets());
    std::fs::create_dir_all(&assets).map_err(|error| AppError::file(&assets, error))?;
    let write = |path: std::path::PathBuf, bytes: &[u8]| {
        std::fs::write(&path, bytes).map_err(|error| AppError::file(&path, error))
    };
    for (name, _, bytes) in ASSETS {
        write(assets.join(name), bytes)?;
    }
    for view in &period.statements {
        let details = statements::details(db, &config.calendar, view)?;
        let number = &view.head.number;
        write(
            out.join(Links::Files.statement(number)),
            statement_page(config, Links::Files, view, &details)?.as_bytes(),
        )?;
        write(out.join(Links::Files.csv(number)), super::csv::statement(view)?.as_bytes())?;
    }
    let count = period.statements.len();
    write(out.join(Links::Files.list()), list_page(config, Links::Files, &[period])?.as_bytes())?;
    Ok(count)
}
