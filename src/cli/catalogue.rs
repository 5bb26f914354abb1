//! `gpuledger teams|prices|rules|inventory check|diff|apply`

use std::cell::Cell;
use std::path::{Path, PathBuf};

use gpuledger_db::catalogue::CatalogueKind;

use super::{Context, actor, print};
use crate::diagnostics::Diagnostics;
use crate::error::{AppError, Outcome};
use crate::export;
use crate::files::prices::Checks;
use crate::files::{SourceText, inventory, prices, prices_csv, rules, teams};
use crate::workflows::apply_catalogue::{Wanted, apply};
use crate::workflows::books::Books;
use crate::workflows::diff_catalogue::diff;

#[derive(Debug, clap::Subcommand)]
pub(super) enum Command {
    /// Read the file and tell every mistake in it; needs no database and changes nothing
    Check(Arguments),
    /// Say what the file would change on the statements of open months, once applied; changes nothing
    Diff(DiffArguments),
    /// Put the file in force; all of it or, where it holds a mistake, nothing
    Apply(Arguments),
}

#[derive(Debug, clap::Args)]
pub(super) struct Arguments {
    /// The file; prices also as CSV, in a file that ends in .csv
    file: PathBuf,
    /// Prices: take slice rates by which a GPU cut into slices costs more than the whole one
    #[arg(long)]
    allow_dearer_slices: bool,
}

#[derive(Debug, clap::Args)]
pub(super) struct DiffArguments {
    #[command(flatten)]
    arguments: Arguments,
    /// As JSON
    #[arg(long)]
    json: bool,
}

pub(super) fn run(context: &Context, kind: CatalogueKind, command: &Command) -> Result<Outcome, AppError> {
    match command {
        Command::Check(arguments) => check(context, kind, arguments),
        Command::Diff(arguments) => diff_file(context, kind, arguments),
        Command::Apply(arguments) => apply_file(context, kind, arguments),
    }
}

fn check(context: &Context, kind: CatalogueKind, arguments: &Arguments) -> Result<Outcome, AppError> {
    let source = SourceText::read(&arguments.file)?;
    let mut books = Books::default();
    let count = read_into(context, kind, arguments, &source, &mut books, true)?.1;
    print(&format!("{}: {count} {}, no mistake found\n", source.name, entries(kind)))?;
    Ok(Outcome::Done)
}

fn diff_file(context: &Context, kind: CatalogueKind, arguments: &DiffArguments) -> Result<Outcome, AppError> {
    let source = SourceText::read(&arguments.arguments.file)?;
    let mut db = context.db()?;
    let count = Cell::new(0);
    let read = |books: &mut Books| read_for_books(context, kind, &arguments.arguments, &source, books, &count);
    let wanted = Wanted { kind, read: &read, actor: &actor() };
    let diff = diff(&mut db, &context.config.calendar, &wanted, crate::clock::now())?;
    if arguments.json {
        print(&export::diff_json::diff(&diff)?)?;
        return Ok(Outcome::Done);
    }
    let version = match diff.in_force {
        true => format!("version {} is in force already", diff.version),
        false => format!("would be version {}; not applied", diff.version.saturating_add(1)),
    };
    let head = format!("{}: {} {}, {version}\n", source.name, count.get(), kind.as_str());
    print(&format!("{head}{}", export::diff_text::diff(&diff)?))?;
    Ok(Outcome::Done)
}

fn apply_file(context: &Context, kind: CatalogueKind, arguments: &Arguments) -> Result<Outcome, AppError> {
    let source = SourceText::read(&arguments.file)?;
    let mut db = context.db()?;
    let count = Cell::new(0);
    let read = |books: &mut Books| read_for_books(context, kind, arguments, &source, books, &count);
    let wanted = Wanted { kind, read: &read, actor: &actor() };
    let applied = apply(&mut db, &context.config.calendar, &wanted, crate::clock::now())?;
    let count = count.get();
    let what = if applied.changed { "in force now" } else { "in force already" };
    print(&format!("{}: {count} {}, version {} {what}\n", source.name, entries(kind), applied.version))?;
    Ok(Outcome::Done)
}

/// Reads the file into its place among the books in force, with the checks that need them, and counts its entries.
fn read_for_books(
    context: &Context,
    kind: CatalogueKind,
    arguments: &Arguments,
    source: &SourceText,
    books: &mut Books,
    count: &Cell<usize>,
) -> Result<String, AppError> {
    let (body, entries) = read_into(context, kind, arguments, source, books, false)?;
    count.set(entries);
    if kind == CatalogueKind::Rules {
        rules::check_teams(source, &context.config.calendar, &books.teams)?;
    }
    if kind == CatalogueKind::Inventory {
        inventory::check_layouts(source, &books.prices)?;
    }
    Ok(body)
}

/// Reads the file into its place among the books; its text as it is to be stored, and how many entries it has.
fn read_into(
    context: &Context,
    kind: CatalogueKind,
    arguments: &Arguments,
    source: &SourceText,
    books: &mut Books,
    checking: bool,
) -> Result<(String, usize), AppError> {
    let calendar = &context.config.calendar;
    let mut body = source.text.clone();
    let count = match kind {
        CatalogueKind::Teams => {
            books.teams = teams::parse(source, calendar)?;
            books.teams.all().count()
        }
        CatalogueKind::Rules => {
            books.rules = rules::parse(source, calendar)?;
            books.rules.rules.len()
        }
        CatalogueKind::Prices if is_csv(&arguments.file) => {
            books.prices = prices_csv::parse(source, calendar, &books.prices)?;
            body = prices::to_toml(&books.prices);
            let dearer = if arguments.allow_dearer_slices { None } else { prices::dearer_slices(&books.prices) };
            // What a slice is stands in the books already, which a check without them cannot know.
            let undescribed = if checking { None } else { prices::undescribed_slice(&books.prices) };
            if let Some((_, message)) = undescribed.or(dearer) {
                return Err(Diagnostics::of(source.whole("price", message)).into());
            }
            books.prices.rows().count()
        }
        CatalogueKind::Prices => {
            let checks = if arguments.allow_dearer_slices { Checks::AllowDearerSlices } else { Checks::All };
            books.prices = prices::parse(source, calendar, checks)?;
            books.prices.rows().count()
        }
        // It stands beside the books.
        CatalogueKind::Inventory => inventory::parse(source, calendar)?.node_count(),
    };
    Ok((body, count))
}

/// What is counted in a file.
const fn entries(kind: CatalogueKind) -> &'static str {
    match kind {
        CatalogueKind::Inventory => "nodes",
        other => other.as_str(),
    }
}

fn is_csv(path: &Path) -> bool {
    path.extension().is_some_and(|extension| extension.eq_ignore_ascii_case("csv"))
}
