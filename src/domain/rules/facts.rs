//! The facts of a job that rules may look at.

use std::collections::BTreeMap;
use std::fmt;

/// What is known of a job, as its source says it. An empty text is "not known".
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub struct JobFacts {
    /// The cluster it ran in.
    pub cluster: String,
    /// The pool it ran in.
    pub pool: String,
    /// Who submitted it.
    pub user: String,
    /// The scheduler's account.
    pub account: String,
    /// The scheduler's partition or queue.
    pub partition: String,
    /// The scheduler's quality of service.
    pub qos: String,
    /// The Kubernetes namespace.
    pub namespace: String,
    /// The job's or command's name.
    pub name: String,
    /// GPUs asked for; 0 is "not known".
    pub gpus: i32,
    /// Labels, by key.
    pub labels: BTreeMap<String, String>,
}

/// The name of a fact, as rules write it.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum FactName {
    /// [`JobFacts::cluster`]
    Cluster,
    /// [`JobFacts::pool`]
    Pool,
    /// [`JobFacts::user`]
    User,
    /// [`JobFacts::account`]
    Account,
    /// [`JobFacts::partition`]
    Partition,
    /// [`JobFacts::qos`]
    Qos,
    /// [`JobFacts::namespace`]
    Namespace,
    /// [`JobFacts::name`]
    Name,
    /// [`JobFacts::gpus`]
    Gpus,
    /// `label.KEY`
    Label(String),
}

impl FactName {
    /// The words rules may use, besides `label.KEY`.
    pub const WORDS: &'static str = "cluster, pool, user, account, partition, qos, namespace, name, gpus or label.KEY";

    /// Reads a fact's name.
    #[must_use]
    pub fn parse(text: &str) -> Option<FactName> {
        Some(match text {
            "cluster" => FactName::Cluster,
            "pool" => FactName::Pool,
            "user" => FactName::User,
            "account" => FactName::Account,
            "partition" => FactName::Partition,
            "qos" => FactName::Qos,
            "namespace" => FactName::Namespace,
            "name" => FactName::Name,
            "gpus" => FactName::Gpus,
            _ => FactName::Label(text.strip_prefix("label.").filter(|key| !key.is_empty())?.to_owned()),
        })
    }
}

impl fmt::Display for FactName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            FactName::Cluster => f.write_str("cluster"),
            FactName::Pool => f.write_str("pool"),
            FactName::User => f.write_str("user"),
            FactName::Account => f.write_str("account"),
            FactName::Partition => f.write_str("partition"),
            FactName::Qos => f.write_str("qos"),
            FactName::Namespace => f.write_str("namespace"),
            FactName::Name => f.write_str("name"),
            FactName::Gpus => f.write_str("gpus"),
            FactName::Label(key) => write!(f, "label.{key}"),
        }
    }
}

impl JobFacts {
    /// The text of a fact; empty where it is not known.
    #[must_use]
    pub fn text(&self, name: &FactName) -> std::borrow::Cow<'_, str> {
        match name {
            FactName::Cluster => self.cluster.as_str().into(),
            FactName::Pool => self.pool.as_str().into(),
            FactName::User => self.user.as_str().into(),
            FactName::Account => self.account.as_str().into(),
            FactName::Partition => self.partition.as_str().into(),
            FactName::Qos => self.qos.as_str().into(),
            FactName::Namespace => self.namespace.as_str().into(),
            FactName::Name => self.name.as_str().into(),
            FactName::Gpus if self.gpus > 0 => self.gpus.to_string().into(),
            FactName::Gpus => "".into(),
            FactName::Label(key) => self.labels.get(key).map_or("", String::as_str).into(),
        }
    }
}
