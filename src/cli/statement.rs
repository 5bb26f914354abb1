//! `gpuledger statement`

use std::path::PathBuf;

use gpuledger_domain::calendar::Month;

use gpuledger_db::Db;

use super::{Context, print};
use crate::error::{AppError, Outcome};
use crate::export;
use crate::workflows::{evidence, statements};

#[derive(Debug, clap::Subcommand)]
pub(super) enum Command {
    /// The statements of a month: as issued if it is closed, else as they would be now
    List(ListArguments),
    /// One statement with its lines: an issued one by its number, or a team's draft by --period and --team
    Show(ShowArguments),
    /// The charges behind an issued statement, as CSV
    Charges(ChargesArguments),
    /// The segments behind a charge of an issued statement, as CSV
    Segments(SegmentsArguments),
    /// Write the statements of a closed month as pages that a browser shows and prints
    Render(RenderArguments),
}

#[derive(Debug, clap::Args)]
pub(super) struct ListArguments {
    /// The month, such as 2017-10
    #[arg(long, value_name = "YYYY-MM")]
    period: String,
    #[command(flatten)]
    form: Form,
}

#[derive(Debug, clap::Args)]
pub(super) struct ShowArguments {
    /// The statement, such as ST-2017-10-0001
    #[arg(required_unless_present = "team")]
    number: Option<String>,
    /// The month of a draft, such as 2017-10
    #[arg(long, value_name = "YYYY-MM", requires = "team", conflicts_with = "number")]
    period: Option<String>,
    /// The team of a draft, by its code
    #[arg(long, value_name = "CODE", requires = "period", conflicts_with_all = ["number", "json"])]
    team: Option<String>,
    #[command(flatten)]
    form: Form,
}

#[derive(Debug, clap::Args)]
pub(super) struct ChargesArguments {
    /// The statement, such as ST-2017-10-0001
    number: String,
}

#[derive(Debug, clap::Args)]
pub(super) struct SegmentsArguments {
    /// The statement, such as ST-2017-10-0001
    number: String,
    /// The charge's number
    charge: i64,
}

#[derive(Debug, clap::Args)]
pub(super) struct RenderArguments {
    /// The month, such as 2017-10
    #[arg(long, value_name = "YYYY-MM")]
    period: String,
    /// The folder to write to; made if it is not there
    #[arg(long, value_name = "DIR")]
    out: PathBuf,
}

#[derive(Debug, clap::Args)]
#[group(multiple = false)]
struct Form {
    /// As JSON
    #[arg(long)]
    json: bool,
    /// As CSV
    #[arg(long)]
    csv: bool,
}

pub(super) fn run(context: &Context, command: &Command) -> Result<Outcome, AppError> {
    match command {
        Command::List(arguments) => list(context, arguments),
        Command::Show(arguments) => show(context, arguments),
        Command::Charges(arguments) => charges(context, arguments),
        Command::Segments(arguments) => segments(context, arguments),
        Command::Render(arguments) => render(context, arguments),
    }
}

fn list(context: &Context, arguments: &ListArguments) -> Result<Outcome, AppError> {
    let month = Month::parse(&arguments.period).map_err(AppError::Refused)?;
    let found = statements::of_period(&mut context.db()?, &context.config.calendar, month, crate::clock::now())?;
    let text = match arguments.form {
        Form { json: true, .. } => export::json::list(&found)?,
        Form { csv: true, .. } => export::csv::list(&found)?,
        _ => export::text::list(&found)?,
    };
    print(&text)?;
    Ok(Outcome::Done)
}

fn show(context: &Context, arguments: &ShowArguments) -> Result<Outcome, AppError> {
    let calendar = &context.config.calendar;
    let mut db = context.db()?;
    let number = match (&arguments.number, &arguments.period, &arguments.team) {
        (None, Some(period), Some(team)) => return show_of_team(context, &mut db, period, team, arguments.form.csv),
        (number, _, _) => number.as_deref().unwrap_or_default(),
    };
    let view = statements::by_number(&mut db, number)?;
    let text = match arguments.form {
        Form { csv: true, .. } => export::csv::statement(&view)?,
        Form { json: true, .. } => {
            export::json::statement(calendar, &view, &statements::details(&mut db, calendar, &view)?)?
        }
        _ => export::text::statement(calendar, &view, &statements::details(&mut db, calendar, &view)?)?,
    };
    print(&text)?;
    Ok(Outcome::Done)
}

fn show_of_team(context: &Context, db: &mut Db, period: &str, team: &str, csv: bool) -> Result<Outcome, AppError> {
    let month = Month::parse(period).map_err(AppError::Refused)?;
    let found = statements::of_period(db, &context.config.calendar, month, crate::clock::now())?;
    let view = found.statements.iter().find(|view| view.head.team_code == team);
    let view = view.ok_or_else(|| AppError::Missing(format!("team “{team}” held nothing in {month}")))?;
    print(&if csv { export::csv::statement(view)? } else { export::text::draft(month, view)? })?;
    Ok(Outcome::Done)
}

fn charges(context: &Context, arguments: &ChargesArguments) -> Result<Outcome, AppError> {
    let mut db = context.db()?;
    let view = statements::by_number(&mut db, &arguments.number)?;
    print(&export::csv::charges(&evidence::charges(&mut db, &view)?)?)?;
    Ok(Outcome::Done)
}

fn segments(context: &Context, arguments: &SegmentsArguments) -> Result<Outcome, AppError> {
    let mut db = context.db()?;
    let view = statements::by_number(&mut db, &arguments.number)?;
    print(&export::csv::segments(&evidence::segments(&mut db, &context.config.calendar, &view, arguments.charge)?)?)?;
    Ok(Outcome::Done)
}

fn render(context: &Context, arguments: &RenderArguments) -> Result<Outcome, AppError> {
    let month = Month::parse(&arguments.period).map_err(AppError::Refused)?;
    let count = export::html::render(&mut context.db()?, &context.config, month, &arguments.out, crate::clock::now())?;
    print(&format!("{count} statements of {month} in {}; open index.html there\n", arguments.out.display()))?;
    Ok(Outcome::Done)
}
