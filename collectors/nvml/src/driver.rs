//! Reading the devices through the driver's library.

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsStr;
use std::fmt;
use std::path::Path;

use nvml_wrapper::enums::device::UsedGpuMemory;
use nvml_wrapper::error::NvmlError;
use nvml_wrapper::struct_wrappers::device::{ProcessInfo, ProcessUtilizationSample};
use nvml_wrapper::{Device as Handle, Nvml};
use nvml_wrapper_sys::bindings::{NVML_DEVICE_MIG_ENABLE, NVML_GPU_INSTANCE_PROFILE_COUNT};

use crate::accounts::Accounts;
use crate::activity::Samples;
use crate::placement::{Placement, Profile, has_room};
use crate::processes::{Listed, merge};
use crate::raw::{self, Events};
use crate::reading::{
    Activity, Condition, Device, EndedProcess, Event, Identity, MigInstance, MigState, Processes, SliceCounts,
    SmSample, Sweep,
};

/// The driver's library, and what was read of devices that does not change.
pub struct Driver {
    nvml: Nvml,
    known: BTreeMap<u32, Known>,
    samples: Samples,
    /// `None` where the driver has no events, or failed to say so.
    events: Option<Events>,
}

/// What of it is wanted, and what can be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Since {
    /// Samples of utilisation after this instant, in microseconds since 1970 by the wall clock: the last look.
    pub after_us: u64,
    /// And until this one: now.
    pub until_us: u64,
    /// The highest number that a process may have here, where that is known.
    pub pid_max: Option<u32>,
}

/// What does not change of a device while the driver is loaded.
#[derive(Clone, Debug)]
struct Known {
    identity: Identity,
    profiles: Vec<Profile>,
    measures_activity: bool,
    accounts: Accounts,
}

/// The library could not be loaded, or refused to start.
#[derive(Debug)]
pub struct LoadError(String);

impl fmt::Display for LoadError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for LoadError {}

impl fmt::Debug for Driver {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Driver").field("known", &self.known).finish_non_exhaustive()
    }
}

/// How often a list of processes is asked for that grows while it is read.
const LIST_TRIES: usize = 8;
const MIB: u64 = 1 << 20;

impl Driver {
    /// Loads the library: the machine's own, or one at a path.
    ///
    /// # Errors
    /// [`LoadError`] where there is none, or it refuses to start, as without the kernel's module.
    pub fn load(path: Option<&Path>) -> Result<Driver, LoadError> {
        let mut builder = Nvml::builder();
        if let Some(path) = path {
            builder.lib_path(path.as_os_str());
        }
        let name = path.map_or(OsStr::new("libnvidia-ml.so.1"), Path::as_os_str).display().to_string();
        let nvml = builder.init().map_err(|error| LoadError(format!("{name}: {error}")))?;
        let events = Events::create(&nvml).ok();
        Ok(Driver { nvml, known: BTreeMap::new(), samples: Samples::default(), events })
    }

    /// Reads every device once.
    pub fn look(&mut self, since: Since) -> Sweep {
        let driver = self.nvml.sys_driver_version().unwrap_or_default();
        let mut sweep =
            Sweep { driver, devices: Vec::new(), failures: Vec::new(), events: Vec::new(), rejected: 0, reload: false };
        let count = match self.nvml.device_count() {
            Ok(count) => count,
            Err(error) => {
                sweep.reload = needs_reload(&error);
                sweep.failures.push(format!("how many devices there are: {error}"));
                return sweep;
            }
        };
        for index in 0..count {
            self.device(index, since, &mut sweep);
        }
        // After the devices were asked for theirs.
        sweep.events = self.events();
        let instances = |device: &Device| match &device.mig {
            MigState::On { instances, .. } => instances.iter().map(|instance| instance.uuid.clone()).collect(),
            MigState::Off | MigState::Unread(_) => vec![device.identity.uuid.clone()],
        };
        let wanted: BTreeSet<String> = sweep.devices.iter().flat_map(instances).collect();
        self.samples.retain(&self.nvml, |uuid| wanted.contains(uuid));
        sweep
    }

    fn events(&self) -> Vec<Event> {
        let Some(events) = &self.events else { return Vec::new() };
        std::iter::from_fn(|| events.next(&self.nvml)).take(EVENTS_MAX).collect()
    }

    fn device(&mut self, index: u32, since: Since, sweep: &mut Sweep) {
        let Driver { nvml, known, samples, events } = self;
        let read = nvml.device_by_index(index).and_then(|handle| {
            let uuid = handle.uuid()?;
            // Another device at the same place: numbers may change when one falls off the bus.
            if known.get(&index).is_none_or(|known| known.identity.uuid != uuid) {
                if let Some(events) = events {
                    // A device without events says that it does not support them.
                    let _ = events.register(nvml, &handle, &uuid);
                }
                known.insert(index, identify(nvml, &handle, uuid)?);
            }
            Ok(handle)
        });
        sweep.reload |= read.as_ref().is_err_and(needs_reload);
        let Some(known) = known.get_mut(&index) else {
            let why = read.err().map(|error| error.to_string());
            sweep.failures.push(format!("device {index}: {}", why.unwrap_or_default()));
            return;
        };
        let (failures, rejected) = (&mut sweep.failures, &mut sweep.rejected);
        let mut look = Look { nvml, known, samples, index, since, failures, rejected };
        let device = match read {
            Ok(handle) => look.device(&handle),
            Err(error) => look.lost(error.to_string()),
        };
        sweep.devices.push(device);
    }
}

impl Drop for Driver {
    fn drop(&mut self) {
        self.samples.forget(&self.nvml, None);
        if let Some(mut events) = self.events.take() {
            events.free(&self.nvml);
        }
    }
}

/// More events than happen between two looks: a driver that goes on saying more is not listened to.
const EVENTS_MAX: usize = 1_000;

/// Errors after which only a library that is loaded anew answers: the driver was unloaded, or replaced by another version.
const fn needs_reload(error: &NvmlError) -> bool {
    matches!(error, NvmlError::Uninitialized | NvmlError::DriverNotLoaded | NvmlError::LibRmVersionMismatch)
}

fn identify(nvml: &Nvml, handle: &Handle<'_>, uuid: String) -> Result<Known, NvmlError> {
    let model = handle.name()?;
    let pci_address = handle.pci_info().map(|pci| pci.bus_id).unwrap_or_default();
    let memory_bytes = handle.memory_info().ok().map(|memory| memory.total);
    let mut profiles = Vec::new();
    for number in 0..NVML_GPU_INSTANCE_PROFILE_COUNT {
        // A device says of each profile that it does not have, or of all, that it is not supported.
        let Ok(info) = handle.profile_info(number) else { continue };
        let placements = raw::placements(nvml, handle, info.id)?;
        profiles.push(Profile { compute_slices: info.slice_count, most: info.instance_count, placements });
    }
    let compute = profiles.iter().map(|profile| profile.compute_slices).max().unwrap_or(1).max(1);
    let ends =
        profiles.iter().flat_map(|profile| &profile.placements).map(|place| place.start.saturating_add(place.size));
    let slices = SliceCounts { compute, memory: ends.max().unwrap_or(1).max(1) };
    let identity = Identity { uuid, pci_address, minor: handle.minor_number().ok(), model, memory_bytes, slices };
    let measures_activity = handle.gpm_support().unwrap_or(false);
    Ok(Known { identity, profiles, measures_activity, accounts: Accounts::default() })
}

/// One look at one device.
struct Look<'a> {
    nvml: &'a Nvml,
    known: &'a mut Known,
    samples: &'a mut Samples,
    index: u32,
    since: Since,
    failures: &'a mut Vec<String>,
    rejected: &'a mut u64,
}

impl Look<'_> {
    fn lost(&mut self, text: String) -> Device {
        self.failures.push(format!("{} (device {}): {text}", self.known.identity.uuid, self.index));
        Device {
            index: self.index,
            identity: self.known.identity.clone(),
            condition: Condition::Lost(text.clone()),
            mig: MigState::Unread(text.clone()),
            mode_pending: false,
            processes: Processes::Failed(text),
            utilisation_percent: None,
            memory_used_bytes: None,
            energy_mj: None,
            power_mw: None,
            sm_samples: Vec::new(),
            activity: None,
            ended: Vec::new(),
        }
    }

    fn device(&mut self, handle: &Handle<'_>) -> Device {
        let processes = self.processes(handle);
        if let Err(NvmlError::GpuLost) = processes {
            return self.lost(NvmlError::GpuLost.to_string());
        }
        let (mig, mode_pending) = match handle.mig_mode() {
            Ok(mode) if mode.current == NVML_DEVICE_MIG_ENABLE => (self.mig(handle), mode.pending != mode.current),
            Ok(mode) => (MigState::Off, mode.pending != mode.current),
            // It cannot be cut.
            Err(NvmlError::NotSupported | NvmlError::FailedToLoadSymbol(_)) => (MigState::Off, false),
            Err(error) => (MigState::Unread(self.fails("its MIG mode", &error)), false),
        };
        let processes = match processes {
            Ok(lists) => match merge(&lists, self.since.pid_max) {
                Ok(processes) => Processes::Read(processes),
                Err(error) => {
                    *self.rejected += 1;
                    self.failures
                        .push(format!("{}: its list of processes is rejected: {error}", self.known.identity.uuid));
                    Processes::Rejected(error.to_string())
                }
            },
            Err(error) => Processes::Failed(self.fails("its processes", &error)),
        };
        let utilisation = self.optional("its utilisation", handle.utilization_rates());
        let memory = self.optional("its memory", handle.memory_info());
        let energy = self.optional("its energy", handle.total_energy_consumption());
        let power = self.optional("its power", handle.power_usage());
        let activity = if mig == MigState::Off { self.activity(handle) } else { None };
        Device {
            index: self.index,
            identity: self.known.identity.clone(),
            condition: Condition::Fine,
            mig,
            mode_pending,
            processes,
            utilisation_percent: utilisation.and_then(|rates| self.checked(percent(rates.gpu))),
            memory_used_bytes: memory.and_then(|memory| self.checked(bytes(memory.used))),
            energy_mj: energy.and_then(|mj| self.checked(Some(mj).filter(|mj| *mj < u64::MAX))),
            power_mw: power.and_then(|mw| self.checked(Some(mw).filter(|mw| *mw < POWER_LIMIT_MW))),
            sm_samples: self.sm_samples(handle),
            activity,
            ended: self.ended(handle),
        }
    }

    /// What the whole device did since the last look.
    fn activity(&mut self, handle: &Handle<'_>) -> Option<Activity> {
        if !self.known.measures_activity {
            return None;
        }
        let uuid = self.known.identity.uuid.clone();
        let found = handle.gpm_sample().and_then(|sample| self.samples.between(self.nvml, &uuid, sample));
        self.measured(&uuid, found)
    }

    /// What each slice did. It is measured for GPU instances: where one has several compute instances, it is nobody's alone.
    fn slice_activity(&mut self, handle: &Handle<'_>, instances: &mut [MigInstance]) {
        if !self.known.measures_activity {
            return;
        }
        let mut compute_instances: BTreeMap<u32, usize> = BTreeMap::new();
        for instance in &*instances {
            *compute_instances.entry(instance.ids.gpu_instance).or_default() += 1;
        }
        for instance in instances {
            let gpu_instance = instance.ids.gpu_instance;
            if compute_instances.get(&gpu_instance) == Some(&1) {
                let sample = handle.gpm_mig_sample(gpu_instance);
                let found = sample.and_then(|sample| self.samples.between(self.nvml, &instance.uuid, sample));
                instance.activity = self.measured(&instance.uuid, found);
            }
        }
    }

    fn measured(&mut self, uuid: &str, found: Result<Option<Activity>, NvmlError>) -> Option<Activity> {
        if found.is_err() {
            // What is measured next must not reach over what failed.
            self.samples.forget(self.nvml, Some(uuid));
        }
        self.optional("its activity", found).flatten()
    }

    fn ended(&mut self, handle: &Handle<'_>) -> Vec<EndedProcess> {
        let ended = self.known.accounts.ended(handle, self.since);
        self.optional("its accounts of processes", ended).unwrap_or_default()
    }

    /// The lists of compute processes, graphics processes and clients of MPS.
    fn processes(&self, handle: &Handle<'_>) -> Result<Vec<Vec<Listed>>, NvmlError> {
        let compute = list(|| handle.running_compute_processes())?;
        // What follows is missing on some devices and drivers, and then there is none.
        let graphics = optional_list(list(|| handle.running_graphics_processes()))?;
        let mps = optional_list(list(|| handle.mps_running_compute_processes()))?;
        let listed = |processes: Vec<ProcessInfo>, mps_client| {
            let one = move |process: ProcessInfo| Listed {
                pid: process.pid,
                memory_bytes: match process.used_gpu_memory {
                    UsedGpuMemory::Used(bytes) => Some(bytes),
                    UsedGpuMemory::Unavailable => None,
                },
                gpu_instance: process.gpu_instance_id,
                compute_instance: process.compute_instance_id,
                mps_client,
            };
            processes.into_iter().map(one).collect::<Vec<_>>()
        };
        Ok(vec![listed(compute, false), listed(graphics, false), listed(mps, true)])
    }

    fn mig(&mut self, handle: &Handle<'_>) -> MigState {
        match self.instances(handle) {
            Ok(mut instances) => {
                instances.sort_by_key(|instance| instance.ids);
                instances.dedup_by(|a, b| a.ids == b.ids && a.uuid == b.uuid);
                let mut gpu_instances: Vec<(Placement, u32)> =
                    instances.iter().map(|instance| (instance.placement, instance.gpu_instance_slices)).collect();
                gpu_instances.sort_unstable();
                gpu_instances.dedup();
                let taken: Vec<Placement> = gpu_instances.iter().map(|(placement, _)| *placement).collect();
                let used = gpu_instances.iter().map(|(_, slices)| *slices).fold(0, u32::saturating_add);
                let left = self.known.identity.slices.compute.saturating_sub(used);
                self.slice_activity(handle, &mut instances);
                MigState::On { has_room: has_room(&self.known.profiles, &taken, left), instances }
            }
            Err(error) => MigState::Unread(self.fails("its MIG instances", &error)),
        }
    }

    /// The instances that answer for themselves. The count is the most that there can be, with holes.
    fn instances(&self, handle: &Handle<'_>) -> Result<Vec<MigInstance>, NvmlError> {
        let mut instances = Vec::new();
        for index in 0..handle.mig_device_count()? {
            let mig = match handle.mig_device_by_index(index) {
                Ok(mig) => mig,
                Err(NvmlError::NotFound) => continue,
                Err(error) => return Err(error),
            };
            instances.push(self.instance(handle, &mig)?);
        }
        Ok(instances)
    }

    fn instance(&self, handle: &Handle<'_>, mig: &Handle<'_>) -> Result<MigInstance, NvmlError> {
        let ids = raw::instance_ids(self.nvml, mig)?;
        let attributes = mig.attributes()?;
        let name = mig.name()?;
        // `NVIDIA H100 80GB HBM3 MIG 3g.40gb`.
        let profile = name.rsplit_once("MIG ").map_or(name.as_str(), |(_, profile)| profile).trim().to_owned();
        Ok(MigInstance {
            uuid: mig.uuid()?,
            ids,
            profile,
            compute_slices: attributes.compute_instance_slice_count,
            gpu_instance_slices: attributes.gpu_instance_slice_count,
            placement: raw::placement(self.nvml, handle, ids.gpu_instance)?,
            multiprocessors: attributes.multiprocessor_count,
            memory_bytes: attributes.memory_size_mb.checked_mul(MIB).and_then(bytes),
            memory_used_bytes: mig.memory_info().ok().and_then(|memory| bytes(memory.used)),
            activity: None,
        })
    }

    /// Samples of the time in question; what is no percentage, of no process or of another time is none. The driver says that
    /// nothing is new by not finding anything.
    fn sm_samples(&mut self, handle: &Handle<'_>) -> Vec<SmSample> {
        let Since { after_us, until_us, .. } = self.since;
        let samples = match handle.process_utilization_stats(after_us) {
            Ok(samples) => samples,
            Err(NvmlError::NotFound) => return Vec::new(),
            Err(error) => return self.optional("its processes' utilisation", Err(error)).unwrap_or_default(),
        };
        let valid = |sample: &ProcessUtilizationSample| {
            let is_of_time = sample.timestamp > after_us && sample.timestamp <= until_us;
            let percent = percent(sample.sm_util).filter(|_| is_of_time && sample.pid != 0)?;
            Some(SmSample { pid: sample.pid, percent, at_us: sample.timestamp })
        };
        samples.iter().filter_map(|sample| self.checked(valid(sample))).collect()
    }

    /// Counts what was left out since it cannot be.
    const fn checked<T: Copy>(&mut self, reading: Option<T>) -> Option<T> {
        if reading.is_none() {
            *self.rejected += 1;
        }
        reading
    }

    /// What a device may lack without being broken. What fails otherwise is told.
    fn optional<T>(&mut self, what: &str, read: Result<T, NvmlError>) -> Option<T> {
        match read {
            Ok(value) => Some(value),
            Err(
                NvmlError::NotSupported | NvmlError::NoData | NvmlError::NotFound | NvmlError::FailedToLoadSymbol(_),
            ) => None,
            Err(error) => {
                self.fails(what, &error);
                None
            }
        }
    }

    fn fails(&mut self, what: &str, error: &NvmlError) -> String {
        let text = error.to_string();
        self.failures.push(format!("{}: {what}: {text}", self.known.identity.uuid));
        text
    }
}

/// Asks for a list again while it grows faster than it is read.
fn list(mut read: impl FnMut() -> Result<Vec<ProcessInfo>, NvmlError>) -> Result<Vec<ProcessInfo>, NvmlError> {
    let mut last = Err(NvmlError::InsufficientSize(None));
    for _ in 0..LIST_TRIES {
        last = read();
        if !matches!(last, Err(NvmlError::InsufficientSize(_))) {
            break;
        }
    }
    last
}

fn optional_list(list: Result<Vec<ProcessInfo>, NvmlError>) -> Result<Vec<ProcessInfo>, NvmlError> {
    match list {
        Err(NvmlError::NotSupported | NvmlError::FailedToLoadSymbol(_)) => Ok(Vec::new()),
        other => other,
    }
}

/// More power than any device draws: what is above is a marker.
const POWER_LIMIT_MW: u32 = 100_000_000;

fn percent(value: u32) -> Option<u8> {
    u8::try_from(value).ok().filter(|percent| *percent <= 100)
}

/// Fewer bytes than a device may have; what is above is a marker.
fn bytes(value: u64) -> Option<u64> {
    (value < 1 << 50).then_some(value)
}
