//! Reading processes under a root.

use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};

use crate::cgroup::owner_of;
use crate::environ::SlurmEnvironment;
use crate::owner::Owner;
use crate::stat::{RunState, Stat};

/// One run of a process: numbers are used again, with another start.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ProcessKey {
    /// Its number.
    pub pid: u32,
    /// When it started, in microseconds since the boot, to the clock tick.
    pub start_us: i64,
}

/// A process that was found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Process {
    /// Which run of its number.
    pub key: ProcessKey,
    /// The name of its program: 15 bytes at most.
    pub command: String,
    /// What it is doing.
    pub state: RunState,
    /// Who started it; `None` where that could not be read.
    pub uid: Option<u32>,
    /// Who it belongs to, by its control group.
    pub owner: Owner,
    /// What Slurm wrote into its environment; empty where that could not be read, or is of another job than the owner.
    pub slurm: SlurmEnvironment,
    /// Where the environment names another job than the control group does. The control group counts.
    pub disagreement: Option<Disagreement>,
}

/// A process's environment names another job than its control group.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Disagreement {
    /// The job of the environment, which a user can write.
    pub environment: String,
    /// The job of the control group; `None` where that is of no Slurm job.
    pub control_group: Option<String>,
}

/// Whether the root is the host's, so that its numbers are those of the driver.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Namespace {
    /// It is.
    Host,
    /// It is a container's, whose numbers mean other processes.
    Container,
    /// That could not be read: its first process may only be looked at by root.
    Unknown,
}

/// What could not be read of a process.
#[derive(Debug)]
pub enum ReadError {
    /// There is no such process, or no more.
    Gone,
    /// It is there and could not be read; the text says what and why.
    Unreadable(String),
}

/// Processes under a root, and what was read of them before.
#[derive(Debug)]
pub struct Host {
    root: PathBuf,
    ticks_per_second: i64,
    known: BTreeMap<ProcessKey, Known>,
}

#[derive(Debug)]
struct Known {
    process: Process,
    read_at_us: i64,
    looked_at_us: i64,
}

/// The initial namespace of process numbers has this inode on every Linux (`PROC_PID_INIT_INO`).
const INITIAL_PID_NAMESPACE: &str = "pid:[4026531836]";
/// How long a process's control group and environment are taken to be as they were read: it may be moved.
const READ_AGAIN_US: i64 = 60_000_000;
const US_PER_SECOND: i64 = 1_000_000;

impl Host {
    /// Processes under `/proc`, or wherever the host's is mounted.
    #[must_use]
    pub fn new(root: impl Into<PathBuf>) -> Host {
        use nix::unistd::{SysconfVar, sysconf};
        let ticks = sysconf(SysconfVar::CLK_TCK).ok().flatten().filter(|ticks| *ticks > 0);
        Host::with_ticks(root, ticks.unwrap_or(100))
    }

    /// The same, of a root whose clock ticks are known.
    #[must_use]
    pub fn with_ticks(root: impl Into<PathBuf>, ticks_per_second: i64) -> Host {
        Host { root: root.into(), ticks_per_second: ticks_per_second.max(1), known: BTreeMap::new() }
    }

    /// Whether the root is the host's: by the namespace of its first process.
    #[must_use]
    pub fn namespace(&self) -> Namespace {
        match std::fs::read_link(self.root.join("1/ns/pid")) {
            Ok(link) if link == Path::new(INITIAL_PID_NAMESPACE) => Namespace::Host,
            Ok(_) => Namespace::Container,
            Err(_) => Namespace::Unknown,
        }
    }

    /// Which boot this is.
    ///
    /// # Errors
    /// Where the kernel's random folder cannot be read under the root.
    pub fn boot_id(&self) -> io::Result<String> {
        Ok(std::fs::read_to_string(self.root.join("sys/kernel/random/boot_id"))?.trim().to_owned())
    }

    /// The highest number that a process may have; `None` where that cannot be read.
    #[must_use]
    pub fn pid_max(&self) -> Option<u32> {
        std::fs::read_to_string(self.root.join("sys/kernel/pid_max")).ok()?.trim().parse().ok()
    }

    /// What Linux says of a process, at an instant in microseconds since the boot. Its control group and environment are read
    /// again once a minute, its start and state each time.
    ///
    /// # Errors
    /// [`ReadError::Gone`] where there is no such process; a zombie counts as gone, since it holds no memory any more.
    pub fn process(&mut self, pid: u32, now_us: i64) -> Result<&Process, ReadError> {
        let folder = self.root.join(pid.to_string());
        let stat = Stat::parse(&read_text(&folder.join("stat"))?)
            .map_err(|error| ReadError::Unreadable(format!("{}/stat: {error}", folder.display())))?;
        if stat.state == RunState::Zombie {
            return Err(ReadError::Gone);
        }
        let key = ProcessKey { pid, start_us: self.start_us(stat.start_ticks) };
        let fresh = self.known.get(&key).is_some_and(|known| now_us.saturating_sub(known.read_at_us) < READ_AGAIN_US);
        if !fresh {
            let process = read(&folder, key, &stat)?;
            self.known.insert(key, Known { process, read_at_us: now_us, looked_at_us: now_us });
        }
        let known = self.known.get_mut(&key).ok_or(ReadError::Gone)?;
        known.looked_at_us = now_us;
        known.process.state = stat.state;
        if known.process.command != stat.command {
            known.process.command = stat.command;
        }
        Ok(&known.process)
    }

    /// Forgets processes that were not looked at since an instant, in microseconds since the boot.
    pub fn forget_before(&mut self, instant_us: i64) {
        self.known.retain(|_, known| known.looked_at_us >= instant_us);
    }

    fn start_us(&self, ticks: u64) -> i64 {
        let us = i128::from(ticks) * i128::from(US_PER_SECOND) / i128::from(self.ticks_per_second);
        i64::try_from(us).unwrap_or(i64::MAX)
    }
}

fn read(folder: &Path, key: ProcessKey, stat: &Stat) -> Result<Process, ReadError> {
    let owner = owner_of(&read_text(&folder.join("cgroup"))?);
    // Another user's environment is closed to all but root; the control group tells enough.
    let environ = std::fs::read(folder.join("environ")).unwrap_or_default();
    let written = SlurmEnvironment::parse(&environ);
    let uid = read_text(&folder.join("status")).ok().as_deref().and_then(real_uid);
    // What was read belongs to one run of the number only if the number is still the same run's.
    let still = Stat::parse(&read_text(&folder.join("stat"))?).map_err(|_| ReadError::Gone)?;
    if still.start_ticks != stat.start_ticks {
        return Err(ReadError::Gone);
    }
    let disagreement = disagreement(&owner, &written);
    let of_owner = matches!(owner, Owner::Slurm(_)) && disagreement.is_none();
    Ok(Process {
        key,
        command: stat.command.clone(),
        state: stat.state,
        uid,
        owner,
        slurm: if of_owner { written } else { SlurmEnvironment::default() },
        disagreement,
    })
}

fn disagreement(owner: &Owner, written: &SlurmEnvironment) -> Option<Disagreement> {
    let environment = written.job.clone()?;
    let control_group = match owner {
        Owner::Slurm(step) if step.job == environment => return None,
        // Not a raw id but a name, which only the scheduler translates.
        Owner::Slurm(step) if !step.job.bytes().all(|byte| byte.is_ascii_digit()) => return None,
        Owner::Slurm(step) => Some(step.job.clone()),
        _ => None,
    };
    Some(Disagreement { environment, control_group })
}

/// The first of the four numbers of the line `Uid:`.
fn real_uid(status: &str) -> Option<u32> {
    status.lines().find_map(|line| line.strip_prefix("Uid:"))?.split_ascii_whitespace().next()?.parse().ok()
}

fn read_text(path: &Path) -> Result<String, ReadError> {
    let bytes = std::fs::read(path).map_err(|error| match error.raw_os_error() {
        // ESRCH: it ended between the opening of the file and the reading.
        _ if error.kind() == io::ErrorKind::NotFound => ReadError::Gone,
        Some(code) if code == nix::errno::Errno::ESRCH as i32 => ReadError::Gone,
        _ => ReadError::Unreadable(format!("{}: {error}", path.display())),
    })?;
    // A command's name may be any bytes.
    Ok(String::from_utf8_lossy(&bytes).into_owned())
}
