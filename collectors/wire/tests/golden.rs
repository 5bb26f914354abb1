//! Each version of the protocol can be read for ever, and means what it meant.

#![allow(clippy::unwrap_used)]

use gpuledger_wire::{Answer, Outcome, Report, State, UnitKind};
use serde_json::Value;

/// Read and written again, it is the same.
fn round_trip<T: serde::de::DeserializeOwned + serde::Serialize>(text: &str) -> T {
    let read: T = serde_json::from_str(text).unwrap();
    let written = serde_json::to_value(&read).unwrap();
    assert_eq!(written, serde_json::from_str::<Value>(text).unwrap());
    read
}

#[test]
fn version_1_is_read_and_written_as_it_was() {
    let report: Report = round_trip(include_str!("../golden/report-1.json"));
    assert_eq!((report.protocol, report.segments.len(), report.head.len()), (1, 3, 1));
    assert_eq!(
        report.units.iter().map(|unit| unit.kind).collect::<Vec<_>>(),
        [UnitKind::Slice, UnitKind::Remainder, UnitKind::Full]
    );
    assert_eq!(
        report.segments.iter().map(|segment| segment.state).collect::<Vec<_>>(),
        [State::Held, State::Stranded, State::OutOfService]
    );
    // What version 1 learned to tell since.
    let measured: Report = round_trip(include_str!("../golden/report-1-activity.json"));
    assert_eq!(measured.segments.first().unwrap().telemetry.sm_activity.unwrap().total, 1_200_000_000);
    let answer: Answer = round_trip(include_str!("../golden/answer-1.json"));
    assert_eq!(
        answer.records.iter().map(|record| record.outcome).collect::<Vec<_>>(),
        [Outcome::Accepted, Outcome::Known, Outcome::Conflict]
    );
}

#[test]
fn fields_that_are_not_known_are_passed_over_and_those_that_are_needed_are_not() {
    let mut report: Value = serde_json::from_str(include_str!("../golden/report-1.json")).unwrap();
    report.as_object_mut().unwrap().insert("later".into(), Value::from(1));
    assert!(serde_json::from_value::<Report>(report.clone()).is_ok());
    report.as_object_mut().unwrap().remove("epoch");
    assert!(serde_json::from_value::<Report>(report).is_err());
}
