//! What is noticed of a list as a whole while its records are read: what it lacks, and what that costs.

use std::collections::BTreeMap;

use gpuledger_domain::time::Instant;

use super::fields::{Cells, Field};
use super::record::Life;
use super::tres::{GpuCount, UNTYPED};
use crate::import::job_record::Held;

/// Most jobs that are named in a finding.
const NAMED_MAX: usize = 3;
/// Most instants whose frequency is counted, to find the edges of a window.
const EDGES_MAX: usize = 4_096;

/// How much a finding matters.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Cost {
    /// Nothing is lost.
    Good,
    /// Something may be lost, or cannot be told.
    Warning,
    /// GPU-time is lost or wrong.
    Fault,
}

/// Something noticed of a list as a whole.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Finding {
    /// What it is about.
    pub subject: &'static str,
    /// How much it matters.
    pub cost: Cost,
    /// What was found and what it costs, as a sentence.
    pub text: String,
}

/// Counts over the records of a list.
#[derive(Debug, Default)]
pub(super) struct Survey {
    /// The fields without which nothing can be charged, as far as they are missing.
    pub(super) lacking: Vec<&'static str>,
    /// Whether the list has the column.
    pub(super) has_end: bool,
    pub(super) has_raw_ids: bool,
    pub(super) has_cluster: bool,
    pub(super) has_suspended: bool,
    pub(super) has_elapsed: bool,
    pub(super) has_nodes: bool,
    pub(super) has_state: bool,
    /// Whether its delimiter may stand in a name.
    pub(super) delimiter_in_names: bool,
    /// Whether some of its times have no offset, in a zone other than UTC.
    pub(super) local_times: bool,
    /// Records.
    pub(super) steps: u64,
    pub(super) jobs: u64,
    pub(super) with_gpus: u64,
    pub(super) untyped: u64,
    pub(super) running: u64,
    pub(super) suspended: u64,
    pub(super) waiting_tasks: u64,
    pub(super) lengths_differ: u64,
    pub(super) gpus_missing: u64,
    pub(super) mended: u64,
    /// Records of a job that changed its size.
    pub(super) resized: u64,
    /// Lines in names that look like records of their own.
    pub(super) whole_records: u64,
    /// Whether the last column is free text, so that nothing marks the end of a record.
    pub(super) ends_free: bool,
    pub(super) has_submit: bool,
    pub(super) refused: u64,
    /// Jobs that were requeued: told twice, or told once although they must have run before.
    pub(super) told_twice: u64,
    pub(super) told_once: Vec<String>,
    pub(super) last_ids: BTreeMap<String, String>,
    /// How many jobs begin or end at an instant.
    pub(super) starts: BTreeMap<Instant, u64>,
    pub(super) ends: BTreeMap<Instant, u64>,
    /// The first start and last end.
    pub(super) span: Option<(Instant, Instant)>,
}

impl Survey {
    /// Takes note of a job.
    pub(super) fn job(&mut self, cells: &Cells<'_>, id: &str, held: Held, counts: &[GpuCount<'_>], life: Option<Life>) {
        self.jobs += 1;
        self.with_gpus += u64::from(!counts.is_empty());
        self.untyped += u64::from(counts.iter().any(|(kind, _)| *kind == UNTYPED));
        self.running += u64::from(!counts.is_empty() && matches!(held, Held::Running { .. }));
        self.note_requeue(cells, id, life);
        let Held::Ended(interval) = held else { return };
        for (edges, at) in [(&mut self.starts, interval.start()), (&mut self.ends, interval.end())] {
            if edges.len() < EDGES_MAX || edges.contains_key(&at) {
                *edges.entry(at).or_default() += 1;
            }
        }
        let (first, last) = self.span.unwrap_or((interval.start(), interval.end()));
        self.span = Some((first.min(interval.start()), last.max(interval.end())));
    }

    /// A requeued job has several records under one id, one after the other where `-D` was given. Without it only the
    /// last is there, and betrays itself by its count of restarts, or by the two minutes for which a requeued job waits.
    fn note_requeue(&mut self, cells: &Cells<'_>, id: &str, life: Option<Life>) {
        let cell = |field: Field| cells.get(field.index()).copied().unwrap_or_default();
        if let Some(start) = self.last_ids.get(id) {
            // Records of a job that changed its size begin alike: they are one run.
            if start != cell(Field::Start) {
                self.told_twice += 1;
                self.told_once.retain(|known| known != id);
            }
            return;
        }
        let restarts = cell(Field::Restarts).parse::<u32>().unwrap_or(0);
        let requeued = restarts > 0
            || (life != Some(Life::Waits) && waits_after_requeue(cell(Field::Submit), cell(Field::Eligible)));
        if requeued && self.told_once.len() < NAMED_MAX {
            self.told_once.push(id.to_owned());
        }
        if self.last_ids.len() >= EDGES_MAX {
            self.last_ids.pop_first();
        }
        self.last_ids.insert(id.to_owned(), cell(Field::Start).to_owned());
    }

    /// Everything found, what is well too, in a fixed order.
    pub(super) fn findings(&self) -> Vec<Finding> {
        let mut found = Vec::new();
        let mut tell = |subject, cost, text: String| found.push(Finding { subject, cost, text });
        self.tell_gpus(&mut tell);
        self.tell_attempts(&mut tell);
        self.tell_times(&mut tell);
        self.tell_form(&mut tell);
        found
    }

    fn tell_gpus(&self, tell: &mut impl FnMut(&'static str, Cost, String)) {
        if !self.lacking.is_empty() {
            tell("fields", Cost::Fault, format!("missing: {}", self.lacking.join(", ")));
        } else if self.gpus_missing > 0 {
            tell(
                "GPUs",
                Cost::Fault,
                format!(
                    "{} jobs asked for GPUs and ran, but their accounting tells none; AccountingStorageTRES in slurm.conf must hold gres/gpu",
                    self.gpus_missing
                ),
            );
        } else if self.with_gpus == 0 && self.jobs > 0 {
            tell("GPUs", Cost::Warning, "no job holds a GPU; on a cluster with GPUs AccountingStorageTRES in slurm.conf lacks gres/gpu, and their time is unknown, not zero".into());
        } else if self.untyped > 0 {
            tell(
                "GPU types",
                Cost::Warning,
                format!(
                    "{} jobs hold GPUs without a type; they are of the only type of their node where the inventory knows it, else of the SKU “gpu”, which the price book must price. AccountingStorageTRES may name types, like gres/gpu:h100",
                    self.untyped
                ),
            );
        } else if self.with_gpus > 0 {
            tell("GPUs", Cost::Good, format!("{} jobs hold GPUs, all of a known type", self.with_gpus));
        }
        if self.jobs == 0 && self.steps > 0 {
            tell("jobs", Cost::Fault, "only steps are in the list, no job; export without -s, or with -X".into());
        }
    }

    fn tell_attempts(&self, tell: &mut impl FnMut(&'static str, Cost, String)) {
        if !self.told_once.is_empty() {
            tell(
                "requeued jobs",
                Cost::Fault,
                format!(
                    "job {} seems to have been requeued, but only its last run is in the list: what it held before is lost. Export with -D (--duplicates)",
                    self.told_once.join(", ")
                ),
            );
        } else if self.told_twice > 0 {
            tell(
                "requeued jobs",
                Cost::Good,
                format!("{} earlier runs of requeued jobs are in the list, so it was made with -D", self.told_twice),
            );
        } else if self.jobs > 0 {
            tell(
                "requeued jobs",
                Cost::Warning,
                "no job has two records; if any was requeued, the list was made without -D and earlier runs are lost"
                    .into(),
            );
        }
        if !self.has_raw_ids {
            tell("job ids", Cost::Warning, "the field JobIDRaw is missing: tasks of arrays are known by their listed id alone, and lists with and without it cannot be mixed".into());
        }
        if self.resized > 0 {
            tell(
                "resized jobs",
                Cost::Good,
                format!("{} records begin later than their Start, since the job changed its size", self.resized),
            );
        }
        if !self.has_submit {
            tell("resized jobs", Cost::Warning, "the field Submit is missing: of a job that changed its size, nothing tells when each size began, and its records would overlap".into());
        }
        if self.running > 0 {
            tell(
                "running jobs",
                Cost::Warning,
                format!(
                    "{} jobs still ran; they are charged up to then, and a later list tells their end",
                    self.running
                ),
            );
        }
        if self.waiting_tasks > 0 {
            tell("waiting tasks", Cost::Good, format!("{} tasks of arrays wait to begin", self.waiting_tasks));
        }
    }

    fn tell_times(&self, tell: &mut impl FnMut(&'static str, Cost, String)) {
        let shared = |edges: &BTreeMap<Instant, u64>, edge: Option<Instant>| {
            edge.and_then(|edge| edges.get(&edge).copied()).filter(|count| *count >= 3)
        };
        let starts = shared(&self.starts, self.span.map(|(first, _)| first));
        let ends = shared(&self.ends, self.span.map(|(_, last)| last));
        if let (Some(starts), Some((first, last))) =
            (starts.filter(|_| whole_minute(self.span.map(|(first, _)| first))), self.span)
        {
            let (cost, ends, clipped) = match ends {
                Some(ends) => (Cost::Fault, format!(", {ends} end with the last at {last}"), "was clipped"),
                None => (Cost::Warning, String::new(), "may have been clipped"),
            };
            tell(
                "window",
                cost,
                format!(
                    "{starts} jobs begin with the first at {first}{ends}: the list {clipped} by -T (--truncate), and what lies outside is missing. Export without -T"
                ),
            );
        }
        if self.lengths_differ > 0 {
            tell(
                "lengths",
                Cost::Warning,
                format!(
                    "{} jobs tell another Elapsed than from Start to End; the GPUs were held from Start to End, which counts",
                    self.lengths_differ
                ),
            );
        }
        if !self.has_suspended && self.has_elapsed && self.suspended > 0 {
            tell(
                "suspended time",
                Cost::Warning,
                format!(
                    "{} jobs have less Elapsed than from Start to End, and no field Suspended says why; it is taken for suspended time",
                    self.suspended
                ),
            );
        }
        if self.local_times {
            tell("time zone", Cost::Warning, "times are local, without an offset: hours that clocks show twice are told apart by Elapsed only. Export with TZ=UTC".into());
        }
    }

    fn tell_form(&self, tell: &mut impl FnMut(&'static str, Cost, String)) {
        if self.delimiter_in_names {
            let mended = if self.mended > 0 {
                format!("; {} lines had it in a name and were mended", self.mended)
            } else {
                String::new()
            };
            tell(
                "delimiter",
                Cost::Warning,
                format!(
                    "the delimiter may stand in the name of a job{mended}. Export with --delimiter=$'\\x1f' or --json"
                ),
            );
        }
        if self.whole_records > 0 {
            tell(
                "forged records",
                Cost::Fault,
                format!(
                    "{} lines look like records of their own and stand in a name or another free text; they were not taken for jobs. Look who wrote them, and export with --json",
                    self.whole_records
                ),
            );
        }
        if self.ends_free {
            tell(
                "end of records",
                Cost::Warning,
                "the last field is one that people write, so that nothing marks the end of a record: a name with a line break can make records of its own. Put another field behind it, or export with --json".into(),
            );
        }
        if !self.has_nodes {
            tell(
                "nodes",
                Cost::Warning,
                "the field NodeList is missing: pools and types of GPUs cannot be looked up in the inventory".into(),
            );
        }
        if !self.has_state {
            tell(
                "end states",
                Cost::Warning,
                "the field State is missing: who pays for a failed node cannot be told".into(),
            );
        }
        if !self.has_cluster {
            tell("cluster", Cost::Warning, "the field Cluster is missing; --cluster must name it".into());
        }
        if self.refused > 0 {
            tell("lines", Cost::Fault, format!("{} lines cannot be read", self.refused));
        }
    }
}

/// A requeued job becomes eligible two minutes after it was put back (`job_mgr.c` of Slurm: "delay 2 minutes").
fn waits_after_requeue(submit: &str, eligible: &str) -> bool {
    let mut clock = super::clock::Clock::new(Some(("UTC".into(), jiff::tz::TimeZone::UTC)));
    let mut at = |text| match clock.read(text) {
        Ok(super::clock::Told::At(at)) => Some(at.micros() / 1_000_000),
        _ => None,
    };
    at(submit).zip(at(eligible)).is_some_and(|(submit, eligible)| (120..=122).contains(&(eligible - submit)))
}

fn whole_minute(at: Option<Instant>) -> bool {
    at.is_some_and(|at| at.micros() % 60_000_000 == 0)
}
