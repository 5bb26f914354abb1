//! A list of jobs as CSV, read through a mapping.

use std::cell::Cell;
use std::collections::BTreeMap;

use gpuledger_domain::ids::{ClusterName, LENGTH_BYTES_MAX, PoolName, SkuCode, checked_fact};
use gpuledger_domain::rules::JobFacts;
use gpuledger_domain::time::Interval;
use sha2::{Digest, Sha256};

use super::host_list;
use super::job_record::{GPUS_MAX, Grant, Held, JobIdentity, JobList, JobReader, JobRecord, RefusedLine};
use super::repeats::RowHash;
use super::stream::{CsvLines, InputFile};
use super::time_text::{InstantReader, scaled_decimal};
use crate::error::AppError;
use crate::files::mapping::{Identity, JobField, Mapping};

/// Reads a list line by line.
#[allow(missing_debug_implementations)]
pub struct JobListReader {
    lines: CsvLines,
    record: csv::StringRecord,
    layout: Layout,
    broken: bool,
}

/// Where each field is found.
struct Layout {
    columns: BTreeMap<JobField, (usize, String)>,
    constants: BTreeMap<JobField, String>,
    instants: InstantReader,
    duration_unit_us: i64,
    cut_facts: Cell<u64>,
}

impl JobListReader {
    /// Opens a list.
    ///
    /// # Errors
    /// [`AppError::File`] where it cannot be read, [`AppError::Refused`] where a mapped column is not in it.
    pub fn open(file: &InputFile, mapping: &Mapping) -> Result<JobListReader, AppError> {
        let mut lines = CsvLines::open(file, mapping.delimiter, mapping.quotes)?;
        let headings = lines
            .reader
            .headers()
            .map_err(|error| AppError::file(&file.name, format!("line 1: no heading: {error}")))?;
        let mut columns = BTreeMap::new();
        for (field, name) in &mapping.columns {
            let wanted = |heading: &str| heading.strip_prefix('\u{feff}').unwrap_or(heading) == name;
            let index = headings.iter().position(wanted).ok_or_else(|| {
                let found: Vec<&str> = headings.iter().collect();
                AppError::file(
                    &file.name,
                    format!("line 1: there is no column “{name}”, which the mapping names; found {}", found.join(", ")),
                )
            })?;
            if headings.iter().filter(|heading| wanted(heading)).count() > 1 {
                return Err(AppError::file(
                    &file.name,
                    format!("line 1: there are several columns “{name}”; name each differently"),
                ));
            }
            columns.insert(field.clone(), (index, name.clone()));
        }
        let layout = Layout {
            columns,
            constants: mapping.constants.clone(),
            instants: InstantReader::new(&mapping.time_format, mapping.zone.as_deref()),
            duration_unit_us: mapping.duration_unit_us,
            cut_facts: Cell::new(0),
        };
        Ok(JobListReader { lines, record: csv::StringRecord::new(), layout, broken: false })
    }
}

impl JobList for Mapping {
    fn identity(&self) -> Identity {
        Mapping::identity(self)
    }

    fn identifies_by_content(&self) -> bool {
        !self.columns.contains_key(&JobField::Id)
    }

    fn clips(&self) -> bool {
        false
    }

    fn open<'a>(&'a self, file: &InputFile) -> Result<Box<dyn JobReader + 'a>, AppError> {
        Ok(Box::new(JobListReader::open(file, self)?))
    }
}

impl JobReader for JobListReader {
    fn bytes_read(&self) -> u64 {
        self.lines.read.get()
    }

    fn cut_facts(&self) -> u64 {
        self.layout.cut_facts.get()
    }

    fn notices(&self) -> Vec<String> {
        Vec::new()
    }
}

impl Iterator for JobListReader {
    type Item = Result<JobRecord, RefusedLine>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.broken {
            return None;
        }
        let refused = |line, reason: String| Some(Err(RefusedLine { line, field: String::new(), reason }));
        match self.lines.reader.read_record(&mut self.record) {
            Ok(false) => None,
            Ok(true) => {
                self.lines.since_line.set(0);
                let line = self.record.position().map_or(0, csv::Position::line) + self.lines.lines_missed;
                if self.record.iter().any(|cell| cell.contains(['\n', '\r'])) {
                    let last = self.lines.reader.position().line().saturating_sub(1) + self.lines.lines_missed;
                    return refused(
                        line,
                        format!(
                            "it runs on to line {last}, none of which was imported: a quote is not closed. Quote text rightly, or read the file with [csv] quote = \"none\""
                        ),
                    );
                }
                Some(
                    self.layout
                        .job(&self.record)
                        .map_err(|(field, reason)| RefusedLine { line, field, reason })
                        .map(|job| JobRecord { line, ..job }),
                )
            }
            Err(error) => {
                self.lines.since_line.set(0);
                let line = error.position().map_or_else(|| self.lines.reader.position().line(), csv::Position::line)
                    + self.lines.lines_missed;
                match error.kind() {
                    csv::ErrorKind::UnequalLengths { expected_len, len, .. } => refused(
                        line,
                        format!(
                            "it has {len} columns, the heading has {expected_len}; quote text that holds the delimiter"
                        ),
                    ),
                    csv::ErrorKind::Utf8 { .. } => refused(line, "it is not UTF-8; save the file as UTF-8".into()),
                    _ => {
                        self.broken = true;
                        refused(line, format!("the file cannot be read on from here: {error}"))
                    }
                }
            }
        }
    }
}

/// The column and what is wrong in it.
type Wrong = (String, String);

impl Layout {
    fn text<'a>(&'a self, record: &'a csv::StringRecord, field: &JobField) -> &'a str {
        match self.columns.get(field) {
            Some((index, _)) => record.get(*index).unwrap_or(""),
            None => self.constants.get(field).map_or("", String::as_str),
        }
    }

    /// A fact as rules will see it: without control characters, and cut where it is too long to be one.
    fn fact(&self, text: &str) -> Result<String, String> {
        let end = text.floor_char_boundary(LENGTH_BYTES_MAX.min(text.len()));
        self.cut_facts.set(self.cut_facts.get() + u64::from(end < text.len()));
        checked_fact(text.get(..end).unwrap_or(text)).map(str::to_owned)
    }

    /// Reads a field through `parse`, naming its column where that fails.
    fn field<T>(
        &self,
        record: &csv::StringRecord,
        field: &JobField,
        parse: impl Fn(&str) -> Result<T, String>,
    ) -> Result<T, Wrong> {
        parse(self.text(record, field))
            .map_err(|reason| (self.columns.get(field).map_or_else(|| field.word(), |(_, name)| name.clone()), reason))
    }

    fn job(&self, record: &csv::StringRecord) -> Result<JobRecord, Wrong> {
        let cluster = self.field(record, &JobField::Cluster, ClusterName::parse)?;
        let pool = self.field(record, &JobField::Pool, PoolName::parse)?;
        let placements = self.placements(record)?;
        let gpus: i32 = placements.iter().map(|(_, count)| *count).fold(0, i32::saturating_add);
        if gpus > GPUS_MAX {
            return Err((
                "gpus".into(),
                format!("{gpus} GPUs are more than any cluster has ({GPUS_MAX}); correct the line"),
            ));
        }
        let held = if gpus == 0 { self.without_gpus(record) } else { self.held(record)? };
        // A job without GPUs needs no SKU.
        let unnamed =
            |text: &str| if gpus == 0 && text.is_empty() { SkuCode::parse("none") } else { SkuCode::parse(text) };
        let sku = self.field(record, &JobField::Sku, unnamed)?;
        let submit = self.field(record, &JobField::Submit, |text| {
            if text.is_empty() { Ok(None) } else { self.instants.read(text).map(Some) }
        })?;
        let fact = |field: &JobField| self.field(record, field, |text| self.fact(text));
        let facts = JobFacts {
            cluster: cluster.to_string(),
            pool: String::new(),
            user: fact(&JobField::User)?,
            account: fact(&JobField::Account)?,
            partition: fact(&JobField::Partition)?,
            qos: fact(&JobField::Qos)?,
            namespace: fact(&JobField::Namespace)?,
            name: fact(&JobField::Name)?,
            gpus,
            labels: self.labels(record)?,
        };
        let end_state = fact(&JobField::EndState)?;
        let identity = self.identity(record)?;
        let grants: Vec<Grant> = placements
            .into_iter()
            .filter(|(_, count)| *count > 0)
            .map(|(node, count)| Grant { node, sku: sku.clone(), count })
            .collect();
        Ok(JobRecord {
            line: 0,
            identity,
            listed_id: String::new(),
            cluster,
            pool: Some(pool),
            facts,
            held,
            suspended_us: 0,
            submit,
            end_state,
            grants,
            nodes: Vec::new(),
        })
    }

    /// An id is never cut: two jobs must not become one.
    fn identity(&self, record: &csv::StringRecord) -> Result<JobIdentity, Wrong> {
        let id = self.field(record, &JobField::Id, |text| checked_fact(text).map(str::to_owned))?;
        let component = self.field(record, &JobField::Component, |text| checked_fact(text).map(str::to_owned))?;
        if !self.columns.contains_key(&JobField::Id) {
            return Ok(JobIdentity::Row(self.row_hash(record)));
        }
        if id.is_empty() {
            return Err(("id".into(), "it is empty; a list with an id column needs one in each line".into()));
        }
        if component.contains('+') {
            return Err((
                "component".into(),
                format!("“{component}” holds a +, which stands between id and component"),
            ));
        }
        let has_components = self.columns.contains_key(&JobField::Component);
        Ok(JobIdentity::Id(if has_components { format!("{id}+{component}") } else { id }))
    }

    /// A job without GPUs may lack any other cell, its start too.
    fn without_gpus(&self, record: &csv::StringRecord) -> Held {
        Held::Never(self.instants.read(self.text(record, &JobField::Start)).ok())
    }

    fn held(&self, record: &csv::StringRecord) -> Result<Held, Wrong> {
        if self.text(record, &JobField::Start).is_empty() {
            return Ok(Held::Never(None));
        }
        let duration = self.columns.contains_key(&JobField::Duration);
        let end_text = self.text(record, if duration { &JobField::Duration } else { &JobField::End });
        let start = self.field(record, &JobField::Start, |text| self.instants.read(text))?;
        if end_text.is_empty() {
            return Ok(Held::Running { start, until: None });
        }
        let (end_field, end) = if duration {
            let length = self.field(record, &JobField::Duration, |text| scaled_decimal(text, self.duration_unit_us))?;
            (
                JobField::Duration,
                start
                    .plus_micros(length)
                    .ok_or_else(|| ("duration".to_owned(), "it leads out of the calendar".to_owned()))?,
            )
        } else {
            (JobField::End, self.field(record, &JobField::End, |text| self.instants.read(text))?)
        };
        if end < start {
            let name = self.columns.get(&end_field).map_or("", |(_, name)| name);
            return Err((name.to_owned(), "the job ends before it begins; correct or remove the line".into()));
        }
        Ok(Interval::new(start, end).map_or(Held::Never(Some(start)), Held::Ended))
    }

    fn placements(&self, record: &csv::StringRecord) -> Result<Vec<(String, i32)>, Wrong> {
        let count = |text: &str| match text.parse::<i32>() {
            Ok(count) if (0..=GPUS_MAX).contains(&count) => Ok(count),
            _ => Err(format!("“{text}” is no count of GPUs")),
        };
        let optional = |text: &str| if text.is_empty() { Ok(None) } else { count(text).map(Some) };
        let gpus = self.field(record, &JobField::Gpus, optional)?;
        let nodes = self.field(record, &JobField::Nodes, host_list::expand)?;
        if nodes.is_empty() {
            let gpus = gpus.ok_or_else(|| ("gpus".to_owned(), "it is empty, and no nodes are named".to_owned()))?;
            return Ok(vec![(String::new(), gpus)]);
        }
        let each = self.field(record, &JobField::GpusPerNode, |text| {
            text.split([',', ' ']).filter(|part| !part.is_empty()).map(count).collect::<Result<Vec<_>, _>>()
        })?;
        let number = i32::try_from(nodes.len()).unwrap_or(i32::MAX);
        let counts = match (each.as_slice(), gpus) {
            ([], Some(gpus)) if gpus % number == 0 => vec![gpus / number; nodes.len()],
            ([one], _) => vec![*one; nodes.len()],
            (each, _) if each.len() == nodes.len() => each.to_vec(),
            _ => {
                return Err((
                    "gpus_per_node".into(),
                    format!("{} counts for {number} nodes; give one, or one for each", each.len()),
                ));
            }
        };
        let sum = counts.iter().fold(0, |sum: i32, count| sum.saturating_add(*count));
        match gpus.filter(|gpus| *gpus != sum) {
            Some(gpus) => Err(("gpus".into(), format!("{gpus} GPUs, but {sum} on the nodes; correct either"))),
            None => Ok(nodes.into_iter().zip(counts).collect()),
        }
    }

    fn labels(&self, record: &csv::StringRecord) -> Result<BTreeMap<String, String>, Wrong> {
        let mut labels = BTreeMap::new();
        for field in self.columns.keys().chain(self.constants.keys()) {
            let JobField::Label(key) = field else { continue };
            let value = self.field(record, field, |text| self.fact(text))?;
            if !value.is_empty() {
                labels.insert(key.clone(), value);
            }
        }
        Ok(labels)
    }

    /// The hash of the mapped columns, as the line writes them.
    fn row_hash(&self, record: &csv::StringRecord) -> RowHash {
        let mut hash = Sha256::new();
        for (index, _) in self.columns.values() {
            let text = record.get(*index).unwrap_or("");
            hash.update(text.len().to_be_bytes());
            hash.update(text.as_bytes());
        }
        let mut row = RowHash::default();
        row.copy_from_slice(hash.finalize().first_chunk::<16>().unwrap_or(&RowHash::default()));
        row
    }
}
