//! What one look at the devices gives.

use crate::placement::Placement;

/// One look at all devices.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Sweep {
    /// The driver's version; empty where it does not say.
    pub driver: String,
    /// The devices, in the order in which the driver counts them.
    pub devices: Vec<Device>,
    /// What could not be read, one line each, for a log and a metric.
    pub failures: Vec<String>,
    /// What happened to devices since the last look.
    pub events: Vec<Event>,
    /// Readings that cannot be, which were left out.
    pub rejected: u64,
    /// Whether the driver went away or was replaced: it must be loaded again.
    pub reload: bool,
}

/// What stays the same of a device.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Identity {
    /// `GPU-…`. Other numbers of it are local to a boot or a container.
    pub uuid: String,
    /// Where it is plugged in, such as `00000000:19:00.0`; empty where the driver does not say.
    pub pci_address: String,
    /// The number of its device file, `/dev/nvidiaN`; `None` where the driver does not say.
    pub minor: Option<u32>,
    /// Its model, as the driver calls it.
    pub model: String,
    /// All of its memory, in bytes; `None` where the driver does not say.
    pub memory_bytes: Option<u64>,
    /// Into how many slices it can be cut.
    pub slices: SliceCounts,
}

/// Slices of compute and of memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SliceCounts {
    /// Of compute: 7 on an H100, 1 where the device cannot be cut.
    pub compute: u32,
    /// Of memory: 8 on an H100, 1 where the device cannot be cut.
    pub memory: u32,
}

/// A device at an instant.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Device {
    /// Its number in this boot, for people who look for it.
    pub index: u32,
    /// What stays the same of it.
    pub identity: Identity,
    /// Whether it answers.
    pub condition: Condition,
    /// Whether and how it is cut.
    pub mig: MigState,
    /// Whether its next mode is another than this one, so that it waits for a reset.
    pub mode_pending: bool,
    /// What runs on it.
    pub processes: Processes,
    /// The part of the last moments in which a kernel ran, in percent; `None` where it is not measured, as with MIG.
    pub utilisation_percent: Option<u8>,
    /// Memory in use, in bytes, without what the driver keeps for itself.
    pub memory_used_bytes: Option<u64>,
    /// All energy since the driver was loaded, in millijoules. It begins anew with the driver.
    pub energy_mj: Option<u64>,
    /// Power, in milliwatts.
    pub power_mw: Option<u32>,
    /// How busy processes kept it lately.
    pub sm_samples: Vec<SmSample>,
    /// What its parts did since the last look; `None` where it is not measured, or the last look did not measure it.
    pub activity: Option<Activity>,
    /// Processes that began and ended since the last look, where the driver keeps accounts of processes.
    pub ended: Vec<EndedProcess>,
}

/// What the parts of a device, or of a slice, did between two looks: each as millionths of the time, or of what could have
/// been; `None` where the device does not measure it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Activity {
    /// Time in which a multiprocessor had a warp, averaged over all.
    pub sm_ppm: Option<u32>,
    /// Warps that were there, of those that could have been.
    pub occupancy_ppm: Option<u32>,
    /// Time in which the tensor cores worked.
    pub tensor_ppm: Option<u32>,
    /// Bandwidth of memory in use.
    pub memory_ppm: Option<u32>,
}

/// A process that ended, as the driver's accounts say.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EndedProcess {
    /// Its number.
    pub pid: u32,
    /// When it began, in microseconds since 1970 by the wall clock.
    pub start_us: u64,
    /// When it ended.
    pub end_us: u64,
}

/// Something that happened to a device.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Event {
    /// The device's UUID; `None` where the driver names one that was never seen.
    pub gpu: Option<String>,
    /// What.
    pub kind: EventKind,
    /// The GPU instance that is to blame, where it is one.
    pub gpu_instance: Option<u32>,
    /// The compute instance in it, where it is one.
    pub compute_instance: Option<u32>,
}

/// What happened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EventKind {
    /// What the driver logs as XID, with its number: 79 is a device that fell off the bus.
    Xid(u64),
    /// An error of memory that was corrected.
    SingleBitEcc,
    /// An error of memory that was not.
    DoubleBitEcc,
    /// Another kind, by the driver's number.
    Other(u64),
}

/// Whether a device answers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Condition {
    /// It does.
    Fine,
    /// It fell off the bus, or fails at everything; the text is the driver's.
    Lost(String),
}

/// Whether and how a device is cut.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum MigState {
    /// It is not.
    Off,
    /// It is.
    On {
        /// The instances that answer for themselves, by GPU instance and compute instance.
        instances: Vec<MigInstance>,
        /// Whether another GPU instance of any profile would fit beside them.
        has_room: bool,
    },
    /// That could not be read; the text says why.
    Unread(String),
}

/// A MIG device: a compute instance of a GPU instance.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MigInstance {
    /// Its UUID, `MIG-…`.
    pub uuid: String,
    /// Its place in the GPU.
    pub ids: InstanceIds,
    /// Its profile, such as `1c.3g.40gb` or `1g.10gb+me`.
    pub profile: String,
    /// Its compute slices.
    pub compute_slices: u32,
    /// Compute slices of its GPU instance.
    pub gpu_instance_slices: u32,
    /// Memory slices of its GPU instance, and where they are.
    pub placement: Placement,
    /// Its multiprocessors.
    pub multiprocessors: u32,
    /// Its memory, in bytes.
    pub memory_bytes: Option<u64>,
    /// Memory in use, in bytes.
    pub memory_used_bytes: Option<u64>,
    /// What its parts did since the last look; `None` where that is not measured, or its GPU instance has other compute
    /// instances, too, since it is measured for all of them together.
    pub activity: Option<Activity>,
}

/// Numbers of an instance within its GPU. They are given out again once it is destroyed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct InstanceIds {
    /// The GPU instance.
    pub gpu_instance: u32,
    /// The compute instance in it.
    pub compute_instance: u32,
}

/// What runs on a device.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Processes {
    /// These, each once, by number and instance.
    Read(Vec<GpuProcess>),
    /// The driver gave a list that cannot be; the text says why. Somebody may be there, and nobody knows who.
    Rejected(String),
    /// The driver did not say; the text is its.
    Failed(String),
}

/// A process on a device, or on an instance of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct GpuProcess {
    /// Its number on the host.
    pub pid: u32,
    /// The instance it is on; `None` for the whole device.
    pub instance: Option<InstanceIds>,
    /// Memory that it uses, in bytes; `None` where the driver does not say.
    pub memory_bytes: Option<u64>,
    /// Whether it is a client of an MPS server.
    pub mps_client: bool,
}

/// How busy a process kept a device's multiprocessors lately.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SmSample {
    /// Which process.
    pub pid: u32,
    /// In percent; 100 at most.
    pub percent: u8,
    /// When it was measured, in microseconds since 1970, by the driver's clock.
    pub at_us: u64,
}
