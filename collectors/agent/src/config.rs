//! The agent's settings: a file of TOML, read once.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};

use serde::Deserialize;

use crate::attribute::Rules;
use crate::node::Place;
use crate::sharing::{Limit, Limited, Sharing, Weight};

/// The settings of a node's agent.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Config {
    /// The cluster; the token must be bound to it.
    pub cluster: String,
    /// The node's name there; its host name where left out.
    pub node: Option<String>,
    /// The service, such as `https://gpuledger.example:8443`.
    pub service: Option<String>,
    /// A file that holds the token and nothing else. It is read for each report, so that a new token needs no restart.
    pub token_file: Option<PathBuf>,
    /// A file of certificates (PEM) of who signed the service's.
    pub ca_file: Option<PathBuf>,
    /// A folder in which what is not acknowledged is kept. It belongs to one agent, on a disk of the node that outlives its boots.
    #[serde(default = "spool")]
    pub spool: PathBuf,
    /// How large what is kept there may become, in MiB.
    #[serde(default = "spool_mib")]
    pub spool_mib: u64,
    /// Where processes are.
    #[serde(default = "proc")]
    pub proc: PathBuf,
    /// The driver's library; the machine's own where left out.
    pub nvml_library: Option<PathBuf>,
    /// Where a prolog writes which job was given which GPU, as for DCGM's exporter.
    pub job_mapping: Option<PathBuf>,
    /// The root of the hierarchy `devices` of control groups of version 1, such as `/sys/fs/cgroup/devices`: there Slurm keeps which
    /// job may use which GPU. Left out where Slurm does not constrain devices.
    pub cgroup_devices: Option<PathBuf>,
    /// Where figures are told to Prometheus: an address of this machine alone, such as `127.0.0.1:9435`; nowhere where left out.
    pub metrics: Option<SocketAddr>,
    /// From how much memory on, in MiB, a unit without any process is taken to be used by somebody; never where 0.
    #[serde(default = "stray_memory_mib")]
    pub stray_memory_mib: u64,
    /// Seconds between two looks.
    #[serde(default = "sample_seconds")]
    pub sample_seconds: u32,
    /// Seconds between two reports.
    #[serde(default = "report_seconds")]
    pub report_seconds: u32,
    /// Programs that hold nothing for anybody, by their names.
    #[serde(default = "exempt")]
    pub exempt: Vec<String>,
    /// How jobs on one GPU share it.
    #[serde(default)]
    pub sharing: SharingConfig,
}

/// How jobs on one GPU share it.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SharingConfig {
    /// Into how many shares a GPU is divided; among who holds it now where left out.
    pub replicas: Option<u32>,
    /// How a job's share is weighed.
    #[serde(default)]
    pub weight: WeightConfig,
    /// Limits of MPS, for `weight = "limit"`: the first that names a job counts.
    #[serde(default, rename = "limit")]
    pub limits: Vec<LimitConfig>,
}

/// The active-thread percentage that an administrator set for somebody's MPS server. It names a job, an account or a user.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct LimitConfig {
    /// The percentage: 1 to 100.
    pub percent: u32,
    /// A job, by its raw id.
    pub job: Option<String>,
    /// An account of the scheduler.
    pub account: Option<String>,
    /// A user, by number.
    pub uid: Option<u32>,
}

/// How a job's share is weighed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum WeightConfig {
    /// All the same.
    #[default]
    Equal,
    /// By how busy each kept the multiprocessors.
    Sm,
    /// By the memory that each uses.
    Memory,
    /// By the limits of MPS.
    Limit,
}

fn proc() -> PathBuf {
    "/proc".into()
}

fn spool() -> PathBuf {
    "/var/lib/gpuledger-agent/spool".into()
}

const fn spool_mib() -> u64 {
    1_024
}

const fn stray_memory_mib() -> u64 {
    1_024
}

const fn sample_seconds() -> u32 {
    10
}

const fn report_seconds() -> u32 {
    60
}

/// Programs of desktops and of monitoring that are on GPUs for nobody.
fn exempt() -> Vec<String> {
    ["Xorg", "Xwayland", "gnome-shell", "nvidia-persistenced", "nv-hostengine", "dcgm-exporter", "nvidia-smi"]
        .map(str::to_owned)
        .to_vec()
}

/// Longest time between two looks or reports: an hour.
const SECONDS_MAX: u32 = 3_600;
/// Bounds of what the spool may hold: some files, and a TiB.
const SPOOL_MIB_MIN: u64 = 4;
const SPOOL_MIB_MAX: u64 = 1 << 20;
const US_PER_SECOND: i64 = 1_000_000;

impl Config {
    /// Reads a file.
    ///
    /// # Errors
    /// A text that says what is wrong, where, and how to mend it.
    pub fn read(path: &Path) -> Result<Config, String> {
        let named = |what: String| format!("{}: {what}", path.display());
        let text = std::fs::read_to_string(path).map_err(|error| named(error.to_string()))?;
        let config: Config = toml::from_str(&text).map_err(|error| named(error.to_string()))?;
        for (name, seconds) in [("sample_seconds", config.sample_seconds), ("report_seconds", config.report_seconds)] {
            if seconds == 0 || seconds > SECONDS_MAX {
                return Err(named(format!("{name} is {seconds}; it must lie between 1 and {SECONDS_MAX}")));
            }
        }
        if !(SPOOL_MIB_MIN..=SPOOL_MIB_MAX).contains(&config.spool_mib) {
            return Err(named(format!(
                "spool_mib is {}; it must lie between {SPOOL_MIB_MIN} and {SPOOL_MIB_MAX}",
                config.spool_mib
            )));
        }
        if config.sharing.replicas == Some(0) {
            return Err(named("sharing.replicas is 0; leave it out to share among who holds a GPU".into()));
        }
        config.limits().map_err(named)?;
        if let Some(address) = config.metrics.filter(|address| !address.ip().is_loopback()) {
            return Err(named(format!(
                "metrics is {address}; it must be an address of this machine alone, such as 127.0.0.1:9435, since the figures name jobs"
            )));
        }
        if let Some(service) = &config.service {
            let plain = service.starts_with("http://127.0.0.1:")
                || service.starts_with("http://localhost:")
                || service.starts_with("http://[::1]:");
            if !service.starts_with("https://") && !plain {
                return Err(named(format!(
                    "service is {service:?}; it must begin with https://, since the token travels with each report. Plain http:// is taken on this machine alone"
                )));
            }
            if config.token_file.is_none() {
                return Err(named(
                    "token_file is missing: a file with the token that `gpuledger token create` showed".into(),
                ));
            }
        }
        Ok(config)
    }

    /// The limits of MPS.
    fn limits(&self) -> Result<Vec<Limit>, String> {
        let limits = &self.sharing.limits;
        if (self.sharing.weight == WeightConfig::Limit) == limits.is_empty() {
            return Err("sharing.weight = \"limit\" and [[sharing.limit]] go together".into());
        }
        let read = |(place, limit): (usize, &LimitConfig)| {
            let named = |what: &str| format!("sharing.limit {}: {what}", place + 1);
            if !(1..=100).contains(&limit.percent) {
                return Err(named(&format!("percent is {}; it must lie between 1 and 100", limit.percent)));
            }
            let of = match (&limit.job, &limit.account, limit.uid) {
                (Some(job), None, None) => Limited::Job(job.clone()),
                (None, Some(account), None) => Limited::Account(account.clone()),
                (None, None, Some(uid)) => Limited::Uid(uid),
                _ => return Err(named("it must name one of job, account and uid")),
            };
            Ok(Limit { of, percent: limit.percent })
        };
        limits.iter().enumerate().map(read).collect()
    }

    /// How time is attributed.
    #[must_use]
    pub fn rules(&self) -> Rules {
        let weight = match self.sharing.weight {
            // Limits are of the jobs that are there: the node fills them in.
            WeightConfig::Equal | WeightConfig::Limit => Weight::Equal,
            WeightConfig::Sm => Weight::Sm,
            WeightConfig::Memory => Weight::Memory,
        };
        Rules {
            interval_us: i64::from(self.sample_seconds) * US_PER_SECOND,
            sharing: Sharing { replicas: self.sharing.replicas, weight },
        }
    }

    /// What the node is called, and where its probes look.
    ///
    /// # Errors
    /// Where it has no name, or a limit cannot be.
    pub fn place(&self) -> Result<Place, String> {
        let hostname = self.proc.join("sys/kernel/hostname");
        let node = match &self.node {
            Some(node) => node.clone(),
            None => std::fs::read_to_string(&hostname)
                .map_err(|error| format!("{}: {error}; set `node`", hostname.display()))?
                .trim()
                .to_owned(),
        };
        Ok(Place {
            proc: self.proc.clone(),
            nvml_library: self.nvml_library.clone(),
            job_mapping: self.job_mapping.clone(),
            cgroup_devices: self.cgroup_devices.clone(),
            exempt: self.exempt.clone(),
            stray_memory_bytes: Some(self.stray_memory_mib << 20).filter(|bytes| *bytes > 0),
            limits: self.limits()?,
            ..Place::new(&self.cluster, node)
        })
    }
}
