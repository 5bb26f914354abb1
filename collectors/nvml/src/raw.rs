//! Driver calls that the safe interface lacks. The only place of this crate that may be unsafe.

#![allow(unsafe_code)]

use nvml_wrapper::error::{NvmlError, nvml_sym, nvml_try, nvml_try_count};
use nvml_wrapper::{Device, Nvml};
use nvml_wrapper_sys::bindings::{nvmlGpuInstance_t, nvmlGpuInstanceInfo_t, nvmlGpuInstancePlacement_t};

use crate::placement::Placement;
use crate::reading::InstanceIds;

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
