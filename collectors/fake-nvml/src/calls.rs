//! The C functions.

#![allow(non_snake_case, unreachable_pub, clippy::not_unsafe_ptr_arg_deref)]

use std::ffi::{c_char, c_uint, c_ulonglong};

use nvml_wrapper_sys::bindings::{
    nvmlDevice_t, nvmlMemory_v2_t, nvmlPciInfo_t, nvmlProcessInfo_t, nvmlProcessUtilizationSample_t, nvmlReturn_t,
    nvmlUtilization_t,
};

use crate::played::{self, Played};
use crate::scenario::{Device, Instance, List, State};

mod accounts;
mod events;
mod gpm;
mod mig;

const SUCCESS: nvmlReturn_t = 0;
const UNINITIALIZED: nvmlReturn_t = 1;
const INVALID_ARGUMENT: nvmlReturn_t = 2;
const NOT_SUPPORTED: nvmlReturn_t = 3;
const NOT_FOUND: nvmlReturn_t = 6;
const TIMEOUT: nvmlReturn_t = 10;
const INSUFFICIENT_SIZE: nvmlReturn_t = 7;
const DRIVER_NOT_LOADED: nvmlReturn_t = 9;
const GPU_IS_LOST: nvmlReturn_t = 15;
const MIB: u64 = 1 << 20;
/// "No instance", "not available".
const NONE: c_uint = c_uint::MAX;

type Answer<T> = Result<T, nvmlReturn_t>;

/// A handle names a device, or an instance on it: nobody follows it as a pointer.
#[derive(Clone, Copy)]
struct Handle {
    device: usize,
    instance: Option<(u32, u32)>,
}

impl Handle {
    const fn bits(self) -> usize {
        match self.instance {
            None => (self.device + 1) << 32,
            Some((gi, ci)) => (self.device + 1) << 32 | 1 << 31 | (gi as usize) << 8 | ci as usize,
        }
    }

    fn of(bits: usize) -> Answer<Handle> {
        let device = (bits >> 32).checked_sub(1).ok_or(INVALID_ARGUMENT)?;
        let low = u32::try_from(bits & 0x7fff_ffff).map_err(|_| INVALID_ARGUMENT)?;
        let instance = (bits & (1 << 31) != 0).then_some((low >> 8, low & 0xff));
        Ok(Handle { device, instance })
    }
}

fn code(answer: Answer<()>) -> nvmlReturn_t {
    answer.err().unwrap_or(SUCCESS)
}

/// Answers from what is played, if the driver is loaded.
fn playing<T>(act: impl FnOnce(&mut Played) -> Answer<T>) -> Answer<T> {
    let loaded = |played: &mut Played| {
        if played.scenario.is_loaded(played.now_us()) { act(played) } else { Err(DRIVER_NOT_LOADED) }
    };
    played::with(loaded).unwrap_or(Err(UNINITIALIZED))
}

/// Answers for a device or instance that is there, unless the scenario says that the call fails.
fn of_handle<T>(
    bits: usize,
    call: &str,
    act: impl FnOnce(&Device, &State, Option<&Instance>) -> Answer<T>,
) -> Answer<T> {
    let handle = Handle::of(bits)?;
    playing(|played| {
        let (device, state) = played.device(handle.device).ok_or(INVALID_ARGUMENT)?;
        if state.lost {
            return Err(GPU_IS_LOST);
        }
        if let Some(error) = state.errors.get(call) {
            return Err(*error);
        }
        let instance = match handle.instance {
            None => None,
            Some((gi, ci)) => {
                Some(state.instances.iter().find(|one| (one.gi, one.ci) == (gi, ci)).ok_or(INVALID_ARGUMENT)?)
            }
        };
        act(device, state, instance)
    })
}

/// Writes where the caller wants it.
fn put<T>(place: *mut T, value: T) -> Answer<()> {
    if place.is_null() {
        return Err(INVALID_ARGUMENT);
    }
    // SAFETY: the caller gives a place of this type, as the driver's interface demands.
    unsafe { place.write(value) };
    Ok(())
}

fn put_text(place: *mut c_char, length: c_uint, text: &str) -> Answer<()> {
    let length = usize::try_from(length).map_err(|_| INVALID_ARGUMENT)?;
    if place.is_null() || text.len() >= length {
        return Err(INSUFFICIENT_SIZE);
    }
    // SAFETY: the caller gives so many bytes, and the text with its end is shorter.
    unsafe {
        std::ptr::copy_nonoverlapping(text.as_ptr().cast(), place, text.len());
        place.add(text.len()).write(0);
    }
    Ok(())
}

fn text_into<const N: usize>(text: &str) -> [c_char; N] {
    let mut bytes = [0; N];
    for (place, byte) in bytes.iter_mut().take(N - 1).zip(text.bytes()) {
        *place = byte.cast_signed();
    }
    bytes
}

/// Writes a list into a buffer of `count` entries, or says how many are needed.
fn put_list<T: Copy>(place: *mut T, count: *mut c_uint, list: &[T]) -> Answer<()> {
    if count.is_null() {
        return Err(INVALID_ARGUMENT);
    }
    // SAFETY: the caller gives a count of the entries that fit.
    let room = unsafe { count.read() };
    let needed = c_uint::try_from(list.len()).map_err(|_| INVALID_ARGUMENT)?;
    put(count, needed)?;
    if place.is_null() || room < needed {
        return if needed == 0 { Ok(()) } else { Err(INSUFFICIENT_SIZE) };
    }
    // SAFETY: as many entries fit.
    unsafe { std::ptr::copy_nonoverlapping(list.as_ptr(), place, list.len()) };
    Ok(())
}

fn start() -> nvmlReturn_t {
    if let Err(error) = played::begin() {
        eprintln!("fake driver: {error}");
        return UNINITIALIZED;
    }
    let loaded = code(playing(|_| Ok(())));
    if loaded != SUCCESS {
        played::end();
    }
    loaded
}

#[unsafe(no_mangle)]
pub extern "C" fn nvmlInit_v2() -> nvmlReturn_t {
    start()
}

#[unsafe(no_mangle)]
pub extern "C" fn nvmlInitWithFlags(_flags: c_uint) -> nvmlReturn_t {
    start()
}

#[unsafe(no_mangle)]
pub extern "C" fn nvmlShutdown() -> nvmlReturn_t {
    SUCCESS
}

#[unsafe(no_mangle)]
pub extern "C" fn nvmlSystemGetDriverVersion(version: *mut c_char, length: c_uint) -> nvmlReturn_t {
    code(playing(|played| put_text(version, length, &played.scenario.driver)))
}

#[unsafe(no_mangle)]
pub extern "C" fn nvmlDeviceGetCount_v2(count: *mut c_uint) -> nvmlReturn_t {
    code(playing(|played| put(count, c_uint::try_from(played.scenario.devices.len()).map_err(|_| INVALID_ARGUMENT)?)))
}

#[unsafe(no_mangle)]
pub extern "C" fn nvmlDeviceGetHandleByIndex_v2(index: c_uint, device: *mut nvmlDevice_t) -> nvmlReturn_t {
    let Ok(index) = usize::try_from(index) else { return INVALID_ARGUMENT };
    let handle = Handle { device: index, instance: None }.bits();
    code(of_handle(handle, "nvmlDeviceGetHandleByIndex", |_, _, _| {
        put(device, std::ptr::without_provenance_mut(handle))
    }))
}

#[unsafe(no_mangle)]
pub extern "C" fn nvmlDeviceGetIndex(device: nvmlDevice_t, index: *mut c_uint) -> nvmlReturn_t {
    code(of_handle(device.addr(), "nvmlDeviceGetIndex", |_, _, _| {
        put(index, c_uint::try_from(Handle::of(device.addr())?.device).map_err(|_| INVALID_ARGUMENT)?)
    }))
}

#[unsafe(no_mangle)]
pub extern "C" fn nvmlDeviceGetUUID(device: nvmlDevice_t, uuid: *mut c_char, length: c_uint) -> nvmlReturn_t {
    code(of_handle(device.addr(), "nvmlDeviceGetUUID", |device, _, instance| {
        put_text(uuid, length, instance.map_or(&device.uuid, |instance| &instance.uuid))
    }))
}

#[unsafe(no_mangle)]
pub extern "C" fn nvmlDeviceGetMinorNumber(device: nvmlDevice_t, minor: *mut c_uint) -> nvmlReturn_t {
    code(of_handle(device.addr(), "nvmlDeviceGetMinorNumber", |known, _, _| {
        let index = Handle::of(device.addr())?.device;
        put(minor, known.minor.unwrap_or(c_uint::try_from(index).map_err(|_| INVALID_ARGUMENT)?))
    }))
}

#[unsafe(no_mangle)]
pub extern "C" fn nvmlDeviceGetName(device: nvmlDevice_t, name: *mut c_char, length: c_uint) -> nvmlReturn_t {
    code(of_handle(device.addr(), "nvmlDeviceGetName", |device, _, instance| match instance {
        None => put_text(name, length, &device.name),
        Some(instance) => put_text(name, length, &format!("{} MIG {}", device.name, instance.profile)),
    }))
}

#[unsafe(no_mangle)]
pub extern "C" fn nvmlDeviceGetPciInfo_v3(device: nvmlDevice_t, pci: *mut nvmlPciInfo_t) -> nvmlReturn_t {
    code(of_handle(device.addr(), "nvmlDeviceGetPciInfo", |device, _, _| {
        let info = nvmlPciInfo_t {
            busIdLegacy: text_into(device.pci.get(4..).unwrap_or_default()),
            domain: 0,
            bus: 0,
            device: 0,
            pciDeviceId: 0,
            pciSubSystemId: 0,
            busId: text_into(&device.pci),
        };
        put(pci, info)
    }))
}

#[unsafe(no_mangle)]
pub extern "C" fn nvmlDeviceGetMemoryInfo_v2(device: nvmlDevice_t, memory: *mut nvmlMemory_v2_t) -> nvmlReturn_t {
    code(of_handle(device.addr(), "nvmlDeviceGetMemoryInfo", |device, state, instance| {
        let (total, used) = instance
            .map_or((device.memory_mib, state.memory_used_mib), |instance| (instance.memory_mib, instance.used_mib));
        if memory.is_null() {
            return Err(INVALID_ARGUMENT);
        }
        // SAFETY: the caller gives a place of this type, whose version it wrote.
        let version = unsafe { (*memory).version };
        put(
            memory,
            nvmlMemory_v2_t { version, total: total * MIB, reserved: 0, free: (total - used) * MIB, used: used * MIB },
        )
    }))
}

fn processes(
    device: nvmlDevice_t,
    call: &str,
    list: List,
    place: *mut nvmlProcessInfo_t,
    count: *mut c_uint,
) -> nvmlReturn_t {
    let entry = |(pid, memory, gi, ci): (u32, Option<u64>, Option<u32>, Option<u32>)| nvmlProcessInfo_t {
        pid,
        usedGpuMemory: memory.map_or(c_ulonglong::MAX, |mib| mib * MIB),
        gpuInstanceId: gi.unwrap_or(NONE),
        computeInstanceId: ci.unwrap_or(NONE),
    };
    let found = of_handle(device.addr(), call, |_, state, instance| {
        if list == List::Compute
            && let Some(raw) = &state.raw
        {
            return Ok((Listed::Raw(raw.count, hex(&raw.bytes)), Vec::new()));
        }
        let here = state.processes.iter().filter(|process| process.list == list);
        let here =
            here.filter(|process| instance.is_none_or(|one| (process.gi, process.ci) == (Some(one.gi), Some(one.ci))));
        let entries = here.map(|process| entry((process.pid, process.memory_mib, process.gi, process.ci)));
        Ok((Listed::Entries(entries.collect()), if list == List::Compute { state.hidden.clone() } else { Vec::new() }))
    });
    let write = |(listed, hidden): (Listed, Vec<u32>)| match listed {
        Listed::Raw(entries, bytes) if place.is_null() => {
            let _ = bytes;
            put(count, entries)?;
            Err(INSUFFICIENT_SIZE)
        }
        Listed::Raw(entries, bytes) => {
            put(count, entries)?;
            // SAFETY: the real driver writes past what its caller thinks is an entry, too: the caller's buffer has room for some
            // entries more than are there.
            unsafe { std::ptr::copy_nonoverlapping(bytes.as_ptr(), place.cast::<u8>(), bytes.len()) };
            Ok(())
        }
        Listed::Entries(entries) => {
            let counted = played::with(|played| {
                played.counted += usize::from(place.is_null());
                played.counted
            });
            // The list grew since it was counted.
            let less = counted.and_then(|counted| hidden.get(counted.checked_sub(1)?).copied()).unwrap_or(0);
            if place.is_null() && less > 0 {
                put(count, c_uint::try_from(entries.len()).map_err(|_| INVALID_ARGUMENT)?.saturating_sub(less))?;
                return Err(INSUFFICIENT_SIZE);
            }
            put_list(place, count, &entries)
        }
    };
    code(found.and_then(write))
}

enum Listed {
    Entries(Vec<nvmlProcessInfo_t>),
    Raw(u32, Vec<u8>),
}

fn hex(text: &str) -> Vec<u8> {
    let digits: Vec<u8> = text.bytes().filter(u8::is_ascii_hexdigit).collect();
    let byte = |pair: &[u8]| std::str::from_utf8(pair).ok().and_then(|pair| u8::from_str_radix(pair, 16).ok());
    digits.chunks_exact(2).filter_map(byte).collect()
}

#[unsafe(no_mangle)]
pub extern "C" fn nvmlDeviceGetComputeRunningProcesses_v3(
    device: nvmlDevice_t,
    count: *mut c_uint,
    infos: *mut nvmlProcessInfo_t,
) -> nvmlReturn_t {
    processes(device, "nvmlDeviceGetComputeRunningProcesses", List::Compute, infos, count)
}

#[unsafe(no_mangle)]
pub extern "C" fn nvmlDeviceGetGraphicsRunningProcesses_v3(
    device: nvmlDevice_t,
    count: *mut c_uint,
    infos: *mut nvmlProcessInfo_t,
) -> nvmlReturn_t {
    processes(device, "nvmlDeviceGetGraphicsRunningProcesses", List::Graphics, infos, count)
}

#[unsafe(no_mangle)]
pub extern "C" fn nvmlDeviceGetMPSComputeRunningProcesses_v3(
    device: nvmlDevice_t,
    count: *mut c_uint,
    infos: *mut nvmlProcessInfo_t,
) -> nvmlReturn_t {
    processes(device, "nvmlDeviceGetMPSComputeRunningProcesses", List::Mps, infos, count)
}

#[unsafe(no_mangle)]
pub extern "C" fn nvmlDeviceGetUtilizationRates(device: nvmlDevice_t, rates: *mut nvmlUtilization_t) -> nvmlReturn_t {
    code(of_handle(device.addr(), "nvmlDeviceGetUtilizationRates", |_, state, _| {
        let gpu = state.utilisation.filter(|_| !state.mig).ok_or(NOT_SUPPORTED)?;
        put(rates, nvmlUtilization_t { gpu, memory: 0 })
    }))
}

#[unsafe(no_mangle)]
pub extern "C" fn nvmlDeviceGetProcessUtilization(
    device: nvmlDevice_t,
    samples: *mut nvmlProcessUtilizationSample_t,
    count: *mut c_uint,
    after: c_ulonglong,
) -> nvmlReturn_t {
    code(of_handle(device.addr(), "nvmlDeviceGetProcessUtilization", |_, state, _| {
        if state.mig {
            return Err(NOT_SUPPORTED);
        }
        let sample = |sample: &crate::scenario::SmSample| nvmlProcessUtilizationSample_t {
            pid: sample.pid,
            timeStamp: sample.at_us,
            smUtil: sample.percent,
            memUtil: 0,
            encUtil: 0,
            decUtil: 0,
        };
        // Leftovers of long ago are in the real driver's answers, too.
        let _ = after;
        let found: Vec<_> = state.sm.iter().map(sample).collect();
        if found.is_empty() { Err(NOT_FOUND) } else { put_list(samples, count, &found) }
    }))
}

#[unsafe(no_mangle)]
pub extern "C" fn nvmlDeviceGetTotalEnergyConsumption(device: nvmlDevice_t, mj: *mut c_ulonglong) -> nvmlReturn_t {
    let now = playing(|played| Ok(played.now_us()));
    code(now.and_then(|now| {
        of_handle(device.addr(), "nvmlDeviceGetTotalEnergyConsumption", |device, state, instance| {
            if instance.is_some() || state.power_mw.is_none() {
                return Err(NOT_SUPPORTED);
            }
            put(mj, device.energy_mj(now))
        })
    }))
}

#[unsafe(no_mangle)]
pub extern "C" fn nvmlDeviceGetPowerUsage(device: nvmlDevice_t, mw: *mut c_uint) -> nvmlReturn_t {
    code(of_handle(device.addr(), "nvmlDeviceGetPowerUsage", |_, state, instance| {
        put(mw, state.power_mw.filter(|_| instance.is_none()).ok_or(NOT_SUPPORTED)?)
    }))
}
