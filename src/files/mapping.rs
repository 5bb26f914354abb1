//! The mapping file of `import jobs`: which column is what, in which units and zone.

use std::collections::BTreeMap;

use gpuledger_domain::ids::{ClusterName, PoolName, SkuCode, checked_fact};
use serde::Deserialize;
use toml::Spanned;

use super::SourceText;
use crate::diagnostics::Diagnostics;

/// Most labels that are kept of a job.
const LABELS_MAX: usize = 32;

/// What a column of a job list can be.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum JobField {
    /// The scheduler's own id of the attempt's job.
    Id,
    /// Which part of a job that holds several kinds of GPUs at once.
    Component,
    /// The cluster.
    Cluster,
    /// The pool.
    Pool,
    /// The SKU, by any name.
    Sku,
    /// When it began.
    Start,
    /// When it ended; empty while it runs.
    End,
    /// How long it ran.
    Duration,
    /// When it was submitted.
    Submit,
    /// How many GPUs it held.
    Gpus,
    /// Who submitted it.
    User,
    /// The account.
    Account,
    /// The partition or queue.
    Partition,
    /// The quality of service.
    Qos,
    /// The namespace.
    Namespace,
    /// The job's name.
    Name,
    /// How it ended.
    EndState,
    /// The nodes, by comma or space, brackets allowed: `gpu[01-03,07]`.
    Nodes,
    /// How many GPUs it held on each of the nodes.
    GpusPerNode,
    /// A label.
    Label(String),
}

impl JobField {
    const WORDS: &'static str = "id, component, cluster, pool, sku, start, end, duration, submit, gpus, user, account, partition, qos, namespace, name, end_state, nodes, gpus_per_node or label.KEY";

    const NAMED: [(&'static str, JobField); 19] = [
        ("id", JobField::Id),
        ("component", JobField::Component),
        ("cluster", JobField::Cluster),
        ("pool", JobField::Pool),
        ("sku", JobField::Sku),
        ("start", JobField::Start),
        ("end", JobField::End),
        ("duration", JobField::Duration),
        ("submit", JobField::Submit),
        ("gpus", JobField::Gpus),
        ("user", JobField::User),
        ("account", JobField::Account),
        ("partition", JobField::Partition),
        ("qos", JobField::Qos),
        ("namespace", JobField::Namespace),
        ("name", JobField::Name),
        ("end_state", JobField::EndState),
        ("nodes", JobField::Nodes),
        ("gpus_per_node", JobField::GpusPerNode),
    ];

    /// Reads the word of [`JobField::word`]. A label's key has at most 64 bytes.
    fn parse(text: &str) -> Option<JobField> {
        let named = JobField::NAMED.into_iter().find(|(word, _)| *word == text).map(|(_, field)| field);
        let key = || text.strip_prefix("label.").filter(|key| (1..=64).contains(&key.len()));
        named.or_else(|| key().map(|key| JobField::Label(key.to_owned())))
    }

    /// The word in mapping files.
    #[must_use]
    pub fn word(&self) -> String {
        match self {
            JobField::Label(key) => format!("label.{key}"),
            other => JobField::NAMED.iter().find(|(_, field)| field == other).map_or("", |(word, _)| word).to_owned(),
        }
    }
}

/// How a list tells jobs apart; it must stay so for a cluster, or its jobs would be other jobs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Identity {
    /// `job ids`, or the columns whose content stands for an id.
    pub columns: String,
    /// The zone and pattern of times without an offset; empty where they have one.
    pub zone: String,
    /// Whether other forms of the same list tell the same times with an offset, so that a zone may be told later.
    pub with_offsets_elsewhere: bool,
}

/// How instants are written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum TimeFormat {
    /// RFC 3339, with an offset.
    Rfc3339,
    /// Seconds since the Unix epoch, decimals allowed.
    UnixSeconds,
    /// Milliseconds since the Unix epoch.
    UnixMilliseconds,
    /// A pattern of strptime, in the stated zone unless it holds `%z`.
    Pattern(String),
}

/// A mapping.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mapping {
    /// Which column is what.
    pub columns: BTreeMap<JobField, String>,
    /// What is the same for every line.
    pub constants: BTreeMap<JobField, String>,
    /// How instants are written.
    pub time_format: TimeFormat,
    /// The zone of instants without an offset.
    pub zone: Option<String>,
    /// Microseconds in the unit of `duration`.
    pub duration_unit_us: i64,
    /// What stands between columns.
    pub delimiter: u8,
    /// Whether `"` quotes text that holds the delimiter.
    pub quotes: bool,
}

impl Mapping {
    /// How this mapping tells jobs apart.
    #[must_use]
    pub fn identity(&self) -> Identity {
        let columns = if self.columns.contains_key(&JobField::Id) {
            "job ids".to_owned()
        } else {
            let names: Vec<String> =
                self.columns.iter().map(|(field, name)| format!("{} = {name}", field.word())).collect();
            names.join(", ")
        };
        let zone = match (&self.time_format, &self.zone) {
            // The pattern too: a day and month that change places are another start.
            (TimeFormat::Pattern(pattern), Some(zone)) if needs_zone(pattern) => format!("{zone}, {pattern}"),
            _ => String::new(),
        };
        Identity { columns, zone, with_offsets_elsewhere: false }
    }
}

/// Whether times of this pattern have no offset.
fn needs_zone(pattern: &str) -> bool {
    !["%z", "%:z", "%s"].iter().any(|offset| pattern.contains(offset))
}

/// What stands on the right of a column: its name, or names by label.
#[derive(Deserialize)]
#[serde(untagged)]
enum ColumnEntry {
    Name(String),
    Labels(BTreeMap<String, String>),
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct MappingFile {
    columns: BTreeMap<Spanned<String>, Spanned<ColumnEntry>>,
    #[serde(default)]
    constants: BTreeMap<Spanned<String>, Spanned<ColumnEntry>>,
    time: Option<TimeEntry>,
    csv: Option<CsvEntry>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct TimeEntry {
    zone: Option<Spanned<String>>,
    format: Option<Spanned<String>>,
    duration_unit: Option<Spanned<String>>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct CsvEntry {
    delimiter: Option<Spanned<String>>,
    quote: Option<Spanned<String>>,
}

/// Reads a mapping file.
///
/// # Errors
/// Every mistake in it.
pub fn parse(source: &SourceText) -> Result<Mapping, Diagnostics> {
    let file: MappingFile = source.parse_toml()?;
    let mut wrong = Diagnostics::default();
    let columns = fields(source, &mut wrong, &file.columns, "columns");
    let constants = fields(source, &mut wrong, &file.constants, "constants");
    check_fields(source, &mut wrong, &file, &columns, &constants);
    let time = file.time.as_ref();
    let time_format = match time.and_then(|time| time.format.as_ref()) {
        None => Some(TimeFormat::Rfc3339),
        Some(text) => wrong.check(source, "time.format", text, time_format),
    };
    let zone = time.and_then(|time| time.zone.as_ref());
    if let Some(zone) = zone {
        wrong.check(source, "time.zone", zone, |zone| {
            gpuledger_domain::calendar::BillingCalendar::new(zone).map(|_| ())
        });
    }
    if let (Some(TimeFormat::Pattern(pattern)), None) = (&time_format, zone)
        && needs_zone(pattern)
    {
        let at = time.and_then(|time| time.format.as_ref()).map_or(0, |format| format.span().start);
        let message = "times without an offset need a zone; add zone = \"UTC\" or the zone they were written in";
        wrong.push(source.at(at, "time.format", message));
    }
    let duration_unit_us = match time.and_then(|time| time.duration_unit.as_ref()) {
        None => Some(1_000_000),
        Some(text) => wrong.check(source, "time.duration_unit", text, duration_unit),
    };
    let delimiter = match file.csv.as_ref().and_then(|csv| csv.delimiter.as_ref()) {
        None => Some(b','),
        Some(text) => wrong.check(source, "csv.delimiter", text, |text| match text.as_bytes() {
            [byte] => Ok(*byte),
            _ => Err(format!("{text:?} is not one character; write \",\", \";\", \"|\" or \"\\t\"")),
        }),
    };
    let quotes = match file.csv.as_ref().and_then(|csv| csv.quote.as_ref()) {
        // Programs that write | or tabs quote nothing: a " is a letter like any other.
        None => Some(!matches!(delimiter, Some(b'|' | b'\t'))),
        Some(text) => wrong.check(source, "csv.quote", text, |text| match text {
            "\"" => Ok(true),
            "none" => Ok(false),
            other => Err(format!("{other:?} is unknown; write \"none\", or \"\\\"\" for double quotes")),
        }),
    };
    wrong.clone().into_result()?;
    let (Some(time_format), Some(duration_unit_us), Some(delimiter), Some(quotes)) =
        (time_format, duration_unit_us, delimiter, quotes)
    else {
        return Err(wrong);
    };
    Ok(Mapping {
        columns,
        constants,
        time_format,
        zone: zone.map(|zone| zone.get_ref().clone()),
        duration_unit_us,
        delimiter,
        quotes,
    })
}

fn time_format(text: &str) -> Result<TimeFormat, String> {
    match text {
        "rfc3339" => Ok(TimeFormat::Rfc3339),
        "unix-seconds" => Ok(TimeFormat::UnixSeconds),
        "unix-milliseconds" => Ok(TimeFormat::UnixMilliseconds),
        pattern if pattern.contains('%') => Ok(TimeFormat::Pattern(pattern.to_owned())),
        other => Err(format!(
            "“{other}” is unknown; write rfc3339, unix-seconds, unix-milliseconds or a pattern like %Y-%m-%d %H:%M:%S"
        )),
    }
}

fn duration_unit(text: &str) -> Result<i64, String> {
    match text {
        "milliseconds" => Ok(1_000),
        "seconds" => Ok(1_000_000),
        "minutes" => Ok(60_000_000),
        "hours" => Ok(3_600_000_000),
        other => Err(format!("“{other}” is unknown; write milliseconds, seconds, minutes or hours")),
    }
}

fn fields(
    source: &SourceText,
    wrong: &mut Diagnostics,
    entries: &BTreeMap<Spanned<String>, Spanned<ColumnEntry>>,
    table: &str,
) -> BTreeMap<JobField, String> {
    let mut fields = BTreeMap::new();
    for (name, value) in entries {
        let named: Vec<(String, String)> = match value.get_ref() {
            ColumnEntry::Name(text) => vec![(name.get_ref().clone(), text.clone())],
            ColumnEntry::Labels(texts) => {
                texts.iter().map(|(key, text)| (format!("{}.{key}", name.get_ref()), text.clone())).collect()
            }
        };
        for (name_text, text) in named {
            let field = JobField::parse(&name_text)
                .ok_or_else(|| format!("“{name_text}” is unknown; write {}", JobField::WORDS));
            if let Some(field) = wrong.note(source, name.span().start, table, field) {
                fields.insert(field, text);
            }
        }
    }
    fields
}

/// Which fields must be there, and which exclude each other.
fn check_fields(
    source: &SourceText,
    wrong: &mut Diagnostics,
    file: &MappingFile,
    columns: &BTreeMap<JobField, String>,
    constants: &BTreeMap<JobField, String>,
) {
    let has = |field: &JobField| columns.contains_key(field) || constants.contains_key(field);
    let mut need = |met: bool, message: &str| {
        if !met {
            wrong.push(source.whole("columns", message))
        }
    };
    need(columns.contains_key(&JobField::Start), "which column is the start? add start = \"…\"");
    need(
        columns.contains_key(&JobField::End) != columns.contains_key(&JobField::Duration),
        "which column is the end? add either end = \"…\" or duration = \"…\"",
    );
    need(
        has(&JobField::Gpus) || (has(&JobField::Nodes) && has(&JobField::GpusPerNode)),
        "how many GPUs? add gpus = \"…\", or nodes and gpus_per_node",
    );
    for (field, word) in [(JobField::Cluster, "cluster"), (JobField::Pool, "pool"), (JobField::Sku, "sku")] {
        need(has(&field), &format!("which {word}? add {word} = \"…\" to [columns] or [constants]"));
    }
    let labels = columns.keys().chain(constants.keys()).filter(|field| matches!(field, JobField::Label(_))).count();
    if labels > LABELS_MAX {
        wrong.push(source.whole("columns", format!("{labels} labels; at most {LABELS_MAX} are kept of a job")));
    }
    for label in constants.keys().filter(|field| matches!(field, JobField::Label(_)) && columns.contains_key(field)) {
        wrong.push(source.whole("constants", format!("{} is a column already; give it once", label.word())));
    }
    for (label, text) in constants.iter().filter(|(field, _)| matches!(field, JobField::Label(_))) {
        if let Err(message) = checked_fact(text) {
            wrong.push(source.whole("constants", format!("{}: {message}", label.word())));
        }
    }
    for (name, value) in &file.constants {
        let place = value.span().start;
        let (Some(field), ColumnEntry::Name(text)) = (JobField::parse(name.get_ref()), value.get_ref()) else {
            continue;
        };
        if columns.contains_key(&field) {
            wrong.push(source.at(
                name.span().start,
                "constants",
                format!("{} is a column already; give it once", name.get_ref()),
            ));
        }
        let checked = match field {
            JobField::Cluster => ClusterName::parse(text).map(|_| ()),
            JobField::Pool => PoolName::parse(text).map(|_| ()),
            JobField::Sku => SkuCode::parse(text).map(|_| ()),
            JobField::Gpus | JobField::GpusPerNode => {
                text.parse::<u32>().map(|_| ()).map_err(|_| format!("“{text}” is no whole number"))
            }
            JobField::Id
            | JobField::Component
            | JobField::Start
            | JobField::End
            | JobField::Duration
            | JobField::Submit => {
                Err(format!("{} differs from line to line; name its column in [columns]", name.get_ref()))
            }
            _ => checked_fact(text).map(|_| ()),
        };
        wrong.note(source, place, &format!("constants.{}", name.get_ref()), checked);
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn what_a_mapping_lacks_is_named_with_the_remedy() {
        let message = parse(&SourceText::new("m.toml", "[columns]\nstrat = \"s\"\n[time]\nformat = \"%Y\"\n"))
            .unwrap_err()
            .to_string();
        assert!(message.starts_with("m.toml:2:1: columns: “strat” is unknown; write id,"), "{message}");
        for part in [
            "which column is the start?",
            "which column is the end?",
            "how many GPUs?",
            "which cluster?",
            "which pool?",
            "which sku?",
            "m.toml:4:10: time.format: times without an offset need a zone",
        ] {
            assert!(message.contains(part), "{part}: {message}");
        }
    }

    #[test]
    fn a_constant_that_must_differ_is_refused() {
        let text = "[columns]\nstart = \"s\"\nend = \"e\"\n[constants]\nid = \"7\"\ncluster = \"c c\"\npool = \"p\"\nsku = \"A100\"\ngpus = \"x\"\n";
        let message = parse(&SourceText::new("m.toml", text)).unwrap_err().to_string();
        assert!(
            message.contains("m.toml:5:6: constants.id: id differs")
                && message.contains("m.toml:6:11: constants.cluster:")
                && message.contains("m.toml:9:8: constants.gpus: “x”"),
            "{message}"
        );
    }
}
