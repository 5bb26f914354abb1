//! The fields of Slurm's accounting that an import reads, and the names that programs give them.

/// A field.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Field {
    /// `7400_3`, `8100+1`, `9501.batch`
    JobId,
    JobIdRaw,
    Cluster,
    User,
    Account,
    Partition,
    Qos,
    Name,
    State,
    Submit,
    Eligible,
    Start,
    End,
    /// `1-02:03:04`
    Elapsed,
    /// In seconds.
    ElapsedRaw,
    Suspended,
    AllocTres,
    ReqTres,
    Nodes,
    NodeList,
    Restarts,
    /// What was given at submission; asks for GPUs where the accounting tells none.
    SubmitLine,
}

/// How many fields there are.
pub(super) const FIELDS: usize = 22;

/// The cells of a record by field; empty where the list does not tell it.
pub(super) type Cells<'a> = [&'a str; FIELDS];

/// Names by program: `sacct`'s own first, then those of `squeue` and `scontrol` for the same.
const NAMES: [(&str, Field); 39] = [
    ("JobID", Field::JobId),
    ("JobIDRaw", Field::JobIdRaw),
    ("Cluster", Field::Cluster),
    ("User", Field::User),
    ("Account", Field::Account),
    ("Partition", Field::Partition),
    ("QOS", Field::Qos),
    ("JobName", Field::Name),
    ("State", Field::State),
    ("Submit", Field::Submit),
    ("Eligible", Field::Eligible),
    ("Start", Field::Start),
    ("End", Field::End),
    ("Elapsed", Field::Elapsed),
    ("ElapsedRaw", Field::ElapsedRaw),
    ("Suspended", Field::Suspended),
    ("AllocTRES", Field::AllocTres),
    ("ReqTRES", Field::ReqTres),
    ("NNodes", Field::Nodes),
    ("AllocNodes", Field::Nodes),
    ("NodeList", Field::NodeList),
    ("Restarts", Field::Restarts),
    ("SubmitLine", Field::SubmitLine),
    ("JobArrayID", Field::JobId),
    ("UserName", Field::User),
    ("UserId", Field::User),
    ("Name", Field::Name),
    ("JobState", Field::State),
    ("SubmitTime", Field::Submit),
    ("EligibleTime", Field::Eligible),
    ("StartTime", Field::Start),
    ("EndTime", Field::End),
    ("TimeUsed", Field::Elapsed),
    ("RunTime", Field::Elapsed),
    ("tres-alloc", Field::AllocTres),
    ("TRES", Field::AllocTres),
    ("NumNodes", Field::Nodes),
    ("RestartCnt", Field::Restarts),
    ("RawState", Field::State),
];

/// Other columns that hold nothing people write. Whatever is neither among these nor a field is taken for free text.
const STRICT: [&str; 26] = [
    "UID",
    "GID",
    "Group",
    "ExitCode",
    "DerivedExitCode",
    "Priority",
    "AllocCPUS",
    "NCPUS",
    "ReqCPUS",
    "TimelimitRaw",
    "Timelimit",
    "Flags",
    "AssocID",
    "AveCPU",
    "AveCPUFreq",
    "CPUTime",
    "CPUTimeRAW",
    "DBIndex",
    "ReqMem",
    "ReqNodes",
    "NTasks",
    "QOSRAW",
    "ReservationId",
    "Reserved",
    "WCKeyID",
    "UserCPU",
];

impl Field {
    /// The field that a column holds, whatever the case of its name.
    pub(super) fn parse(name: &str) -> Option<Field> {
        NAMES.iter().find(|(known, _)| known.eq_ignore_ascii_case(name)).map(|(_, field)| *field)
    }

    /// Its place in [`Cells`].
    pub(super) const fn index(self) -> usize {
        self as usize
    }

    /// What `sacct` calls it.
    pub(super) fn name(self) -> &'static str {
        NAMES.iter().find(|(_, field)| *field == self).map_or("", |(name, _)| name)
    }
}

/// Whether a column may hold whatever people write, delimiters and line breaks included.
pub(super) fn is_free_text(name: &str) -> bool {
    match Field::parse(name) {
        Some(field) => matches!(field, Field::Name | Field::SubmitLine),
        None => !STRICT.iter().any(|known| known.eq_ignore_ascii_case(name)),
    }
}

/// Whether this is the name of a field.
pub(super) fn is_name(name: &str) -> bool {
    Field::parse(name).is_some()
        || STRICT.iter().chain(&["Comment", "AdminComment", "WorkDir"]).any(|known| known.eq_ignore_ascii_case(name))
}
