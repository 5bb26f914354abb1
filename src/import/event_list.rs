//! A list of nodes that were out of service, as `sacctmgr show event -P` writes it.

use gpuledger_domain::calendar::BillingCalendar;
use gpuledger_domain::ids::{ClusterName, LENGTH_BYTES_MAX, checked_fact};
use gpuledger_domain::time::Instant;

use super::host_list;
use super::job_record::RefusedLine;
use super::stream::{CsvLines, InputFile};
use super::time_text::InstantReader;
use crate::error::AppError;
use crate::files::mapping::TimeFormat;

/// How a list is read.
#[derive(Clone, Debug)]
pub struct EventFormat {
    /// What the list calls the cluster.
    pub cluster: ClusterName,
    /// The zone of times without an offset.
    pub zone: Option<String>,
    /// What stands between columns.
    pub delimiter: u8,
}

/// Nodes that were out of service, or still are.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EventRecord {
    /// Where it stands, from 1, the heading included.
    pub line: u64,
    /// Which nodes.
    pub nodes: Vec<String>,
    /// Since when.
    pub start: Instant,
    /// Until when; `None` while it is still so.
    pub end: Option<Instant>,
    /// The scheduler's word for it.
    pub state: String,
    /// Why; empty where nobody said.
    pub reason: String,
}

/// A line, read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum EventLine {
    /// It tells of nodes out of service.
    Event(EventRecord),
    /// It tells of a cluster as a whole, of a state in which jobs run, or of no time.
    Aside,
}

/// Words of states in which a node takes no new jobs.
const OUT: [&str; 15] = [
    "DOWN",
    "DRAIN",
    "DRAINED",
    "DRAINING",
    "ERROR",
    "FAIL",
    "FAILED",
    "FAILING",
    "FUTURE",
    "MAINT",
    "NO_RESPOND",
    "NOT_RESPONDING",
    "REBOOT",
    "REBOOT_ISSUED",
    "REBOOT_REQUESTED",
];
/// Words of states in which it does, or which say nothing of that. A node that sleeps is woken for a job.
const IN: [&str; 17] = [
    "ALLOCATED",
    "BLOCKED",
    "CLOUD",
    "COMPLETING",
    "DYNAMIC_NORM",
    "IDLE",
    "INVALID_REG",
    "MIXED",
    "PERFCTRS",
    "PLANNED",
    "POWERED_DOWN",
    "POWERING_DOWN",
    "POWER_DOWN",
    "POWERING_UP",
    "RESERVED",
    "RESUME",
    "UNDRAIN",
];

/// Reads a list line by line.
#[allow(missing_debug_implementations)]
pub struct EventListReader {
    lines: CsvLines,
    record: csv::StringRecord,
    layout: Layout,
    broken: bool,
}

/// Where each field is found, and how it is read.
struct Layout {
    cluster: Option<usize>,
    nodes: usize,
    start: usize,
    end: usize,
    state: usize,
    reason: Option<usize>,
    format: EventFormat,
    instants: InstantReader,
    cut_reasons: u64,
}

impl EventListReader {
    /// Opens a list.
    ///
    /// # Errors
    /// [`AppError::File`] where it cannot be read or lacks a column, [`AppError::Refused`] where there is no such zone.
    pub fn open(file: &InputFile, format: &EventFormat) -> Result<EventListReader, AppError> {
        if let Some(zone) = &format.zone {
            BillingCalendar::new(zone).map_err(|message| AppError::Refused(format!("--zone: {message}")))?;
        }
        let mut lines = CsvLines::open(file, format.delimiter, false)?;
        let headings = lines
            .reader
            .headers()
            .map_err(|error| AppError::file(&file.name, format!("line 1: no heading: {error}")))?;
        let column = |name: &str| headings.iter().position(|heading| same_heading(heading, name));
        let needed = |name: &str| {
            column(name).ok_or_else(|| {
                let found: Vec<&str> = headings.iter().collect();
                let found = found.join(", ");
                AppError::file(
                    &file.name,
                    format!("line 1: there is no column “{name}”; export with `sacctmgr show event -P`, or give its --delimiter (found {found})"),
                )
            })
        };
        let layout = Layout {
            cluster: column("Cluster"),
            nodes: needed("NodeName")?,
            start: needed("TimeStart")?,
            end: needed("TimeEnd")?,
            state: needed("State")?,
            reason: column("Reason"),
            format: format.clone(),
            instants: InstantReader::new(&TimeFormat::Pattern("%Y-%m-%dT%H:%M:%S".to_owned()), format.zone.as_deref()),
            cut_reasons: 0,
        };
        let record = csv::StringRecord::new();
        Ok(EventListReader { lines, record, layout, broken: false })
    }

    /// Reasons that were cut because they were too long.
    #[must_use]
    pub const fn cut_reasons(&self) -> u64 {
        self.layout.cut_reasons
    }
}

fn same_heading(heading: &str, name: &str) -> bool {
    let heading = heading.strip_prefix('\u{feff}').unwrap_or(heading).replace(' ', "");
    heading.eq_ignore_ascii_case(name)
}

impl Iterator for EventListReader {
    type Item = Result<EventLine, RefusedLine>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.broken {
            return None;
        }
        let read = self.lines.reader.read_record(&mut self.record);
        self.lines.since_line.set(0);
        let refused = |line, field: &str, reason| Some(Err(RefusedLine { line, field: field.to_owned(), reason }));
        match read {
            Ok(false) => None,
            Ok(true) => {
                let line = self.record.position().map_or(0, csv::Position::line) + self.lines.lines_missed;
                match self.layout.event(&self.record, line) {
                    Ok(event) => Some(Ok(event)),
                    Err((field, reason)) => refused(line, field, reason),
                }
            }
            Err(error) => {
                let line = error.position().map_or_else(|| self.lines.reader.position().line(), csv::Position::line)
                    + self.lines.lines_missed;
                let reason = match error.kind() {
                    csv::ErrorKind::UnequalLengths { expected_len, len, .. } => format!(
                        "it has {len} columns, the heading has {expected_len}; a reason that holds the delimiter needs another one"
                    ),
                    csv::ErrorKind::Utf8 { .. } => "it is not UTF-8; save the file as UTF-8".to_owned(),
                    _ => {
                        self.broken = true;
                        format!("the file cannot be read on from here: {error}")
                    }
                };
                refused(line, "", reason)
            }
        }
    }
}

impl Layout {
    fn event(&mut self, record: &csv::StringRecord, line: u64) -> Result<EventLine, (&'static str, String)> {
        let text = |index: usize| record.get(index).unwrap_or("");
        if text(self.nodes).is_empty() {
            return Ok(EventLine::Aside);
        }
        if let Some(other) = self.cluster.map(text).filter(|name| *name != self.format.cluster.as_str()) {
            let wanted = &self.format.cluster;
            return Err((
                "Cluster",
                format!(
                    "it is of “{other}”, not of “{wanted}”; import each cluster by itself, and say with --called what a list calls it"
                ),
            ));
        }
        let nodes = host_list::expand(text(self.nodes)).map_err(|reason| ("NodeName", reason))?;
        let state = text(self.state);
        let out = is_out(state).map_err(|reason| ("State", reason))?;
        let start = self.instant(text(self.start)).map_err(|reason| ("TimeStart", reason))?;
        let end = match text(self.end) {
            "" | "Unknown" => None,
            known => Some(self.instant(known).map_err(|reason| ("TimeEnd", reason))?),
        };
        if end.is_some_and(|end| end < start) {
            return Err(("TimeEnd", "it ends before it begins; correct or remove the line".to_owned()));
        }
        if !out || end == Some(start) {
            return Ok(EventLine::Aside);
        }
        let reason = self.reason.map_or("", text);
        let cut_at = reason.floor_char_boundary(LENGTH_BYTES_MAX.min(reason.len()));
        self.cut_reasons += u64::from(cut_at < reason.len());
        let reason = checked_fact(reason.get(..cut_at).unwrap_or(reason)).map_err(|reason| ("Reason", reason))?;
        Ok(EventLine::Event(EventRecord {
            line,
            nodes,
            start,
            end,
            state: state.to_owned(),
            reason: reason.to_owned(),
        }))
    }

    /// An instant with an offset, or in the stated zone.
    fn instant(&self, text: &str) -> Result<Instant, String> {
        let time = text.split_once('T').map_or("", |(_, time)| time);
        if time.contains(['Z', '+', '-']) {
            Instant::parse(text)
        } else if self.format.zone.is_some() {
            self.instants.read(text)
        } else {
            Err(format!("“{text}” has no offset; say with --zone in which zone the list was written, such as UTC"))
        }
    }
}

/// Whether a state such as `DRAIN`, `IDLE+DRAIN` or `DOWN*` keeps jobs off the node.
fn is_out(state: &str) -> Result<bool, String> {
    let mut out = false;
    for word in state.split('+') {
        // Flags after a word: * does not answer; $, @ and ^ are maintenance and reboots.
        let plain = word.trim_end_matches(|c: char| "*~#!%$@^-".contains(c));
        let flags = word.get(plain.len()..).unwrap_or("");
        let plain = plain.to_ascii_uppercase();
        if !OUT.contains(&plain.as_str()) && !IN.contains(&plain.as_str()) {
            return Err(format!("“{word}” is no state of a node; known are {} and {}", OUT.join(", "), IN.join(", ")));
        }
        out |= OUT.contains(&plain.as_str()) || flags.contains(['*', '$', '@', '^']);
    }
    Ok(out)
}

#[cfg(test)]
#[allow(clippy::unwrap_used, clippy::indexing_slicing)]
mod tests {
    use super::*;

    fn read(text: &str, zone: Option<&str>) -> Vec<Result<EventLine, String>> {
        let format = EventFormat {
            cluster: ClusterName::parse("gpulab").unwrap(),
            zone: zone.map(str::to_owned),
            delimiter: b'|',
        };
        let file = InputFile::of_bytes("events.txt", text.as_bytes());
        let lines = EventListReader::open(&file, &format).unwrap();
        lines.map(|line| line.map_err(|line| format!("{}: {}: {}", line.line, line.field, line.reason))).collect()
    }

    const HEAD: &str = "Cluster|NodeName|TimeStart|TimeEnd|State|Reason|TRES|User\n";

    #[test]
    fn lists_read_as_slurm_writes_them() {
        let lines = read(
            &format!(
                "{HEAD}gpulab||2026-11-30T17:11:48|Unknown||Cluster Registered TRES|cpu=64|\ngpulab|vm[1-2]|2026-11-30T18:09:21|2026-11-30T18:09:41|DRAIN|Xid 79 GPU fell off the bus|cpu=64|root(0)\ngpulab|vm3|2026-11-30T18:09:21|Unknown|IDLE+DRAIN*||cpu=64|root(0)\ngpulab|vm3|2026-11-30T18:09:21|Unknown|MIXED|||\n"
            ),
            Some("Europe/Berlin"),
        );
        assert_eq!((&lines[0], &lines[3]), (&Ok(EventLine::Aside), &Ok(EventLine::Aside)));
        let Ok(EventLine::Event(event)) = &lines[1] else { panic!("{lines:?}") };
        assert_eq!((event.line, event.nodes.join(","), event.state.as_str()), (3, "vm1,vm2".into(), "DRAIN"));
        assert_eq!(event.start.to_string(), "2026-11-30T17:09:21Z");
        assert_eq!((event.end.unwrap().to_string().as_str(), event.reason.len()), ("2026-11-30T17:09:41Z", 27));
        let Ok(EventLine::Event(event)) = &lines[2] else { panic!("{lines:?}") };
        assert_eq!(event.end, None);
    }

    #[test]
    fn what_cannot_be_trusted_is_refused_with_its_line() {
        let rows = "other|n1|2026-11-30T18:09:21Z|Unknown|DOWN|||\ngpulab|n[1|2026-11-30T18:09:21Z|Unknown|DOWN|||\ngpulab|n1|2026-11-30T18:09:21|Unknown|DOWN|||\ngpulab|n1|2026-11-30T18:09:21Z|2026-11-30T17:09:21Z|DOWN|||\ngpulab|n1|2026-11-30T18:09:21Z|Unknown|ASLEEP|||\ngpulab|n1|2026-11-30T18:09:21Z|Unknown|DOWN|a\u{1b}[31m||\ngpulab|n1|2026-11-30T18:09:21Z|Unknown|DOWN|a|b||\n";
        let lines: Vec<String> =
            read(&format!("{HEAD}{rows}"), None).into_iter().map(|line| line.unwrap_err()).collect();
        let starts = [
            "2: Cluster: it is of “other”, not of “gpulab”",
            "3: NodeName: “n[1” has",
            "4: TimeStart: “2026-11-30T18:09:21” has no offset; say with --zone",
            "5: TimeEnd: it ends before it begins",
            "6: State: “ASLEEP” is no state of a node",
            "7: Reason: \"a\\u{1b}[31m\" holds a control character",
            "8: : it has 9 columns, the heading has 8",
        ];
        assert_eq!(lines.len(), starts.len());
        for (line, start) in lines.iter().zip(starts) {
            assert!(line.starts_with(start), "{line}");
        }
        let file = InputFile::of_bytes("events.txt", b"a,b\n");
        let format = EventFormat { cluster: ClusterName::parse("c").unwrap(), zone: None, delimiter: b'|' };
        assert!(EventListReader::open(&file, &format).err().unwrap().to_string().contains("no column “NodeName”"));
        let format = EventFormat { zone: Some("Mars".into()), ..format };
        assert!(EventListReader::open(&file, &format).err().unwrap().to_string().starts_with("--zone: “Mars”"));
    }

    #[test]
    fn flags_and_parts_of_a_state_are_understood() {
        for out in
            ["DOWN", "drained", "IDLE+DRAIN", "DOWN*+DRAIN", "ALLOCATED*", "IDLE+NOT_RESPONDING", "MAINT", "FAILING"]
        {
            assert_eq!(is_out(out), Ok(true), "{out}");
        }
        for fine in ["IDLE", "MIXED", "ALLOCATED+PLANNED", "IDLE#", "IDLE~"] {
            assert_eq!(is_out(fine), Ok(false), "{fine}");
        }
        for bad in ["", "IDLE+", "SLEEPY"] {
            assert!(is_out(bad).is_err(), "{bad}");
        }
    }
}
