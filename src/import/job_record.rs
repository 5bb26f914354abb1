//! What any list tells of a job, whatever its form, and how lists are read.

use gpuledger_domain::ids::{ClusterName, PoolName, SkuCode};
use gpuledger_domain::rules::JobFacts;
use gpuledger_domain::time::{Instant, Interval};

use super::InputFile;
use super::repeats::RowHash;
use crate::error::AppError;
use crate::files::mapping::Identity;

/// Most GPUs one job may hold: as many as the largest cluster that the product is made for.
pub(super) const GPUS_MAX: i32 = 100_000;

/// How a line says which job it is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum JobIdentity {
    /// By the scheduler's own id.
    Id(String),
    /// By its content; equal rows are told apart by their ordinal.
    Row(RowHash),
}

/// GPUs of one SKU on one node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Grant {
    /// The node; empty where the list does not say on which of its nodes.
    pub node: String,
    /// What, as the source calls it.
    pub sku: SkuCode,
    /// How many.
    pub count: i32,
}

/// A line, read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct JobRecord {
    /// Where it stands, from 1, the heading included.
    pub line: u64,
    /// Which job.
    pub identity: JobIdentity,
    /// What people call it, where that is not its id: `7400_3`, `8100+1`; else empty.
    pub listed_id: String,
    /// Its cluster.
    pub cluster: ClusterName,
    /// Its pool, where the list states it; else the inventory knows the pool of each node.
    pub pool: Option<PoolName>,
    /// What rules look at, without the pool.
    pub facts: JobFacts,
    /// When it held its GPUs.
    pub held: Held,
    /// Of that time, how long it was suspended, in microseconds.
    pub suspended_us: i64,
    /// When it was submitted.
    pub submit: Option<Instant>,
    /// How it ended; empty where not known.
    pub end_state: String,
    /// What it held, where.
    pub grants: Vec<Grant>,
    /// All nodes it held, also where a grant does not say on which of them it is.
    pub nodes: Vec<String>,
}

/// When a job held its GPUs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Held {
    /// From start to end.
    Ended(Interval),
    /// It still ran when the list was written.
    Running {
        /// From here on.
        start: Instant,
        /// Until here at least, where the list tells it.
        until: Option<Instant>,
    },
    /// Never: it has no GPU, did not start, or ended when it began; with its start, if it has one.
    Never(Option<Instant>),
}

/// A line that cannot be used.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RefusedLine {
    /// Where it stands, from 1.
    pub line: u64,
    /// Which column; empty for the line as a whole.
    pub field: String,
    /// What is wrong, and what to do.
    pub reason: String,
}

/// A list of jobs of some form.
pub trait JobList: Sync {
    /// How it tells jobs apart.
    fn identity(&self) -> Identity;

    /// Whether jobs are told apart by the content of their lines, so that the list must be read twice.
    fn identifies_by_content(&self) -> bool;

    /// Whether a telling may show only the part of an attempt that lies in the window the list was made for. Then
    /// of two tellings of one job, one within the other, the longer is of the whole attempt.
    fn clips(&self) -> bool;

    /// Reads it from the start.
    ///
    /// # Errors
    /// [`AppError::File`] where it cannot be read, [`AppError::Refused`] where it is no list of this form.
    fn open<'a>(&'a self, file: &InputFile) -> Result<Box<dyn JobReader + 'a>, AppError>;
}

/// A list while it is read, line by line.
pub trait JobReader: Iterator<Item = Result<JobRecord, RefusedLine>> {
    /// Packed bytes read so far.
    fn bytes_read(&self) -> u64;

    /// Facts that were cut because they were too long.
    fn cut_facts(&self) -> u64;

    /// What to know of the list as a whole, once it is read: what it lacks, what was left out and why.
    fn notices(&self) -> Vec<String>;
}
