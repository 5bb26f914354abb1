//! Which GPUs Slurm's control groups let jobs use: `devices.list` of version 1.
//!
//! Slurm makes a group for each job, `slurm/uid_UID/job_JOB` (or `slurm_NODE/…` where several daemons run on a host), and allows in
//! it the device files of the GPUs that the job was given: lines such as `c 195:2 rwm`, with the minor number of the GPU.

use std::collections::BTreeMap;
use std::io;
use std::path::Path;

/// Jobs by the GPU that their groups allow.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DeviceLists {
    /// The raw ids of jobs, by the minor number of a GPU's device file, in ascending order.
    pub jobs: BTreeMap<u32, Vec<String>>,
    /// What could not be read, with the reason.
    pub unread: Vec<String>,
}

/// The major number of NVIDIA's device files, and minors that are no GPU: the control device and its kin.
const NVIDIA_MAJOR: &str = "195";
const MINORS_MAX: u32 = 247;

impl DeviceLists {
    /// Reads the groups under the root of the hierarchy `devices`. A job whose group allows everything says nothing of GPUs; one
    /// that ends while it is read is passed over.
    ///
    /// # Errors
    /// Where the root cannot be read.
    pub fn read(root: &Path) -> io::Result<DeviceLists> {
        let mut found = DeviceLists::default();
        for (slurm, name) in folders(root)? {
            if name != "slurm" && !name.starts_with("slurm_") {
                continue;
            }
            for (uid, name) in folders(&slurm).unwrap_or_default() {
                if !name.starts_with("uid_") {
                    continue;
                }
                for (group, name) in folders(&uid).unwrap_or_default() {
                    let Some(job) = name.strip_prefix("job_").filter(|job| is_job(job)) else { continue };
                    found.take(&group.join("devices.list"), job);
                }
            }
        }
        for jobs in found.jobs.values_mut() {
            jobs.sort_unstable();
            jobs.dedup();
        }
        Ok(found)
    }

    fn take(&mut self, list: &Path, job: &str) {
        match std::fs::read_to_string(list) {
            Ok(text) => {
                for minor in minors(&text) {
                    self.jobs.entry(minor).or_default().push(job.to_owned());
                }
            }
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            Err(error) => self.unread.push(format!("{}: {error}", list.display())),
        }
    }
}

fn is_job(job: &str) -> bool {
    !job.is_empty() && job.len() <= 200 && job.bytes().all(|byte| byte.is_ascii_alphanumeric())
}

fn folders(path: &Path) -> io::Result<Vec<(std::path::PathBuf, String)>> {
    let mut found = Vec::new();
    for entry in std::fs::read_dir(path)? {
        let entry = entry?;
        if let Ok(name) = entry.file_name().into_string()
            && entry.file_type().is_ok_and(|kind| kind.is_dir())
        {
            found.push((entry.path(), name));
        }
    }
    Ok(found)
}

/// GPUs of a list; none where it allows all of them, since such a group keeps nobody from any.
fn minors(text: &str) -> Vec<u32> {
    let mut found = Vec::new();
    for line in text.lines() {
        let mut words = line.split_ascii_whitespace();
        let (Some(kind), Some(numbers)) = (words.next(), words.next()) else { continue };
        let Some((major, minor)) = numbers.split_once(':') else { continue };
        let is_ours = major == NVIDIA_MAJOR || major == "*";
        match (kind, minor) {
            ("a", _) => return Vec::new(),
            ("c", "*") if is_ours => return Vec::new(),
            ("c", minor) if is_ours => found.extend(minor.parse::<u32>().ok().filter(|minor| *minor <= MINORS_MAX)),
            _ => {}
        }
    }
    found
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn groups_name_the_gpus_that_they_allow() {
        let root = tempfile::tempdir().unwrap();
        let write = |group: &str, text: &str| {
            let folder = root.path().join(group);
            std::fs::create_dir_all(&folder).unwrap();
            std::fs::write(folder.join("devices.list"), text).unwrap();
        };
        // /dev/null, the control device (255), one GPU, and a slice's capability.
        write("slurm/uid_1500/job_9401", "c 1:3 rwm\nc 195:255 rwm\nc 195:1 rwm\nc 235:12 r\n");
        write("slurm/uid_1500/job_9402", "c 195:1 rw\nc 195:3 rw\nb 195:2 rw\n");
        write("slurm_gpu01/uid_1500/job_9403", "c 195:0 rwm\n");
        write("slurm/uid_1500/job_9404", "a *:* rwm\n");
        write("slurm/uid_1500/job_9405", "c 195:2 rw\nc 195:* rw\n");
        write("slurm/uid_1500/job_9401/step_0", "c 195:0 rw\n");
        write("system.slice/uid_1/job_1", "c 195:0 rw\n");
        let found = DeviceLists::read(root.path()).unwrap();
        let of = |jobs: &[&str]| jobs.iter().map(|job| (*job).to_owned()).collect::<Vec<_>>();
        let wanted = [(0, of(&["9403"])), (1, of(&["9401", "9402"])), (3, of(&["9402"]))];
        assert_eq!((found.jobs, found.unread), (wanted.into(), vec![]));
        assert!(DeviceLists::read(&root.path().join("none")).is_err());
    }
}
