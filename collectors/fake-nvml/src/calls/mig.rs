//! The C functions that tell how devices are cut.

use std::ffi::c_uint;

use nvml_wrapper_sys::bindings::{
    nvmlDevice_t, nvmlDeviceAttributes_t, nvmlGpuInstance_t, nvmlGpuInstanceInfo_t, nvmlGpuInstancePlacement_t,
    nvmlGpuInstanceProfileInfo_t, nvmlReturn_t,
};

use super::{Handle, INVALID_ARGUMENT, NOT_FOUND, NOT_SUPPORTED, code, of_handle, put, put_list};

#[unsafe(no_mangle)]
pub extern "C" fn nvmlDeviceGetMigMode(
    device: nvmlDevice_t,
    current: *mut c_uint,
    pending: *mut c_uint,
) -> nvmlReturn_t {
    code(of_handle(device.addr(), "nvmlDeviceGetMigMode", |device, state, _| {
        if device.mig_devices_max == 0 {
            return Err(NOT_SUPPORTED);
        }
        put(current, c_uint::from(state.mig))?;
        put(pending, c_uint::from(state.mig_pending.unwrap_or(state.mig)))
    }))
}

#[unsafe(no_mangle)]
pub extern "C" fn nvmlDeviceGetMaxMigDeviceCount(device: nvmlDevice_t, count: *mut c_uint) -> nvmlReturn_t {
    code(of_handle(device.addr(), "nvmlDeviceGetMaxMigDeviceCount", |device, _, _| put(count, device.mig_devices_max)))
}

#[unsafe(no_mangle)]
pub extern "C" fn nvmlDeviceGetMigDeviceHandleByIndex(
    device: nvmlDevice_t,
    index: c_uint,
    mig: *mut nvmlDevice_t,
) -> nvmlReturn_t {
    code(of_handle(device.addr(), "nvmlDeviceGetMigDeviceHandleByIndex", |_, state, _| {
        let index = usize::try_from(index).map_err(|_| INVALID_ARGUMENT)?;
        let instance = state.instances.get(index).ok_or(NOT_FOUND)?;
        let handle = Handle { device: Handle::of(device.addr())?.device, instance: Some((instance.gi, instance.ci)) };
        put(mig, std::ptr::without_provenance_mut(handle.bits()))
    }))
}

#[unsafe(no_mangle)]
pub extern "C" fn nvmlDeviceGetGpuInstanceId(device: nvmlDevice_t, id: *mut c_uint) -> nvmlReturn_t {
    code(of_handle(device.addr(), "nvmlDeviceGetGpuInstanceId", |_, _, instance| {
        put(id, instance.ok_or(INVALID_ARGUMENT)?.gi)
    }))
}

#[unsafe(no_mangle)]
pub extern "C" fn nvmlDeviceGetComputeInstanceId(device: nvmlDevice_t, id: *mut c_uint) -> nvmlReturn_t {
    code(of_handle(device.addr(), "nvmlDeviceGetComputeInstanceId", |_, _, instance| {
        put(id, instance.ok_or(INVALID_ARGUMENT)?.ci)
    }))
}

#[unsafe(no_mangle)]
pub extern "C" fn nvmlDeviceGetAttributes_v2(
    device: nvmlDevice_t,
    attributes: *mut nvmlDeviceAttributes_t,
) -> nvmlReturn_t {
    code(of_handle(device.addr(), "nvmlDeviceGetAttributes", |_, _, instance| {
        let instance = instance.ok_or(NOT_SUPPORTED)?;
        let found = nvmlDeviceAttributes_t {
            multiprocessorCount: instance.multiprocessors,
            sharedCopyEngineCount: 0,
            sharedDecoderCount: 0,
            sharedEncoderCount: 0,
            sharedJpegCount: 0,
            sharedOfaCount: 0,
            gpuInstanceSliceCount: instance.gi_slices,
            computeInstanceSliceCount: instance.ci_slices,
            memorySizeMB: instance.memory_mib,
        };
        put(attributes, found)
    }))
}

#[unsafe(no_mangle)]
pub extern "C" fn nvmlDeviceGetGpuInstanceById(
    device: nvmlDevice_t,
    id: c_uint,
    gpu_instance: *mut nvmlGpuInstance_t,
) -> nvmlReturn_t {
    code(of_handle(device.addr(), "nvmlDeviceGetGpuInstanceById", |_, state, _| {
        let instance = state.instances.iter().find(|instance| instance.gi == id).ok_or(NOT_FOUND)?;
        let handle = Handle { device: Handle::of(device.addr())?.device, instance: Some((instance.gi, instance.ci)) };
        put(gpu_instance, std::ptr::without_provenance_mut(handle.bits()))
    }))
}

#[unsafe(no_mangle)]
pub extern "C" fn nvmlGpuInstanceGetInfo(
    gpu_instance: nvmlGpuInstance_t,
    info: *mut nvmlGpuInstanceInfo_t,
) -> nvmlReturn_t {
    code(of_handle(gpu_instance.addr(), "nvmlGpuInstanceGetInfo", |_, _, instance| {
        let instance = instance.ok_or(INVALID_ARGUMENT)?;
        let (start, size) = instance.placement;
        let device = Handle { device: Handle::of(gpu_instance.addr())?.device, instance: None }.bits();
        let found = nvmlGpuInstanceInfo_t {
            device: std::ptr::without_provenance_mut(device),
            id: instance.gi,
            profileId: 0,
            placement: nvmlGpuInstancePlacement_t { start, size },
        };
        put(info, found)
    }))
}

#[unsafe(no_mangle)]
pub extern "C" fn nvmlDeviceGetGpuInstanceProfileInfo(
    device: nvmlDevice_t,
    number: c_uint,
    info: *mut nvmlGpuInstanceProfileInfo_t,
) -> nvmlReturn_t {
    code(of_handle(device.addr(), "nvmlDeviceGetGpuInstanceProfileInfo", |device, _, _| {
        let profile = device.profiles.iter().find(|profile| profile.number == number).ok_or(NOT_SUPPORTED)?;
        let found = nvmlGpuInstanceProfileInfo_t {
            id: profile.id,
            isP2pSupported: 0,
            sliceCount: profile.slices,
            instanceCount: profile.most,
            multiprocessorCount: profile.multiprocessors,
            copyEngineCount: 0,
            decoderCount: 0,
            encoderCount: 0,
            jpegCount: 0,
            ofaCount: 0,
            memorySizeMB: profile.memory_mib,
        };
        put(info, found)
    }))
}

#[unsafe(no_mangle)]
pub extern "C" fn nvmlDeviceGetGpuInstancePossiblePlacements_v2(
    device: nvmlDevice_t,
    id: c_uint,
    placements: *mut nvmlGpuInstancePlacement_t,
    count: *mut c_uint,
) -> nvmlReturn_t {
    code(of_handle(device.addr(), "nvmlDeviceGetGpuInstancePossiblePlacements", |device, _, _| {
        let profile = device.profiles.iter().find(|profile| profile.id == id).ok_or(NOT_SUPPORTED)?;
        let place = |(start, size): &(u32, u32)| nvmlGpuInstancePlacement_t { start: *start, size: *size };
        put_list(placements, count, &profile.placements.iter().map(place).collect::<Vec<_>>())
    }))
}
