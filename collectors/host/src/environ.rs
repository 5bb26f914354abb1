//! What a scheduler wrote into a process's environment, by an allow-list: nothing else of it is kept.
//!
//! A user can change it. It tells facts of the job that the control group names, and never which job that is.

/// The variables that are looked at.
pub const VARIABLES: [&str; 13] = [
    "SLURM_JOB_ID",
    "SLURM_JOB_USER",
    "SLURM_JOB_UID",
    "SLURM_JOB_ACCOUNT",
    "SLURM_JOB_PARTITION",
    "SLURM_JOB_QOS",
    "SLURM_JOB_NAME",
    "SLURM_ARRAY_JOB_ID",
    "SLURM_ARRAY_TASK_ID",
    "SLURM_HET_JOB_ID",
    "SLURM_HET_JOB_OFFSET",
    "SLURM_RESTART_COUNT",
    "SLURM_JOB_START_TIME",
];

/// Longest text of a fact, in bytes: that of the wire.
const TEXT_BYTES_MAX: usize = 200;

/// What Slurm wrote into a process's environment. What it did not write is absent, and so is what cannot be a fact: a text
/// with control characters or of more than 200 bytes, a number that is none.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SlurmEnvironment {
    /// The raw id of the job.
    pub job: Option<String>,
    /// Who submitted it.
    pub user: Option<String>,
    /// The same, as a number.
    pub uid: Option<u32>,
    /// The account.
    pub account: Option<String>,
    /// The partition.
    pub partition: Option<String>,
    /// The quality of service.
    pub qos: Option<String>,
    /// The job's name.
    pub name: Option<String>,
    /// The id of the array that the job is a task of.
    pub array_job: Option<String>,
    /// Which task of it.
    pub array_task: Option<u32>,
    /// The id of the first component of a heterogeneous job.
    pub het_job: Option<String>,
    /// Which component of it.
    pub het_offset: Option<u32>,
    /// How often the job was started before.
    pub restarts: Option<u32>,
    /// When this attempt began, in seconds since 1970 in UTC.
    pub start_seconds: Option<i64>,
}

impl SlurmEnvironment {
    /// Reads the bytes of `/proc/PID/environ`. A variable that comes twice counts as it comes first, as `getenv` says.
    #[must_use]
    pub fn parse(bytes: &[u8]) -> SlurmEnvironment {
        let mut read = SlurmEnvironment::default();
        for entry in bytes.split(|byte| *byte == 0) {
            let Some((name, value)) = std::str::from_utf8(entry).ok().and_then(|entry| entry.split_once('=')) else {
                continue;
            };
            if VARIABLES.contains(&name) {
                read.take(name, value);
            }
        }
        read
    }

    fn take(&mut self, name: &str, value: &str) {
        match name {
            "SLURM_JOB_ID" => first(&mut self.job, text(value)),
            "SLURM_JOB_USER" => first(&mut self.user, text(value)),
            "SLURM_JOB_UID" => first(&mut self.uid, value.parse().ok()),
            "SLURM_JOB_ACCOUNT" => first(&mut self.account, text(value)),
            "SLURM_JOB_PARTITION" => first(&mut self.partition, text(value)),
            "SLURM_JOB_QOS" => first(&mut self.qos, text(value)),
            "SLURM_JOB_NAME" => first(&mut self.name, text(value)),
            "SLURM_ARRAY_JOB_ID" => first(&mut self.array_job, text(value)),
            "SLURM_ARRAY_TASK_ID" => first(&mut self.array_task, value.parse().ok()),
            "SLURM_HET_JOB_ID" => first(&mut self.het_job, text(value)),
            "SLURM_HET_JOB_OFFSET" => first(&mut self.het_offset, value.parse().ok()),
            "SLURM_RESTART_COUNT" => first(&mut self.restarts, value.parse().ok()),
            "SLURM_JOB_START_TIME" => {
                first(&mut self.start_seconds, value.parse().ok().filter(|seconds: &i64| *seconds > 0));
            }
            _ => {}
        }
    }
}

fn first<T>(known: &mut Option<T>, read: Option<T>) {
    if known.is_none() {
        *known = read;
    }
}

fn text(value: &str) -> Option<String> {
    let fine = !value.is_empty() && value.len() <= TEXT_BYTES_MAX && !value.chars().any(char::is_control);
    fine.then(|| value.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_listed_variables_are_read_and_only_what_can_be_a_fact() {
        let bytes = b"AWS_SECRET_ACCESS_KEY=x\0SLURM_JOB_ID=9401\0SLURM_JOB_ID=1\0SLURM_JOB_NAME=a\nb\0\
            SLURM_ARRAY_TASK_ID=4294967296\0SLURM_JOB_ACCOUNT=\0SLURM_JOB_USER=eva\0SLURM_JOB_QOS\0SLURM_RESTART_COUNT=2\0\xff=\0";
        let wanted = SlurmEnvironment {
            job: Some("9401".into()),
            user: Some("eva".into()),
            restarts: Some(2),
            ..SlurmEnvironment::default()
        };
        assert_eq!(SlurmEnvironment::parse(bytes), wanted);
    }
}
