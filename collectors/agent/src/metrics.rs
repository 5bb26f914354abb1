//! Figures for Prometheus, in its text format: the agent's own, and those of devices, slices and jobs under the names and labels
//! that DCGM's exporter gives them, so that dashboards of it go on.
//!
//! A figure that was not measured is left out. Nothing is computed in floats: a decimal point is put where it belongs.

use std::collections::BTreeMap;
use std::fmt::Write;

use gpuledger_nvml::{Condition, Device, MigInstance, MigState};

use crate::counts::Counts;
use crate::node::Looked;
use crate::outbox::Tally;
use crate::sample::{GpuSample, Seen, UnitSample, UnitShape};

/// What is told at a scrape.
#[derive(Clone, Debug, Default)]
pub struct Board {
    /// The node's name.
    pub node: String,
    /// Counts since the start.
    pub counts: Counts,
    /// The last look at which a driver answered.
    pub looked: Looked,
    /// When that was, in microseconds since the boot.
    pub looked_us: i64,
    /// Finished segments that are neither on disk nor acknowledged.
    pub waiting: usize,
    /// What came of reports, and what waits on disk.
    pub tally: Tally,
}

/// A family of figures, as it is written.
struct Family {
    help: &'static str,
    kind: &'static str,
    lines: String,
}

/// Families by name, in the order of their names.
#[derive(Default)]
struct Page {
    families: BTreeMap<&'static str, Family>,
}

impl Page {
    /// Adds a figure: `value` in units of ten to the minus `decimals`.
    fn add(&mut self, (name, kind, help): Named, labels: &str, value: u64, decimals: u32) {
        let family = self.families.entry(name).or_insert(Family { help, kind, lines: String::new() });
        let scale = 10_u64.pow(decimals);
        let _ = match decimals {
            0 => writeln!(family.lines, "{name}{labels} {value}"),
            _ => {
                let width = usize::try_from(decimals).unwrap_or(0);
                writeln!(family.lines, "{name}{labels} {}.{:0width$}", value / scale, value % scale)
            }
        };
    }

    fn text(&self) -> String {
        let mut text = String::new();
        for (name, Family { help, kind, lines }) in &self.families {
            let _ = write!(text, "# HELP {name} {help}\n# TYPE {name} {kind}\n{lines}");
        }
        text
    }
}

/// A family's name, kind and help.
type Named = (&'static str, &'static str, &'static str);

const SAMPLES: Named = ("gpuledger_agent_samples_total", "counter", "Looks at which a driver answered.");
const PROBE_FAILURES: Named =
    ("gpuledger_agent_probe_failures_total", "counter", "What probes could not read, by probe.");
const REJECTED: Named = (
    "gpuledger_agent_rejected_readings_total",
    "counter",
    "Readings that cannot be, such as more than 100 percent, which were left out.",
);
const BRIEF: Named = (
    "gpuledger_agent_brief_processes_total",
    "counter",
    "Processes that began and ended between two looks, as the driver's accounts tell.",
);
const CLOCK_STEPS: Named = ("gpuledger_agent_clock_steps_total", "counter", "How often the wall clock was set.");
const UNATTRIBUTED_UNITS: Named =
    ("gpuledger_agent_unattributed_units", "gauge", "Units that somebody unknown used at the last look.");
const EVENTS: Named =
    ("gpuledger_agent_device_events_total", "counter", "XIDs and errors of memory, by device and kind.");
const REPORTS: Named = ("gpuledger_agent_reports_total", "counter", "Reports, by what came of them.");
const REFUSED: Named =
    ("gpuledger_agent_refused_records_total", "counter", "Finished segments that the service did not take.");
const WAITING: Named =
    ("gpuledger_agent_segments_in_memory", "gauge", "Finished segments that are neither on disk nor acknowledged.");
const SPOOL_REPORTS: Named =
    ("gpuledger_agent_spool_reports", "gauge", "Reports of finished segments on disk that were not acknowledged.");
const SPOOL_BYTES: Named = ("gpuledger_agent_spool_bytes", "gauge", "Bytes that these reports take on disk.");
const SPOOL_FAILURES: Named = ("gpuledger_agent_spool_failures_total", "counter", "Writes to the disk that failed.");
const SAMPLE_AGE: Named = ("gpuledger_agent_sample_age_seconds", "gauge", "How long ago a driver last answered.");
const LAG: Named = ("gpuledger_agent_report_age_seconds", "gauge", "How long ago the service last took a report.");
const LOST: Named = ("gpuledger_agent_gpu_lost", "gauge", "1 where a GPU fell off the bus.");
const UTILISATION: Named = ("DCGM_FI_DEV_GPU_UTIL", "gauge", "Time with a kernel running (in %).");
const MEMORY_USED: Named = ("DCGM_FI_DEV_FB_USED", "gauge", "Memory in use (in MiB).");
const POWER: Named = ("DCGM_FI_DEV_POWER_USAGE", "gauge", "Power draw (in W).");
const ENERGY: Named =
    ("DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION", "counter", "All energy since the driver was loaded (in mJ).");
const XID: Named = ("DCGM_FI_DEV_XID_ERRORS", "gauge", "The last XID, 0 where there was none.");
const SM_ACTIVE: Named =
    ("DCGM_FI_PROF_SM_ACTIVE", "gauge", "Part of the time with a warp on a multiprocessor, averaged over all.");
const SM_OCCUPANCY: Named =
    ("DCGM_FI_PROF_SM_OCCUPANCY", "gauge", "Warps on multiprocessors, as a part of those that could be.");
const TENSOR_ACTIVE: Named =
    ("DCGM_FI_PROF_PIPE_TENSOR_ACTIVE", "gauge", "Part of the time with the tensor cores at work.");
const DRAM_ACTIVE: Named = ("DCGM_FI_PROF_DRAM_ACTIVE", "gauge", "Part of the bandwidth of memory in use.");

impl Board {
    /// The figures at an instant, in microseconds since the boot.
    #[must_use]
    pub fn text(&self, now_us: i64) -> String {
        let mut page = Page::default();
        self.own(&mut page, now_us);
        let devices = self.looked.sweep.as_ref().map(|sweep| sweep.devices.as_slice()).unwrap_or_default();
        for device in devices {
            self.device(&mut page, device);
        }
        page.text()
    }

    fn own(&self, page: &mut Page, now_us: i64) {
        let Counts { probe_failures, events, .. } = &self.counts;
        page.add(SAMPLES, "", self.counts.samples, 0);
        for (probe, times) in probe_failures {
            page.add(PROBE_FAILURES, &labels(&[("probe", probe)]), *times, 0);
        }
        page.add(REJECTED, "", self.counts.rejected_readings, 0);
        page.add(BRIEF, "", self.counts.brief_processes, 0);
        page.add(CLOCK_STEPS, "", self.counts.clock_steps, 0);
        page.add(UNATTRIBUTED_UNITS, "", self.counts.unattributed_units, 0);
        for ((gpu, kind), times) in events {
            page.add(EVENTS, &labels(&[("UUID", gpu), ("kind", kind)]), *times, 0);
        }
        page.add(REPORTS, &labels(&[("outcome", "taken")]), self.tally.reports_taken, 0);
        page.add(REPORTS, &labels(&[("outcome", "failed")]), self.tally.reports_failed, 0);
        page.add(REFUSED, "", self.tally.records_refused, 0);
        page.add(WAITING, "", u64::try_from(self.waiting).unwrap_or(u64::MAX), 0);
        page.add(SPOOL_REPORTS, "", self.tally.spool_reports, 0);
        page.add(SPOOL_BYTES, "", self.tally.spool_bytes, 0);
        page.add(SPOOL_FAILURES, "", self.tally.spool_failures, 0);
        let age_ms = |since_us: i64| u64::try_from((now_us - since_us) / 1_000).unwrap_or(0);
        if self.counts.samples > 0 {
            page.add(SAMPLE_AGE, "", age_ms(self.looked_us), 3);
        }
        if let Some(taken_us) = self.tally.last_taken_us {
            page.add(LAG, "", age_ms(taken_us), 3);
        }
    }

    fn device(&self, page: &mut Page, device: &Device) {
        let identity = &device.identity;
        let sample = self.looked.sample.gpus.get(&identity.uuid);
        let of_gpu = self.labels(device, None, sample.and_then(whole));
        // Of the agent's own, only the label by which figures of DCGM's names are joined with them.
        let own = labels(&[("UUID", identity.uuid.as_str())]);
        page.add(LOST, &own, u64::from(matches!(device.condition, Condition::Lost(_))), 0);
        page.add(XID, &of_gpu, self.counts.last_xid.get(&identity.uuid).copied().unwrap_or(0), 0);
        let mut figure = |name: Named, value: Option<u64>, decimals| {
            if let Some(value) = value {
                page.add(name, &of_gpu, value, decimals);
            }
        };
        figure(UTILISATION, device.utilisation_percent.map(u64::from), 0);
        figure(MEMORY_USED, device.memory_used_bytes.map(|bytes| bytes >> 20), 0);
        figure(POWER, device.power_mw.map(u64::from), 3);
        figure(ENERGY, device.energy_mj, 0);
        activity(page, &of_gpu, device.activity);
        let instances = match &device.mig {
            MigState::On { instances, .. } => instances.as_slice(),
            MigState::Off | MigState::Unread(_) => &[],
        };
        for instance in instances {
            let unit = sample.and_then(|sample| slice(sample, instance));
            let of_slice = self.labels(device, Some(instance), unit);
            if let Some(bytes) = instance.memory_used_bytes {
                page.add(MEMORY_USED, &of_slice, bytes >> 20, 0);
            }
            activity(page, &of_slice, instance.activity);
        }
    }

    /// The labels of DCGM's exporter. `hpc_job` names a job that holds the unit; where several do, the first.
    fn labels(&self, device: &Device, instance: Option<&MigInstance>, unit: Option<&UnitSample>) -> String {
        let index = device.index.to_string();
        let name = format!("nvidia{}", device.identity.minor.unwrap_or(device.index));
        let mut all = vec![
            ("gpu", index.as_str()),
            ("UUID", device.identity.uuid.as_str()),
            ("pci_bus_id", device.identity.pci_address.as_str()),
            ("device", name.as_str()),
            ("modelName", device.identity.model.as_str()),
            ("Hostname", self.node.as_str()),
        ];
        let (id, compute);
        if let Some(instance) = instance {
            id = instance.ids.gpu_instance.to_string();
            compute = instance.ids.compute_instance.to_string();
            all.extend([
                ("GPU_I_PROFILE", instance.profile.as_str()),
                ("GPU_I_ID", id.as_str()),
                ("GPU_C_ID", compute.as_str()),
            ]);
        }
        if let Some(job) = unit.and_then(|unit| unit.users.keys().next()) {
            all.push(("hpc_job", job));
        }
        labels(&all)
    }
}

fn whole(sample: &GpuSample) -> Option<&UnitSample> {
    match &sample.seen {
        Seen::Units(layout) => layout.units.iter().find(|unit| unit.shape == UnitShape::Full),
        Seen::Lost | Seen::NotRead => None,
    }
}

fn slice<'a>(sample: &'a GpuSample, instance: &MigInstance) -> Option<&'a UnitSample> {
    let Seen::Units(layout) = &sample.seen else { return None };
    layout.units.iter().find(|unit| match &unit.shape {
        UnitShape::Slice { uuid, gpu_instance, compute_instance, .. } => {
            *uuid == instance.uuid
                && (*gpu_instance, *compute_instance) == (instance.ids.gpu_instance, instance.ids.compute_instance)
        }
        UnitShape::Full | UnitShape::Remainder { .. } => false,
    })
}

fn activity(page: &mut Page, labels: &str, activity: Option<crate::sample::Activity>) {
    let Some(activity) = activity else { return };
    let figures = [
        (SM_ACTIVE, activity.sm_ppm),
        (SM_OCCUPANCY, activity.occupancy_ppm),
        (TENSOR_ACTIVE, activity.tensor_ppm),
        (DRAM_ACTIVE, activity.memory_ppm),
    ];
    for (name, ppm) in figures {
        if let Some(ppm) = ppm {
            page.add(name, labels, u64::from(ppm), 6);
        }
    }
}

fn labels(all: &[(&str, &str)]) -> String {
    let mut text = String::from("{");
    for (place, (name, value)) in all.iter().enumerate() {
        let comma = if place == 0 { "" } else { "," };
        let value = value.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n");
        let _ = write!(text, "{comma}{name}=\"{value}\"");
    }
    text + "}"
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn labels_are_escaped_and_decimals_are_put_where_they_belong() {
        let told = labels(&[("a", "x\"y\\z\n"), ("b", "")]);
        assert_eq!(told, r#"{a="x\"y\\z\n",b=""}"#);
        let mut page = Page::default();
        page.add(POWER, "", 432_210, 3);
        page.add(POWER, "", 7, 3);
        page.add(SM_ACTIVE, "", 1_000_000, 6);
        assert!(page.text().contains("DCGM_FI_DEV_POWER_USAGE 432.210\nDCGM_FI_DEV_POWER_USAGE 0.007\n"));
        assert!(page.text().ends_with("DCGM_FI_PROF_SM_ACTIVE 1.000000\n"));
    }
}
