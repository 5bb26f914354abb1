//! The C functions that tell what the parts of devices do.

use std::ffi::c_uint;

use nvml_wrapper_sys::bindings::{
    nvmlDevice_t, nvmlGpmMetric_t__bindgen_ty_1, nvmlGpmMetricsGet_t, nvmlGpmSample_t, nvmlGpmSupport_t, nvmlReturn_t,
};

use super::{Handle, INVALID_ARGUMENT, NOT_SUPPORTED, SUCCESS, code, of_handle, playing, put};
use crate::scenario::Activity;

/// A sample: what it is of, and when it was taken.
#[derive(Clone, Copy, Default)]
struct Sample {
    device: usize,
    gpu_instance: Option<u32>,
    at_us: u64,
}

#[unsafe(no_mangle)]
pub extern "C" fn nvmlGpmQueryDeviceSupport(device: nvmlDevice_t, support: *mut nvmlGpmSupport_t) -> nvmlReturn_t {
    code(of_handle(device.addr(), "nvmlGpmQueryDeviceSupport", |device, _, _| {
        let measures = device.states.iter().any(|state| {
            state.activity.is_some() || state.instances.iter().any(|instance| instance.activity.is_some())
        });
        put(support, nvmlGpmSupport_t { version: 0, isSupportedDevice: c_uint::from(measures) })
    }))
}

#[unsafe(no_mangle)]
pub extern "C" fn nvmlGpmSampleAlloc(sample: *mut nvmlGpmSample_t) -> nvmlReturn_t {
    let made = Box::into_raw(Box::new(Sample::default()));
    code(put(sample, made.cast()))
}

#[unsafe(no_mangle)]
pub extern "C" fn nvmlGpmSampleFree(sample: nvmlGpmSample_t) -> nvmlReturn_t {
    if sample.is_null() {
        return INVALID_ARGUMENT;
    }
    // SAFETY: it was made above, and is freed once, as the driver's interface demands.
    drop(unsafe { Box::from_raw(sample.cast::<Sample>()) });
    SUCCESS
}

fn take(device: nvmlDevice_t, gpu_instance: Option<u32>, call: &str, sample: nvmlGpmSample_t) -> nvmlReturn_t {
    let now = playing(|played| Ok(played.now_us()));
    code(now.and_then(|at_us| {
        of_handle(device.addr(), call, |_, state, _| {
            let measures = match gpu_instance {
                None => state.activity.is_some(),
                Some(gi) => state.instances.iter().any(|one| one.gi == gi && one.activity.is_some()),
            };
            if !measures {
                return Err(NOT_SUPPORTED);
            }
            put(sample.cast(), Sample { device: Handle::of(device.addr())?.device, gpu_instance, at_us })
        })
    }))
}

#[unsafe(no_mangle)]
pub extern "C" fn nvmlGpmSampleGet(device: nvmlDevice_t, sample: nvmlGpmSample_t) -> nvmlReturn_t {
    take(device, None, "nvmlGpmSampleGet", sample)
}

#[unsafe(no_mangle)]
pub extern "C" fn nvmlGpmMigSampleGet(
    device: nvmlDevice_t,
    gpu_instance: c_uint,
    sample: nvmlGpmSample_t,
) -> nvmlReturn_t {
    take(device, Some(gpu_instance), "nvmlGpmMigSampleGet", sample)
}

#[unsafe(no_mangle)]
pub extern "C" fn nvmlGpmMetricsGet(request: *mut nvmlGpmMetricsGet_t) -> nvmlReturn_t {
    if request.is_null() {
        return INVALID_ARGUMENT;
    }
    // SAFETY: the caller gives a request of this type, with samples that were made and filled above.
    let (request, first, second) = unsafe {
        let request = &mut *request;
        let sample = |sample: nvmlGpmSample_t| sample.cast::<Sample>().as_ref().copied();
        let (first, second) = (sample(request.sample1), sample(request.sample2));
        (request, first, second)
    };
    let answer = first.zip(second).ok_or(INVALID_ARGUMENT).and_then(|(first, second)| {
        if (first.device, first.gpu_instance) != (second.device, second.gpu_instance) || first.at_us > second.at_us {
            return Err(INVALID_ARGUMENT);
        }
        playing(|played| {
            let (device, _) = played.device(first.device).ok_or(INVALID_ARGUMENT)?;
            device.activity(first.gpu_instance, (first.at_us, second.at_us)).ok_or(INVALID_ARGUMENT)
        })
    });
    code(answer.map(|activity| fill(request, activity)))
}

fn fill(request: &mut nvmlGpmMetricsGet_t, activity: Activity) {
    let wanted = usize::try_from(request.numMetrics).unwrap_or(0);
    for metric in request.metrics.iter_mut().take(wanted) {
        let none = std::ptr::null_mut();
        metric.metricInfo = nvmlGpmMetric_t__bindgen_ty_1 { shortName: none, longName: none, unit: none };
        let millionths = match metric.metricId {
            2 => Some(activity.sm),
            3 => Some(activity.occupancy),
            5 => Some(activity.tensor),
            10 => activity.memory,
            _ => None,
        };
        metric.nvmlReturn = if millionths.is_some() { SUCCESS } else { NOT_SUPPORTED };
        metric.value = percent(millionths.unwrap_or(0));
    }
}

/// The driver speaks in floats.
#[allow(clippy::float_arithmetic)]
fn percent(millionths: u32) -> f64 {
    f64::from(millionths) / 10_000.0
}
