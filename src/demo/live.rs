//! A scripted node for the demonstration: what it reports is invented, the way that it goes is the real one.
//!
//! It has two GPUs. One is used whole, by one job after the other; the other is cut anew each minute, with jobs on its slices. All of
//! it follows from when it began and what time it is, three minutes again and again, so that nothing has to be remembered but
//! how far it was told.

use std::collections::BTreeMap;
use std::time::Duration;

use gpuledger_domain::time::Instant;
use gpuledger_wire::{
    Answer, Clocks, Epoch, Facts, Gpu, Job, PROTOCOL, Report, Segment, State, Telemetry, Unit, UnitKind,
};

use crate::error::AppError;

/// The cluster of the scripted node, which no real one is called.
pub const CLUSTER: &str = "live-demo";
/// The scripted node.
pub const NODE: &str = "scripted-node";
/// How often it reports.
const EVERY: Duration = Duration::from_secs(2);

const SECOND_US: i64 = 1_000_000;
const HOUR_US: i64 = 3_600 * SECOND_US;
const QUARTER_US: i64 = HOUR_US / 4;
/// After so many seconds the script begins anew.
const ROUND_SECONDS: i64 = 180;
/// Each unit of the script has a place below this, so that second and place number a segment within its hour.
const PLACES: i64 = 16;
const MODEL: &str = "NVIDIA H100 80GB HBM3";

/// A unit of the script: its place, GPU, profile, compute and memory slices, and seconds of the round from when to when it exists.
struct ScriptedUnit {
    place: i64,
    gpu: &'static str,
    profile: &'static str,
    slices: (u32, u32),
    life: (i64, i64),
    /// Who holds it: seconds of the round, the job's name and the account that pays; idle between.
    jobs: &'static [(i64, i64, &'static str, &'static str)],
}

const WHOLE: &str = "GPU-demo-whole";
const CUT: &str = "GPU-demo-cut";
const FULL: &str = "full";
/// The whole of a GPU while it is being cut.
const NONE: &str = "";

const UNITS: [ScriptedUnit; 13] = [
    ScriptedUnit {
        place: 0,
        gpu: WHOLE,
        profile: FULL,
        slices: (7, 8),
        life: (0, ROUND_SECONDS),
        jobs: &[(0, 75, "train", "0e4a51"), (95, 180, "tune", "6214e9")],
    },
    being_cut(1, 0),
    slice(2, "4g.40gb", (4, 4), (4, 60), &[(4, 60, "serve", "ee9e8c")]),
    slice(3, "3g.40gb", (3, 4), (4, 60), &[(14, 60, "evaluate", "103959")]),
    being_cut(4, 60),
    slice(5, "2g.20gb", (2, 2), (64, 120), &[(64, 110, "notebook-a", "11cb48")]),
    slice(6, "2g.20gb", (2, 2), (64, 120), &[(70, 120, "notebook-b", "795a4c")]),
    slice(7, "2g.20gb", (2, 2), (64, 120), &[]),
    ScriptedUnit { place: 8, gpu: CUT, profile: NONE, slices: (1, 2), life: (64, 120), jobs: &[] },
    being_cut(9, 120),
    slice(10, "3g.40gb", (3, 4), (124, 180), &[(124, 180, "sweep", "0e4a51")]),
    slice(11, "2g.20gb", (2, 2), (124, 180), &[(130, 170, "test", "ed69ec")]),
    slice(12, "2g.20gb", (2, 2), (124, 180), &[(140, 180, "serve-small", "ee9e8c")]),
];

const fn slice(
    place: i64,
    profile: &'static str,
    slices: (u32, u32),
    life: (i64, i64),
    jobs: &'static [(i64, i64, &'static str, &'static str)],
) -> ScriptedUnit {
    ScriptedUnit { place, gpu: CUT, profile, slices, life, jobs }
}

const fn being_cut(place: i64, from: i64) -> ScriptedUnit {
    ScriptedUnit { place, gpu: CUT, profile: NONE, slices: (7, 8), life: (from, from + 4), jobs: &[] }
}

/// A piece of a unit's time.
struct Piece {
    unit: Unit,
    place: i64,
    job: Option<Job>,
    state: State,
    start_us: i64,
    end_us: i64,
}

/// The scripted node, as far as it was told.
#[derive(Debug)]
pub struct LiveNode {
    began_us: i64,
    told_us: i64,
    sequence: u64,
    cuts_us: Vec<i64>,
}

impl LiveNode {
    /// Begins at the whole second before an instant.
    #[must_use]
    pub fn new(now: Instant) -> LiveNode {
        let began_us = now.micros() - now.micros().rem_euclid(SECOND_US);
        LiveNode { began_us, told_us: began_us, sequence: 0, cuts_us: Vec::new() }
    }

    /// What it tells at an instant: segments that ended since it was last told, and those that are open.
    #[must_use]
    pub fn report(&mut self, now: Instant) -> Report {
        let now_us = now.micros();
        self.sequence += 1;
        let mut report = Report {
            protocol: PROTOCOL,
            cluster: CLUSTER.into(),
            node: NODE.into(),
            boot_id: format!("script-{}", self.began_us),
            epoch: Epoch { start_us: self.began_us, random: 1 },
            sequence: self.sequence,
            clocks: Clocks { wall_us: now_us, boot_us: now_us - self.began_us },
            collector: concat!("gpuledger-demo-script/", env!("CARGO_PKG_VERSION")).into(),
            units: Vec::new(),
            jobs: Vec::new(),
            segments: Vec::new(),
            head: Vec::new(),
        };
        let (mut units, mut jobs) = (BTreeMap::new(), BTreeMap::new());
        for piece in self.pieces(now_us) {
            let unit = place_of(&mut report.units, &mut units, (piece.place, piece.unit.birth_us), piece.unit);
            let job = piece.job.map(|job| {
                let name = job.source_id.clone();
                place_of(&mut report.jobs, &mut jobs, name, job)
            });
            let end_us = piece.end_us.min(now_us);
            let share_us = end_us - piece.start_us;
            let second = piece.start_us.rem_euclid(HOUR_US) / SECOND_US;
            let segment = Segment {
                number: u32::try_from(second * PLACES + piece.place).unwrap_or(u32::MAX),
                unit,
                job,
                state: piece.state,
                start_us: piece.start_us,
                end_us,
                share_us,
                active_us: job.map(|_| share_us),
                estimated_us: 0,
                suspended_us: 0,
                telemetry: Telemetry::default(),
            };
            if piece.end_us <= now_us { report.segments.push(segment) } else { report.head.push(segment) }
        }
        report
    }

    /// Takes the answer to what it told at an instant.
    pub fn answered(&mut self, now: Instant, answer: &Answer) {
        self.told_us = now.micros();
        self.cuts_us.clone_from(&answer.settings.cuts_us);
    }

    /// Pieces of time that ended after it was last told, or are there at an instant.
    fn pieces(&self, now_us: i64) -> Vec<Piece> {
        let round_us = ROUND_SECONDS * SECOND_US;
        let first = (self.told_us - self.began_us).div_euclid(round_us);
        let last = (now_us - self.began_us).div_euclid(round_us);
        let mut pieces = Vec::new();
        for round in first..=last {
            for unit in &UNITS {
                for piece in self.spans(unit, round, now_us) {
                    let is_new = piece.end_us > self.told_us || self.told_us == self.began_us;
                    if is_new && piece.start_us < now_us {
                        pieces.push(piece);
                    }
                }
            }
        }
        pieces
    }

    /// A unit's round, by who holds it, cut where segments must end.
    fn spans(&self, scripted: &ScriptedUnit, round: i64, now_us: i64) -> Vec<Piece> {
        let base = self.began_us + round * ROUND_SECONDS * SECOND_US;
        let at = |second: i64| base + second * SECOND_US;
        let (birth, death) = (at(scripted.life.0), at(scripted.life.1));
        let kind = match scripted.profile {
            FULL => UnitKind::Full,
            NONE => UnitKind::Remainder,
            _ => UnitKind::Slice,
        };
        let is_slice = kind == UnitKind::Slice;
        let unit = Unit {
            gpu: Gpu { uuid: scripted.gpu.into(), model: MODEL.into(), compute_slices: 7, memory_slices: 8 },
            kind,
            uuid: if is_slice { format!("MIG-demo-{}", scripted.place) } else { String::new() },
            profile: if is_slice { scripted.profile.into() } else { String::new() },
            compute_slices: scripted.slices.0,
            memory_slices: scripted.slices.1,
            birth_us: if kind == UnitKind::Full { self.began_us } else { birth },
            death_us: (kind != UnitKind::Full && death <= now_us).then_some(death),
        };
        let mut edges = vec![birth, death];
        edges.extend(scripted.jobs.iter().flat_map(|(from, until, ..)| [at(*from), at(*until)]));
        edges.extend(self.cuts_us.iter().copied());
        let mut quarter = birth - birth.rem_euclid(QUARTER_US) + QUARTER_US;
        while quarter < death {
            edges.push(quarter);
            quarter += QUARTER_US;
        }
        edges.retain(|edge| (birth..=death).contains(edge));
        edges.sort_unstable();
        edges.dedup();
        let holder = |start_us: i64| {
            let here = scripted.jobs.iter().find(|(from, until, ..)| (at(*from)..at(*until)).contains(&start_us));
            here.map(|(from, _, name, account)| Job {
                source_id: format!("{name}-{round}"),
                start_us: at(*from),
                facts: Facts { account: (*account).into(), name: (*name).into(), ..Facts::default() },
            })
        };
        let piece = |pair: &[i64]| {
            let &[start_us, end_us] = pair else { return None };
            let job = holder(start_us);
            // What is in no slice for four seconds is being cut; what is there longer has room for another slice.
            let is_cut = kind == UnitKind::Remainder && scripted.slices == (7, 8);
            let state = match (&job, is_cut) {
                (Some(_), _) => State::Held,
                (None, true) => State::OutOfService,
                (None, false) => State::Idle,
            };
            Some(Piece { unit: unit.clone(), place: scripted.place, job, state, start_us, end_us })
        };
        edges.windows(2).filter_map(piece).collect()
    }
}

/// The place of something in a list, where it is put once.
fn place_of<K: Ord, T>(list: &mut Vec<T>, places: &mut BTreeMap<K, u32>, key: K, thing: T) -> u32 {
    *places.entry(key).or_insert_with(|| {
        list.push(thing);
        u32::try_from(list.len() - 1).unwrap_or(u32::MAX)
    })
}

/// Reports to a service until the program ends; `say` tells a person when it begins to fail.
///
/// # Errors
/// Where no thread can be started.
pub fn run(
    url: String,
    token: String,
    clock: impl Fn() -> Instant + Send + 'static,
    say: impl Fn(&str) + Send + 'static,
) -> Result<(), AppError> {
    let client: ureq::Agent =
        ureq::Agent::config_builder().timeout_global(Some(Duration::from_secs(10))).build().into();
    let thread = std::thread::Builder::new().name("scripted-node".into());
    let reports = move || {
        let mut node = LiveNode::new(clock());
        let mut failed = false;
        loop {
            std::thread::sleep(EVERY);
            let now = clock();
            match send(&client, &url, &token, &node.report(now)) {
                Ok(answer) => {
                    node.answered(now, &answer);
                    failed = false;
                }
                Err(why) => {
                    if !failed {
                        say(&format!("the scripted node could not report, and tries again: {why}"));
                    }
                    failed = true;
                }
            }
        }
    };
    thread.spawn(reports).map_err(|error| AppError::file("thread", error))?;
    Ok(())
}

fn send(client: &ureq::Agent, url: &str, token: &str, report: &Report) -> Result<Answer, String> {
    let body = serde_json::to_vec(report).map_err(|error| error.to_string())?;
    let sent = client
        .post(url)
        .header("Authorization", format!("Bearer {token}"))
        .header("Content-Type", "application/json")
        .send(body.as_slice());
    let mut response = sent.map_err(|error| error.to_string())?;
    let text = response.body_mut().read_to_string().map_err(|error| error.to_string())?;
    serde_json::from_str(&text).map_err(|error| error.to_string())
}
