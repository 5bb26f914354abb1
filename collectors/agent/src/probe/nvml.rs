//! The NVIDIA driver: devices, their slices, and the processes on them.

use std::path::PathBuf;

use gpuledger_host::Host;
use gpuledger_nvml::{Driver, Since};
use gpuledger_wire::Clocks;

use super::{Moment, Probe, Sighting};

/// The driver. One that is not there yet, went away or was replaced is loaded again at the next look.
#[derive(Debug)]
pub struct NvmlProbe {
    library: Option<PathBuf>,
    /// Says how high process numbers go.
    host: Host,
    driver: Option<Driver>,
}

impl NvmlProbe {
    /// The driver's library at a path, or the machine's own; `proc` is where processes are.
    #[must_use]
    pub fn new(library: Option<PathBuf>, proc: impl Into<PathBuf>) -> NvmlProbe {
        NvmlProbe { library, host: Host::new(proc), driver: None }
    }
}

impl Probe for NvmlProbe {
    fn name(&self) -> &'static str {
        "nvml"
    }

    fn look(&mut self, moment: &Moment, sighting: &mut Sighting) -> Result<(), String> {
        let driver = match &mut self.driver {
            Some(driver) => driver,
            none => none.insert(
                Driver::load(self.library.as_deref())
                    .map_err(|error| format!("the driver cannot be loaded, and is tried again: {error}"))?,
            ),
        };
        let wall = |clocks: Clocks| u64::try_from(clocks.wall_us).unwrap_or(0);
        let (after_us, until_us) = (moment.before.map_or(0, wall), wall(moment.now));
        let sweep = driver.look(Since { after_us, until_us, pid_max: self.host.pid_max() });
        if sweep.reload {
            self.driver = None;
        }
        sighting.findings.extend(sweep.failures.iter().cloned());
        sighting.sweep = Some(sweep);
        Ok(())
    }
}
