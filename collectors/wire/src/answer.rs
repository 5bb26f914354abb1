//! What the service answers.

use serde::{Deserialize, Serialize};

/// The answer to a report that was taken. What it accepts is stored for good.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Answer {
    /// The version of the protocol: [`crate::PROTOCOL`].
    pub protocol: u32,
    /// One for each finished segment of the report, in its order.
    pub records: Vec<RecordAnswer>,
    /// What came of the head; left out where the report had none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub head: Option<RecordAnswer>,
    /// What the collector is to keep to from now on.
    pub settings: Settings,
}

/// What came of one record.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RecordAnswer {
    /// Which record; left out for the head.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub record: Option<RecordName>,
    /// What came of it.
    pub outcome: Outcome,
    /// Why it was not accepted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub code: Option<RecordCode>,
    /// The same in words.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub message: String,
}

/// Names a segment within the report's node and epoch.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct RecordName {
    /// When its UTC hour begins.
    pub hour_us: i64,
    /// Its number.
    pub number: u32,
}

/// What came of a record. A collector may forget it in each case; it keeps what was rejected, or in conflict, in a file of
/// its own for people to look at.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Outcome {
    /// Stored.
    Accepted,
    /// Held already, with the same content.
    Known,
    /// Held already, with other content, which stays. The new content is kept aside.
    Conflict,
    /// Kept aside, and not counted yet.
    Quarantined,
    /// Not stored. It will not be stored if it is sent again as it is.
    Rejected,
}

/// Why a record was not accepted. The words are promises.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum RecordCode {
    /// It names a unit that the report does not hold.
    NoUnit,
    /// It names a job that the report does not hold, or is held by none, or has one without being held.
    NoJob,
    /// Its end is not after its start, or an instant is out of range.
    BadInterval,
    /// It does not lie within one UTC hour.
    CrossesHour,
    /// Its totals do not fit its length.
    BadTotals,
    /// It lies outside its unit's life.
    OutsideUnit,
    /// It ends after the report was made.
    Future,
    /// It is older than segments are kept.
    TooOld,
    /// Its identity is held with other content.
    OtherContent,
    /// The node's clock differs from the service's by more than five minutes.
    ClockOff,
    /// A later report's head is in force, or one of another epoch that began later.
    Superseded,
}

/// What a collector is to keep to. It stays in force until another answer says otherwise.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Settings {
    /// Changes with every change of what follows.
    pub version: String,
    /// Instants besides UTC hours at which no segment may go on: starts of billing days, and announced changes.
    pub cuts_us: Vec<i64>,
    /// How often to look at the GPUs.
    pub sample_interval_us: i64,
    /// How often to report.
    pub report_interval_us: i64,
}

/// Why a whole report was not taken. Nothing of it is stored.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Refusal {
    /// For programs.
    pub code: RefusalCode,
    /// For people: what is wrong and how to mend it.
    pub message: String,
}

/// Why a whole report was not taken. The words are promises.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum RefusalCode {
    /// No token, or none that is valid.
    BadToken,
    /// The token is for another cluster.
    WrongCluster,
    /// The token is for another node.
    WrongNode,
    /// The body is larger than a report may be, packed or unpacked.
    TooLarge,
    /// It has more units, jobs or segments than a report may have.
    TooMany,
    /// It is packed in a way that is not understood.
    BadEncoding,
    /// It cannot be unpacked to its end.
    Truncated,
    /// It is no report: not JSON, or not of its shape.
    BadReport,
    /// A name, a UUID or a number in it cannot be.
    BadValue,
    /// It speaks a version of the protocol that the service does not.
    BadProtocol,
    /// The service is too busy; the header `Retry-After` says when to try again.
    Busy,
    /// The service failed; its log says why. Try again.
    Failed,
}
