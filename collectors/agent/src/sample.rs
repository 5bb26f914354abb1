//! What a node was like at an instant: who uses which unit of which GPU. Probes fill it; attribution reads it.

use std::collections::BTreeMap;

pub use gpuledger_nvml::Activity;

/// A job, by what its source calls it.
pub type JobId = String;

/// The job of whatever uses a GPU without an owner. No rule matches it.
pub const UNATTRIBUTED: &str = "unattributed";

/// A node at an instant.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Sample {
    /// When, in microseconds since the boot, those asleep counted.
    pub at_us: i64,
    /// Its GPUs, by UUID.
    pub gpus: BTreeMap<String, GpuSample>,
}

/// A GPU at an instant.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GpuSample {
    /// What it is.
    pub gpu: gpuledger_wire::Gpu,
    /// What is known of it.
    pub seen: Seen,
    /// The part of the last moments in which a kernel ran, in percent.
    pub utilisation_percent: Option<u8>,
    /// Its counter of energy, in millijoules.
    pub energy_mj: Option<u64>,
    /// When processes were on it that began and ended since the last look, in microseconds since the boot. Nobody knows whose
    /// they were.
    pub brief_us: Vec<(i64, i64)>,
}

/// What is known of a GPU at an instant.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Seen {
    /// It is lost: nobody can use it.
    Lost,
    /// It could not be read. This is no look at it.
    NotRead,
    /// It is cut into these units.
    Units(Layout),
}

/// How a GPU is cut, and who uses what.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Layout {
    /// Its units, in an order that stays.
    pub units: Vec<UnitSample>,
    /// Whether it waits for a reset to be cut otherwise.
    pub mode_pending: bool,
}

/// What makes a unit another one. That of a slice holds what its GPU gives out again, too: its UUID comes back.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum UnitShape {
    /// The whole GPU.
    Full,
    /// A MIG device.
    Slice {
        /// Its UUID.
        uuid: String,
        /// Its GPU instance.
        gpu_instance: u32,
        /// Its compute instance.
        compute_instance: u32,
        /// Its profile.
        profile: String,
        /// Its compute and memory slices.
        slices: (u32, u32),
    },
    /// What is in no MIG device.
    Remainder {
        /// Its compute and memory slices.
        slices: (u32, u32),
    },
}

/// A unit at an instant.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UnitSample {
    /// What it is.
    pub shape: UnitShape,
    /// Of a remainder: whether another slice would fit.
    pub has_room: bool,
    /// Who uses it, by job.
    pub users: BTreeMap<JobId, Use>,
    /// What its parts did since the last look.
    pub activity: Option<Activity>,
}

/// A job's use of a unit at an instant.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Use {
    /// When the first of its processes that are there began, in microseconds since the boot; `None` where that is not known.
    pub since_us: Option<i64>,
    /// Whether one of its processes is on the unit; not so where a scheduler gave it the unit and it has not opened it.
    pub active: bool,
    /// Whether all of its processes are stopped.
    pub suspended: bool,
    /// Memory that they use, in bytes; `None` where that is not known of all.
    pub memory_bytes: Option<u64>,
    /// How busy they kept the GPU, in percent; `None` where that is not known of all.
    pub sm_percent: Option<u32>,
}

impl UnitShape {
    /// Its compute and memory slices, of a GPU.
    #[must_use]
    pub const fn slices(&self, gpu: &gpuledger_wire::Gpu) -> (u32, u32) {
        match self {
            UnitShape::Full => (gpu.compute_slices, gpu.memory_slices),
            UnitShape::Slice { slices, .. } | UnitShape::Remainder { slices } => *slices,
        }
    }
}
