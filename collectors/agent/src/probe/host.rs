//! The host: whose the processes are that the driver listed.

use gpuledger_host::Host;

use super::{Moment, Probe, Sighting};
use crate::join::{self, Owners};

/// The host's processes.
#[derive(Debug)]
pub struct HostProbe {
    host: Host,
    exempt: Vec<String>,
    before: Owners,
}

impl HostProbe {
    /// Those of a host, of which programs of these names hold nothing for anybody.
    #[must_use]
    pub fn new(host: Host, exempt: Vec<String>) -> HostProbe {
        HostProbe { host, exempt, before: Owners::default() }
    }
}

impl Probe for HostProbe {
    fn name(&self) -> &'static str {
        "host"
    }

    fn look(&mut self, moment: &Moment, sighting: &mut Sighting) -> Result<(), String> {
        let Some(sweep) = &sighting.sweep else { return Ok(()) };
        let owners = join::owners(&mut self.host, sweep, moment.now.boot_us, &self.exempt, &self.before)?;
        sighting.findings.extend(owners.findings.iter().cloned());
        self.before.clone_from(&owners);
        sighting.owners = owners;
        Ok(())
    }
}
