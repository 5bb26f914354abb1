//! What the agent counts of itself and of the devices, since its start.

use std::collections::BTreeMap;

use gpuledger_nvml::{EventKind, Sweep};

use crate::attribute::Attributed;
use crate::sample::{Sample, Seen, UNATTRIBUTED};

/// Counts since the start.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Looks at which a driver answered.
    pub samples: u64,
    /// What could not be read, by probe.
    pub probe_failures: BTreeMap<&'static str, u64>,
    /// Readings that cannot be, which were left out.
    pub rejected_readings: u64,
    /// How often the wall clock was set.
    pub clock_steps: u64,
    /// Processes that began and ended between two looks.
    pub brief_processes: u64,
    /// Units that somebody unknown used at the last look.
    pub unattributed_units: u64,
    /// Events by GPU and kind.
    pub events: BTreeMap<(String, String), u64>,
    /// The last XID of each GPU.
    pub last_xid: BTreeMap<String, u64>,
}

impl Counts {
    /// Counts what a probe could not read.
    pub(crate) fn probe_failed(&mut self, probe: &'static str, times: u64) {
        *self.probe_failures.entry(probe).or_default() += times;
    }

    /// Counts a look.
    pub(crate) fn note(&mut self, sweep: &Sweep, sample: &Sample, attributed: &Attributed) {
        self.samples += 1;
        self.rejected_readings += sweep.rejected + attributed.rejected_readings;
        let count = |number: usize| u64::try_from(number).unwrap_or(u64::MAX);
        self.brief_processes += count(sample.gpus.values().map(|gpu| gpu.brief_us.len()).sum());
        let units = sample.gpus.values().filter_map(|gpu| match &gpu.seen {
            Seen::Units(layout) => Some(&layout.units),
            Seen::Lost | Seen::NotRead => None,
        });
        self.unattributed_units = count(units.flatten().filter(|unit| unit.users.contains_key(UNATTRIBUTED)).count());
        for event in &sweep.events {
            let gpu = event.gpu.clone().unwrap_or_default();
            let kind = match event.kind {
                EventKind::Xid(number) => {
                    self.last_xid.insert(gpu.clone(), number);
                    format!("xid-{number}")
                }
                EventKind::SingleBitEcc => "ecc-corrected".to_owned(),
                EventKind::DoubleBitEcc => "ecc-uncorrected".to_owned(),
                EventKind::Other(number) => format!("kind-{number}"),
            };
            *self.events.entry((gpu, kind)).or_default() += 1;
        }
    }
}
