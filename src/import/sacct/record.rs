//! The cells of one record of Slurm's accounting become a job record, whatever form they came in.

use gpuledger_domain::ids::{ClusterName, LENGTH_BYTES_MAX, SkuCode};
use gpuledger_domain::rules::JobFacts;
use gpuledger_domain::time::{Instant, Interval};

use super::clock::{Clock, Told, length, seconds};
use super::fields::{Cells, Field};
use super::survey::Survey;
use super::tres::{self, GpuCount};
use crate::import::host_list;
use crate::import::job_record::{Grant, Held, JobIdentity, JobRecord};

/// What a record is.
#[derive(Debug)]
pub(super) enum Read {
    /// A part of a job, which repeats what the job holds.
    Step,
    /// A job.
    Job(Box<JobRecord>),
}

/// The column and what is wrong in it.
pub(super) type Wrong = (Field, String);

/// Reads records of one list.
#[derive(Debug)]
pub(super) struct RecordReader {
    pub(super) clock: Clock,
    /// The cluster of records that name none.
    pub(super) cluster: Option<ClusterName>,
    pub(super) survey: Survey,
    /// Facts that were cut because they were too long.
    pub(super) cut_facts: u64,
}

/// Where a job is in its life, by its state's first word.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Life {
    Waits,
    Runs,
    Ended,
}

/// A length of the record's own.
struct Lengths {
    elapsed: Option<i64>,
    suspended: Option<i64>,
}

impl Life {
    /// Of a state such as `RUNNING`, `CANCELLED by 1001` or `COMPLETED,COMPLETING`.
    pub(super) fn of(state: &str) -> Option<Life> {
        let word = state.split([' ', '+', ',']).next().unwrap_or_default();
        Some(match word.to_ascii_uppercase().as_str() {
            "PENDING" | "PD" | "REQUEUE_HOLD" | "REQUEUE_FED" | "SPECIAL_EXIT" | "RESV_DEL_HOLD" => Life::Waits,
            "RUNNING" | "R" | "SUSPENDED" | "S" | "CONFIGURING" | "COMPLETING" | "STOPPED" | "SIGNALING"
            | "STAGE_OUT" => Life::Runs,
            "COMPLETED" | "CD" | "FAILED" | "CANCELLED" | "TIMEOUT" | "NODE_FAIL" | "PREEMPTED" | "BOOT_FAIL"
            // A job that changes its size ends as one of the old size, and goes on as one of the new.
            | "RESIZING" | "DEADLINE" | "OUT_OF_MEMORY" | "REQUEUED" | "REVOKED" | "LAUNCH_FAILED" | "RECONFIG_FAIL"
            | "POWER_UP_NODE" | "UPDATE_DB" => Life::Ended,
            _ => return None,
        })
    }
}

fn cell<'a>(cells: &Cells<'a>, field: Field) -> &'a str {
    cells.get(field.index()).copied().unwrap_or_default()
}

/// The id's parts: the number, what stands behind it (`_3`, `_[4-10%2]`, `+1`), and whether it is a step's.
pub(super) fn id_parts(id: &str) -> Option<(&str, &str, bool)> {
    let digits = id.bytes().take_while(u8::is_ascii_digit).count();
    let (number, rest) = id.split_at_checked(digits).filter(|(number, _)| !number.is_empty() && number.len() <= 18)?;
    let (suffix, step) = match rest.split_once('.') {
        Some((suffix, step)) if !step.is_empty() => (suffix, true),
        None => (rest, false),
        Some(_) => return None,
    };
    let plain = |text: &str| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    let task = |text: &str| plain(text) || text.starts_with('[') && text.ends_with(']');
    let known =
        suffix.is_empty() || suffix.strip_prefix('_').is_some_and(task) || suffix.strip_prefix('+').is_some_and(plain);
    known.then_some((number, suffix, step))
}

/// How many tasks `_[4-10%2]` or `_[9-11,13]` stand for; 0 for anything else.
pub(super) fn waiting_tasks(suffix: &str) -> u64 {
    let Some(list) = suffix.strip_prefix("_[").and_then(|list| list.strip_suffix(']')) else { return 0 };
    let list = list.split('%').next().unwrap_or_default();
    let number = |text: &str| text.parse::<u32>().ok();
    list.split(',')
        .filter_map(|range| {
            let (first, last) = range.split_once('-').unwrap_or((range, range));
            let (last, step) = last.split_once(':').unwrap_or((last, "1"));
            let (first, last, step) = (number(first)?, number(last)?, number(step)?);
            (first <= last && step > 0).then(|| u64::from((last - first) / step) + 1)
        })
        .sum()
}

impl RecordReader {
    /// Reads a record.
    pub(super) fn read(&mut self, line: u64, cells: &Cells<'_>) -> Result<Read, Wrong> {
        let listed = cell(cells, Field::JobId);
        let raw = Some(cell(cells, Field::JobIdRaw)).filter(|raw| !raw.is_empty()).unwrap_or(listed);
        let told = if listed.is_empty() { raw } else { listed };
        let no_id = |id: &str| (Field::JobId, format!("“{id}” is no job id"));
        let (_, suffix, step) = id_parts(told).ok_or_else(|| no_id(told))?;
        if step {
            self.survey.steps += 1;
            return Ok(Read::Step);
        }
        if self.survey.has_raw_ids && cell(cells, Field::JobIdRaw).is_empty() && !suffix.is_empty() {
            let reason = format!("it is empty, and {told} alone does not tell the job's own id; export it");
            return Err((Field::JobIdRaw, reason));
        }
        let identity = id_parts(raw).filter(|(_, _, step)| !step).map(|_| raw).ok_or_else(|| no_id(raw))?;
        let cluster = self.cluster(cells)?;
        let state = cell(cells, Field::State);
        let life = Life::of(state);
        let lengths = self.lengths(cells)?;
        let held = self.held(cells, life, &lengths)?;
        self.survey.waiting_tasks += if matches!(held, Held::Never(_)) { waiting_tasks(suffix) } else { 0 };
        let counts = self.gpus(cells, held)?;
        if suffix.starts_with("_[") && !counts.is_empty() {
            return Err((
                Field::JobId,
                format!(
                    "{told} stands for several tasks that held GPUs; export each task, which sacct does for tasks that began"
                ),
            ));
        }
        self.survey.job(cells, identity, held, &counts, life);
        let held = if counts.is_empty() { Held::Never(start_of(held)) } else { held };
        let nodes = self.nodes(cells, &counts)?;
        let grants = grants(&counts, &nodes)?;
        let gpus = counts.iter().map(|(_, count)| *count).fold(0, i32::saturating_add);
        let facts = JobFacts {
            cluster: cluster.to_string(),
            user: self.fact(cell(cells, Field::User)),
            account: self.fact(cell(cells, Field::Account)),
            partition: self.fact(cell(cells, Field::Partition)),
            qos: self.fact(cell(cells, Field::Qos)),
            name: self.fact(cell(cells, Field::Name)),
            gpus,
            ..JobFacts::default()
        };
        let suspended_us = match held {
            Held::Ended(interval) => self.suspended(&lengths, interval),
            _ => lengths.suspended.unwrap_or(0),
        };
        let submit = self.clock.read(cell(cells, Field::Submit)).ok();
        Ok(Read::Job(Box::new(JobRecord {
            line,
            identity: JobIdentity::Id(identity.to_owned()),
            listed_id: if told == identity { String::new() } else { self.fact(told) },
            cluster,
            pool: None,
            facts,
            held,
            suspended_us,
            submit: submit.and_then(|told| if let Told::At(at) = told { Some(at) } else { None }),
            end_state: self.fact(if life == Some(Life::Ended) { state } else { "" }),
            grants,
            nodes,
        })))
    }

    fn cluster(&self, cells: &Cells<'_>) -> Result<ClusterName, Wrong> {
        let told = cell(cells, Field::Cluster);
        match &self.cluster {
            Some(given) if told.is_empty() || told == given.as_str() => Ok(given.clone()),
            Some(given) => Err((
                Field::Cluster,
                format!(
                    "the line is of cluster {told}, --cluster says {given}; leave --cluster out, or import the list of {given}"
                ),
            )),
            None if told.is_empty() => Err((
                Field::Cluster,
                "nothing says which cluster this is; give --cluster NAME, or export the field Cluster".into(),
            )),
            None => ClusterName::parse(told).map_err(|reason| (Field::Cluster, reason)),
        }
    }

    fn lengths(&self, cells: &Cells<'_>) -> Result<Lengths, Wrong> {
        let told = |field: Field, read: fn(&str) -> Result<Option<i64>, String>| {
            read(cell(cells, field)).map_err(|reason| (field, reason))
        };
        let elapsed = match told(Field::Elapsed, length)? {
            Some(elapsed) => Some(elapsed),
            None => told(Field::ElapsedRaw, seconds)?,
        };
        Ok(Lengths { elapsed, suspended: told(Field::Suspended, length)? })
    }

    /// When the job held its GPUs. A start or end that local clocks showed twice is the one that `Elapsed` fits.
    ///
    /// A job that changed its size has a record for each size. All have the first one's `Start`, and each was submitted
    /// when its size began; `Elapsed` counts from `Start` all the same.
    fn held(&mut self, cells: &Cells<'_>, life: Option<Life>, lengths: &Lengths) -> Result<Held, Wrong> {
        let mut read = |field: Field| self.clock.read(cell(cells, field)).map_err(|reason| (field, reason));
        if life == Some(Life::Waits) {
            return Ok(Held::Never(None));
        }
        let start = read(Field::Start)?;
        let starts = start.candidates();
        let Some(first) = starts.first().copied() else { return Ok(Held::Never(None)) };
        let end = if life == Some(Life::Runs) { Told::Nothing } else { read(Field::End)? };
        let ends = end.candidates();
        let submit = self.clock.read(cell(cells, Field::Submit)).unwrap_or(Told::Nothing);
        let begin = |start: Instant| if let Told::At(submit) = submit { start.max(submit) } else { start };
        let length = lengths.elapsed.map(|elapsed| elapsed.saturating_add(lengths.suspended.unwrap_or(0)));
        if ends.is_empty() {
            let (Told::At(start), length) = (start, length) else {
                return Err((Field::Start, twice(cell(cells, Field::Start))));
            };
            let until = length.filter(|length| *length > 0).and_then(|length| start.plus_micros(length));
            // A list without the column End tells the end by the length.
            let start = begin(start);
            return Ok(match (life, until.and_then(|until| Interval::new(start, until))) {
                (Some(Life::Ended), Some(interval)) if !self.survey.has_end => Held::Ended(interval),
                _ => Held::Running { start, until },
            });
        }
        let pairs: Vec<(Instant, Instant)> =
            starts.iter().flat_map(|start| ends.iter().map(|end| (*start, *end))).collect();
        let fits = |(start, end): &(Instant, Instant)| Some(end.micros() - start.micros()) == length;
        let chosen = match pairs.as_slice() {
            [only] => *only,
            pairs => {
                let mut fitting = pairs.iter().filter(|pair| fits(pair));
                match (fitting.next(), fitting.next()) {
                    (Some(one), None) => *one,
                    _ => return Err((Field::Start, twice(cell(cells, Field::Start)))),
                }
            }
        };
        let (start, end) = chosen;
        if end < start {
            return Err((Field::End, "the job ends before it begins; correct or remove the line".into()));
        }
        let Some(interval) = Interval::new(start, end) else { return Ok(Held::Never(Some(first))) };
        if lengths.suspended.is_some_and(|suspended| suspended > interval.length_us()) {
            return Err((
                Field::Suspended,
                "the job was suspended for longer than from Start to End; correct the line".into(),
            ));
        }
        self.weigh_length(interval, lengths)?;
        self.survey.resized += u64::from(begin(start) != start);
        Ok(Interval::new(begin(start), end).map_or(Held::Never(Some(begin(start))), Held::Ended))
    }

    /// Compares start and end with the length that is told beside them. Local times in a wrong zone differ by a whole
    /// number of half-hours where clocks changed meanwhile; anything else is Slurm's own.
    fn weigh_length(&mut self, interval: Interval, lengths: &Lengths) -> Result<(), Wrong> {
        const HALF_HOUR_US: i64 = 1_800_000_000;
        let Some(elapsed) = lengths.elapsed else { return Ok(()) };
        let told = elapsed.saturating_add(lengths.suspended.unwrap_or(0));
        let differs = interval.length_us() - told;
        if differs == 0 || (lengths.suspended.is_none() && differs > 0 && differs % HALF_HOUR_US != 0) {
            return Ok(());
        }
        if differs.abs() <= 4 * HALF_HOUR_US && differs % HALF_HOUR_US == 0 && self.survey.local_times {
            return Err((
                Field::Elapsed,
                format!(
                    "from Start to End are {} s, Elapsed and Suspended say {} s: clocks changed meanwhile, and the zone given is not the one the list was written in",
                    interval.length_us() / 1_000_000,
                    told / 1_000_000
                ),
            ));
        }
        self.survey.lengths_differ += 1;
        Ok(())
    }

    /// For how long it was suspended. Where no column tells it, what `Elapsed` lacks from start to end.
    fn suspended(&mut self, lengths: &Lengths, interval: Interval) -> i64 {
        let derived = || lengths.elapsed.map_or(0, |elapsed| (interval.length_us() - elapsed).max(0));
        let suspended = lengths.suspended.unwrap_or_else(derived).min(interval.length_us());
        self.survey.suspended += u64::from(suspended > 0);
        suspended
    }

    /// The GPUs that were allocated. What was asked for is none of them, but says where they are missing.
    fn gpus<'a>(&mut self, cells: &Cells<'a>, held: Held) -> Result<Vec<GpuCount<'a>>, Wrong> {
        let counts = tres::gpus(cell(cells, Field::AllocTres)).map_err(|reason| (Field::AllocTres, reason))?;
        if matches!(held, Held::Never(None)) {
            return Ok(Vec::new());
        }
        if !counts.is_empty() || matches!(held, Held::Never(_)) {
            return Ok(counts);
        }
        let asked = tres::gpus(cell(cells, Field::ReqTres)).unwrap_or_default();
        let submit = cell(cells, Field::SubmitLine);
        let asks =
            !asked.is_empty() || ["--gpus", "--gres=gpu", "--gres gpu", "-G "].iter().any(|flag| submit.contains(flag));
        if asks && !cell(cells, Field::AllocTres).contains("gres/gpu=0") {
            self.survey.gpus_missing += 1;
            return Err((
                Field::AllocTres,
                "the job asked for GPUs and ran, but its accounting tells none: that is unknown, not zero. Add gres/gpu to AccountingStorageTRES in slurm.conf; this job must be told by another list".into(),
            ));
        }
        Ok(counts)
    }

    fn nodes(&self, cells: &Cells<'_>, counts: &[GpuCount<'_>]) -> Result<Vec<String>, Wrong> {
        let list = cell(cells, Field::NodeList);
        if counts.is_empty() || list.is_empty() || list == "None assigned" || list == "(null)" {
            return Ok(Vec::new());
        }
        host_list::expand(list).map_err(|reason| (Field::NodeList, reason))
    }

    /// A fact as rules will see it: cut where it is too long to be one, and with pictures for control characters, so
    /// that a job is charged whatever it is called.
    fn fact(&mut self, text: &str) -> String {
        let end = text.floor_char_boundary(LENGTH_BYTES_MAX.min(text.len()));
        self.cut_facts += u64::from(end < text.len());
        let text = text.get(..end).unwrap_or(text);
        if !text.contains(char::is_control) {
            return text.to_owned();
        }
        let picture = |c: char| match u32::from(c) {
            code @ 0..0x20 => char::from_u32(0x2400 + code).unwrap_or('\u{fffd}'),
            0x7f => '\u{2421}',
            _ if c.is_control() => '\u{fffd}',
            _ => c,
        };
        let shown: String = text.chars().map(picture).collect();
        let end = shown.floor_char_boundary(LENGTH_BYTES_MAX.min(shown.len()));
        shown.get(..end).unwrap_or_default().to_owned()
    }
}

fn start_of(held: Held) -> Option<Instant> {
    match held {
        Held::Ended(interval) => Some(interval.start()),
        Held::Running { start, .. } => Some(start),
        Held::Never(start) => start,
    }
}

fn twice(text: &str) -> String {
    format!("“{text}” came twice where clocks were put back, and Elapsed does not say which it was; export with TZ=UTC")
}

/// Which GPUs are on which node, as far as the counts say: where each node has as many, or there is one.
fn grants(counts: &[GpuCount<'_>], nodes: &[String]) -> Result<Vec<Grant>, Wrong> {
    let number = i32::try_from(nodes.len()).unwrap_or(i32::MAX);
    let mut grants = Vec::with_capacity(counts.len() * nodes.len().max(1));
    for (kind, count) in counts {
        let sku = SkuCode::parse(kind).map_err(|reason| (Field::AllocTres, reason))?;
        if number > 0 && count % number == 0 {
            let each = count / number;
            grants.extend(nodes.iter().map(|node| Grant { node: node.clone(), sku: sku.clone(), count: each }));
        } else {
            grants.push(Grant { node: String::new(), sku, count: *count });
        }
    }
    Ok(grants)
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn ids_of_slurm() {
        assert_eq!(id_parts("7400"), Some(("7400", "", false)));
        assert_eq!(id_parts("7400_3.batch"), Some(("7400", "_3", true)));
        assert_eq!(id_parts("8100+1"), Some(("8100", "+1", false)));
        assert_eq!(id_parts("7400_[4-10%2]"), Some(("7400", "_[4-10%2]", false)));
        for bad in ["", "lpha-0.0-ed", "x7", "7_", "7+", "7 8", "7."] {
            assert_eq!(id_parts(bad), None, "{bad}");
        }
        assert_eq!(waiting_tasks("_[4-10%2]"), 7);
        assert_eq!(waiting_tasks("_[9-11,13,16-20]"), 9);
        assert_eq!(waiting_tasks("_[0-20:5]"), 5);
        assert_eq!(waiting_tasks("_3"), 0);
    }
}
