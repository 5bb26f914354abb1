//! One look, as JSON for a person who wants to know what the agent sees.

use gpuledger_nvml::{Condition, Device, MigState, Processes};
use serde_json::{Value, json};

use crate::node::Looked;
use crate::sample::{Layout, Seen, UnitShape};

/// What a look saw: each GPU with its units, who uses each, and the processes behind that.
#[must_use]
pub fn json(looked: &Looked) -> Value {
    let sweep = looked.sweep.as_ref();
    let devices = sweep.map(|sweep| sweep.devices.as_slice()).unwrap_or_default();
    let gpus: Vec<Value> = devices.iter().map(|device| gpu(device, looked)).collect();
    json!({
        "driver": sweep.map(|sweep| sweep.driver.as_str()),
        "gpus": gpus,
        "findings": looked.findings,
    })
}

fn gpu(device: &Device, looked: &Looked) -> Value {
    let identity = &device.identity;
    let seen = looked.sample.gpus.get(&identity.uuid).map(|gpu| &gpu.seen);
    let units: Vec<Value> = match seen {
        Some(Seen::Units(layout)) => units(device, layout),
        Some(Seen::Lost | Seen::NotRead) | None => Vec::new(),
    };
    let state = match (&device.condition, seen) {
        (Condition::Lost(_), _) => "lost",
        (_, Some(Seen::Units(_))) => "seen",
        _ => "not read",
    };
    json!({
        "index": device.index,
        "uuid": identity.uuid,
        "pci_address": identity.pci_address,
        "model": identity.model,
        "memory_bytes": identity.memory_bytes,
        "compute_slices": identity.slices.compute,
        "memory_slices": identity.slices.memory,
        "state": state,
        "mig": matches!(device.mig, MigState::On { .. }),
        "mode_pending": device.mode_pending,
        "utilisation_percent": device.utilisation_percent,
        "power_mw": device.power_mw,
        "energy_mj": device.energy_mj,
        "units": units,
    })
}

fn units(device: &Device, layout: &Layout) -> Vec<Value> {
    let instances = match &device.mig {
        MigState::On { instances, .. } => instances.as_slice(),
        MigState::Off | MigState::Unread(_) => &[],
    };
    let processes = match &device.processes {
        Processes::Read(processes) => processes.as_slice(),
        Processes::Rejected(_) | Processes::Failed(_) => &[],
    };
    let one = |unit: &crate::sample::UnitSample| {
        let mut value = match &unit.shape {
            UnitShape::Full => json!({ "kind": "full" }),
            UnitShape::Remainder { slices: (compute, memory) } => {
                json!({ "kind": "remainder", "compute_slices": compute, "memory_slices": memory, "has_room": unit.has_room })
            }
            UnitShape::Slice { uuid, gpu_instance, compute_instance, profile, slices: (compute, memory) } => {
                let memory_bytes = instances.iter().find(|one| one.uuid == *uuid).and_then(|one| one.memory_bytes);
                json!({
                    "kind": "slice",
                    "uuid": uuid,
                    "parent": device.identity.uuid,
                    "gpu_instance": gpu_instance,
                    "compute_instance": compute_instance,
                    "profile": profile,
                    "compute_slices": compute,
                    "memory_slices": memory,
                    "memory_bytes": memory_bytes,
                })
            }
        };
        let here = processes.iter().filter(|process| match (&unit.shape, process.instance) {
            (UnitShape::Full, _) | (UnitShape::Remainder { .. }, None) => true,
            (UnitShape::Slice { gpu_instance, compute_instance, .. }, Some(ids)) => {
                (*gpu_instance, *compute_instance) == (ids.gpu_instance, ids.compute_instance)
            }
            _ => false,
        });
        let here: Vec<Value> =
            here.map(|process| json!({ "pid": process.pid, "memory_bytes": process.memory_bytes })).collect();
        let users: Vec<&String> = unit.users.keys().collect();
        if let Some(object) = value.as_object_mut() {
            object.insert("state".into(), json!(if users.is_empty() { "idle" } else { "held" }));
            object.insert("jobs".into(), json!(users));
            object.insert("processes".into(), json!(here));
        }
        value
    };
    layout.units.iter().map(one).collect()
}
