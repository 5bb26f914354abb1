//! Reports of collectors: unpacked within limits, read, and checked record by record.
//!
//! What is wrong with the report as a whole is a [`Refusal`], and nothing of it is used. What is wrong with one record
//! is told of that record, and the others go on.

use std::io::Read;

use gpuledger_domain::ids::{ClusterName, SkuCode, checked_fact};
use gpuledger_domain::metering::{Activity, Measured, Measurements, REMAINDER, State};
use gpuledger_domain::pricing::{Sku, SkuSlices};
use gpuledger_domain::rules::JobFacts;
use gpuledger_domain::time::{Instant, Interval};
use gpuledger_domain::units::Ratio;
use gpuledger_wire as wire;
use gpuledger_wire::{RecordCode, RecordName, Refusal, RefusalCode};

/// Most labels of a job; the first by key stay.
const LABELS_MAX: usize = 32;
/// Most bytes of a label's key.
const LABEL_KEY_BYTES_MAX: usize = 64;
/// Longest window of a zstd frame, as a power of two: what it takes of memory to unpack one.
const ZSTD_WINDOW_LOG_MAX: u32 = 25;
/// Bits of an epoch's random part.
const EPOCH_RANDOM_BITS: u32 = 20;

/// A report that can be used.
#[derive(Clone, Debug)]
pub struct NodeReport {
    /// The cluster.
    pub cluster: ClusterName,
    /// The node.
    pub node: String,
    /// Which start of the collector, as one number: later starts are higher.
    pub epoch: i64,
    /// Which report of the epoch.
    pub sequence: i64,
    /// The node's wall clock when the report was made.
    pub wall: Instant,
    /// The units.
    pub units: Vec<ReportedUnit>,
    /// The jobs.
    pub jobs: Vec<ReportedJob>,
    /// Finished segments.
    pub segments: Vec<Record>,
    /// Open segments.
    pub head: Vec<Record>,
    /// The report as it came, but for texts that were cut.
    pub told: wire::Report,
    /// When it came, where that is not when it is stored.
    pub received_at: Option<Instant>,
    /// How many bytes it has unpacked; 0 where it was stored before.
    pub bytes: usize,
}

/// A unit of a report.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct ReportedUnit {
    /// The UUID of its GPU.
    pub gpu_uuid: String,
    /// The model of its GPU.
    pub gpu_model: String,
    /// Its place in the GPU, as [`gpuledger_domain::metering::KnownUnit::place`] says.
    pub place: String,
    /// What it is to be priced as.
    pub sku: Sku,
    /// When it was made or first seen.
    pub birth: Instant,
    /// When it ended, if it did.
    pub death: Option<Instant>,
}

/// A job of a report.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ReportedJob {
    /// What its source calls it.
    pub source_id: String,
    /// When the attempt began.
    pub start: Instant,
    /// Its facts; the pool is not among them, since a node may change it.
    pub facts: JobFacts,
}

/// One segment of a report.
#[derive(Clone, Debug)]
pub struct Record {
    /// What the answer calls it.
    pub name: RecordName,
    /// What it says, or why it cannot be used.
    pub content: Result<RecordContent, (RecordCode, String)>,
}

/// What a segment of a report says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RecordContent {
    /// The unit: its place in [`NodeReport::units`].
    pub unit: usize,
    /// The job: its place in [`NodeReport::jobs`].
    pub job: Option<usize>,
    /// What the unit was doing.
    pub state: State,
    /// When, within one UTC hour.
    pub interval: Interval,
    /// Wall time × share.
    pub share_us: i64,
    /// Of it, with a process of the job on the unit.
    pub active_us: Option<i64>,
    /// Of it, inferred over a gap.
    pub estimated_us: i64,
    /// Of it, while the job was suspended.
    pub suspended_us: i64,
    /// What was measured.
    pub measurements: Measurements,
}

/// Reads a report that was taken before, as it was stored.
///
/// # Errors
/// Why it cannot be used; it could be once.
pub fn read_stored(body: &str) -> Result<NodeReport, Refusal> {
    let report: wire::Report = serde_json::from_str(body)
        .map_err(|error| refusal(RefusalCode::BadReport, format!("what is stored is no report: {error}")))?;
    checked(report)
}

/// Reads the body of a report, packed as the header `Content-Encoding` says.
///
/// # Errors
/// Why the whole report cannot be used.
pub fn read_report(body: &[u8], encoding: &str) -> Result<NodeReport, Refusal> {
    let unpacked = unpacked(body, encoding)?;
    let report: wire::Report = serde_json::from_slice(&unpacked).map_err(|error| {
        let code = if error.is_eof() { RefusalCode::Truncated } else { RefusalCode::BadReport };
        refusal(code, format!("the body is no report: {error}"))
    })?;
    Ok(NodeReport { bytes: unpacked.len(), ..checked(report)? })
}

fn refusal(code: RefusalCode, message: impl Into<String>) -> Refusal {
    Refusal { code, message: message.into() }
}

fn unpacked(body: &[u8], encoding: &str) -> Result<Vec<u8>, Refusal> {
    if body.len() > wire::PACKED_BYTES_MAX {
        let message = format!("the body has {} bytes; at most {} are taken", body.len(), wire::PACKED_BYTES_MAX);
        return Err(refusal(RefusalCode::TooLarge, message));
    }
    let damaged = |error: std::io::Error| {
        refusal(RefusalCode::Truncated, format!("the body cannot be unpacked to its end: {error}"))
    };
    let stream: Box<dyn Read + '_> = match encoding {
        "" | "identity" => return Ok(body.to_vec()),
        "gzip" => Box::new(flate2::read::MultiGzDecoder::new(body)),
        "zstd" => {
            let mut decoder = zstd::stream::read::Decoder::with_buffer(body).map_err(damaged)?;
            decoder.window_log_max(ZSTD_WINDOW_LOG_MAX).map_err(damaged)?;
            Box::new(decoder)
        }
        other => {
            let message = format!("the body is packed as {other:?}; send it plain, or packed by gzip or zstd");
            return Err(refusal(RefusalCode::BadEncoding, message));
        }
    };
    let most = u64::try_from(wire::BODY_BYTES_MAX).unwrap_or(u64::MAX);
    let mut unpacked = Vec::new();
    stream.take(most + 1).read_to_end(&mut unpacked).map_err(damaged)?;
    if unpacked.len() > wire::BODY_BYTES_MAX {
        let message = format!("the body has more than {} bytes when it is unpacked", wire::BODY_BYTES_MAX);
        return Err(refusal(RefusalCode::TooLarge, message));
    }
    Ok(unpacked)
}

fn checked(mut report: wire::Report) -> Result<NodeReport, Refusal> {
    if report.protocol != wire::PROTOCOL {
        let message = format!("the report speaks version {}; this service speaks {}", report.protocol, wire::PROTOCOL);
        return Err(refusal(RefusalCode::BadProtocol, message));
    }
    let counts = [
        ("units", report.units.len(), wire::UNITS_MAX),
        ("jobs", report.jobs.len(), wire::JOBS_MAX),
        ("segments", report.segments.len() + report.head.len(), wire::SEGMENTS_MAX),
    ];
    for (what, count, most) in counts {
        if count > most {
            let message = format!("the report has more than {most} {what}; send several reports");
            return Err(refusal(RefusalCode::TooMany, message));
        }
    }
    mend(&mut report);
    let bad = |field: &str, reason: String| refusal(RefusalCode::BadValue, format!("{field}: {reason}"));
    let cluster = ClusterName::parse(&report.cluster).map_err(|reason| bad("cluster", reason))?;
    let node = name(&report.node).map_err(|reason| bad("node", reason))?.to_owned();
    if node.starts_with("pool:") {
        return Err(bad("node", format!("{node:?} begins as what stands for a pool does")));
    }
    name(&report.boot_id).map_err(|reason| bad("boot_id", reason))?;
    let epoch = epoch(report.epoch)
        .ok_or_else(|| bad("epoch", "start_us must be the time of its start, and random below 1,048,576".into()))?;
    let sequence =
        i64::try_from(report.sequence).map_err(|_| bad("sequence", "it is above what can be counted".into()))?;
    let wall = instant(report.clocks.wall_us).ok_or_else(|| bad("clocks.wall_us", "no such instant".into()))?;
    let units = report.units.iter().enumerate();
    let units: Vec<ReportedUnit> = units
        .map(|(index, unit)| checked_unit(unit).map_err(|reason| bad(&format!("units[{index}]"), reason)))
        .collect::<Result<_, _>>()?;
    let jobs = report.jobs.iter().enumerate();
    let jobs: Vec<ReportedJob> = jobs
        .map(|(index, job)| checked_job(job, &cluster).map_err(|reason| bad(&format!("jobs[{index}]"), reason)))
        .collect::<Result<_, _>>()?;
    let record = |segment: &wire::Segment| Record {
        name: RecordName {
            hour_us: instant(segment.start_us).map_or(segment.start_us, |start| start.hour().start().micros()),
            number: segment.number,
        },
        content: content(segment, &units, jobs.len(), wall),
    };
    let (segments, head) = (report.segments.iter().map(record).collect(), report.head.iter().map(record).collect());
    let received_at = None;
    Ok(NodeReport {
        cluster,
        node,
        epoch,
        sequence,
        wall,
        units,
        jobs,
        segments,
        head,
        told: report,
        received_at,
        bytes: 0,
    })
}

/// Cuts what people choose, so that whatever is kept of the report is small.
fn mend(report: &mut wire::Report) {
    report.collector = fact(&report.collector, wire::TEXT_BYTES_MAX);
    for unit in &mut report.units {
        if unit.kind != wire::UnitKind::Slice {
            (unit.uuid, unit.profile) = (String::new(), String::new());
        }
    }
    for job in &mut report.jobs {
        let facts = &mut job.facts;
        for text in [
            &mut facts.user,
            &mut facts.account,
            &mut facts.partition,
            &mut facts.qos,
            &mut facts.namespace,
            &mut facts.name,
        ] {
            *text = fact(text, wire::TEXT_BYTES_MAX);
        }
        let labels = std::mem::take(&mut facts.labels).into_iter().filter(|(key, _)| !key.is_empty()).take(LABELS_MAX);
        facts.labels =
            labels.map(|(key, value)| (fact(&key, LABEL_KEY_BYTES_MAX), fact(&value, wire::TEXT_BYTES_MAX))).collect();
    }
}

/// A name of something: not empty, no control characters, not too long.
fn name(text: &str) -> Result<&str, String> {
    if text.is_empty() { Err("it is empty".to_owned()) } else { checked_fact(text) }
}

/// Between the year 1970 and the last one that is taken.
fn instant(micros: i64) -> Option<Instant> {
    (0..=Instant::MAX.micros()).contains(&micros).then(|| Instant::from_micros(micros))
}

/// Milliseconds of the start, then the random bits: ordered by start, and positive until the year 2248.
fn epoch(epoch: wire::Epoch) -> Option<i64> {
    let milliseconds = instant(epoch.start_us)?.micros() / 1_000;
    let random = (epoch.random < 1 << EPOCH_RANDOM_BITS).then_some(i64::from(epoch.random))?;
    Some(milliseconds.checked_mul(1 << EPOCH_RANDOM_BITS)? | random)
}

fn checked_unit(unit: &wire::Unit) -> Result<ReportedUnit, String> {
    let field = |field: &str, reason: String| format!("{field}: {reason}");
    let (gpu_uuid, gpu_model) = (
        name(&unit.gpu.uuid).map_err(|reason| field("gpu.uuid", reason))?,
        name(&unit.gpu.model).map_err(|reason| field("gpu.model", reason))?,
    );
    let ratio = |of: &str, part: u32, whole: u32| {
        let ratio = i32::try_from(part).ok().zip(i32::try_from(whole).ok()).filter(|(part, whole)| part <= whole);
        ratio.and_then(|(part, whole)| Ratio::new(part, whole)).filter(|_| whole <= wire::SLICES_MAX).ok_or_else(|| {
            format!("{of}_slices: {part} of {whole} is no part of a GPU; one has at most {} slices", wire::SLICES_MAX)
        })
    };
    let compute = ratio("compute", unit.compute_slices, unit.gpu.compute_slices)?;
    let memory = ratio("memory", unit.memory_slices, unit.gpu.memory_slices)?;
    let slices = SkuSlices::of(compute, memory);
    let (place, profile, slices) = match unit.kind {
        wire::UnitKind::Full if compute.part() == compute.whole() && memory.part() == memory.whole() => {
            ("", "full", SkuSlices::FULL)
        }
        wire::UnitKind::Full => return Err("kind: a full GPU has all its slices".into()),
        wire::UnitKind::Slice if unit.uuid == REMAINDER => return Err("uuid: no slice is called so".into()),
        wire::UnitKind::Slice => {
            let uuid = name(&unit.uuid).map_err(|reason| field("uuid", reason))?;
            (uuid, name(&unit.profile).map_err(|reason| field("profile", reason))?, slices)
        }
        wire::UnitKind::Remainder => (REMAINDER, "remainder", slices),
    };
    let code = SkuCode::parse(&format!("{gpu_model}/{profile}")).map_err(|reason| field("gpu.model", reason))?;
    let birth = instant(unit.birth_us).ok_or("birth_us: no such instant")?;
    let death = match unit.death_us {
        None => None,
        Some(death) => Some(instant(death).filter(|death| *death >= birth).ok_or("death_us: it lies before birth_us")?),
    };
    Ok(ReportedUnit {
        gpu_uuid: gpu_uuid.to_owned(),
        gpu_model: gpu_model.to_owned(),
        place: place.to_owned(),
        sku: Sku { code, slices },
        birth,
        death,
    })
}

fn checked_job(job: &wire::Job, cluster: &ClusterName) -> Result<ReportedJob, String> {
    let source_id = name(&job.source_id).map_err(|reason| format!("source_id: {reason}"))?.to_owned();
    let start = instant(job.start_us).ok_or("start_us: no such instant")?;
    let wire::Facts { user, account, partition, qos, namespace, name, gpus, labels } = job.facts.clone();
    let gpus = gpus.and_then(|gpus| i32::try_from(gpus).ok()).unwrap_or(0);
    let (cluster, pool) = (cluster.to_string(), String::new());
    let facts = JobFacts { cluster, pool, user, account, partition, qos, namespace, name, gpus, labels };
    Ok(ReportedJob { source_id, start, facts })
}

/// A fact that people choose, such as a job's name. No choice of theirs may keep their job from being counted, so it
/// is mended and not refused: control characters are replaced, and what is too long is cut.
fn fact(text: &str, bytes_max: usize) -> String {
    let mut mended = String::with_capacity(text.len().min(bytes_max));
    for character in text.chars() {
        let character = if character.is_control() { char::REPLACEMENT_CHARACTER } else { character };
        if mended.len() + character.len_utf8() > bytes_max {
            break;
        }
        mended.push(character);
    }
    mended
}

fn content(
    segment: &wire::Segment,
    units: &[ReportedUnit],
    jobs: usize,
    wall: Instant,
) -> Result<RecordContent, (RecordCode, String)> {
    let wrong = |code, message: &str| Err((code, message.to_owned()));
    let unit_index = usize::try_from(segment.unit).unwrap_or(usize::MAX);
    let Some(unit) = units.get(unit_index) else {
        return wrong(RecordCode::NoUnit, "the report has no such unit");
    };
    let job = match segment.job {
        None => None,
        Some(job) => match usize::try_from(job).ok().filter(|job| *job < jobs) {
            None => return wrong(RecordCode::NoJob, "the report has no such job"),
            job => job,
        },
    };
    let state = match (segment.state, job) {
        (wire::State::Held, Some(_)) => State::Held,
        (wire::State::Idle, None) => State::Idle,
        (wire::State::Stranded, None) => State::Stranded,
        (wire::State::OutOfService, None) => State::OutOfService,
        _ => return wrong(RecordCode::NoJob, "a unit that is held has a job, and no other has one"),
    };
    let interval = instant(segment.start_us).zip(instant(segment.end_us));
    let Some(interval) = interval.and_then(|(start, end)| Interval::new(start, end)) else {
        return wrong(RecordCode::BadInterval, "its end must lie after its start");
    };
    if interval.end() > interval.start().hour().next().start() {
        return wrong(RecordCode::CrossesHour, "it must be cut where a UTC hour begins");
    }
    if interval.end() > wall {
        return wrong(RecordCode::Future, "it ends after the report was made");
    }
    if interval.start() < unit.birth || unit.death.is_some_and(|death| interval.end() > death) {
        return wrong(RecordCode::OutsideUnit, "it lies outside the life of its unit");
    }
    let (length_us, share_us) = (interval.length_us(), segment.share_us);
    let parts = [segment.active_us.unwrap_or(0), segment.estimated_us, segment.suspended_us];
    if !(0..=length_us).contains(&share_us) || parts.iter().any(|part| !(0..=share_us).contains(part)) {
        return wrong(RecordCode::BadTotals, "its share must fit its length, and its other totals its share");
    }
    let Some(measurements) = measurements(&segment.telemetry, length_us) else {
        return wrong(RecordCode::BadTotals, "what was measured must fit the time it was measured for");
    };
    Ok(RecordContent {
        unit: unit_index,
        job,
        state,
        interval,
        share_us,
        active_us: segment.active_us,
        estimated_us: segment.estimated_us,
        suspended_us: segment.suspended_us,
        measurements,
    })
}

fn measurements(telemetry: &wire::Telemetry, length_us: i64) -> Option<Measurements> {
    let measured = |total: wire::Total| {
        let total = Measured { total: i64::try_from(total.total).ok()?, measured_us: total.measured_us };
        (0..=length_us).contains(&total.measured_us).then_some(total)
    };
    let part = |total: wire::Total| measured(total).filter(|part| part.total <= part.measured_us);
    let busy_us = telemetry.utilisation.map(part);
    let energy_mj = telemetry.energy_mj.map(measured);
    let peak = telemetry.peak_memory_bytes.map(|bytes| i64::try_from(bytes).ok());
    // A family that is told and cannot be is wrong; one that is not told is absent.
    let told = |family: Option<Option<Measured>>| family.map_or(Some(None), |total| total.map(Some));
    Some(Measurements {
        busy_us: told(busy_us)?,
        energy_mj: told(energy_mj)?,
        peak_memory_bytes: peak.map_or(Some(None), |bytes| bytes.map(Some))?,
        activity: Activity {
            sm_activity: told(telemetry.sm_activity.map(part))?,
            sm_occupancy: told(telemetry.sm_occupancy.map(part))?,
            tensor: told(telemetry.tensor.map(part))?,
            memory_activity: told(telemetry.memory_activity.map(part))?,
        },
    })
}
