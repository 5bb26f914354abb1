//! Reading `/proc/PID/cgroup`: the form of a path says who made the group.
//!
//! A line is `hierarchy:controllers:path`. Version 2 has one line, `0::path`. Version 1 has one for each controller, and they
//! need not agree: of a process that was adopted into a Slurm job, those of `pids` and `name=systemd` may still tell of the
//! login. So a job is looked for in all lines, those two last, and only without one do containers and users count.
//!
//! A path may be relative to a control group namespace (`/../..`), and users may make groups below their own, so that the
//! outermost name counts.

use crate::owner::{Container, Owner, Pod, QosClass, Runtime, SlurmStep};

/// The controllers that a job's processes are always in, most telling first; the others come after them, then
/// [`LEAST_TELLING`].
const MOST_TELLING: [&str; 4] = ["freezer", "memory", "cpuset", "devices"];
const LEAST_TELLING: [&str; 2] = ["pids", "name=systemd"];

/// Who a process belongs to, by the text of its `/proc/PID/cgroup`.
#[must_use]
pub fn owner_of(text: &str) -> Owner {
    let mut lines: Vec<(usize, &str)> = text.lines().filter_map(line).collect();
    lines.sort_by_key(|(order, _)| *order);
    let mut best = Owner::Nobody;
    for owner in lines.into_iter().map(|(_, path)| owner_of_path(path)) {
        if rank(&owner) < rank(&best) {
            best = owner;
        }
    }
    best
}

/// A line's place in the order of telling, and its path.
fn line(text: &str) -> Option<(usize, &str)> {
    let mut parts = text.splitn(3, ':');
    let (_, controllers, path) = (parts.next()?, parts.next()?, parts.next()?);
    let named = |known: &[&str]| controllers.split(',').filter_map(|one| known.iter().position(|k| *k == one)).min();
    let order = match (named(&MOST_TELLING), named(&LEAST_TELLING)) {
        (Some(place), _) => place,
        (None, None) => MOST_TELLING.len(),
        (None, Some(place)) => MOST_TELLING.len() + 1 + place,
    };
    Some((order, path))
}

/// Jobs before containers, containers before users.
const fn rank(owner: &Owner) -> u8 {
    match owner {
        Owner::Slurm(_) | Owner::Pod(_) => 0,
        Owner::Container(_) => 1,
        Owner::User { .. } => 2,
        Owner::Nobody => 3,
    }
}

fn owner_of_path(path: &str) -> Owner {
    // containerd without systemd's driver writes `parent:cri-containerd:id` as one name.
    let names: Vec<&str> = path.split(['/', ':']).filter(|name| !name.is_empty() && *name != "..").collect();
    slurm(&names)
        .map(Owner::Slurm)
        .or_else(|| pod(&names).map(Owner::Pod))
        .or_else(|| container(&names).map(|(id, runtime)| Owner::Container(Container { id, runtime })))
        .or_else(|| user(&names).map(|uid| Owner::User { uid }))
        .unwrap_or(Owner::Nobody)
}

/// `slurmstepd.scope/job_N/step_S/user/task_T` of version 2, where `slurmstepd.scope` may begin with a node's name; and
/// `slurm/uid_U/job_N/step_S/task_T` of version 1, where `slurm` may end with one.
fn slurm(names: &[&str]) -> Option<SlurmStep> {
    let (place, slurmd_node) = names.iter().enumerate().find_map(|(place, name)| Some((place, slurm_root(name)?)))?;
    let mut rest = names.get(place + 1..)?.iter();
    let mut name = rest.next()?;
    let uid = name.strip_prefix("uid_").and_then(|uid| uid.parse().ok());
    if uid.is_some() {
        name = rest.next()?;
    }
    let job =
        name.strip_prefix("job_").filter(|job| !job.is_empty() && job.bytes().all(|b| b.is_ascii_alphanumeric()))?;
    let step = rest.next().and_then(|name| name.strip_prefix("step_"));
    let task = rest.filter(|_| step.is_some()).find_map(|name| name.strip_prefix("task_"));
    Some(SlurmStep {
        job: job.to_owned(),
        step: step.map(str::to_owned),
        task: task.map(str::to_owned),
        uid,
        slurmd_node: slurmd_node.map(str::to_owned),
    })
}

/// Whether Slurm makes its jobs' groups below this one, and for which of several slurmd.
fn slurm_root(name: &str) -> Option<Option<&str>> {
    if let Some(prefix) = name.strip_suffix("slurmstepd.scope") {
        return match prefix.strip_suffix('_') {
            Some(node) if !node.is_empty() => Some(Some(node)),
            _ if prefix.is_empty() => Some(None),
            _ => None,
        };
    }
    match name.strip_prefix("slurm")? {
        "" => Some(None),
        rest => rest.strip_prefix('_').filter(|node| !node.is_empty()).map(Some),
    }
}

fn pod(names: &[&str]) -> Option<Pod> {
    names.iter().enumerate().find_map(|(place, name)| {
        let (uid, qos) = match name.strip_suffix(".slice") {
            // systemd's driver, which writes hyphens as underscores: `kubepods-burstable-pod….slice`.
            Some(slice) => {
                let (parents, uid) = slice.rsplit_once("-pod")?;
                (parents.contains("kubepods").then(|| pod_uid(&uid.replace('_', "-")))??, class(parents))
            }
            // The plain driver: `kubepods/burstable/pod…`.
            None => {
                let parents = names.get(place.checked_sub(1)?)?;
                let qos = class(parents);
                let below = match qos {
                    QosClass::Guaranteed => *parents == "kubepods",
                    QosClass::Burstable | QosClass::BestEffort => {
                        names.get(place.checked_sub(2)?).is_some_and(|top| *top == "kubepods")
                    }
                };
                (below.then(|| pod_uid(name.strip_prefix("pod")?))??, qos)
            }
        };
        let (container, runtime) = match container(names.get(place + 1..)?) {
            Some((id, runtime)) => (Some(id), runtime),
            None => (None, None),
        };
        Some(Pod { uid, container, runtime, qos })
    })
}

fn class(parents: &str) -> QosClass {
    match parents.rsplit('-').next() {
        Some("burstable") => QosClass::Burstable,
        Some("besteffort") => QosClass::BestEffort,
        _ => QosClass::Guaranteed,
    }
}

/// A UID with hyphens, or the 32 digits of a static pod.
fn pod_uid(text: &str) -> Option<String> {
    let digits = text.len() == 32 && is_hex(text);
    let groups = [8, 4, 4, 4, 12];
    let parts: Vec<&str> = text.split('-').collect();
    let uuid = parts.len() == groups.len()
        && parts.iter().zip(groups).all(|(part, length)| part.len() == length && is_hex(part));
    (digits || uuid).then(|| text.to_ascii_lowercase())
}

fn is_hex(text: &str) -> bool {
    text.bytes().all(|byte| byte.is_ascii_hexdigit())
}

/// What container runtimes call a group, beside the id.
const SCOPES: [(&str, Runtime); 6] = [
    ("cri-containerd-", Runtime::Containerd),
    ("nerdctl-", Runtime::Containerd),
    ("crio-", Runtime::Crio),
    ("docker-", Runtime::Docker),
    ("libpod-", Runtime::Podman),
    ("podman-", Runtime::Podman),
];

/// The outermost name that is a container's.
fn container(names: &[&str]) -> Option<(String, Option<Runtime>)> {
    names.iter().enumerate().find_map(|(place, name)| {
        let name = name.strip_suffix(".scope").unwrap_or(name);
        let scope = SCOPES.iter().find_map(|(prefix, runtime)| Some((name.strip_prefix(prefix)?, *runtime)));
        if let Some((id, runtime)) = scope.filter(|(id, _)| is_container_id(id)) {
            return Some((id.to_owned(), Some(runtime)));
        }
        let parent = place.checked_sub(1).and_then(|parent| names.get(parent)).copied();
        let runtime = match parent {
            Some("docker") => Some(Runtime::Docker),
            Some("cri-containerd") => Some(Runtime::Containerd),
            Some("crio") => Some(Runtime::Crio),
            Some("libpod_parent") => Some(Runtime::Podman),
            _ => None,
        };
        if is_container_id(name) {
            return Some((name.to_owned(), runtime));
        }
        // Amazon's ECS: `ecs/TASK/TASK-NUMBER`.
        let task = parent.filter(|task| task.len() == 32 && is_hex(task))?;
        let number = name.strip_prefix(task)?.strip_prefix('-')?;
        number.bytes().all(|byte| byte.is_ascii_digit()).then(|| (name.to_owned(), None))
    })
}

fn is_container_id(text: &str) -> bool {
    text.len() == 64 && is_hex(text)
}

fn user(names: &[&str]) -> Option<u32> {
    names.iter().find_map(|name| name.strip_prefix("user-")?.strip_suffix(".slice")?.parse().ok())
}
