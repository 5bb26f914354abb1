//! Slurm's accounting: what `sacct` writes as text with any delimiter and in any order of fields, what `sacct --json`
//! and slurmrestd write in every version, and lists of `squeue`, `scontrol` and Sonar that tell the same fields.

mod clock;
mod fields;
mod json;
mod named;
mod record;
mod rows;
mod survey;
mod tres;

use std::cell::Cell;
use std::io::{BufRead, BufReader, Read};
use std::rc::Rc;

use gpuledger_domain::ids::ClusterName;
use jiff::tz::TimeZone;

use super::InputFile;
use super::job_record::{JobList, JobReader, JobRecord, RefusedLine};
use crate::error::AppError;
use crate::files::mapping::Identity;
use clock::Clock;
use fields::Field;
use json::{Objects, OwnedCells};
use named::Named;
use record::{RecordReader, Wrong};
use rows::{BadRow, Layout, Row, Rows};
use survey::Survey;
pub use survey::{Cost, Finding};

/// What is said of a list besides what it says itself.
#[derive(Clone, Debug, Default)]
pub struct SacctOptions {
    /// The cluster, where the list does not name it.
    pub cluster: Option<ClusterName>,
    /// The zone of times without an offset.
    pub zone: Option<String>,
    /// What stands between columns; found in the heading where it is not given.
    pub delimiter: Option<String>,
    /// The names of the columns of a list without a heading.
    pub fields: Option<Vec<String>>,
}

/// A list of Slurm's accounting.
#[derive(Clone, Debug)]
pub struct SacctList {
    options: SacctOptions,
    zone: Option<(String, TimeZone)>,
    form: Form,
}

/// How it is written.
#[derive(Clone, Debug)]
enum Form {
    Json,
    /// Each value with its name: Sonar, `scontrol show job`.
    Named,
    /// Lines of columns, below so many lines of heading.
    Text {
        layout: Box<Layout>,
        heading_lines: u64,
    },
}

/// How the jobs of Slurm are told apart where its lists tell their raw ids.
const BY_RAW_ID: &str = "Slurm raw job ids";
/// How they are told apart where lists tell only what people call them.
const BY_LISTED_ID: &str = "Slurm listed job ids";
/// Most bytes of a file that are looked at to see its form.
const HEAD_BYTES: u64 = 1 << 20;

impl SacctList {
    /// Looks at the beginning of a file and finds out how it is written.
    ///
    /// # Errors
    /// [`AppError::Refused`] where it is no list of Slurm's accounting, or one that lacks what counts; what to export
    /// instead is said.
    pub fn of_file(file: &InputFile, options: SacctOptions) -> Result<SacctList, AppError> {
        let list = SacctList::to_examine(file, options)?;
        match &list.form {
            Form::Text { layout, .. } if !layout.lacking.is_empty() => {
                let lacking = layout.lacking.join(", ");
                Err(AppError::Refused(format!("{}: these fields are missing: {lacking}", file.name)))
            }
            _ => Ok(list),
        }
    }

    /// As [`SacctList::of_file`], but takes lists that lack what counts: they can be examined, not imported.
    ///
    /// # Errors
    /// [`AppError::Refused`] where it is no list of Slurm's accounting.
    pub fn to_examine(file: &InputFile, options: SacctOptions) -> Result<SacctList, AppError> {
        let zone = match &options.zone {
            None => None,
            Some(name) => {
                let zone = TimeZone::get(name).map_err(|_| {
                    AppError::Refused(format!(
                        "--zone: “{name}” is no time zone; write its name like Europe/Berlin or UTC"
                    ))
                })?;
                Some((name.clone(), zone))
            }
        };
        let mut head = Vec::new();
        file.bytes(&Rc::new(Cell::new(0)))?
            .take(HEAD_BYTES)
            .read_to_end(&mut head)
            .map_err(|error| AppError::file(&file.name, error))?;
        let head = String::from_utf8_lossy(&head);
        let form = form(&head, &options).map_err(|message| AppError::Refused(format!("{}: {message}", file.name)))?;
        Ok(SacctList { options, zone, form })
    }

    fn reader(&self, file: &InputFile) -> Result<SacctReader, AppError> {
        let read = Rc::new(Cell::new(0));
        let bytes = BufReader::with_capacity(1 << 17, file.bytes(&read)?);
        let mut survey = Survey {
            has_end: true,
            has_raw_ids: true,
            has_cluster: true,
            has_suspended: true,
            has_elapsed: true,
            has_nodes: true,
            has_state: true,
            has_submit: true,
            local_times: self.zone.as_ref().is_some_and(|(name, _)| name != "UTC"),
            ..Survey::default()
        };
        let source = match &self.form {
            Form::Json => Source::Json(Objects::new(bytes)),
            Form::Named => Source::Named(Named::new(bytes)),
            Form::Text { layout, heading_lines } => {
                survey.lacking.clone_from(&layout.lacking);
                survey.ends_free = layout.ends_free();
                survey.has_end = layout.has(Field::End);
                survey.has_raw_ids = layout.has(Field::JobIdRaw);
                survey.has_cluster = layout.has(Field::Cluster);
                survey.has_suspended = layout.has(Field::Suspended);
                survey.has_elapsed = layout.has(Field::Elapsed) || layout.has(Field::ElapsedRaw);
                survey.has_nodes = layout.has(Field::NodeList);
                survey.has_state = layout.has(Field::State);
                survey.has_submit = layout.has(Field::Submit);
                survey.delimiter_in_names = !layout.delimiter.contains(char::is_control);
                let mut bytes = bytes;
                for _ in 0..*heading_lines {
                    let mut line = Vec::new();
                    (&mut bytes)
                        .take(HEAD_BYTES)
                        .read_until(b'\n', &mut line)
                        .map_err(|error| AppError::file(&file.name, error))?;
                }
                Source::Text(Box::new(Rows::new(bytes, layout.as_ref().clone(), *heading_lines)))
            }
        };
        let records = RecordReader {
            clock: Clock::new(self.zone.clone()),
            cluster: self.options.cluster.clone(),
            survey,
            cut_facts: 0,
        };
        Ok(SacctReader { source, records, read, row: Row::default(), done: false })
    }

    /// Reads all of it, and says what was noticed and how to export a better one.
    ///
    /// # Errors
    /// The file's.
    pub fn examine(&self, file: &InputFile) -> Result<Examined, AppError> {
        let mut reader = self.reader(file)?;
        let mut refused = Vec::new();
        let (mut jobs, mut span) = (0, None);
        for line in reader.by_ref() {
            match line {
                Ok(record) => {
                    jobs += 1;
                    span = widened(span, &record);
                }
                Err(line) if refused.len() < 10 => refused.push(line),
                Err(_) => {}
            }
        }
        let findings = reader.records.survey.findings();
        Ok(Examined { jobs, steps: reader.records.survey.steps, findings, refused, span })
    }
}

/// What was noticed of a list.
#[derive(Clone, Debug)]
pub struct Examined {
    /// How many jobs it tells.
    pub jobs: u64,
    /// How many steps, which repeat their job.
    pub steps: u64,
    /// What was found.
    pub findings: Vec<Finding>,
    /// The first lines that cannot be read.
    pub refused: Vec<RefusedLine>,
    /// From the first start to the last end.
    pub span: Option<(gpuledger_domain::time::Instant, gpuledger_domain::time::Instant)>,
}

type Span = Option<(gpuledger_domain::time::Instant, gpuledger_domain::time::Instant)>;

fn widened(span: Span, record: &JobRecord) -> Span {
    let super::job_record::Held::Ended(interval) = record.held else { return span };
    let (first, last) = span.unwrap_or((interval.start(), interval.end()));
    Some((first.min(interval.start()), last.max(interval.end())))
}

/// How a file is written, by its first lines.
fn form(head: &str, options: &SacctOptions) -> Result<Form, String> {
    let head = head.strip_prefix('\u{feff}').unwrap_or(head);
    if head.trim_start().starts_with('{') {
        return Ok(Form::Json);
    }
    let first = head.lines().next().unwrap_or_default();
    if first.is_empty() {
        return Err("its first line is empty; give the output of sacct as it is".into());
    }
    if named::is_named(first) {
        return Ok(Form::Named);
    }
    let second = head.lines().nth(1).unwrap_or_default();
    if second.len() > 8 && second.chars().all(|c| c == '-' || c == ' ') {
        return Err(
            "this is the table that sacct prints for people: it cuts names short, which cannot be undone, and tells neither times nor GPUs. Export with --parsable2".into(),
        );
    }
    if let Some(fields) = &options.fields {
        let delimiter = options.delimiter.clone().unwrap_or_else(|| "|".into());
        let cells = first.matches(delimiter.as_str()).count() + 1;
        let trailing = cells == fields.len() + 1 && first.ends_with(delimiter.as_str());
        let layout =
            Layout::new(&delimiter, fields.clone(), trailing).map_err(|message| format!("--fields: {message}"))?;
        return Ok(Form::Text { layout: Box::new(layout), heading_lines: 0 });
    }
    let delimiter = match &options.delimiter {
        Some(delimiter) => delimiter.clone(),
        None => delimiter_of(first).ok_or(
            "its first line is no heading of sacct. For a list that was made with --noheader, give its fields: --fields JobID,JobIDRaw,…",
        )?,
    };
    let mut names: Vec<String> = first.split(delimiter.as_str()).map(|name| name.trim().to_owned()).collect();
    let trailing = names.last().is_some_and(String::is_empty);
    if trailing {
        names.pop();
    }
    let layout = Layout::new(&delimiter, names, trailing)?;
    Ok(Form::Text { layout: Box::new(layout), heading_lines: 1 })
}

/// What stands between the first two names of a heading, if it is one.
fn delimiter_of(heading: &str) -> Option<String> {
    let letter = |c: char| c.is_ascii_alphanumeric() || c == '-' || c == '_';
    let name_end = heading.find(|c| !letter(c))?;
    let (name, rest) = heading.split_at(name_end);
    let delimiter_end = rest.find(letter)?;
    let (delimiter, rest) = rest.split_at(delimiter_end);
    let second = rest.split(|c| !letter(c)).next().unwrap_or_default();
    let spaces = delimiter.chars().all(|c| c == ' ');
    (!spaces && fields::is_name(name) && (fields::is_name(second) || heading.matches(delimiter).count() > 3))
        .then(|| delimiter.to_owned())
}

enum Source {
    Json(Objects<BufReader<Box<dyn Read>>>),
    Named(Named<BufReader<Box<dyn Read>>>),
    Text(Box<Rows<BufReader<Box<dyn Read>>>>),
}

/// Reads a list record by record.
struct SacctReader {
    source: Source,
    records: RecordReader,
    read: Rc<Cell<u64>>,
    row: Row,
    done: bool,
}

impl JobList for SacctList {
    fn identity(&self) -> Identity {
        let by_raw_id = match &self.form {
            Form::Json => true,
            Form::Named => true,
            Form::Text { layout, .. } => layout.has(Field::JobIdRaw),
        };
        let columns = if by_raw_id { BY_RAW_ID } else { BY_LISTED_ID }.to_owned();
        // Times of JSON are seconds since 1970; the zone of others decides when a job began, and so which attempt it is.
        let zone = match (&self.form, &self.zone) {
            (Form::Json, _) | (_, None) => String::new(),
            (_, Some((name, _))) => name.clone(),
        };
        Identity { columns, zone, with_offsets_elsewhere: true }
    }

    fn identifies_by_content(&self) -> bool {
        false
    }

    fn clips(&self) -> bool {
        true
    }

    fn open<'a>(&'a self, file: &InputFile) -> Result<Box<dyn JobReader + 'a>, AppError> {
        Ok(Box::new(self.reader(file)?))
    }
}

impl JobReader for SacctReader {
    fn bytes_read(&self) -> u64 {
        self.read.get()
    }

    fn cut_facts(&self) -> u64 {
        self.records.cut_facts
    }

    fn notices(&self) -> Vec<String> {
        let survey = &self.records.survey;
        let mut notices = Vec::new();
        if survey.steps > 0 {
            notices.push(format!("{} steps were left out: they repeat what their job holds.", survey.steps));
        }
        let findings = survey.findings();
        let faults = findings.iter().filter(|finding| finding.cost == Cost::Fault && finding.subject != "lines");
        notices.extend(faults.map(|finding| format!("{}: {}.", finding.subject, finding.text)));
        let warnings: Vec<&str> =
            findings.iter().filter(|finding| finding.cost == Cost::Warning).map(|finding| finding.subject).collect();
        if !warnings.is_empty() {
            notices.push(format!(
                "To know of this list: {}. `gpuledger doctor sacct` says what that may cost.",
                warnings.join(", ")
            ));
        }
        notices
    }
}

impl SacctReader {
    fn refused(&mut self, line: u64, (field, reason): Wrong) -> RefusedLine {
        self.records.survey.refused += 1;
        RefusedLine { line, field: field.name().to_owned(), reason }
    }

    fn broken(&mut self, line: u64, reason: String) -> RefusedLine {
        self.records.survey.refused += 1;
        RefusedLine { line, field: String::new(), reason }
    }

    /// The next record: `None` for a step, which is passed over.
    fn record(&mut self) -> Option<Option<Result<JobRecord, RefusedLine>>> {
        let (line, read) = match &mut self.source {
            Source::Text(rows) => match rows.next(&mut self.row) {
                Ok(false) => return None,
                Err(BadRow { line, reason }) => return Some(Some(Err(self.broken(line, reason)))),
                Ok(true) => {
                    self.records.survey.mended += u64::from(self.row.mended);
                    self.records.survey.whole_records += self.row.whole_records;
                    (self.row.line, self.records.read(self.row.line, &rows.layout().cells(&self.row)))
                }
            },
            Source::Named(named) => match named.next() {
                None => return None,
                Some(Err((line, reason))) => return Some(Some(Err(self.broken(line, reason)))),
                Some(Ok((line, cells))) => (line, self.records.read(line, &cells.borrowed())),
            },
            Source::Json(objects) => match objects.next() {
                Ok(None) => return None,
                Err(reason) => {
                    self.done = true;
                    return Some(Some(Err(self.broken(0, format!("the file cannot be read on from here: {reason}")))));
                }
                Ok(Some(object)) => match OwnedCells::read(&object.text) {
                    Ok(cells) => (object.line, self.records.read(object.line, &cells.borrowed())),
                    Err(reason) => return Some(Some(Err(self.broken(object.line, reason)))),
                },
            },
        };
        Some(match read {
            Ok(record::Read::Step) => None,
            Ok(record::Read::Job(job)) => Some(Ok(*job)),
            Err(wrong) => Some(Err(self.refused(line, wrong))),
        })
    }
}

impl Iterator for SacctReader {
    type Item = Result<JobRecord, RefusedLine>;

    fn next(&mut self) -> Option<Self::Item> {
        while !self.done {
            match self.record() {
                None => self.done = true,
                Some(Some(item)) => return Some(item),
                Some(None) => {}
            }
        }
        None
    }
}
