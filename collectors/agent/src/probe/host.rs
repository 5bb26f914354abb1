//! The host: whose the processes are that the driver listed.

use std::collections::BTreeSet;

use gpuledger_host::Host;

use super::{Moment, Probe, Sighting};
use crate::join::{self, Whose};

/// The host's processes.
#[derive(Debug)]
pub struct HostProbe {
    host: Host,
    exempt: Vec<String>,
    /// Numbers that belonged to somebody at the last look.
    owned: BTreeSet<u32>,
}

impl HostProbe {
    /// Those of a host, of which programs of these names hold nothing for anybody.
    #[must_use]
    pub fn new(host: Host, exempt: Vec<String>) -> HostProbe {
        HostProbe { host, exempt, owned: BTreeSet::new() }
    }
}

impl Probe for HostProbe {
    fn name(&self) -> &'static str {
        "host"
    }

    fn look(&mut self, moment: &Moment, sighting: &mut Sighting) -> Result<(), String> {
        let Some(sweep) = &sighting.sweep else { return Ok(()) };
        let owners = join::owners(&mut self.host, sweep, moment.now.boot_us, &self.exempt, &self.owned)?;
        sighting.findings.extend(owners.findings.iter().cloned());
        let is_owned = |whose: &Whose| matches!(whose, Whose::Job { .. } | Whose::Exempt);
        self.owned = owners.of_pid.iter().filter(|(_, whose)| is_owned(whose)).map(|(pid, _)| *pid).collect();
        sighting.owners = owners;
        Ok(())
    }
}
