//! One node: looks at it through the probes, keeps what was seen as segments, and makes reports of them.
//!
//! It reads no clock: whoever calls it says what time it is. Where no driver answers, nothing is told of the GPUs, which is no claim
//! that they were idle.

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;

use gpuledger_host::Host;
use gpuledger_nvml::Sweep;
use gpuledger_wire::{
    Answer, Clocks, Epoch, Facts, Gpu, Job, PROTOCOL, RecordCode, RecordName, Report, SEGMENTS_MAX, Segment, Settings,
    Unit, UnitKind,
};

use crate::attribute::{Attributed, Attributor, Rules, UnitKey};
use crate::counts::Counts;
use crate::events::{in_words, name};
use crate::join::{self, JobSeen, Owners, Reading};
use crate::mapping;
use crate::probe::allocation::{DeviceListProbe, JobMappingProbe};
use crate::probe::host::HostProbe;
use crate::probe::nvml::NvmlProbe;
use crate::probe::{Moment, Probe, Sighting};
use crate::sample::{JobId, Sample, Seen, UNATTRIBUTED, UnitShape};
use crate::segments::{Named, Segments, cuts_between, name_of};
use crate::sharing::{Limit, Sharing, Weight};

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
    /// The root of the hierarchy `devices` of control groups of version 1, where Slurm keeps which job may use which GPU.
    pub cgroup_devices: Option<PathBuf>,
    /// Programs that hold nothing for anybody.
    pub exempt: Vec<String>,
    /// From how much memory on, in bytes, a unit without any process is taken to be used by somebody; `None` for never.
    pub stray_memory_bytes: Option<u64>,
    /// Limits of MPS, where a job's share is weighed by them. The first that names a job counts.
    pub limits: Vec<Limit>,
}

impl Place {
    /// A node of a cluster, with everything else as on most nodes.
    #[must_use]
    pub fn new(cluster: impl Into<String>, node: impl Into<String>) -> Place {
        Place {
            cluster: cluster.into(),
            node: node.into(),
            proc: "/proc".into(),
            nvml_library: None,
            job_mapping: None,
            cgroup_devices: None,
            exempt: Vec::new(),
            stray_memory_bytes: Some(STRAY_MEMORY_BYTES),
            limits: Vec::new(),
        }
    }

    /// The probes of such a node, in the order in which they look.
    fn probes(&self) -> Vec<Box<dyn Probe>> {
        let mut probes: Vec<Box<dyn Probe>> = vec![
            Box::new(NvmlProbe::new(self.nvml_library.clone(), &self.proc)),
            Box::new(HostProbe::new(Host::new(&self.proc), self.exempt.clone())),
        ];
        if let Some(root) = &self.cgroup_devices {
            probes.push(Box::new(DeviceListProbe::new(root.clone())));
        }
        if let Some(folder) = &self.job_mapping {
            probes.push(Box::new(JobMappingProbe::new(folder.clone())));
        }
        probes
    }
}

/// More memory than a driver keeps on a GPU that nobody uses.
const STRAY_MEMORY_BYTES: u64 = 1 << 30;

/// A node, as the agent knows it.
#[derive(Debug)]
pub struct Node {
    place: Place,
    boot_id: String,
    epoch: Epoch,
    wall_minus_boot_us: i64,
    sequence: u64,
    probes: Vec<Box<dyn Probe>>,
    rules: Rules,
    attributor: Attributor,
    counts: Counts,
    unattributed: BTreeMap<(String, UnitShape), u32>,
    segments: Segments,
    units: BTreeMap<UnitKey, (Gpu, Option<i64>)>,
    jobs: BTreeMap<JobId, JobSeen>,
    owners: Owners,
    last: Option<Clocks>,
    settings: Option<Settings>,
    /// Whether the service last said that the node's clock is off.
    clock_is_off: bool,
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

/// At how many looks in a row somebody unknown uses a unit before it is told.
const LOOKS_TO_ALARM: u32 = 2;

/// Bits of an epoch's random part.
const RANDOM_BITS: u32 = 20;
/// From how much on the wall clock was set rather than made to run faster, besides a thousandth of the time between: NTP slews by
/// half of that.
const STEP_US: i64 = 500_000;
/// By how much the clock of now must differ from that of the start to be worth a new start: a minute.
const MISPLACED_US: i64 = 60_000_000;

fn epoch(clocks: Clocks, random: u32) -> Epoch {
    Epoch { start_us: clocks.wall_us, random: random & ((1 << RANDOM_BITS) - 1) }
}

/// By how much the wall clock is above the boot-time clock.
const fn difference(clocks: Clocks) -> i64 {
    clocks.wall_us - clocks.boot_us
}

/// That the wall clock was set between two looks, in words.
fn step(before: Clocks, now: Clocks) -> Option<String> {
    let by = difference(now) - difference(before);
    let passed = now.boot_us - before.boot_us;
    (by.abs() > STEP_US + passed / 1_000).then(|| {
        let sign = if by < 0 { "back" } else { "forward" };
        format!("the wall clock was set {sign} by {} ms; lengths of time do not depend on it", by.abs() / 1_000)
    })
}

impl Node {
    /// Begins to watch a node. `clocks` are those of now, `random` is drawn; together they name this start.
    ///
    /// # Errors
    /// Where the boot's id cannot be read.
    pub fn begin(place: Place, rules: Rules, clocks: Clocks, random: u32) -> std::io::Result<Node> {
        let probes = place.probes();
        Node::with_probes(place, rules, clocks, random, probes)
    }

    /// The same, with these probes in this order.
    ///
    /// # Errors
    /// Where the boot's id cannot be read.
    pub fn with_probes(
        place: Place,
        rules: Rules,
        clocks: Clocks,
        random: u32,
        probes: Vec<Box<dyn Probe>>,
    ) -> std::io::Result<Node> {
        Ok(Node {
            boot_id: Host::new(&place.proc).boot_id()?,
            epoch: epoch(clocks, random),
            wall_minus_boot_us: difference(clocks),
            sequence: 0,
            probes,
            attributor: Attributor::new(rules.clone()),
            rules,
            counts: Counts::default(),
            unattributed: BTreeMap::new(),
            segments: Segments::default(),
            units: BTreeMap::new(),
            jobs: BTreeMap::new(),
            owners: Owners::default(),
            last: None,
            settings: None,
            clock_is_off: false,
            place,
        })
    }

    /// Looks at the node.
    pub fn look(&mut self, clocks: Clocks) -> Looked {
        let at_us = clocks.boot_us;
        let Sighting { sweep, owners, given, mut findings } = self.sight(clocks);
        let Some(sweep) = sweep else { return Looked { findings, ..Looked::default() } };
        let reading = Reading {
            at_us,
            wall_minus_boot_us: clocks.wall_us - at_us,
            stray_memory_bytes: self.place.stray_memory_bytes,
        };
        let mut sample = join::sample(&sweep, &owners, reading);
        findings.extend(mapping::give(&mut sample, &sweep, &given));
        findings.extend(self.nobodys(&sample));
        if let Some(step) = self.last.and_then(|last| step(last, clocks)) {
            self.counts.clock_steps += 1;
            findings.push(step);
        }
        self.note_limits(&owners);
        let told = self.settings.as_ref().map(|settings| settings.cuts_us.as_slice());
        // A GPU that was not read at the last look is told of since the one before.
        let from = self.attributor.tells_from_us(&sample).unwrap_or(at_us);
        let offset = self.wall_minus_boot_us;
        let cuts = cuts_between(from + offset, at_us + offset, told);
        let boot_cuts: Vec<i64> = cuts.iter().map(|cut| cut - offset).collect();
        let attributed = self.attributor.look(&sample, &boot_cuts);
        self.segments.take(&attributed.pieces, at_us, offset, &cuts);
        self.segments.forget_hours_before(self.attributor.may_tell_from_us().unwrap_or(at_us).min(at_us) + offset);
        for (unit, gpu) in &attributed.born {
            self.units.insert(unit.clone(), (gpu.clone(), None));
        }
        for unit in &attributed.died {
            if let Some((_, death)) = self.units.get_mut(unit) {
                *death = Some(at_us);
            }
        }
        self.note_jobs(&owners, &attributed);
        self.counts.note(&sweep, &sample, &attributed);
        findings.extend(sweep.events.iter().map(|event| in_words(event, &sample)));
        self.owners = owners;
        self.last = Some(clocks);
        Looked { sweep: Some(sweep), sample, attributed, findings }
    }

    /// What the probes see now.
    fn sight(&mut self, now: Clocks) -> Sighting {
        let moment = Moment { now, before: self.last };
        let mut sighting = Sighting::default();
        for probe in &mut self.probes {
            if let Err(why) = probe.look(&moment, &mut sighting) {
                sighting.findings.push(why);
                self.counts.probe_failed(probe.name(), 1);
            }
        }
        if let Some(sweep) = &sighting.sweep {
            self.counts.probe_failed("nvml", u64::try_from(sweep.failures.len()).unwrap_or(u64::MAX));
        }
        sighting
    }

    /// Units that nobody who is known uses, at this look and the one before: an alarm, one line each.
    fn nobodys(&mut self, sample: &Sample) -> Vec<String> {
        let mut now = BTreeMap::new();
        let mut alarms = Vec::new();
        for (uuid, gpu) in &sample.gpus {
            let Seen::Units(layout) = &gpu.seen else { continue };
            for unit in layout.units.iter().filter(|unit| unit.users.contains_key(UNATTRIBUTED)) {
                let key = (uuid.clone(), unit.shape.clone());
                let looks = self.unattributed.get(&key).copied().unwrap_or(0).saturating_add(1);
                if looks >= LOOKS_TO_ALARM {
                    alarms.push(format!(
                        "{} is used, and nobody knows by whom: its time goes to the job `{UNATTRIBUTED}`",
                        name(uuid, &unit.shape)
                    ));
                }
                now.insert(key, looks);
            }
        }
        self.unattributed = now;
        alarms
    }

    /// How much of a GPU each job that is known was promised, where that decides.
    fn note_limits(&mut self, owners: &Owners) {
        if self.place.limits.is_empty() {
            return;
        }
        let known = owners.jobs.iter().chain(&self.jobs).map(|(job, seen)| (job, &seen.facts));
        let limits = known.filter_map(|(job, facts)| {
            let limit = self.place.limits.iter().find(|limit| limit.names(job, facts))?;
            Some((job.clone(), limit.percent))
        });
        let sharing = Sharing { weight: Weight::Limit(limits.collect()), ..self.rules.sharing.clone() };
        self.attributor.set_rules(Rules { sharing, ..self.rules.clone() });
    }

    /// What was counted since the start.
    #[must_use]
    pub const fn counts(&self) -> &Counts {
        &self.counts
    }

    /// The node's name in its cluster.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.place.node
    }

    /// Which boot of the node this is.
    #[must_use]
    pub fn boot_id(&self) -> &str {
        &self.boot_id
    }

    /// Remembers jobs as they were first seen: their start tells their attempts apart, and stays. Facts may come later.
    fn note_jobs(&mut self, owners: &Owners, attributed: &Attributed) {
        for (job, seen) in &owners.jobs {
            match self.jobs.get_mut(job) {
                None => {
                    self.jobs.insert(job.clone(), seen.clone());
                }
                Some(known) if known.facts == Facts::default() => known.facts.clone_from(&seen.facts),
                Some(_) => {}
            }
        }
        for piece in &attributed.pieces {
            if let Some(job) = piece.job.as_ref().filter(|job| !self.jobs.contains_key(*job)) {
                let first = JobSeen { first_process_us: Some(piece.start_us), ..JobSeen::default() };
                self.jobs.insert(job.clone(), first);
            }
        }
    }

    /// The report of what is finished and was not forgotten, and of what is open.
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

    /// Takes the answer to a report: what it names needs not be sent again, and its settings are in force.
    pub fn answered(&mut self, answer: &Answer) {
        if let Some(head) = &answer.head {
            self.clock_is_off = head.code == Some(RecordCode::ClockOff);
        }
        self.settings = Some(answer.settings.clone());
        self.forget(answer.records.iter().filter_map(|record| record.record));
    }

    /// Forgets the finished segments of a report that is kept elsewhere.
    pub fn kept(&mut self, report: &Report) {
        self.forget(report.segments.iter().map(name_of));
    }

    /// Forgets finished segments, with the units and jobs that nothing else names.
    fn forget(&mut self, names: impl IntoIterator<Item = RecordName>) {
        for name in names {
            self.segments.acknowledge(name);
        }
        let needed: Vec<&UnitKey> =
            self.segments.finished().chain(self.segments.open()).map(|named| &named.unit).collect();
        let needed: BTreeSet<UnitKey> = needed.into_iter().cloned().collect();
        self.units.retain(|unit, (_, death)| death.is_none() || needed.contains(unit));
        let held: BTreeSet<JobId> =
            self.segments.finished().chain(self.segments.open()).filter_map(|named| named.job.clone()).collect();
        self.jobs.retain(|job, _| held.contains(job) || self.owners.jobs.contains_key(job));
    }

    /// Whether the service last said that the clock of the start is off.
    #[must_use]
    pub const fn clock_is_off(&self) -> bool {
        self.clock_is_off
    }

    /// Whether what is placed in time by the clock of the start should be placed by that of now: the service says that the former is
    /// off, and the latter says otherwise.
    #[must_use]
    pub const fn is_misplaced(&self, clocks: Clocks) -> bool {
        self.clock_is_off && (difference(clocks) - self.wall_minus_boot_us).abs() > MISPLACED_US
    }

    /// Goes on as if it began now, by the clock of now. What was told before must have been kept elsewhere; the service moves it once it
    /// knows the right time of this boot.
    pub fn begin_anew(&mut self, clocks: Clocks, random: u32) {
        (self.epoch, self.wall_minus_boot_us) = (epoch(clocks, random), difference(clocks));
        (self.sequence, self.segments, self.clock_is_off) = (0, Segments::default(), false);
    }

    /// Ends all that is open, as at the agent's end.
    pub fn end(&mut self) {
        self.segments.finish_all();
    }

    /// How many finished segments are in memory.
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
