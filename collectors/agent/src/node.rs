//! One node: looks at it through the probes, keeps what was seen as segments, and makes reports of them.
//!
//! It reads no clock: whoever calls it says what time it is. A driver that is not there yet, or went away, is loaded again at the
//! next look; until then nothing is told of the GPUs, which is no claim that they were idle.

use std::collections::BTreeMap;
use std::path::PathBuf;

use gpuledger_host::{Host, JobMapping};
use gpuledger_nvml::{Driver, Since, Sweep};
use gpuledger_wire::{
    Answer, Clocks, Epoch, Facts, Gpu, Job, Outcome, PROTOCOL, RecordAnswer, Report, SEGMENTS_MAX, Segment, Settings,
    Unit, UnitKind,
};

use crate::attribute::{Attributed, Attributor, Rules, UnitKey};
use crate::join::{self, JobSeen, Owners};
use crate::mapping;
use crate::sample::{JobId, Sample, UnitShape};
use crate::segments::{Named, Segments, cuts_between};

/// What a node is called, and where its probes look.
#[derive(Clone, Debug)]
pub struct Place {
    /// Its cluster.
    pub cluster: String,
    /// Its name there.
    pub node: String,
    /// Where processes are: `/proc`, or the host's, mounted elsewhere.
    pub proc: PathBuf,
    /// The driver's library; `None` for the machine's own.
    pub nvml_library: Option<PathBuf>,
    /// Where a prolog writes which job was given which GPU.
    pub job_mapping: Option<PathBuf>,
    /// Programs that hold nothing for anybody.
    pub exempt: Vec<String>,
}

/// A node, as the agent knows it.
#[derive(Debug)]
pub struct Node {
    place: Place,
    boot_id: String,
    epoch: Epoch,
    wall_minus_boot_us: i64,
    sequence: u64,
    host: Host,
    driver: Option<Driver>,
    attributor: Attributor,
    segments: Segments,
    units: BTreeMap<UnitKey, (Gpu, Option<i64>)>,
    jobs: BTreeMap<JobId, JobSeen>,
    owners: Owners,
    last: Option<Clocks>,
    settings: Option<Settings>,
}

/// What a look gave, for whoever prints or counts it.
#[derive(Clone, Debug, Default)]
pub struct Looked {
    /// The devices.
    pub sweep: Option<Sweep>,
    /// Who uses what.
    pub sample: Sample,
    /// The time since the look before.
    pub attributed: Attributed,
    /// What is wrong, one line each.
    pub findings: Vec<String>,
}

/// Bits of an epoch's random part.
const RANDOM_BITS: u32 = 20;

impl Node {
    /// Begins to watch a node. `clocks` are those of now, `random` is drawn; together they name this start.
    ///
    /// # Errors
    /// Where the boot's id cannot be read.
    pub fn begin(place: Place, rules: Rules, clocks: Clocks, random: u32) -> std::io::Result<Node> {
        let host = Host::new(&place.proc);
        let boot_id = host.boot_id()?;
        Ok(Node {
            boot_id,
            epoch: Epoch { start_us: clocks.wall_us, random: random & ((1 << RANDOM_BITS) - 1) },
            wall_minus_boot_us: clocks.wall_us - clocks.boot_us,
            sequence: 0,
            host,
            driver: None,
            attributor: Attributor::new(rules),
            segments: Segments::default(),
            units: BTreeMap::new(),
            jobs: BTreeMap::new(),
            owners: Owners::default(),
            last: None,
            settings: None,
            place,
        })
    }

    /// Looks at the node.
    pub fn look(&mut self, clocks: Clocks) -> Looked {
        let mut looked = Looked::default();
        let at_us = clocks.boot_us;
        let Some(sweep) = self.sweep(clocks, &mut looked.findings) else { return looked };
        let owners = join::owners(&mut self.host, &sweep, at_us, &self.place.exempt, &self.owners);
        let mut sample = join::sample(&sweep, &owners, at_us);
        looked.findings.extend(sweep.failures.iter().chain(&owners.findings).cloned());
        if let Some(folder) = &self.place.job_mapping {
            match JobMapping::read(folder) {
                Ok(mapping) => looked.findings.extend(mapping::give(&mut sample, &sweep, &mapping)),
                Err(error) => looked.findings.push(format!("{}: {error}", folder.display())),
            }
        }
        let told = self.settings.as_ref().map(|settings| settings.cuts_us.as_slice());
        let from = self.last.map_or(at_us, |last| last.boot_us);
        let offset = self.wall_minus_boot_us;
        let cuts = cuts_between(from + offset, at_us + offset, told);
        let boot_cuts: Vec<i64> = cuts.iter().map(|cut| cut - offset).collect();
        let attributed = self.attributor.look(&sample, &boot_cuts);
        self.segments.take(&attributed.pieces, at_us, offset, &cuts);
        for (unit, gpu) in &attributed.born {
            self.units.insert(unit.clone(), (gpu.clone(), None));
        }
        for unit in &attributed.died {
            if let Some((_, death)) = self.units.get_mut(unit) {
                *death = Some(at_us);
            }
        }
        self.note_jobs(&owners, &attributed);
        self.owners = owners;
        self.last = Some(clocks);
        Looked { sweep: Some(sweep), sample, attributed, findings: looked.findings }
    }

    /// Remembers jobs as they were first seen: their start tells their attempts apart, and stays. Facts may come later.
    fn note_jobs(&mut self, owners: &Owners, attributed: &Attributed) {
        for (job, seen) in &owners.jobs {
            let known = self.jobs.entry(job.clone()).or_insert_with(|| seen.clone());
            if known.facts == Facts::default() {
                known.facts.clone_from(&seen.facts);
            }
        }
        for piece in &attributed.pieces {
            if let Some(job) = &piece.job {
                let first = || JobSeen { first_process_us: Some(piece.start_us), ..JobSeen::default() };
                self.jobs.entry(job.clone()).or_insert_with(first);
            }
        }
    }

    fn sweep(&mut self, clocks: Clocks, findings: &mut Vec<String>) -> Option<Sweep> {
        if self.driver.is_none() {
            match Driver::load(self.place.nvml_library.as_deref()) {
                Ok(driver) => self.driver = Some(driver),
                Err(error) => findings.push(format!("the driver cannot be loaded, and is tried again: {error}")),
            }
        }
        let wall = |clocks: Clocks| u64::try_from(clocks.wall_us).unwrap_or(0);
        let since = Since { after_us: self.last.map_or(0, wall), until_us: wall(clocks), pid_max: self.host.pid_max() };
        let sweep = self.driver.as_mut()?.look(since);
        if sweep.reload {
            self.driver = None;
        }
        Some(sweep)
    }

    /// The report of what is finished and not acknowledged, and of what is open.
    pub fn report(&mut self, boot_us: i64) -> Report {
        self.sequence += 1;
        let offset = self.wall_minus_boot_us;
        let open: Vec<&Named> = self.segments.open().collect();
        let room = SEGMENTS_MAX.saturating_sub(open.len());
        let finished: Vec<&Named> = self.segments.finished().take(room).collect();
        let mut told = Told {
            node: self,
            units: Vec::new(),
            unit_places: BTreeMap::new(),
            jobs: Vec::new(),
            job_places: BTreeMap::new(),
        };
        let segments = finished.into_iter().map(|named| told.segment(named)).collect();
        let head = open.into_iter().map(|named| told.segment(named)).collect();
        for (unit, (_, death)) in &self.units {
            if death.is_none() {
                told.unit(unit);
            }
        }
        Report {
            protocol: PROTOCOL,
            cluster: self.place.cluster.clone(),
            node: self.place.node.clone(),
            boot_id: self.boot_id.clone(),
            epoch: self.epoch,
            sequence: self.sequence,
            // The time by which segments are placed: where it is wrong, the service sees that.
            clocks: Clocks { wall_us: boot_us + offset, boot_us },
            collector: concat!("gpuledger-agent/", env!("CARGO_PKG_VERSION")).into(),
            units: told.units,
            jobs: told.jobs,
            segments,
            head,
        }
    }

    /// Takes the answer to a report: what it names needs not be sent again. The records that were not taken, for people to look
    /// at; what was quarantined is with the service.
    pub fn answered(&mut self, answer: &Answer) -> Vec<(RecordAnswer, Option<Named>)> {
        let mut refused = Vec::new();
        for record in &answer.records {
            let Some(name) = record.record else { continue };
            let named = self.segments.acknowledge(name);
            if matches!(record.outcome, Outcome::Conflict | Outcome::Rejected) {
                refused.push((record.clone(), named));
            }
        }
        self.settings = Some(answer.settings.clone());
        let needed: Vec<&UnitKey> =
            self.segments.finished().chain(self.segments.open()).map(|named| &named.unit).collect();
        let needed: std::collections::BTreeSet<UnitKey> = needed.into_iter().cloned().collect();
        self.units.retain(|unit, (_, death)| death.is_none() || needed.contains(unit));
        let held: std::collections::BTreeSet<JobId> =
            self.segments.finished().chain(self.segments.open()).filter_map(|named| named.job.clone()).collect();
        self.jobs.retain(|job, _| held.contains(job) || self.owners.jobs.contains_key(job));
        refused
    }

    /// Ends all that is open, as at the agent's end.
    pub fn end(&mut self) {
        self.segments.finish_all();
    }

    /// How many finished segments were not acknowledged.
    #[must_use]
    pub fn waiting(&self) -> usize {
        self.segments.finished().count()
    }
}

/// Units and jobs of a report, each once.
struct Told<'a> {
    node: &'a Node,
    units: Vec<Unit>,
    unit_places: BTreeMap<&'a UnitKey, u32>,
    jobs: Vec<Job>,
    job_places: BTreeMap<&'a str, u32>,
}

impl<'a> Told<'a> {
    fn segment(&mut self, named: &'a Named) -> Segment {
        let unit = self.unit(&named.unit);
        let job = named.job.as_deref().map(|job| self.job(job, named.segment.start_us));
        Segment { unit, job, ..named.segment.clone() }
    }

    fn unit(&mut self, key: &'a UnitKey) -> u32 {
        if let Some(place) = self.unit_places.get(key) {
            return *place;
        }
        let place = u32::try_from(self.units.len()).unwrap_or(u32::MAX);
        let offset = self.node.wall_minus_boot_us;
        let Some((gpu, death)) = self.node.units.get(key) else { return u32::MAX };
        let (kind, uuid, profile) = match &key.shape {
            UnitShape::Full => (UnitKind::Full, String::new(), String::new()),
            UnitShape::Slice { uuid, profile, .. } => (UnitKind::Slice, uuid.clone(), profile.clone()),
            UnitShape::Remainder { .. } => (UnitKind::Remainder, String::new(), String::new()),
        };
        let (compute_slices, memory_slices) = key.shape.slices(gpu);
        self.units.push(Unit {
            gpu: gpu.clone(),
            kind,
            uuid,
            profile,
            compute_slices,
            memory_slices,
            birth_us: key.birth_us + offset,
            death_us: death.map(|death| death + offset),
        });
        self.unit_places.insert(key, place);
        place
    }

    fn job(&mut self, id: &'a str, first_seen_us: i64) -> u32 {
        if let Some(place) = self.job_places.get(id) {
            return *place;
        }
        let place = u32::try_from(self.jobs.len()).unwrap_or(u32::MAX);
        let seen = self.node.jobs.get(id);
        let process_us = seen.and_then(|seen| seen.first_process_us).map(|start| start + self.node.wall_minus_boot_us);
        let start_us = seen.and_then(|seen| seen.start_us).or(process_us).unwrap_or(first_seen_us);
        let facts = seen.map(|seen| seen.facts.clone()).unwrap_or_default();
        self.jobs.push(Job { source_id: id.to_owned(), start_us, facts });
        self.job_places.insert(id, place);
        place
    }
}
