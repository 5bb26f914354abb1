//! GPUs that Slurm gave to jobs, seen before a process opens them: in the files that a prolog writes for DCGM's exporter, and in
//! the device lists of control groups of version 1. (Version 2 keeps such lists as programs of the kernel, which nobody can
//! read.)

use std::path::PathBuf;

use gpuledger_host::{DeviceLists, JobMapping, MappedGpu};

use super::{Moment, Probe, Sighting};

/// A prolog's files.
#[derive(Debug)]
pub struct JobMappingProbe {
    folder: PathBuf,
}

impl JobMappingProbe {
    /// Those in a folder.
    #[must_use]
    pub const fn new(folder: PathBuf) -> JobMappingProbe {
        JobMappingProbe { folder }
    }
}

impl Probe for JobMappingProbe {
    fn name(&self) -> &'static str {
        "job-mapping"
    }

    fn look(&mut self, _: &Moment, sighting: &mut Sighting) -> Result<(), String> {
        let read = JobMapping::read(&self.folder).map_err(|error| format!("{}: {error}", self.folder.display()))?;
        sighting.findings.extend(read.unread.iter().cloned());
        give(sighting, read.jobs);
        Ok(())
    }
}

/// Control groups of version 1.
#[derive(Debug)]
pub struct DeviceListProbe {
    root: PathBuf,
}

impl DeviceListProbe {
    /// Those under a root: `/sys/fs/cgroup/devices`, or the host's, mounted elsewhere.
    #[must_use]
    pub const fn new(root: PathBuf) -> DeviceListProbe {
        DeviceListProbe { root }
    }
}

impl Probe for DeviceListProbe {
    fn name(&self) -> &'static str {
        "cgroup-devices"
    }

    fn look(&mut self, _: &Moment, sighting: &mut Sighting) -> Result<(), String> {
        let read = DeviceLists::read(&self.root).map_err(|error| format!("{}: {error}", self.root.display()))?;
        sighting.findings.extend(read.unread.iter().cloned());
        let Some(sweep) = &sighting.sweep else { return Ok(()) };
        // A GPU that is cut is given by devices of its slices, whose numbers say nothing here: who opens them tells.
        let whole = sweep.devices.iter().filter(|device| device.mig == gpuledger_nvml::MigState::Off);
        let given: Vec<(MappedGpu, Vec<String>)> = whole
            .filter_map(|device| {
                let jobs = read.jobs.get(&device.identity.minor?)?;
                Some((MappedGpu { index: device.index, instance: None }, jobs.clone()))
            })
            .collect();
        give(sighting, given);
        Ok(())
    }
}

/// Adds jobs to their GPUs, each once.
fn give(sighting: &mut Sighting, given: impl IntoIterator<Item = (MappedGpu, Vec<String>)>) {
    for (gpu, jobs) in given {
        let known = sighting.given.jobs.entry(gpu).or_default();
        for job in jobs {
            if !known.contains(&job) {
                known.push(job);
            }
        }
    }
}
