//! GPUs that a scheduler gave to jobs: they are held from then on, whether or not a process opened them.

use gpuledger_host::{JobMapping, MappedGpu};
use gpuledger_nvml::Sweep;

use crate::sample::{Sample, Seen, UnitShape, Use};

/// Puts the jobs of a mapping on their units. Who uses such a unit without having been given it holds nothing there, and is
/// named; so is what the mapping says of a unit that is not there. What is named, one line each.
pub fn give(sample: &mut Sample, sweep: &Sweep, mapping: &JobMapping) -> Vec<String> {
    let mut findings: Vec<String> = mapping.unread.clone();
    for (MappedGpu { index, instance }, jobs) in &mapping.jobs {
        let uuid = sweep.devices.iter().find(|device| device.index == *index).map(|device| &device.identity.uuid);
        let units = match uuid.and_then(|uuid| sample.gpus.get_mut(uuid)).map(|gpu| &mut gpu.seen) {
            Some(Seen::Units(layout)) => &mut layout.units,
            // What is lost or was not read is told elsewhere.
            Some(Seen::Lost | Seen::NotRead) => continue,
            None => {
                findings.push(format!("job {} was given GPU {index}, which is not there", jobs.join(", ")));
                continue;
            }
        };
        let mut found = false;
        for unit in units {
            let is_given = match (&unit.shape, instance) {
                (UnitShape::Full, None) => true,
                (UnitShape::Slice { gpu_instance, .. }, Some(instance)) => gpu_instance == instance,
                // A whole GPU that is cut: all of its slices.
                (UnitShape::Slice { .. }, None) => true,
                (UnitShape::Full | UnitShape::Remainder { .. }, _) => false,
            };
            if !is_given {
                continue;
            }
            found = true;
            for other in unit.users.keys().filter(|user| !jobs.contains(user)) {
                findings.push(format!("{other} uses GPU {index}, which was given to job {}", jobs.join(", ")));
            }
            unit.users.retain(|user, _| jobs.contains(user));
            for job in jobs {
                unit.users.entry(job.clone()).or_insert(Use {
                    since_us: None,
                    active: false,
                    suspended: false,
                    memory_bytes: None,
                    sm_percent: None,
                });
            }
        }
        if !found {
            let instance = instance.map(|instance| format!(" instance {instance}")).unwrap_or_default();
            findings.push(format!("job {} was given GPU {index}{instance}, which is not there", jobs.join(", ")));
        }
    }
    findings
}
