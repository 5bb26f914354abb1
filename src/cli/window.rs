//! The time that a command is asked about: a month, or from one instant to another.

use gpuledger_domain::calendar::Month;
use gpuledger_domain::time::{Instant, Interval};

use super::Context;
use crate::error::AppError;
use crate::files::When;

#[derive(Debug, clap::Args)]
pub(super) struct Window {
    /// The month, such as 2026-11
    #[arg(long, value_name = "MONTH", required_unless_present = "from", conflicts_with_all = ["from", "to"])]
    period: Option<String>,
    /// From when: a billing day, or an instant with an offset
    #[arg(long, value_name = "TIME", requires = "to")]
    from: Option<String>,
    /// Until when, likewise
    #[arg(long, value_name = "TIME", requires = "from")]
    to: Option<String>,
}

impl Window {
    pub(super) fn interval(&self, context: &Context) -> Result<Interval, AppError> {
        let calendar = &context.config.calendar;
        match (&self.period, &self.from, &self.to) {
            (Some(month), _, _) => Ok(calendar.period(Month::parse(month).map_err(AppError::Refused)?).interval),
            (None, from, to) => {
                let from = instant(context, "--from", from.as_deref())?;
                let to = instant(context, "--to", to.as_deref())?;
                let wrong = || AppError::Refused("--to: it is not after --from".to_owned());
                Interval::new(from, to).ok_or_else(wrong)
            }
        }
    }
}

fn instant(context: &Context, option: &str, text: Option<&str>) -> Result<Instant, AppError> {
    let when = When::Text(text.unwrap_or_default().to_owned());
    when.instant(&context.config.calendar).map_err(|message| AppError::Refused(format!("{option}: {message}")))
}
