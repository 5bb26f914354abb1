//! What the driver says of devices and what the host says of processes, joined into a sample.
//!
//! The driver knows numbers of processes, the host knows whose they are. A process that is nobody's, or of which nobody can say
//! whose it is, uses its unit as the job [`UNATTRIBUTED`]: at once, so that no time is given away in silence.

use std::collections::{BTreeMap, BTreeSet};

use gpuledger_host::{Host, Namespace, Owner, Process, ReadError, RunState};
use gpuledger_nvml::{Condition, Device, EndedProcess, GpuProcess, MigInstance, MigState, Processes, Sweep};
use gpuledger_wire::{Facts, Gpu};

use crate::sample::{GpuSample, JobId, Layout, Sample, Seen, UNATTRIBUTED, UnitSample, UnitShape, Use};

/// Who a process number belongs to, at an instant.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Whose {
    /// A job's.
    Job {
        /// The job.
        id: JobId,
        /// When the process began, in microseconds since the boot.
        since_us: i64,
        /// Whether it is stopped.
        suspended: bool,
    },
    /// A system process that holds nothing for anybody.
    Exempt,
    /// It ended since the driver listed it.
    Ended,
    /// Nobody's that is known.
    Nobody,
}

/// What is known of a job.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct JobSeen {
    /// What is known of it, by which rules find its team.
    pub facts: Facts,
    /// When it began: as its scheduler wrote, in microseconds since 1970.
    pub start_us: Option<i64>,
    /// When the first process of it that was seen began, in microseconds since the boot.
    pub first_process_us: Option<i64>,
}

/// What a look at the host gave, for the driver's processes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Owners {
    /// Who each process number belongs to.
    pub of_pid: BTreeMap<u32, Whose>,
    /// The jobs that they name.
    pub jobs: BTreeMap<JobId, JobSeen>,
    /// What is wrong, one line each.
    pub findings: Vec<String>,
}

/// The MPS server's program: it runs its clients' work and holds nothing itself.
const MPS_SERVER: &str = "nvidia-cuda-mps-server";
/// The kernel cuts the names of programs after so many bytes.
const COMMAND_BYTES_MAX: usize = 15;

/// Looks up who the processes of a sweep belong to. `known` are the numbers that had an owner at the last look.
///
/// # Errors
/// Where process numbers mean other processes here than to the driver, so that nobody may be billed.
pub fn owners(
    host: &mut Host,
    sweep: &Sweep,
    at_us: i64,
    exempt: &[String],
    known: &BTreeSet<u32>,
) -> Result<Owners, String> {
    match host.namespace() {
        Namespace::Host => {}
        Namespace::Container => {
            return Err("not in the host's namespace of processes: numbers mean other processes here, and nobody is billed. Run with hostPID, or mount the host's /proc and name it with --proc".into());
        }
        Namespace::Unknown => {
            return Err(
                "cannot tell whether this is the host's namespace of processes, and nobody is billed. Run as root"
                    .into(),
            );
        }
    }
    let mut owners = Owners::default();
    let listed = sweep.devices.iter().flat_map(|device| match &device.processes {
        Processes::Read(processes) => processes.as_slice(),
        Processes::Rejected(_) | Processes::Failed(_) => &[],
    });
    let has_clients = listed.clone().any(|process| process.mps_client);
    for pid in listed.map(|process| process.pid) {
        if owners.of_pid.contains_key(&pid) {
            continue;
        }
        let whose = match host.process(pid, at_us) {
            Ok(process) => whose(process, exempt, has_clients, &mut owners),
            // It ended after the driver listed it; or the driver lists what nobody can see.
            Err(ReadError::Gone) if known.contains(&pid) => Whose::Ended,
            Err(ReadError::Gone) => Whose::Nobody,
            Err(ReadError::Unreadable(why)) => {
                owners.findings.push(format!("process {pid} uses a GPU and cannot be read: {why}"));
                Whose::Nobody
            }
        };
        owners.of_pid.insert(pid, whose);
    }
    host.forget_before(at_us);
    Ok(owners)
}

fn whose(process: &Process, exempt: &[String], has_clients: bool, owners: &mut Owners) -> Whose {
    let is =
        |name: &str| process.command.as_bytes() == name.as_bytes().get(..COMMAND_BYTES_MAX).unwrap_or(name.as_bytes());
    // A server whose clients are not listed runs somebody's work, and nobody knows whose.
    if is(MPS_SERVER) {
        return if has_clients { Whose::Exempt } else { Whose::Nobody };
    }
    if exempt.iter().any(|name| is(name)) {
        return Whose::Exempt;
    }
    if let Some(differs) = &process.disagreement {
        let group = differs.control_group.as_deref().unwrap_or("none");
        owners.findings.push(format!(
            "process {}: its environment says job {}, its control group {group}; the control group counts",
            process.key.pid, differs.environment
        ));
    }
    let Some((id, facts)) = job(process) else { return Whose::Nobody };
    let seen = owners.jobs.entry(id.clone()).or_default();
    // A step that was adopted knows less than the others.
    if seen.facts == Facts::default() || process.slurm.account.is_some() && seen.facts.account.is_empty() {
        seen.facts = facts;
    }
    seen.start_us = seen.start_us.or(process.slurm.start_seconds.and_then(|seconds| seconds.checked_mul(1_000_000)));
    let first = seen.first_process_us.map_or(process.key.start_us, |first| first.min(process.key.start_us));
    seen.first_process_us = Some(first);
    Whose::Job { id, since_us: process.key.start_us, suspended: process.state == RunState::Stopped }
}

/// The job of a process and what is known of it; `None` where it is nobody's.
fn job(process: &Process) -> Option<(JobId, Facts)> {
    let mut facts = Facts::default();
    let text = |text: &Option<String>| text.clone().unwrap_or_default();
    if let Some(uid) = process.uid {
        facts.labels.insert("uid".into(), uid.to_string());
    }
    let id = match &process.owner {
        Owner::Slurm(step) => {
            let slurm = &process.slurm;
            facts.user = text(&slurm.user);
            facts.account = text(&slurm.account);
            facts.partition = text(&slurm.partition);
            facts.qos = text(&slurm.qos);
            facts.name = text(&slurm.name);
            let uid = slurm.uid.or(step.uid).or(process.uid).map(|uid| uid.to_string());
            let labels = [
                ("uid", uid),
                ("array-job", slurm.array_job.clone()),
                ("array-task", slurm.array_task.map(|task| task.to_string())),
                ("het-job", slurm.het_job.clone()),
                ("het-offset", slurm.het_offset.map(|offset| offset.to_string())),
                ("restarts", slurm.restarts.map(|restarts| restarts.to_string())),
            ];
            facts.labels.extend(labels.into_iter().filter_map(|(key, value)| Some((key.to_owned(), value?))));
            step.job.clone()
        }
        Owner::Pod(pod) => {
            if pod.is_static() {
                facts.labels.insert("config-hash".into(), pod.uid.clone());
            }
            facts.labels.remove("uid");
            pod.uid.clone()
        }
        Owner::Container(container) => {
            facts.name.clone_from(&process.command);
            format!("container/{}", container.id)
        }
        Owner::User { uid } => {
            facts.labels.insert("uid".into(), uid.to_string());
            format!("user/{uid}")
        }
        Owner::Nobody => return None,
    };
    Some((id, facts))
}

/// What a look is read with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Reading {
    /// When, in microseconds since the boot.
    pub at_us: i64,
    /// By how much the wall clock's instants are above those since the boot.
    pub wall_minus_boot_us: i64,
    /// From how much memory on on a unit without any process somebody is taken to use it, in bytes; `None` for never.
    pub stray_memory_bytes: Option<u64>,
}

/// Joins a sweep with whose its processes are.
#[must_use]
pub fn sample(sweep: &Sweep, owners: &Owners, reading: Reading) -> Sample {
    let gpus =
        sweep.devices.iter().map(|device| (device.identity.uuid.clone(), gpu(device, owners, reading))).collect();
    Sample { at_us: reading.at_us, gpus }
}

fn gpu(device: &Device, owners: &Owners, reading: Reading) -> GpuSample {
    let identity = &device.identity;
    let gpu = Gpu {
        uuid: identity.uuid.clone(),
        model: identity.model.clone(),
        compute_slices: identity.slices.compute,
        memory_slices: identity.slices.memory,
    };
    let seen = match (&device.condition, &device.mig, &device.processes) {
        (Condition::Lost(_), ..) => Seen::Lost,
        (_, MigState::Unread(_), _) | (_, _, Processes::Failed(_)) => Seen::NotRead,
        (_, mig, processes) => {
            let mut units = match mig {
                MigState::On { instances, has_room } => slices(&gpu, instances, *has_room),
                MigState::Off | MigState::Unread(_) => {
                    vec![UnitSample { activity: device.activity, ..unit(UnitShape::Full) }]
                }
            };
            match processes {
                Processes::Read(processes) => {
                    place(&mut units, processes, device, owners);
                    stray(&mut units, processes, device, reading.stray_memory_bytes);
                }
                // Somebody may be there, and nobody knows who.
                Processes::Rejected(_) | Processes::Failed(_) => {
                    for unit in &mut units {
                        unit.users.insert(UNATTRIBUTED.into(), nobody());
                    }
                }
            }
            Seen::Units(Layout { units, mode_pending: device.mode_pending })
        }
    };
    GpuSample {
        gpu,
        seen,
        utilisation_percent: device.utilisation_percent,
        energy_mj: device.energy_mj,
        brief_us: device.ended.iter().filter_map(|ended| brief(ended, reading)).collect(),
    }
}

/// When a process was there that nobody saw, since the boot. The wall clock is the driver's as well.
fn brief(ended: &EndedProcess, reading: Reading) -> Option<(i64, i64)> {
    let since_boot = |wall_us: u64| i64::try_from(wall_us).ok()?.checked_sub(reading.wall_minus_boot_us);
    let (start, end) = (since_boot(ended.start_us)?, since_boot(ended.end_us)?);
    (start < end).then_some((start, end))
}

/// Memory without a process: what a process left behind, or one that the driver does not list. Somebody uses the unit then.
fn stray(units: &mut [UnitSample], processes: &[GpuProcess], device: &Device, from_bytes: Option<u64>) {
    let Some(from_bytes) = from_bytes else { return };
    let is_empty = |gpu_instance: Option<u32>| {
        !processes.iter().any(|process| {
            gpu_instance.is_none() || process.instance.is_none_or(|ids| Some(ids.gpu_instance) == gpu_instance)
        })
    };
    let instances = match &device.mig {
        MigState::On { instances, .. } => instances.as_slice(),
        MigState::Off | MigState::Unread(_) => &[],
    };
    for unit in units.iter_mut().filter(|unit| unit.users.is_empty()) {
        let used = match &unit.shape {
            UnitShape::Full if is_empty(None) => device.memory_used_bytes,
            UnitShape::Slice { uuid, gpu_instance, .. } if is_empty(Some(*gpu_instance)) => {
                instances.iter().find(|instance| instance.uuid == *uuid).and_then(|instance| instance.memory_used_bytes)
            }
            UnitShape::Full | UnitShape::Slice { .. } | UnitShape::Remainder { .. } => None,
        };
        if let Some(used) = used.filter(|used| *used >= from_bytes) {
            unit.users.insert(UNATTRIBUTED.into(), Use { active: false, memory_bytes: Some(used), ..nobody() });
        }
    }
}

fn unit(shape: UnitShape) -> UnitSample {
    UnitSample { shape, has_room: true, users: BTreeMap::new(), activity: None }
}

const fn nobody() -> Use {
    Use { since_us: None, active: true, suspended: false, memory_bytes: None, sm_percent: None }
}

/// The units of a GPU that is cut: its instances, and what is left beside them.
fn slices(gpu: &Gpu, instances: &[MigInstance], has_room: bool) -> Vec<UnitSample> {
    let mut units = Vec::new();
    let (mut compute_left, mut memory_left) = (gpu.compute_slices, gpu.memory_slices);
    // How many compute slices of the same GPU instance came before.
    let mut before: BTreeMap<u32, u32> = BTreeMap::new();
    for instance in instances {
        let before = before.entry(instance.ids.gpu_instance).or_insert(0);
        // Of the GPU instance's memory, by compute slices, to whole slices; the parts sum to it where all of it is given out.
        let until = |compute: u32| {
            instance.placement.size.saturating_mul(compute).checked_div(instance.gpu_instance_slices).unwrap_or(0)
        };
        let memory = until(before.saturating_add(instance.compute_slices)).saturating_sub(until(*before));
        *before = before.saturating_add(instance.compute_slices);
        compute_left = compute_left.saturating_sub(instance.compute_slices);
        memory_left = memory_left.saturating_sub(memory);
        let shape = UnitShape::Slice {
            uuid: instance.uuid.clone(),
            gpu_instance: instance.ids.gpu_instance,
            compute_instance: instance.ids.compute_instance,
            profile: instance.profile.clone(),
            slices: (instance.compute_slices, memory),
        };
        units.push(UnitSample { activity: instance.activity, ..unit(shape) });
    }
    if (compute_left, memory_left) != (0, 0) {
        let shape = UnitShape::Remainder { slices: (compute_left, memory_left) };
        units.push(UnitSample { has_room, ..unit(shape) });
    }
    units
}

/// Puts processes on their units, by job.
fn place(units: &mut [UnitSample], processes: &[GpuProcess], device: &Device, owners: &Owners) {
    let sm = |pid: u32| {
        let of_pid = device.sm_samples.iter().filter(|sample| sample.pid == pid);
        of_pid.max_by_key(|sample| sample.at_us).map(|sample| u32::from(sample.percent))
    };
    for process in processes {
        let (job, since_us, suspended) = match owners.of_pid.get(&process.pid) {
            Some(Whose::Job { id, since_us, suspended }) => (id.as_str(), Some(*since_us), *suspended),
            Some(Whose::Exempt | Whose::Ended) => continue,
            Some(Whose::Nobody) | None => (UNATTRIBUTED, None, false),
        };
        let on = |unit: &&mut UnitSample| match (&unit.shape, process.instance) {
            (UnitShape::Full, _) | (UnitShape::Remainder { .. }, None) => true,
            (UnitShape::Slice { gpu_instance, compute_instance, .. }, Some(ids)) => {
                (*gpu_instance, *compute_instance) == (ids.gpu_instance, ids.compute_instance)
            }
            _ => false,
        };
        let Some(unit) = units.iter_mut().find(on) else { continue };
        let new =
            Use { since_us, active: true, suspended, memory_bytes: process.memory_bytes, sm_percent: sm(process.pid) };
        match unit.users.get_mut(job) {
            None => {
                unit.users.insert(job.to_owned(), new);
            }
            Some(known) => {
                known.since_us = match (known.since_us, new.since_us) {
                    (Some(a), Some(b)) => Some(a.min(b)),
                    (known, new) => known.or(new),
                };
                known.suspended &= new.suspended;
                known.memory_bytes = known.memory_bytes.zip(new.memory_bytes).and_then(|(a, b)| a.checked_add(b));
                known.sm_percent = known.sm_percent.zip(new.sm_percent).map(|(a, b)| a.saturating_add(b));
            }
        }
    }
}
