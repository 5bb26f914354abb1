//! What collectors are to keep to: where to cut segments, how often to look and to report.

use gpuledger_db::{Db, dimensions};
use gpuledger_domain::calendar::BillingCalendar;
use gpuledger_domain::time::{HOUR_US, Instant, Interval, SECOND_US};
use gpuledger_wire::Settings;
use sha2::{Digest, Sha256};

use super::books::Books;
use crate::error::AppError;

/// How far ahead cuts are told: a collector that is cut off for longer has its segments divided by wall time.
const AHEAD_US: i64 = 7 * 24 * HOUR_US;
/// How far back: a collector may still hold segments open that began then.
const BEHIND_US: i64 = 2 * HOUR_US;
/// How often a collector looks.
const SAMPLE_INTERVAL_US: i64 = 10 * SECOND_US;
/// How often it reports.
const REPORT_INTERVAL_US: i64 = 60 * SECOND_US;

/// The settings in force: starts of billing days that are off the UTC hour, and changes of teams, prices, rules and
/// pools that are.
///
/// # Errors
/// The database's.
pub fn collector_settings(db: &mut Db, calendar: &BillingCalendar, now: Instant) -> Result<Settings, AppError> {
    let (from, until) = (now.plus_micros(-BEHIND_US), now.plus_micros(AHEAD_US));
    let told = from.zip(until).and_then(|(from, until)| Interval::new(from, until));
    let told = told.ok_or_else(|| AppError::Refused(format!("no settings can be told at {now}")))?;
    let changes = Books::in_force(db, calendar)?.changes(&dimensions::memberships(db)?);
    let days = calendar.days(told).into_iter().map(Interval::start);
    let off_the_hour = |at: &Instant| *at != at.hour().start() && told.contains(*at);
    let mut cuts_us: Vec<i64> = days.chain(changes).filter(off_the_hour).map(Instant::micros).collect();
    cuts_us.sort_unstable();
    cuts_us.dedup();
    let content = format!("{cuts_us:?} {SAMPLE_INTERVAL_US} {REPORT_INTERVAL_US}");
    let version = Sha256::digest(content.as_bytes()).iter().take(8).map(|byte| format!("{byte:02x}")).collect();
    Ok(Settings { version, cuts_us, sample_interval_us: SAMPLE_INTERVAL_US, report_interval_us: REPORT_INTERVAL_US })
}
