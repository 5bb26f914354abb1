//! `gpuledger recompute`

use super::{Context, print};
use crate::clock;
use crate::error::{AppError, Outcome};
use crate::workflows::recompute::recompute;

#[derive(Debug, clap::Args)]
pub(super) struct Arguments {}

pub(super) fn run(context: &Context, _: &Arguments) -> Result<Outcome, AppError> {
    let done = recompute(&mut context.db()?, &context.config.calendar, clock::now)?;
    print(&format!(
        "Days of nodes summed again: {}, with another usage than was held: {}\nDays of months priced again: {}, with another cost than was held: {}\n",
        done.usage.days, done.usage.differences, done.cost.days, done.cost.differences
    ))?;
    let differs = done.usage.differences + done.cost.differences > 0;
    Ok(if differs { Outcome::Findings } else { Outcome::Done })
}
