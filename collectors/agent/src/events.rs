//! Events of devices and names of units, in words for people.

use gpuledger_nvml::{Event, EventKind};

use crate::sample::{Sample, Seen, UnitShape};

/// What a unit is called in messages.
pub(crate) fn name(gpu: &str, shape: &UnitShape) -> String {
    match shape {
        UnitShape::Full => gpu.to_owned(),
        UnitShape::Slice { uuid, profile, .. } => format!("{uuid} ({profile} of {gpu})"),
        UnitShape::Remainder { .. } => format!("what is in no slice of {gpu}"),
    }
}

/// An event in words: the slice that is to blame, and who was on it.
pub(crate) fn in_words(event: &Event, sample: &Sample) -> String {
    let what = match event.kind {
        EventKind::Xid(number) => format!("XID {number}"),
        EventKind::SingleBitEcc => "a corrected error of memory".to_owned(),
        EventKind::DoubleBitEcc => "an uncorrected error of memory".to_owned(),
        EventKind::Other(number) => format!("an event of kind {number}"),
    };
    let Some(uuid) = &event.gpu else { return format!("a GPU that is not known: {what}") };
    let units = match sample.gpus.get(uuid).map(|gpu| &gpu.seen) {
        Some(Seen::Units(layout)) => layout.units.as_slice(),
        _ => &[],
    };
    let blamed = units.iter().find(|unit| match (&unit.shape, event.gpu_instance) {
        (UnitShape::Slice { gpu_instance, compute_instance, .. }, Some(blamed)) => {
            *gpu_instance == blamed && event.compute_instance.is_none_or(|blamed| *compute_instance == blamed)
        }
        (UnitShape::Full, None) => true,
        _ => false,
    });
    let Some(unit) = blamed else { return format!("{uuid}: {what}") };
    let jobs: Vec<&str> = unit.users.keys().map(String::as_str).collect();
    let by = if jobs.is_empty() { String::new() } else { format!(", held by {}", jobs.join(", ")) };
    format!("{}: {what}{by}", name(uuid, &unit.shape))
}
