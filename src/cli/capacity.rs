//! `gpuledger capacity`

use gpuledger_domain::calendar::Month;
use gpuledger_domain::time::{Instant, Interval};

use super::{Context, print};
use crate::error::{AppError, Outcome};
use crate::export;
use crate::files::When;
use crate::workflows::capacity::capacity;

#[derive(Debug, clap::Args)]
pub(super) struct Arguments {
    /// The month, such as 2026-11
    #[arg(long, value_name = "MONTH", required_unless_present = "from", conflicts_with_all = ["from", "to"])]
    period: Option<String>,
    /// From when: a billing day, or an instant with an offset
    #[arg(long, value_name = "TIME", requires = "to")]
    from: Option<String>,
    /// Until when, likewise
    #[arg(long, value_name = "TIME", requires = "from")]
    to: Option<String>,
    /// As JSON
    #[arg(long)]
    json: bool,
}

pub(super) fn run(context: &Context, arguments: &Arguments) -> Result<Outcome, AppError> {
    let calendar = &context.config.calendar;
    let interval = match (&arguments.period, &arguments.from, &arguments.to) {
        (Some(month), _, _) => calendar.period(Month::parse(month).map_err(AppError::Refused)?).interval,
        (None, from, to) => {
            let (from, to) = (instant(context, "--from", from.as_deref())?, instant(context, "--to", to.as_deref())?);
            let wrong = || AppError::Refused("--to: it is not after --from".to_owned());
            Interval::new(from, to).ok_or_else(wrong)?
        }
    };
    let report = capacity(&mut context.db()?, calendar, interval, crate::clock::now())?;
    let text = if arguments.json { export::capacity::json(&report)? } else { export::capacity::text(&report)? };
    print(&text)?;
    Ok(if report.contradiction_count > 0 { Outcome::Findings } else { Outcome::Done })
}

fn instant(context: &Context, option: &str, text: Option<&str>) -> Result<Instant, AppError> {
    let when = When::Text(text.unwrap_or_default().to_owned());
    when.instant(&context.config.calendar).map_err(|message| AppError::Refused(format!("{option}: {message}")))
}
