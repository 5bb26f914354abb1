//! Driver calls that the safe interface lacks. The only place of this crate that may be unsafe.

#![allow(unsafe_code)]

use nvml_wrapper::error::{NvmlError, nvml_sym, nvml_try, nvml_try_count};
use nvml_wrapper::{Device, GpmSample, Nvml};
use nvml_wrapper_sys::bindings::{
    nvmlEventData_t, nvmlEventSet_t, nvmlEventTypeDoubleBitEccError, nvmlEventTypeSingleBitEccError,
    nvmlEventTypeXidCriticalError, nvmlGpmSample_t, nvmlGpuInstance_t, nvmlGpuInstanceInfo_t,
    nvmlGpuInstancePlacement_t,
};

use crate::placement::Placement;
use crate::reading::{Event, EventKind, InstanceIds};

/// The numbers of a MIG device.
pub(crate) fn instance_ids(nvml: &Nvml, mig: &Device<'_>) -> Result<InstanceIds, NvmlError> {
    let (mut gpu_instance, mut compute_instance) = (0, 0);
    let of_gpu = nvml_sym(nvml.lib().nvmlDeviceGetGpuInstanceId.as_ref())?;
    let of_compute = nvml_sym(nvml.lib().nvmlDeviceGetComputeInstanceId.as_ref())?;
    // SAFETY: the handle is of this library, which is loaded as long as `nvml` lives; both numbers are written before they are
    // read, or the call says that it failed.
    unsafe {
        nvml_try(of_gpu(mig.handle(), &raw mut gpu_instance))?;
        nvml_try(of_compute(mig.handle(), &raw mut compute_instance))?;
    }
    Ok(InstanceIds { gpu_instance, compute_instance })
}

/// Where a GPU instance of a device lies.
pub(crate) fn placement(nvml: &Nvml, device: &Device<'_>, gpu_instance: u32) -> Result<Placement, NvmlError> {
    let by_id = nvml_sym(nvml.lib().nvmlDeviceGetGpuInstanceById.as_ref())?;
    let get_info = nvml_sym(nvml.lib().nvmlGpuInstanceGetInfo.as_ref())?;
    let mut handle: nvmlGpuInstance_t = std::ptr::null_mut();
    let mut info = nvmlGpuInstanceInfo_t {
        device: std::ptr::null_mut(),
        id: 0,
        profileId: 0,
        placement: nvmlGpuInstancePlacement_t { start: 0, size: 0 },
    };
    // SAFETY: as above; the second call gets the handle that the first one wrote.
    unsafe {
        nvml_try(by_id(device.handle(), gpu_instance, &raw mut handle))?;
        nvml_try(get_info(handle, &raw mut info))?;
    }
    Ok(Placement { start: info.placement.start, size: info.placement.size })
}

/// More placements than any profile has: a driver that says more is not believed.
const PLACEMENTS_MAX: u32 = 256;

/// Where GPU instances of a profile may lie on a device.
pub(crate) fn placements(nvml: &Nvml, device: &Device<'_>, profile_id: u32) -> Result<Vec<Placement>, NvmlError> {
    let get = nvml_sym(nvml.lib().nvmlDeviceGetGpuInstancePossiblePlacements_v2.as_ref())?;
    let mut count = 0;
    // SAFETY: without a buffer the call writes only the count.
    unsafe { nvml_try_count(get(device.handle(), profile_id, std::ptr::null_mut(), &raw mut count))? };
    if count == 0 || count > PLACEMENTS_MAX {
        return if count == 0 { Ok(Vec::new()) } else { Err(NvmlError::Unknown) };
    }
    let mut found = vec![nvmlGpuInstancePlacement_t { start: 0, size: 0 }; usize::try_from(count).unwrap_or(0)];
    // SAFETY: the buffer has as many entries as the count says.
    unsafe { nvml_try(get(device.handle(), profile_id, found.as_mut_ptr(), &raw mut count))? };
    found.truncate(usize::try_from(count).unwrap_or(0));
    Ok(found.iter().map(|placement| Placement { start: placement.start, size: placement.size }).collect())
}

/// A sample of activity that is kept from one look to the next. The safe type cannot be kept beside the library that it borrows.
#[derive(Debug)]
pub(crate) struct KeptSample(nvmlGpmSample_t);

// SAFETY: the driver ties a sample to no thread, and the safe type says so, too.
unsafe impl Send for KeptSample {}

impl KeptSample {
    pub(crate) fn keep(sample: GpmSample<'_>) -> KeptSample {
        KeptSample(sample.into_handle())
    }

    /// The sample again, of the library that it was taken with; it is freed when it is dropped.
    pub(crate) fn take(self, nvml: &Nvml) -> GpmSample<'_> {
        // SAFETY: the handle is of this library, as the only caller owns both; it was given up by its owner and is given on once.
        unsafe { GpmSample::from_handle(nvml, self.0) }
    }
}

/// What the driver is asked to tell when it happens. The safe type does not say which instance an event is of.
#[derive(Debug)]
pub(crate) struct Events {
    set: nvmlEventSet_t,
    /// Handles of devices, with their UUIDs: a device that is lost does not say its own.
    devices: Vec<(usize, String)>,
}

// SAFETY: as above.
unsafe impl Send for Events {}

/// Errors of memory, and whatever the driver writes into the kernel's log as an XID.
const WANTED: u64 =
    (nvmlEventTypeXidCriticalError | nvmlEventTypeSingleBitEccError | nvmlEventTypeDoubleBitEccError) as u64;

impl Events {
    pub(crate) fn create(nvml: &Nvml) -> Result<Events, NvmlError> {
        let create = nvml_sym(nvml.lib().nvmlEventSetCreate.as_ref())?;
        // What frees it must be there, or it is not made.
        nvml_sym(nvml.lib().nvmlEventSetFree.as_ref())?;
        let mut set: nvmlEventSet_t = std::ptr::null_mut();
        // SAFETY: the handle is written before it is read, or the call says that it failed.
        unsafe { nvml_try(create(&raw mut set))? };
        Ok(Events { set, devices: Vec::new() })
    }

    /// Asks for the events of a device, of those kinds that it has.
    pub(crate) fn register(&mut self, nvml: &Nvml, device: &Device<'_>, uuid: &str) -> Result<(), NvmlError> {
        let supported = nvml_sym(nvml.lib().nvmlDeviceGetSupportedEventTypes.as_ref())?;
        let register = nvml_sym(nvml.lib().nvmlDeviceRegisterEvents.as_ref())?;
        let mut kinds = 0;
        // SAFETY: device and set are of this library; the number is written before it is read.
        let handle = unsafe {
            nvml_try(supported(device.handle(), &raw mut kinds))?;
            if kinds & WANTED != 0 {
                nvml_try(register(device.handle(), kinds & WANTED, self.set))?;
            }
            device.handle().addr()
        };
        self.devices.retain(|(known, _)| *known != handle);
        self.devices.push((handle, uuid.to_owned()));
        Ok(())
    }

    /// The next event that happened; `None` where none did, or the driver has no word for it.
    pub(crate) fn next(&self, nvml: &Nvml) -> Option<Event> {
        let wait = nvml.lib().nvmlEventSetWait_v2.as_ref().ok()?;
        let mut event = nvmlEventData_t {
            device: std::ptr::null_mut(),
            eventType: 0,
            eventData: 0,
            gpuInstanceId: u32::MAX,
            computeInstanceId: u32::MAX,
        };
        // SAFETY: the set is of this library; the event is written before it is read. No time is waited.
        unsafe { nvml_try(wait(self.set, &raw mut event, 0)).ok()? };
        let uuid = self.devices.iter().find(|(handle, _)| *handle == event.device.addr()).map(|(_, uuid)| uuid.clone());
        let kind = match event.eventType {
            kind if kind == u64::from(nvmlEventTypeXidCriticalError) => EventKind::Xid(event.eventData),
            kind if kind == u64::from(nvmlEventTypeSingleBitEccError) => EventKind::SingleBitEcc,
            kind if kind == u64::from(nvmlEventTypeDoubleBitEccError) => EventKind::DoubleBitEcc,
            other => EventKind::Other(other),
        };
        let told = |id: u32| (id != u32::MAX).then_some(id);
        Some(Event {
            gpu: uuid,
            kind,
            gpu_instance: told(event.gpuInstanceId),
            compute_instance: told(event.computeInstanceId),
        })
    }

    pub(crate) fn free(&mut self, nvml: &Nvml) {
        if let Ok(free) = nvml.lib().nvmlEventSetFree.as_ref() {
            // SAFETY: the set is of this library, and its only owner ends with this.
            unsafe { free(self.set) };
        }
    }
}
