//! The C functions that tell what the driver keeps of processes.

use std::ffi::c_uint;

use nvml_wrapper_sys::bindings::{nvmlAccountingStats_t, nvmlDevice_t, nvmlEnableState_t, nvmlReturn_t};

use super::{NOT_FOUND, NOT_SUPPORTED, code, of_handle, put, put_list};

#[unsafe(no_mangle)]
pub extern "C" fn nvmlDeviceGetAccountingMode(device: nvmlDevice_t, mode: *mut nvmlEnableState_t) -> nvmlReturn_t {
    code(of_handle(device.addr(), "nvmlDeviceGetAccountingMode", |_, state, _| {
        put(mode, nvmlEnableState_t::from(state.accounting))
    }))
}

#[unsafe(no_mangle)]
pub extern "C" fn nvmlDeviceGetAccountingPids(
    device: nvmlDevice_t,
    count: *mut c_uint,
    pids: *mut c_uint,
) -> nvmlReturn_t {
    code(of_handle(device.addr(), "nvmlDeviceGetAccountingPids", |_, state, _| {
        if !state.accounting {
            return Err(NOT_SUPPORTED);
        }
        put_list(pids, count, &state.accounts.iter().map(|account| account.pid).collect::<Vec<_>>())
    }))
}

#[unsafe(no_mangle)]
pub extern "C" fn nvmlDeviceGetAccountingStats(
    device: nvmlDevice_t,
    pid: c_uint,
    stats: *mut nvmlAccountingStats_t,
) -> nvmlReturn_t {
    code(of_handle(device.addr(), "nvmlDeviceGetAccountingStats", |_, state, _| {
        let account = state.accounts.iter().rfind(|account| account.pid == pid).ok_or(NOT_FOUND)?;
        let found = nvmlAccountingStats_t {
            gpuUtilization: c_uint::MAX,
            memoryUtilization: c_uint::MAX,
            maxMemoryUsage: u64::MAX,
            time: account.ms.unwrap_or(0),
            startTime: account.start_us,
            isRunning: c_uint::from(account.ms.is_none()),
            reserved: [0; 5],
        };
        put(stats, found)
    }))
}
