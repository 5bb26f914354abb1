//! What the parts of devices did between two looks (GPM: Hopper and later).

use std::collections::BTreeMap;

use nvml_wrapper::enums::gpm::GpmMetricId;
use nvml_wrapper::error::NvmlError;
use nvml_wrapper::gpm::gpm_metrics_get;
use nvml_wrapper::{GpmSample, Nvml};

use crate::raw::KeptSample;
use crate::reading::Activity;

/// Samples of the last look, by the UUID of what they are of.
#[derive(Debug, Default)]
pub(crate) struct Samples {
    kept: BTreeMap<String, KeptSample>,
}

const METRICS: [GpmMetricId; 4] =
    [GpmMetricId::SmUtil, GpmMetricId::SmOccupancy, GpmMetricId::AnyTensorUtil, GpmMetricId::DramBwUtil];

impl Samples {
    /// Keeps a sample for the next look, in place of the last one; what happened between the two.
    pub(crate) fn between(
        &mut self,
        nvml: &Nvml,
        uuid: &str,
        sample: GpmSample<'_>,
    ) -> Result<Option<Activity>, NvmlError> {
        let before = self.kept.remove(uuid).map(|kept| kept.take(nvml));
        let sample = KeptSample::keep(sample).take(nvml);
        let found = before.map(|before| activity(nvml, &before, &sample)).transpose();
        self.kept.insert(uuid.to_owned(), KeptSample::keep(sample));
        found
    }

    /// Frees those of a name, or all where none is given: the next one begins anew.
    pub(crate) fn forget(&mut self, nvml: &Nvml, uuid: Option<&str>) {
        match uuid {
            Some(uuid) => drop(self.kept.remove(uuid).map(|kept| kept.take(nvml))),
            None => std::mem::take(&mut self.kept).into_values().for_each(|kept| drop(kept.take(nvml))),
        }
    }

    /// Frees those of which the name is not wanted any more.
    pub(crate) fn retain(&mut self, nvml: &Nvml, wanted: impl Fn(&str) -> bool) {
        let gone: Vec<String> = self.kept.keys().filter(|uuid| !wanted(uuid)).cloned().collect();
        gone.iter().for_each(|uuid| self.forget(nvml, Some(uuid)));
    }
}

fn activity<'n>(nvml: &'n Nvml, before: &GpmSample<'n>, now: &GpmSample<'n>) -> Result<Activity, NvmlError> {
    let found = gpm_metrics_get(nvml, before, now, &METRICS)?;
    let of = |place: usize| found.get(place)?.as_ref().ok().and_then(|metric| millionths(metric.value));
    Ok(Activity { sm_ppm: of(0), occupancy_ppm: of(1), tensor_ppm: of(2), memory_ppm: of(3) })
}

/// A percentage as millionths; what is none is absent. The driver measures in floats, and this is the only place that sees them.
#[allow(clippy::float_arithmetic, clippy::cast_possible_truncation, clippy::cast_sign_loss)]
fn millionths(percent: f64) -> Option<u32> {
    (0.0..=100.0).contains(&percent).then(|| (percent * 10_000.0).round() as u32)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn att_05_what_is_no_percentage_is_absent() {
        assert_eq!([0.0, 12.345_67, 100.0].map(millionths), [Some(0), Some(123_457), Some(1_000_000)]);
        assert_eq!([-0.1, 100.1, f64::NAN, f64::INFINITY, 140_737_488_355_328.0].map(millionths), [None; 5]);
    }
}
