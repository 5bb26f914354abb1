//! The scenario that this copy of the library plays, and its clock.

use std::ffi::{CStr, OsStr, c_void};
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;
use std::sync::Mutex;
use std::time::Instant;

use crate::scenario::{Device, Event, Scenario, State};

/// What is played.
pub(crate) struct Played {
    pub(crate) scenario: Scenario,
    /// Where the time is written, if it was when the library was loaded.
    clock: Option<PathBuf>,
    started: Instant,
    /// How many lists of processes were asked for the length of, since the last one was given.
    pub(crate) counted: usize,
    /// Up to which instant events were told, in microseconds, and how many of the last one.
    pub(crate) told: Option<(u64, usize)>,
}

static PLAYED: Mutex<Option<Played>> = Mutex::new(None);

/// Does something with what is played; `None` where nothing is.
pub(crate) fn with<T>(act: impl FnOnce(&mut Played) -> T) -> Option<T> {
    let mut played = PLAYED.lock().ok()?;
    played.as_mut().map(act)
}

/// Begins to play, or goes on.
pub(crate) fn begin() -> Result<(), String> {
    let mut played = PLAYED.lock().map_err(|error| error.to_string())?;
    if played.is_none() {
        let path = match std::env::var_os("GPULEDGER_FAKE_NVML") {
            Some(path) => PathBuf::from(path),
            None => own_path().ok_or("the library does not know its own path")?.with_extension("toml"),
        };
        let clock = Some(path.with_extension("clock")).filter(|clock| clock.exists());
        let scenario = Scenario::read(&path)?;
        *played = Some(Played { scenario, clock, started: Instant::now(), counted: 0, told: None });
    }
    Ok(())
}

/// Forgets what was played, so that it begins anew.
pub(crate) fn end() {
    if let Ok(mut played) = PLAYED.lock() {
        *played = None;
    }
}

/// The file that this copy of the library was loaded from.
fn own_path() -> Option<PathBuf> {
    let mut info = libc::Dl_info {
        dli_fname: std::ptr::null(),
        dli_fbase: std::ptr::null_mut(),
        dli_sname: std::ptr::null(),
        dli_saddr: std::ptr::null_mut(),
    };
    let address = begin as fn() -> Result<(), String> as *const c_void;
    // SAFETY: the address is of this library; the name that is written lives as long as it is loaded.
    let name = unsafe {
        if libc::dladdr(address, &raw mut info) == 0 || info.dli_fname.is_null() {
            return None;
        }
        CStr::from_ptr(info.dli_fname)
    };
    Some(PathBuf::from(OsStr::from_bytes(name.to_bytes())))
}

impl Played {
    /// Microseconds from the start of the scenario.
    pub(crate) fn now_us(&self) -> u64 {
        let written = self.clock.as_ref().and_then(|clock| std::fs::read_to_string(clock).ok());
        written
            .and_then(|text| text.trim().parse().ok())
            .unwrap_or_else(|| u64::try_from(self.started.elapsed().as_micros()).unwrap_or(u64::MAX))
    }

    /// The next event that has happened and was not told, with the device that it is of.
    pub(crate) fn next_event(&mut self) -> Option<(usize, Event)> {
        let now = self.now_us();
        let mut events: Vec<(u64, usize, Event)> = Vec::new();
        for (device, states) in self.scenario.devices.iter().map(|device| &device.states).enumerate() {
            let begun = states.iter().map(|state| (state.at * 1_000_000, state)).filter(|(at, _)| *at <= now);
            events.extend(begun.flat_map(|(at, state)| state.events.iter().map(move |event| (at, device, *event))));
        }
        events.sort_by_key(|(at, device, _)| (*at, *device));
        let (told_at, told) = self.told.unwrap_or((0, 0));
        let of_last = events.iter().filter(|(at, ..)| *at == told_at).skip(told);
        let (at, device, event) = *of_last.chain(events.iter().filter(|(at, ..)| *at > told_at)).next()?;
        self.told = Some((at, if at == told_at { told + 1 } else { 1 }));
        Some((device, event))
    }

    pub(crate) fn device(&self, index: usize) -> Option<(&Device, &State)> {
        let device = self.scenario.devices.get(index)?;
        Some((device, device.at(self.now_us())?))
    }
}
