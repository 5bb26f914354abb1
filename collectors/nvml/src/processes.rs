//! Lists of processes, as the driver gives them: checked, and each process once.

use std::collections::BTreeMap;
use std::fmt;

use crate::reading::{GpuProcess, InstanceIds};

/// An entry of one of the driver's lists.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Listed {
    /// The process.
    pub pid: u32,
    /// Memory that it uses, in bytes; `None` where the driver does not say.
    pub memory_bytes: Option<u64>,
    /// The GPU instance; `None` for the whole device.
    pub gpu_instance: Option<u32>,
    /// The compute instance; `None` for the whole device.
    pub compute_instance: Option<u32>,
    /// Whether the list is that of clients of an MPS server.
    pub mps_client: bool,
}

/// A list that cannot be: the driver's records have another layout than was expected, and no entry can be trusted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ListError {
    /// A process number that no process can have.
    ImpossiblePid {
        /// It.
        pid: u32,
        /// The highest that there can be.
        most: u32,
    },
    /// A GPU instance without a compute instance, or the other way round.
    HalfAnInstance {
        /// The process.
        pid: u32,
    },
}

impl fmt::Display for ListError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ListError::ImpossiblePid { pid, most } => {
                write!(
                    f,
                    "it lists process {pid}, and numbers of processes go from 1 to {most}: the driver's records have another layout"
                )
            }
            ListError::HalfAnInstance { pid } => {
                write!(
                    f,
                    "it lists process {pid} with one half of an instance: the driver's records have another layout"
                )
            }
        }
    }
}

impl std::error::Error for ListError {}

/// The highest number of a process on any Linux (`PID_MAX_LIMIT`).
const PID_LIMIT: u32 = 1 << 22;
/// More memory than any device has: what is above is a marker for "not available".
const MEMORY_LIMIT: u64 = 1 << 50;

/// Makes one list of several: of the same process on the same instance, which the driver lists under compute, graphics,
/// the device and the instance, one is left. Its memory is the most that any list says, since they tell of the same.
/// In the order of numbers and instances.
///
/// # Errors
/// [`ListError`] where an entry cannot be.
pub fn merge(lists: &[Vec<Listed>], pid_max: Option<u32>) -> Result<Vec<GpuProcess>, ListError> {
    let most = pid_max.unwrap_or(PID_LIMIT).min(PID_LIMIT);
    let mut merged: BTreeMap<(u32, Option<InstanceIds>), GpuProcess> = BTreeMap::new();
    for listed in lists.iter().flatten() {
        let pid = listed.pid;
        if pid == 0 || pid > most {
            return Err(ListError::ImpossiblePid { pid, most });
        }
        let instance = match (listed.gpu_instance, listed.compute_instance) {
            (None, None) => None,
            (Some(gpu_instance), Some(compute_instance)) => Some(InstanceIds { gpu_instance, compute_instance }),
            _ => return Err(ListError::HalfAnInstance { pid }),
        };
        let memory_bytes = listed.memory_bytes.filter(|bytes| *bytes <= MEMORY_LIMIT);
        let process =
            merged.entry((pid, instance)).or_insert(GpuProcess { pid, instance, memory_bytes, mps_client: false });
        process.memory_bytes = process.memory_bytes.max(memory_bytes);
        process.mps_client |= listed.mps_client;
    }
    Ok(merged.into_values().collect())
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    fn listed(pid: u32, memory: u64, instance: Option<(u32, u32)>) -> Listed {
        let (gpu_instance, compute_instance) = (instance.map(|(gi, _)| gi), instance.map(|(_, ci)| ci));
        Listed { pid, memory_bytes: Some(memory), gpu_instance, compute_instance, mps_client: false }
    }

    #[test]
    fn att_05_a_process_that_computes_and_draws_is_one_and_markers_are_no_memory() {
        let compute = vec![listed(7001, 2_147_483_648, None), listed(7002, u64::MAX, None)];
        let graphics = vec![listed(7001, 2_147_483_648, None), listed(7100, 67_108_864, None)];
        let merged = merge(&[compute, graphics], Some(4_194_304)).unwrap();
        assert_eq!(merged.iter().map(|process| process.pid).collect::<Vec<_>>(), [7001, 7002, 7100]);
        assert_eq!(merged.iter().filter_map(|process| process.memory_bytes).sum::<u64>(), 2_214_592_512);
        assert_eq!(merged[1].memory_bytes, None);
    }

    #[test]
    fn mig_04_lists_that_are_read_twice_count_once_and_several_instances_stay() {
        let device = vec![listed(8123, 1, Some((3, 0))), listed(8123, 1, Some((5, 0))), listed(8200, 1, Some((9, 0)))];
        let instances = device.iter().map(|one| vec![*one]).collect::<Vec<_>>();
        let merged = merge(&[vec![device.clone()], instances].concat(), None).unwrap();
        let found: Vec<_> =
            merged.iter().map(|process| (process.pid, process.instance.unwrap().gpu_instance)).collect();
        assert_eq!(found, [(8123, 3), (8123, 5), (8200, 9)]);
    }

    #[test]
    fn att_03_one_impossible_number_rejects_the_whole_list() {
        // The 32-byte records of the case, read as records of 24 bytes.
        let misread = [(5101, 1 << 30, None), (0, 5102, Some(1_073_741_824)), (u32::MAX, 0, Some(5103))];
        let list: Vec<Listed> = misread
            .iter()
            .map(|(pid, memory, gi)| Listed { gpu_instance: *gi, ..listed(*pid, *memory, None) })
            .collect();
        let error = merge(&[list], Some(4_194_304)).unwrap_err();
        assert_eq!(error, ListError::ImpossiblePid { pid: 0, most: 4_194_304 });
        assert!(error.to_string().contains("another layout"));
        assert_eq!(
            merge(&[vec![listed(32_769, 1, None)]], Some(32_768)).unwrap_err(),
            ListError::ImpossiblePid { pid: 32_769, most: 32_768 }
        );
        let half = Listed { gpu_instance: Some(1), ..listed(7, 1, None) };
        assert_eq!(merge(&[vec![half]], None).unwrap_err(), ListError::HalfAnInstance { pid: 7 });
    }
}
