//! A node is no more: from an instant on it does not exist, so that its silence is not unobserved time.

use gpuledger_db::audit::{self, Change};
use gpuledger_db::usage::{self, Mark};
use gpuledger_db::{Db, dimensions, node_watch, period};
use gpuledger_domain::calendar::BillingCalendar;
use gpuledger_domain::ids::ClusterName;
use gpuledger_domain::time::{Instant, Interval};

use crate::error::AppError;

/// Ends a node's existence at `at`, or lets it go on where that is `None`; its open days are summed again.
///
/// # Errors
/// [`AppError::Missing`] where no collector ever reported on it; [`AppError::Refused`] where that would change a closed
/// month; the database's.
pub fn retire(
    db: &mut Db,
    calendar: &BillingCalendar,
    (cluster, name): (&str, &str),
    at: Option<Instant>,
    (actor, now): (&str, Instant),
) -> Result<(), AppError> {
    let missing = || AppError::Missing(format!("no collector ever reported on node {name} of cluster {cluster}"));
    let cluster = ClusterName::parse(cluster).map_err(|reason| AppError::Refused(format!("the cluster: {reason}")))?;
    db.transaction(|db| {
        let id = dimensions::find_cluster(db, &cluster)?.ok_or_else(missing)?;
        let node = dimensions::find_machine(db, id, name)?.ok_or_else(missing)?;
        let watch = node_watch::find(db, node)?.ok_or_else(missing)?;
        let from = watch.retired_at.into_iter().chain(at).min().unwrap_or(now);
        let changed = Interval::new(from, watch.settled_until.max(now));
        let days = changed.map(|changed| calendar.days(changed)).unwrap_or_default();
        let mut periods = days.iter().map(|day| calendar.period_of(day.start())).collect::<Vec<_>>();
        periods.dedup();
        let closed = period::hold_open(db, &periods)?.into_iter().find(|state| state.closing.is_some());
        if let Some(closed) = closed {
            return Err(AppError::Refused(format!(
                "this would change {}, which is closed; name an instant after it",
                closed.period.month
            )));
        }
        node_watch::retire(db, node, at)?;
        let marks: Vec<Mark> = days.iter().map(|day| Mark { day_start: day.start(), node }).collect();
        usage::mark(db, &marks)?;
        let words = |at: Option<Instant>| at.map_or_else(|| "in use".to_owned(), |at| format!("retired at {at}"));
        let (object, before, after) = (format!("{cluster}/{name}"), words(watch.retired_at), words(at));
        let change = Change { at: now, actor, action: "node retire", object: &object, before: &before, after: &after };
        Ok(audit::append(db, &change)?)
    })
}
