//! The only file that reads the wall clock. Everything else is told what time it is.

use std::time::{SystemTime, UNIX_EPOCH};

use gpuledger_domain::time::Instant;

/// The wall clock's time, to the microsecond, UTC.
#[must_use]
pub fn now() -> Instant {
    let micros = match SystemTime::now().duration_since(UNIX_EPOCH) {
        Ok(since) => i64::try_from(since.as_micros()).unwrap_or(i64::MAX),
        Err(before) => i64::try_from(before.duration().as_micros()).map_or(i64::MIN, |micros| -micros),
    };
    Instant::from_micros(micros)
}

/// Seconds and thousandths since `start`, for people who watch.
#[must_use]
pub fn seconds_since(start: std::time::Instant) -> String {
    let elapsed = start.elapsed();
    format!("{}.{:03} s", elapsed.as_secs(), elapsed.subsec_millis())
}
