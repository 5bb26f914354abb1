//! Who a process belongs to.

/// Who a process belongs to, as its control group tells.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Owner {
    /// A step of a Slurm job.
    Slurm(SlurmStep),
    /// A Kubernetes pod.
    Pod(Pod),
    /// A container that no scheduler started.
    Container(Container),
    /// A user who is logged in; no job.
    User {
        /// Who.
        uid: u32,
    },
    /// Nobody that the control group names.
    Nobody,
}

/// A step of a Slurm job.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SlurmStep {
    /// The raw id of the job; since Slurm 26.05 it may be a name instead, which the scheduler translates.
    pub job: String,
    /// The step: a number, `batch`, `extern` or `interactive`; `None` where the process was adopted into the job.
    pub step: Option<String>,
    /// The task within the step.
    pub task: Option<String>,
    /// Whose job it is, where the path tells.
    pub uid: Option<u32>,
    /// Which of several slurmd of one host started it; `None` where there is only one.
    pub slurmd_node: Option<String>,
}

/// A Kubernetes pod.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Pod {
    /// Its UID, with hyphens; of a static pod the 32 digits of the annotation `kubernetes.io/config.hash`, which are not the
    /// UID that the API server knows.
    pub uid: String,
    /// The container in it, where the path tells.
    pub container: Option<String>,
    /// Who runs the container, where the path tells.
    pub runtime: Option<Runtime>,
    /// Its class.
    pub qos: QosClass,
}

impl Pod {
    /// Whether the kubelet made it from a file, so that its UID is a hash of the file.
    #[must_use]
    pub fn is_static(&self) -> bool {
        !self.uid.contains('-')
    }
}

/// A container that no scheduler started.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Container {
    /// Its id.
    pub id: String,
    /// Who runs it, where the path tells.
    pub runtime: Option<Runtime>,
}

/// What runs containers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Runtime {
    /// containerd.
    Containerd,
    /// CRI-O.
    Crio,
    /// Docker.
    Docker,
    /// Podman.
    Podman,
}

impl Runtime {
    /// As people write it.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Runtime::Containerd => "containerd",
            Runtime::Crio => "cri-o",
            Runtime::Docker => "docker",
            Runtime::Podman => "podman",
        }
    }
}

/// The class of a pod, by what it asks for and what it may use.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum QosClass {
    /// It may use what it asks for. Its path names no class.
    Guaranteed,
    /// It may use more than it asks for.
    Burstable,
    /// It asks for nothing.
    BestEffort,
}

impl QosClass {
    /// As control groups write it.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            QosClass::Guaranteed => "guaranteed",
            QosClass::Burstable => "burstable",
            QosClass::BestEffort => "besteffort",
        }
    }
}
