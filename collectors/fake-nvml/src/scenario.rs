//! What a fake driver plays: devices, and a state for each that holds from a second on until the next.

use std::collections::BTreeMap;
use std::path::Path;

use serde::Deserialize;

/// A scenario file.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Scenario {
    /// The driver's version.
    pub driver: String,
    /// When the driver is not loaded, in seconds from the start.
    #[serde(default)]
    pub outages: Vec<Outage>,
    /// The devices, in the driver's order.
    #[serde(rename = "device")]
    pub devices: Vec<Device>,
}

/// A time without the driver.
#[derive(Clone, Copy, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Outage {
    /// Its first second.
    pub from: u64,
    /// The first second after it.
    pub until: u64,
}

/// A device.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Device {
    /// Its model.
    pub name: String,
    /// `GPU-…`.
    pub uuid: String,
    /// `00000000:19:00.0`.
    pub pci: String,
    /// The number of its device file; its place among the devices where left out.
    pub minor: Option<u32>,
    /// All of its memory.
    pub memory_mib: u64,
    /// Most MIG devices; 0 where it cannot be cut.
    #[serde(default)]
    pub mig_devices_max: u32,
    /// The profiles of GPU instances that it knows.
    #[serde(default, rename = "profile")]
    pub profiles: Vec<Profile>,
    /// Its states, in the order of time; the first from second 0.
    #[serde(rename = "state")]
    pub states: Vec<State>,
}

/// A profile of GPU instances.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Profile {
    /// The number by which it is asked for (`NVML_GPU_INSTANCE_PROFILE_…`).
    pub number: u32,
    /// The id by which placements are asked for.
    pub id: u32,
    /// Compute slices.
    pub slices: u32,
    /// Most instances of it.
    pub most: u32,
    /// Multiprocessors.
    pub multiprocessors: u32,
    /// Memory.
    pub memory_mib: u64,
    /// First memory slice and count of each place for it.
    pub placements: Vec<(u32, u32)>,
}

/// What a device is like from a second on. What is left out, it does not support.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct State {
    /// From when, in seconds from the start.
    pub at: u64,
    /// Whether it fell off the bus.
    pub lost: bool,
    /// Whether it is cut.
    pub mig: bool,
    /// Whether it will be after its next reset; as now where left out.
    pub mig_pending: Option<bool>,
    /// Percent of time with a kernel running.
    pub utilisation: Option<u32>,
    /// Memory in use.
    pub memory_used_mib: u64,
    /// Power; energy is its sum over time.
    pub power_mw: Option<u32>,
    /// Whether the counter of energy begins anew with this state.
    pub energy_restarts: bool,
    /// What its parts do; where left out here and of its instances, it does not measure that.
    pub activity: Option<Activity>,
    /// What happens when this state begins.
    #[serde(rename = "event")]
    pub events: Vec<Event>,
    /// Whether it keeps accounts of processes.
    pub accounting: bool,
    /// The accounts that it keeps.
    pub accounts: Vec<Account>,
    /// Its MIG devices.
    #[serde(rename = "instance")]
    pub instances: Vec<Instance>,
    /// What runs on it.
    #[serde(rename = "process")]
    pub processes: Vec<Process>,
    /// What the driver says of how busy processes kept it.
    pub sm: Vec<SmSample>,
    /// Codes with which calls fail: the call's name, and the number of its `nvmlReturn_t`.
    pub errors: BTreeMap<String, u32>,
    /// How many processes more than there are each call for their number leaves out, one call after the other.
    pub hidden: Vec<u32>,
    /// Bytes of the list of compute processes, in hexadecimal, where they are of another layout; with how many entries.
    pub raw: Option<Raw>,
}

/// What parts do, in millionths of the time, or of what could be.
#[derive(Clone, Copy, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Activity {
    /// Multiprocessors.
    pub sm: u32,
    /// Warps.
    pub occupancy: u32,
    /// Tensor cores.
    pub tensor: u32,
    /// Memory; not measured where left out.
    pub memory: Option<u32>,
}

/// Something that happens.
#[derive(Clone, Copy, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Event {
    /// The number of its kind (`nvmlEventType…`): 8 is an XID.
    pub kind: u64,
    /// What comes with it: the XID's number.
    #[serde(default)]
    pub data: u64,
    /// The GPU instance that is to blame.
    pub gi: Option<u32>,
    /// The compute instance.
    pub ci: Option<u32>,
}

/// The account of a process.
#[derive(Clone, Copy, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Account {
    /// Its number.
    pub pid: u32,
    /// When it began, in microseconds since 1970.
    pub start_us: u64,
    /// For how long it was there; left out while it is.
    pub ms: Option<u64>,
}

/// A list of another layout.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Raw {
    /// How many entries the driver says.
    pub count: u32,
    /// The bytes, in hexadecimal; spaces are passed over.
    pub bytes: String,
}

/// A MIG device.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Instance {
    /// `MIG-…`.
    pub uuid: String,
    /// GPU instance.
    pub gi: u32,
    /// Compute instance.
    pub ci: u32,
    /// Its profile, as in its name.
    pub profile: String,
    /// Compute slices of the GPU instance.
    pub gi_slices: u32,
    /// Compute slices of the compute instance.
    pub ci_slices: u32,
    /// First memory slice and count of the GPU instance.
    pub placement: (u32, u32),
    /// Multiprocessors.
    pub multiprocessors: u32,
    /// Memory.
    pub memory_mib: u64,
    /// Memory in use.
    #[serde(default)]
    pub used_mib: u64,
    /// What its parts do, measured for the GPU instance.
    pub activity: Option<Activity>,
}

/// A process.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Process {
    /// Its number.
    pub pid: u32,
    /// In which of the driver's lists it is.
    #[serde(default)]
    pub list: List,
    /// GPU instance.
    pub gi: Option<u32>,
    /// Compute instance.
    pub ci: Option<u32>,
    /// Memory; not available where left out.
    pub memory_mib: Option<u64>,
}

/// One of the driver's lists.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum List {
    /// Processes that compute.
    #[default]
    Compute,
    /// Processes that draw.
    Graphics,
    /// Clients of an MPS server.
    Mps,
}

/// How busy a process was, as the driver says, right or wrong.
#[derive(Clone, Copy, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SmSample {
    /// Which.
    pub pid: u32,
    /// Percent, or what is meant to be.
    pub percent: u32,
    /// Microseconds since 1970.
    pub at_us: u64,
}

impl Scenario {
    /// Reads a file.
    ///
    /// # Errors
    /// A text that says what is wrong with it.
    pub fn read(path: &Path) -> Result<Scenario, String> {
        let text = std::fs::read_to_string(path).map_err(|error| format!("{}: {error}", path.display()))?;
        let scenario: Scenario = toml::from_str(&text).map_err(|error| format!("{}: {error}", path.display()))?;
        for device in &scenario.devices {
            let ordered = device.states.windows(2).all(|pair| matches!(pair, [a, b] if a.at < b.at));
            if !ordered || device.states.first().is_none_or(|state| state.at != 0) {
                return Err(format!(
                    "{}: the states of {} do not begin at 0, or are out of order",
                    path.display(),
                    device.uuid
                ));
            }
        }
        Ok(scenario)
    }

    /// Whether the driver is loaded at an instant, in microseconds from the start.
    #[must_use]
    pub fn is_loaded(&self, at_us: u64) -> bool {
        let second = at_us / US_PER_SECOND;
        !self.outages.iter().any(|outage| (outage.from..outage.until).contains(&second))
    }
}

const US_PER_SECOND: u64 = 1_000_000;

impl Device {
    /// What it is like at an instant, in microseconds from the start.
    #[must_use]
    pub fn at(&self, at_us: u64) -> Option<&State> {
        self.states.iter().rev().find(|state| state.at * US_PER_SECOND <= at_us)
    }

    /// What its counter of energy says, in millijoules: power over time since it last began.
    #[must_use]
    pub fn energy_mj(&self, at_us: u64) -> u64 {
        let mut sum_nj: u64 = 0;
        for (state, length_us) in self.lasted(0, at_us) {
            if state.energy_restarts {
                sum_nj = 0;
            }
            sum_nj += length_us * u64::from(state.power_mw.unwrap_or(0));
        }
        sum_nj / US_PER_SECOND
    }

    /// What it did between two instants, on average; of a GPU instance where one is named. `None` where that is not measured
    /// throughout.
    #[must_use]
    pub fn activity(&self, gpu_instance: Option<u32>, (from_us, until_us): (u64, u64)) -> Option<Activity> {
        let (mut sums, mut whole) = ([0u64; 4], 0);
        let mut has_memory = true;
        for (state, length_us) in self.lasted(from_us, until_us) {
            let found = match gpu_instance {
                None => state.activity,
                Some(gi) => state.instances.iter().find(|instance| instance.gi == gi)?.activity,
            }?;
            has_memory &= found.memory.is_some();
            let parts = [found.sm, found.occupancy, found.tensor, found.memory.unwrap_or(0)];
            for (sum, part) in sums.iter_mut().zip(parts) {
                *sum += u64::from(part) * length_us;
            }
            whole += length_us;
        }
        let [sm, occupancy, tensor, memory] =
            sums.map(|sum| u32::try_from(sum.checked_div(whole).unwrap_or(0)).unwrap_or(0));
        Some(Activity { sm, occupancy, tensor, memory: has_memory.then_some(memory) })
    }

    /// States with how long each lasted between two instants.
    fn lasted(&self, from_us: u64, until_us: u64) -> impl Iterator<Item = (&State, u64)> {
        let lasted = move |(place, state): (usize, &State)| {
            let next = self.states.get(place + 1).map_or(until_us, |next| next.at * US_PER_SECOND);
            next.min(until_us).saturating_sub((state.at * US_PER_SECOND).max(from_us))
        };
        let begun = self.states.iter().enumerate().filter(move |(_, state)| state.at * US_PER_SECOND <= until_us);
        begun.map(move |(place, state)| (state, lasted((place, state)))).filter(|(_, length_us)| *length_us > 0)
    }
}
