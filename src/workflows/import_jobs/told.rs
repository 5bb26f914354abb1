//! A line as it is to be decided about: what its attempt is called, when it held what, and the hash of all that.

use std::collections::HashMap;
use std::fmt::Write;
use std::sync::{Arc, OnceLock};

use foldhash::fast::RandomState;
use gpuledger_db::allocation::AttemptName;
use gpuledger_domain::ids::{ClusterName, FactSetId};
use gpuledger_domain::rules::JobFacts;
use gpuledger_domain::time::{HOUR_US, Instant, Interval};
use sha2::{Digest, Sha256};

use super::places::{Piece, Places};
use crate::error::AppError;
use crate::import::Ordinals;
use crate::import::job_record::{Grant, Held, JobIdentity, JobRecord, RefusedLine};
use crate::workflows::job_facts;

/// Most segments of one attempt: past it, a date is a slip.
const ATTEMPT_SEGMENTS_MAX: i64 = 2_000_000;
/// Most segments of one attempt that name their nodes.
const ATTEMPT_SEGMENTS_BY_NODE_MAX: i64 = 500_000;
/// Distinct sets of facts kept in memory.
const FACT_SETS_MAX: usize = 65_536;

/// Facts in their stored form.
#[derive(Debug)]
pub(super) struct FactSet {
    pub(super) body: String,
    pub(super) sha256: Vec<u8>,
    /// Their number, once this import has looked it up.
    pub(super) id: OnceLock<FactSetId>,
}

/// A line with the name of its attempt and the hash of its content.
#[derive(Debug)]
pub(super) struct Told {
    pub(super) line: u64,
    pub(super) cluster: ClusterName,
    pub(super) name: AttemptName,
    pub(super) listed_id: String,
    /// `None` where a restated job is to have held nothing.
    pub(super) interval: Option<Interval>,
    /// At least one.
    pub(super) pieces: Vec<Piece>,
    /// The facts of each piece.
    pub(super) facts: Vec<Arc<FactSet>>,
    /// The pieces as text.
    pub(super) placements: String,
    pub(super) suspended_us: i64,
    pub(super) submit: Option<Instant>,
    pub(super) end_state: String,
    /// Whether the attempt still ran, so that its end is only when the list was written.
    pub(super) provisional: bool,
    pub(super) sha256: Vec<u8>,
}

/// What is to be done with a line.
#[derive(Debug)]
pub(super) enum Prepared {
    Told(Box<Told>),
    /// It still runs, and nothing says until when.
    Running,
    NoGpuTime,
    Refused(RefusedLine),
}

/// Makes lines ready; knows nothing of the database.
#[derive(Debug)]
pub(super) struct Preparer<'a> {
    pub(super) places: Places<'a>,
    pub(super) restate: bool,
    /// When the list was written.
    pub(super) as_of: Option<Instant>,
    pub(super) now: Instant,
    pub(super) ordinals: Ordinals,
    fact_sets: HashMap<JobFacts, Arc<FactSet>, RandomState>,
}

impl<'a> Preparer<'a> {
    pub(super) fn new(places: Places<'a>, ordinals: Ordinals, now: Instant) -> Preparer<'a> {
        Preparer { places, restate: false, as_of: None, now, ordinals, fact_sets: HashMap::default() }
    }

    pub(super) fn prepare(&mut self, mut record: JobRecord) -> Result<Prepared, AppError> {
        let name = self.name(&record);
        let line = record.line;
        let refused = |reason| Ok(Prepared::Refused(RefusedLine { line, field: String::new(), reason }));
        let interval = match self.interval(&record) {
            Ok(Held::Ended(interval)) => Some(interval),
            // What held GPUs for no time may end what was told of it while it ran.
            Ok(Held::Never(Some(_)))
                if matches!(record.identity, JobIdentity::Id(_)) && (self.restate || !record.grants.is_empty()) =>
            {
                None
            }
            Ok(Held::Running { .. }) => return Ok(Prepared::Running),
            Ok(Held::Never(_)) => return Ok(Prepared::NoGpuTime),
            Err(reason) => return refused(reason),
        };
        if let Err(reason) = interval.map_or(Ok(()), |interval| keep_segments_few(&mut record, interval)) {
            return refused(reason);
        }
        // What held nothing was somewhere, too.
        let somewhen = Interval::new(name.start, name.start.plus_micros(1).unwrap_or(name.start));
        let Some(whole) = interval.or(somewhen) else { return Ok(Prepared::NoGpuTime) };
        let pieces = match self.places.pieces(&record, whole) {
            Ok(pieces) if pieces.is_empty() && interval.is_none() => self.nothing(&record, whole),
            pieces => pieces,
        };
        match pieces {
            Ok(pieces) if pieces.is_empty() => Ok(Prepared::NoGpuTime),
            Ok(pieces) => self.told(record, name, interval, pieces),
            Err(reason) => refused(reason),
        }
    }

    /// A piece without GPUs, for a job that is taken back by a line that names none.
    fn nothing(&self, record: &JobRecord, whole: Interval) -> Result<Vec<Piece>, String> {
        let sku = gpuledger_domain::ids::SkuCode::parse("none")?;
        let grants = vec![Grant { node: String::new(), sku, count: 0 }];
        self.places.pieces(&JobRecord { grants, ..record.clone() }, whole)
    }

    fn told(
        &mut self,
        record: JobRecord,
        name: AttemptName,
        interval: Option<Interval>,
        pieces: Vec<Piece>,
    ) -> Result<Prepared, AppError> {
        let placements = placements_text(&pieces);
        let mut facts = Vec::with_capacity(pieces.len());
        let mut wanted = record.facts;
        for piece in &pieces {
            if wanted.pool != piece.pool.as_str() {
                piece.pool.as_str().clone_into(&mut wanted.pool);
            }
            facts.push(self.fact_set(&wanted)?);
        }
        let provisional = matches!(record.held, Held::Running { .. });
        let mut told = Told {
            line: record.line,
            cluster: record.cluster,
            name,
            listed_id: record.listed_id,
            interval,
            pieces,
            facts,
            placements,
            suspended_us: record.suspended_us,
            submit: record.submit,
            end_state: record.end_state,
            provisional,
            sha256: Vec::new(),
        };
        told.sha256 = content_hash(&told);
        Ok(Prepared::Told(Box::new(told)))
    }

    fn fact_set(&mut self, facts: &JobFacts) -> Result<Arc<FactSet>, AppError> {
        if let Some(known) = self.fact_sets.get(facts) {
            return Ok(Arc::clone(known));
        }
        let (body, sha256) = job_facts::to_body(facts)?;
        let known = Arc::new(FactSet { body, sha256, id: OnceLock::new() });
        if self.fact_sets.len() >= FACT_SETS_MAX {
            self.fact_sets.clear();
        }
        self.fact_sets.insert(facts.clone(), Arc::clone(&known));
        Ok(known)
    }

    /// What the source calls the attempt. A row without an id is called by its content and its ordinal, whatever its
    /// start is taken to mean.
    fn name(&mut self, record: &JobRecord) -> AttemptName {
        match &record.identity {
            JobIdentity::Id(id) => {
                let start = match record.held {
                    Held::Ended(interval) => interval.start(),
                    Held::Running { start, .. } => start,
                    Held::Never(start) => start.unwrap_or(Instant::from_micros(0)),
                };
                AttemptName { source_id: id.clone(), start }
            }
            JobIdentity::Row(hash) => {
                let ordinal = self.ordinals.next(hash);
                let hex: String = hash.iter().map(|byte| format!("{byte:02x}")).collect();
                AttemptName { source_id: format!("row-{hex}-{ordinal}"), start: Instant::from_micros(0) }
            }
        }
    }

    /// When the attempt held its GPUs, as far as it may be charged.
    fn interval(&self, record: &JobRecord) -> Result<Held, String> {
        let interval = match record.held {
            Held::Ended(interval) => interval,
            Held::Running { start, until } => {
                let Some(until) = until.or(self.as_of) else { return Ok(record.held) };
                if matches!(record.identity, JobIdentity::Row(_)) {
                    return Err("it still runs and has no id, so that it would be another job once it ends; map an id, or import it when it has ended".into());
                }
                // Not begun when the list was written: nothing is told of it yet.
                let Some(interval) = Interval::new(start, until) else { return Ok(Held::Never(None)) };
                interval
            }
            Held::Never(start) => return Ok(Held::Never(start)),
        };
        if interval.end() > self.now {
            return Err(format!("it ends at {}, which is still to come; correct the line", interval.end()));
        }
        Ok(Held::Ended(interval))
    }
}

/// A job on so many nodes for so long that its segments would be too many is told without its nodes, which decides no
/// amount. One that is too long even so is a slip.
fn keep_segments_few(record: &mut JobRecord, interval: Interval) -> Result<(), String> {
    let hours = interval.length_us() / HOUR_US + 2;
    let segments = |record: &JobRecord| hours.saturating_mul(i64::try_from(record.grants.len()).unwrap_or(i64::MAX));
    if segments(record) > ATTEMPT_SEGMENTS_BY_NODE_MAX {
        let mut summed: Vec<Grant> = Vec::new();
        for grant in record.grants.drain(..) {
            match summed.iter_mut().find(|other| other.sku == grant.sku) {
                Some(other) => other.count = other.count.saturating_add(grant.count),
                None => summed.push(Grant { node: String::new(), ..grant }),
            }
        }
        record.grants = summed;
    }
    if segments(record) > ATTEMPT_SEGMENTS_MAX {
        return Err(format!("it lasts from {} to {}; correct the line", interval.start(), interval.end()));
    }
    Ok(())
}

/// `NODE=COUNT` by comma; behind a count, the SKU, `@` pool and `>` first instant where they are not those of the
/// first piece.
fn placements_text(pieces: &[Piece]) -> String {
    let mut text = String::with_capacity(pieces.len() * 12);
    let Some(first) = pieces.first() else { return text };
    for piece in pieces {
        if !text.is_empty() {
            text.push(',');
        }
        // Writing to a text never fails.
        let _ = write!(text, "{}={}", piece.node, piece.count);
        if piece.sku != first.sku {
            let _ = write!(text, " {}", piece.sku);
        }
        if piece.pool != first.pool {
            let _ = write!(text, " @{}", piece.pool);
        }
        if piece.interval.start() != first.interval.start() {
            let _ = write!(text, " >{}", piece.interval.start().micros());
        }
    }
    text
}

/// The SHA-256 of all that a line says of an attempt: the same content again changes nothing.
fn content_hash(told: &Told) -> Vec<u8> {
    let facts = told.facts.first().map_or("", |facts| facts.body.as_str());
    let sku = told.pieces.first().map_or("", |piece| piece.sku.as_str());
    let interval = told.interval.map(|interval| interval.to_string()).unwrap_or_default();
    let when = format!("{interval} {} {:?}", told.provisional, told.submit.map(Instant::micros));
    let mut hash = Sha256::new();
    let mut add = |part: &str| {
        hash.update(part.len().to_be_bytes());
        hash.update(part.as_bytes());
    };
    [facts, sku, &when, &told.end_state, &told.placements].into_iter().for_each(&mut add);
    if told.suspended_us > 0 {
        add(&told.suspended_us.to_string());
    }
    hash.finalize().to_vec()
}
