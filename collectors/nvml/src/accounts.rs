//! The driver's accounts of processes: of those that began and ended between two looks, only these tell.

use std::collections::BTreeSet;

use nvml_wrapper::Device as Handle;
use nvml_wrapper::error::NvmlError;

use crate::driver::Since;
use crate::reading::EndedProcess;

/// What the accounts of a device said at the last look.
#[derive(Clone, Debug, Default)]
pub(crate) struct Accounts {
    pids: Vec<u32>,
    running: BTreeSet<u32>,
    began: bool,
}

const US_PER_MS: u64 = 1_000;

impl Accounts {
    /// Those that began after the last look and are over. Of thousands that the driver keeps, only what is new is asked for.
    pub(crate) fn ended(&mut self, handle: &Handle<'_>, since: Since) -> Result<Vec<EndedProcess>, NvmlError> {
        if !handle.is_accounting_enabled()? {
            *self = Accounts::default();
            return Ok(Vec::new());
        }
        // Its list is not shortened where a process leaves it while it is read: what is missing is 0.
        let pids: Vec<u32> = handle.accounting_pids()?.into_iter().filter(|pid| *pid != 0).collect();
        let old: BTreeSet<u32> = self.pids.iter().copied().collect();
        let asked = pids.iter().filter(|pid| !old.contains(pid) || self.running.contains(pid));
        let (mut running, mut ended) = (BTreeSet::new(), Vec::new());
        for pid in asked.copied() {
            let account = match handle.accounting_stats_for(pid) {
                Ok(account) => account,
                // It made room for a newer one.
                Err(NvmlError::NotFound) => continue,
                Err(error) => return Err(error),
            };
            if account.is_running {
                running.insert(pid);
            } else if self.began && account.start_time > since.after_us && account.start_time < since.until_us {
                let end_us = account.start_time.saturating_add(account.time.saturating_mul(US_PER_MS));
                ended.push(EndedProcess { pid, start_us: account.start_time, end_us: end_us.min(since.until_us) });
            }
        }
        *self = Accounts { pids, running, began: true };
        Ok(ended)
    }
}
