//! `gpuledger doctor`

use gpuledger_domain::time::Instant;
use serde_json::json;

use super::import::SacctForm;
use super::{Context, print};
use crate::error::{AppError, Outcome};
use crate::export::json::pretty;
use crate::import::InputFile;
use crate::import::sacct::{Cost, Examined, Finding, SacctList};
use crate::workflows::examine::{Weight, examine};

#[derive(Debug, clap::Args)]
#[command(args_conflicts_with_subcommands = true)]
pub(super) struct Arguments {
    #[command(subcommand)]
    command: Option<Command>,
    /// As JSON
    #[arg(long)]
    json: bool,
}

#[derive(Debug, clap::Subcommand)]
enum Command {
    /// Look at a list of Slurm's accounting: what in it would cost money to get wrong, and how to export a good one;
    /// needs no database and changes nothing
    Sacct(SacctArguments),
}

#[derive(Debug, clap::Args)]
struct SacctArguments {
    #[command(flatten)]
    form: SacctForm,
    /// As JSON
    #[arg(long)]
    json: bool,
    /// The list; - is standard input
    file: String,
}

/// The fields that an import can use. The name does not stand last: a number marks where each record ends.
const FIELDS: &str = "JobID,JobIDRaw,Cluster,User,Account,Partition,QOS,JobName,State,Submit,Eligible,Start,End,Elapsed,Suspended,AllocTRES,ReqTRES,NodeList,NNodes";

pub(super) fn run(context: &Context, arguments: &Arguments) -> Result<Outcome, AppError> {
    match &arguments.command {
        Some(Command::Sacct(arguments)) => sacct(arguments),
        None => books(context, arguments),
    }
}

fn books(context: &Context, arguments: &Arguments) -> Result<Outcome, AppError> {
    let config = &context.config;
    let findings = examine(&config.database, &config.calendar, crate::clock::now())?;
    let word = |weight| match weight {
        Weight::Good => "good",
        Weight::Warning => "warning",
        Weight::Fault => "fault",
    };
    let rows: Vec<Row<'_>> =
        findings.iter().map(|finding| (word(finding.weight), finding.subject, finding.text.as_str())).collect();
    print(&if arguments.json { as_json(&rows) } else { as_text(&rows) })?;
    let worst = findings.iter().map(|finding| finding.weight).max();
    Ok(if worst == Some(Weight::Fault) { Outcome::Findings } else { Outcome::Done })
}

/// How much it matters, what it is about, what was found.
type Row<'a> = (&'a str, &'a str, &'a str);

fn as_text(rows: &[Row<'_>]) -> String {
    rows.iter().map(|(weight, subject, text)| format!("{weight:<8}{subject}: {text}\n")).collect()
}

fn as_json(rows: &[Row<'_>]) -> String {
    let rows = rows.iter().map(|(weight, subject, text)| json!({"subject": subject, "weight": weight, "text": text}));
    pretty(&serde_json::Value::Array(rows.collect()))
}

fn sacct(arguments: &SacctArguments) -> Result<Outcome, AppError> {
    let file = InputFile::open(&arguments.file)?;
    let examined = match SacctList::to_examine(&file, arguments.form.options()?) {
        Ok(list) => list.examine(&file)?,
        Err(AppError::Refused(text)) => unreadable(text),
        Err(error) => return Err(error),
    };
    let word = |cost| match cost {
        Cost::Good => "good",
        Cost::Warning => "warning",
        Cost::Fault => "fault",
    };
    let mut findings = examined.findings.clone();
    findings.sort_by_key(|finding| std::cmp::Reverse(finding.cost));
    let rows: Vec<Row<'_>> =
        findings.iter().map(|finding| (word(finding.cost), finding.subject, finding.text.as_str())).collect();
    let command = good_command(examined.span);
    let fault = findings.iter().any(|finding| finding.cost == Cost::Fault);
    if arguments.json {
        let findings: serde_json::Value = serde_json::from_str(&as_json(&rows)).unwrap_or_default();
        let refused: Vec<_> = examined
            .refused
            .iter()
            .map(|line| json!({"line": line.line, "field": line.field, "reason": line.reason}))
            .collect();
        print(&pretty(&json!({
            "jobs": examined.jobs, "steps": examined.steps, "findings": findings, "refused": refused, "command": command,
        })))?;
    } else {
        let mut text = format!("{}: {} jobs, {} steps\n{}", file.name, examined.jobs, examined.steps, as_text(&rows));
        for line in &examined.refused {
            text += &format!("line {}: {}{}\n", line.line, field_text(&line.field), line.reason);
        }
        text += &format!("A list that lacks nothing is made by\n\n  {command}\n\n");
        text += "and taken in by `gpuledger import sacct --zone UTC LIST`.\n";
        print(&text)?;
    }
    Ok(if fault { Outcome::Findings } else { Outcome::Done })
}

fn field_text(field: &str) -> String {
    if field.is_empty() { String::new() } else { format!("{field}: ") }
}

/// A list of which nothing can be read.
fn unreadable(text: String) -> Examined {
    let findings = vec![Finding { subject: "list", cost: Cost::Fault, text }];
    Examined { jobs: 0, steps: 0, findings, refused: Vec::new(), span: None }
}

/// The command that makes a good list of the same time: whole days of UTC around all jobs.
fn good_command(span: Option<(Instant, Instant)>) -> String {
    let day = |at: Instant| at.to_string().split('T').next().unwrap_or_default().to_owned();
    let window = span.and_then(|(first, last)| last.plus_micros(86_400_000_000).map(|next| (day(first), day(next))));
    let (start, end) = window.unwrap_or_else(|| ("YYYY-MM-01".into(), "YYYY-MM-01".into()));
    format!(
        "TZ=UTC sacct --allusers --duplicates --allocations --parsable2 --delimiter=$'\\x1f' --starttime={start} --endtime={end} --format={FIELDS} > LIST"
    )
}
