//! The C functions that tell what happens.

use std::ffi::{c_uint, c_ulonglong};

use nvml_wrapper_sys::bindings::{
    nvmlDevice_t, nvmlEventData_t, nvmlEventSet_t, nvmlEventTypeDoubleBitEccError, nvmlEventTypeSingleBitEccError,
    nvmlEventTypeXidCriticalError, nvmlReturn_t,
};

use super::{Handle, NONE, SUCCESS, TIMEOUT, code, of_handle, playing, put};

#[unsafe(no_mangle)]
pub extern "C" fn nvmlEventSetCreate(set: *mut nvmlEventSet_t) -> nvmlReturn_t {
    // There is one set: nobody follows it as a pointer.
    code(playing(|_| put(set, std::ptr::without_provenance_mut(1))))
}

#[unsafe(no_mangle)]
pub extern "C" fn nvmlEventSetFree(_set: nvmlEventSet_t) -> nvmlReturn_t {
    SUCCESS
}

#[unsafe(no_mangle)]
pub extern "C" fn nvmlDeviceGetSupportedEventTypes(device: nvmlDevice_t, kinds: *mut c_ulonglong) -> nvmlReturn_t {
    code(of_handle(device.addr(), "nvmlDeviceGetSupportedEventTypes", |_, _, _| {
        let ecc = nvmlEventTypeSingleBitEccError | nvmlEventTypeDoubleBitEccError;
        put(kinds, c_ulonglong::from(ecc | nvmlEventTypeXidCriticalError))
    }))
}

#[unsafe(no_mangle)]
pub extern "C" fn nvmlDeviceRegisterEvents(
    device: nvmlDevice_t,
    _kinds: c_ulonglong,
    _set: nvmlEventSet_t,
) -> nvmlReturn_t {
    code(of_handle(device.addr(), "nvmlDeviceRegisterEvents", |_, _, _| Ok(())))
}

#[unsafe(no_mangle)]
pub extern "C" fn nvmlEventSetWait_v2(
    _set: nvmlEventSet_t,
    event: *mut nvmlEventData_t,
    _milliseconds: c_uint,
) -> nvmlReturn_t {
    code(playing(|played| {
        let (device, happened) = played.next_event().ok_or(TIMEOUT)?;
        let found = nvmlEventData_t {
            device: std::ptr::without_provenance_mut(Handle { device, instance: None }.bits()),
            eventType: happened.kind,
            eventData: happened.data,
            gpuInstanceId: happened.gi.unwrap_or(NONE),
            computeInstanceId: happened.ci.unwrap_or(NONE),
        };
        put(event, found)
    }))
}
