//! GPUs that a job holds before any of its processes opens them, as a prolog writes them for DCGM's exporter.
//!
//! The folder holds a file for each GPU, named by its index on the node, or `GPU.INSTANCE` for a MIG GPU instance; each line of
//! it is the id of a job that holds it. (DCGM exporter, option `--hpc-job-mapping-dir`.)

use std::collections::BTreeMap;
use std::io;
use std::path::Path;

/// A GPU, or an instance of it, by the numbers that the node's driver gives in this boot.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct MappedGpu {
    /// The index of the GPU. It may be another after the next boot.
    pub index: u32,
    /// The GPU instance; `None` for the whole GPU.
    pub instance: Option<u32>,
}

/// Who holds which GPU, as a prolog wrote it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct JobMapping {
    /// The raw ids of the jobs that hold a GPU, in the file's order, each once.
    pub jobs: BTreeMap<MappedGpu, Vec<String>>,
    /// Files that could not be read, with the reason.
    pub unread: Vec<String>,
}

/// The longest id of a job, in bytes.
const JOB_BYTES_MAX: usize = 200;

impl JobMapping {
    /// Reads a folder. A file with another name is passed over; one that cannot be read does not hide the others.
    ///
    /// # Errors
    /// Where the folder itself cannot be read.
    pub fn read(folder: &Path) -> io::Result<JobMapping> {
        let mut mapping = JobMapping::default();
        for entry in std::fs::read_dir(folder)? {
            let path = entry?.path();
            let Some(gpu) = path.file_name().and_then(|name| name.to_str()).and_then(gpu) else { continue };
            match std::fs::read_to_string(&path) {
                Ok(text) => {
                    let jobs = jobs(&text);
                    if !jobs.is_empty() {
                        mapping.jobs.insert(gpu, jobs);
                    }
                }
                Err(error) => mapping.unread.push(format!("{}: {error}", path.display())),
            }
        }
        mapping.unread.sort();
        Ok(mapping)
    }
}

fn gpu(name: &str) -> Option<MappedGpu> {
    let number = |text: &str| text.bytes().all(|byte| byte.is_ascii_digit()).then(|| text.parse().ok()).flatten();
    match name.split_once('.') {
        None => Some(MappedGpu { index: number(name)?, instance: None }),
        Some((index, instance)) => Some(MappedGpu { index: number(index)?, instance: Some(number(instance)?) }),
    }
}

fn jobs(text: &str) -> Vec<String> {
    let mut jobs: Vec<String> = Vec::new();
    for line in text.lines().map(str::trim) {
        let fine = !line.is_empty() && line.len() <= JOB_BYTES_MAX && !line.chars().any(char::is_control);
        if fine && !jobs.iter().any(|job| job == line) {
            jobs.push(line.to_owned());
        }
    }
    jobs
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn files_are_named_by_gpu_and_instance_and_hold_jobs() {
        let folder = tempfile::tempdir().unwrap();
        let write = |name: &str, text: &str| std::fs::write(folder.path().join(name), text).unwrap();
        write("0", "9401\n9402\n9401\n");
        write("1.3", " 9403 \n");
        write("2", "\n");
        write("readme", "9404\n");
        write("-1", "9405\n");
        std::fs::create_dir(folder.path().join("3")).unwrap();
        let mapping = JobMapping::read(folder.path()).unwrap();
        let of = |index, instance| mapping.jobs.get(&MappedGpu { index, instance }).cloned();
        assert_eq!(of(0, None).unwrap(), ["9401", "9402"]);
        assert_eq!(of(1, Some(3)).unwrap(), ["9403"]);
        assert_eq!(mapping.jobs.len(), 2);
        assert_eq!(mapping.unread.len(), 1);
        assert!(JobMapping::read(&folder.path().join("none")).is_err());
    }
}
