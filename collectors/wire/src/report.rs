//! What a collector reports of one node.

use std::collections::BTreeMap;
use std::fmt;
use std::marker::PhantomData;

use serde::de::{IgnoredAny, SeqAccess, Visitor};
use serde::{Deserialize, Deserializer, Serialize};

use crate::limits::{JOBS_MAX, SEGMENTS_MAX, UNITS_MAX};

/// A report of one node. It stands by itself: each unit and each job that one of its segments names is in it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Report {
    /// The version of the protocol: [`crate::PROTOCOL`].
    pub protocol: u32,
    /// The cluster; the token must be bound to it.
    pub cluster: String,
    /// The node's name in the cluster.
    pub node: String,
    /// Which boot of the node: `/proc/sys/kernel/random/boot_id`.
    pub boot_id: String,
    /// Which start of the collector.
    pub epoch: Epoch,
    /// Counts the reports of the epoch. Of two heads of one epoch, the one with the higher sequence is in force.
    pub sequence: u64,
    /// The node's clocks when the report was made.
    pub clocks: Clocks,
    /// The collector and its version, such as `gpuledger-agent/0.1.0`.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub collector: String,
    /// The units that segments name by their place in this list.
    #[serde(default, deserialize_with = "up_to::<_, _, UNITS_MAX>", skip_serializing_if = "Vec::is_empty")]
    pub units: Vec<Unit>,
    /// The jobs that segments name by their place in this list.
    #[serde(default, deserialize_with = "up_to::<_, _, JOBS_MAX>", skip_serializing_if = "Vec::is_empty")]
    pub jobs: Vec<Job>,
    /// Finished segments that were not acknowledged yet.
    #[serde(default, deserialize_with = "up_to::<_, _, SEGMENTS_MAX>", skip_serializing_if = "Vec::is_empty")]
    pub segments: Vec<Segment>,
    /// Open segments with their totals so far. It replaces the head of the report before.
    #[serde(default, deserialize_with = "up_to::<_, _, SEGMENTS_MAX>", skip_serializing_if = "Vec::is_empty")]
    pub head: Vec<Segment>,
}

/// One start of a collector. Segments of different epochs never share an identity.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Epoch {
    /// When it started, by the node's wall clock.
    pub start_us: i64,
    /// Drawn at the start; below 2^20.
    pub random: u32,
}

/// The node's clocks, read together.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Clocks {
    /// The wall clock.
    pub wall_us: i64,
    /// The boot-time clock: microseconds since the boot, those asleep counted.
    pub boot_us: i64,
}

/// What a unit is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum UnitKind {
    /// A GPU that is not cut into slices.
    Full,
    /// One MIG device: a GPU instance with a compute instance.
    Slice,
    /// What is left of a GPU beside its MIG devices.
    Remainder,
}

/// The smallest thing that is billed apart, from its making to its end.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Unit {
    /// The device that it is, or is a part of.
    pub gpu: Gpu,
    /// What it is.
    pub kind: UnitKind,
    /// The UUID of a MIG device; left out for a whole GPU and for a remainder.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub uuid: String,
    /// The profile of a MIG device, such as `3g.40gb`; left out otherwise.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub profile: String,
    /// Its compute slices, of those of the GPU.
    pub compute_slices: u32,
    /// Its memory slices, of those of the GPU.
    pub memory_slices: u32,
    /// When it was made or first seen. With the UUID, this is its identity: a slice that is made again is another.
    pub birth_us: i64,
    /// When it was unmade or last seen; left out while it exists.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub death_us: Option<i64>,
}

/// A device.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Gpu {
    /// Its UUID, `GPU-…`.
    pub uuid: String,
    /// Its model, as the driver calls it.
    pub model: String,
    /// Its compute slices: 7 on an H100, 1 where it cannot be cut.
    pub compute_slices: u32,
    /// Its memory slices: 8 on an H100, 1 where it cannot be cut.
    pub memory_slices: u32,
}

/// An attempt of a job.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Job {
    /// What its source calls it, such as a Slurm job's raw id or a pod's UID.
    pub source_id: String,
    /// When the attempt began, as far as the collector knows.
    pub start_us: i64,
    /// What is known of it; never a team.
    #[serde(default)]
    pub facts: Facts,
}

/// Facts of a job by which rules find its team. What is not known is left out.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Facts {
    /// Who submitted it.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub user: String,
    /// The scheduler's account.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub account: String,
    /// The scheduler's partition or queue.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub partition: String,
    /// The scheduler's quality of service.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub qos: String,
    /// The Kubernetes namespace.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub namespace: String,
    /// The job's or command's name.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub name: String,
    /// GPUs asked for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub gpus: Option<u32>,
    /// Labels, by key.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub labels: BTreeMap<String, String>,
}

/// What a unit was doing. What nobody saw is not reported; it is what is left.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum State {
    /// A job held it, busy or not.
    Held,
    /// Nobody held it.
    Idle,
    /// Nobody could: no placement of the layout fits it.
    Stranded,
    /// It was lost, or being cut anew.
    OutOfService,
}

/// One unit, one job or none, one interval inside one UTC hour, with exact totals.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Segment {
    /// Its number within its hour and epoch, from 0. Hour, node, epoch and number are its identity.
    pub number: u32,
    /// The unit: its place in [`Report::units`].
    pub unit: u32,
    /// The job: its place in [`Report::jobs`]; left out where none held the unit.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub job: Option<u32>,
    /// What the unit was doing.
    pub state: State,
    /// When it begins; its UTC hour is the segment's.
    pub start_us: i64,
    /// When it ends, within the same hour.
    pub end_us: i64,
    /// Wall time × share of the unit.
    pub share_us: i64,
    /// Of it, with a process of the job on the unit; left out where nobody looked.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub active_us: Option<i64>,
    /// Of it, inferred over a gap.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub estimated_us: i64,
    /// Of it, while the job was suspended.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub suspended_us: i64,
    /// What was measured meanwhile; a family that was not measured is left out.
    #[serde(default, skip_serializing_if = "Telemetry::is_empty")]
    pub telemetry: Telemetry,
}

/// Totals of what was measured.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Telemetry {
    /// Time with a kernel running, as the driver tells it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub utilisation: Option<Total>,
    /// Millijoules.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub energy_mj: Option<Total>,
    /// Most memory in use, in bytes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub peak_memory_bytes: Option<u64>,
    /// Time with a warp on a multiprocessor, averaged over all of them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sm_activity: Option<Total>,
    /// Warps that were on multiprocessors, as a part of the time: of those that could have been.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sm_occupancy: Option<Total>,
    /// Time with the tensor cores at work.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tensor: Option<Total>,
    /// Bandwidth of memory in use, as a part of the time: of all that there is.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub memory_activity: Option<Total>,
}

/// A total, and for how long it was measured: the time is its denominator.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Total {
    /// The total: microseconds for what is a part of time, else the unit of the field.
    pub total: u64,
    /// For how long it was measured.
    pub measured_us: i64,
}

impl Telemetry {
    fn is_empty(&self) -> bool {
        *self == Telemetry::default()
    }
}

/// Reads a list and keeps one more than `MOST` of it, which is enough to see that it is too long: a small body can hold many small
/// things.
fn up_to<'de, D: Deserializer<'de>, T: Deserialize<'de>, const MOST: usize>(
    deserializer: D,
) -> Result<Vec<T>, D::Error> {
    struct UpTo<T, const MOST: usize>(PhantomData<T>);

    impl<'de, T: Deserialize<'de>, const MOST: usize> Visitor<'de> for UpTo<T, MOST> {
        type Value = Vec<T>;

        fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            f.write_str("a list")
        }

        fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<Vec<T>, A::Error> {
            let mut kept = Vec::new();
            while kept.len() <= MOST {
                let Some(item) = list.next_element()? else { return Ok(kept) };
                kept.push(item);
            }
            while list.next_element::<IgnoredAny>()?.is_some() {}
            Ok(kept)
        }
    }

    deserializer.deserialize_seq(UpTo::<T, MOST>(PhantomData))
}

#[allow(clippy::trivially_copy_pass_by_ref)]
fn is_zero(number: &i64) -> bool {
    *number == 0
}
