//! What a closed month should have held, beside what it holds: entries that are added, never a change of what stands.

use std::collections::BTreeMap;

use super::{Usage, UsageKey};
use crate::units::Overflow;

/// How an entry corrects.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum EntryKind {
    /// Time that was not known is added.
    Addition,
    /// What stands is taken back whole, because it is not what it should be; its totals are negative.
    Reversal,
    /// What should stand, after a reversal.
    Reentry,
}

/// An entry that corrects the usage of a closed month.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct UsageEntry {
    /// How.
    pub kind: EntryKind,
    /// The time, in the slot in which it was held.
    pub usage: Usage,
}

/// The entries that lead from what stands to what should stand, in key order: for each key of which more was held than
/// stands, one addition; for each other whose time differs, a reversal of all that stands and a re-entry of what should.
/// The totals of `standing` and of the entries sum to those of `wanted`.
///
/// Several usages of one key in `standing` are summed. Where only what was measured differs, and not the time, nothing is
/// corrected: no amount depends on it.
///
/// # Errors
/// [`Overflow`] where a sum does not fit.
pub fn corrections(standing: &[Usage], wanted: &[Usage]) -> Result<Vec<UsageEntry>, Overflow> {
    let standing = by_key(standing)?;
    let mut wanted = by_key(wanted)?;
    let mut entries = Vec::new();
    for (key, stands) in standing {
        let wanted = wanted.remove(&key);
        match wanted {
            Some(wanted) if has_same_time(&stands, &wanted) => {}
            Some(wanted) if holds_more(&stands, &wanted) => {
                let mut more = wanted;
                more.add(&stands.negated()?)?;
                entries.push(UsageEntry { kind: EntryKind::Addition, usage: more });
            }
            wanted => {
                if has_time(&stands) {
                    entries.push(UsageEntry { kind: EntryKind::Reversal, usage: stands.negated()? });
                }
                let reentry = wanted.filter(has_time);
                let kind = if has_time(&stands) { EntryKind::Reentry } else { EntryKind::Addition };
                entries.extend(reentry.map(|usage| UsageEntry { kind, usage }));
            }
        }
    }
    let new = wanted.into_values().filter(has_time);
    entries.extend(new.map(|usage| UsageEntry { kind: EntryKind::Addition, usage }));
    entries.sort_by_key(|entry| (entry.usage.key, entry.kind));
    Ok(entries)
}

fn by_key(usages: &[Usage]) -> Result<BTreeMap<UsageKey, Usage>, Overflow> {
    let mut sums: BTreeMap<UsageKey, Usage> = BTreeMap::new();
    for usage in usages {
        match sums.get_mut(&usage.key) {
            Some(sum) => sum.add(usage)?,
            None => {
                sums.insert(usage.key, *usage);
            }
        }
    }
    Ok(sums)
}

fn has_time(usage: &Usage) -> bool {
    usage.share_us != 0 || usage.suspended_us != 0
}

fn has_same_time(a: &Usage, b: &Usage) -> bool {
    (a.share_us, a.suspended_us) == (b.share_us, b.suspended_us)
}

/// More time, of which no more was suspended than was added: whatever is charged of suspended time, more is charged.
fn holds_more(stands: &Usage, wanted: &Usage) -> bool {
    let suspended = wanted.suspended_us.saturating_sub(stands.suspended_us);
    has_time(stands) && suspended >= 0 && wanted.share_us.saturating_sub(stands.share_us) >= suspended
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::ids::{FactSetId, JobId, NodeId, SkuId};
    use crate::metering::State;
    use crate::time::{Instant, Interval};

    fn usage(job: i64, share_us: i64, suspended_us: i64) -> Usage {
        let slot = Interval::new(Instant::from_micros(0), Instant::from_micros(86_400_000_000)).unwrap();
        Usage {
            key: UsageKey {
                slot,
                node: NodeId(1),
                job: JobId(job),
                facts: FactSetId(1),
                sku: SkuId(1),
                state: State::Held,
            },
            share_us,
            active_us: 0,
            active_measured_us: 0,
            estimated_us: 0,
            suspended_us,
            segments: 1,
        }
    }

    fn told(entries: &[UsageEntry]) -> Vec<(EntryKind, i64, i64)> {
        entries.iter().map(|entry| (entry.kind, entry.usage.key.job.0, entry.usage.share_us)).collect()
    }

    #[test]
    fn more_is_one_entry_and_anything_else_is_two() {
        let added = corrections(&[usage(1, 10, 0)], &[usage(1, 15, 0), usage(2, 3, 0)]).unwrap();
        assert_eq!(told(&added), [(EntryKind::Addition, 1, 5), (EntryKind::Addition, 2, 3)]);
        let less = corrections(&[usage(1, 10, 0)], &[usage(1, 4, 0)]).unwrap();
        assert_eq!(told(&less), [(EntryKind::Reversal, 1, -10), (EntryKind::Reentry, 1, 4)]);
        let gone = corrections(&[usage(1, 10, 0)], &[]).unwrap();
        assert_eq!(told(&gone), [(EntryKind::Reversal, 1, -10)]);
        // More held, but more of it suspended than was added: less is charged where only running time is.
        let suspended = corrections(&[usage(1, 10, 0)], &[usage(1, 12, 5)]).unwrap();
        assert_eq!(told(&suspended), [(EntryKind::Reversal, 1, -10), (EntryKind::Reentry, 1, 12)]);
        assert_eq!(told(&corrections(&[usage(1, 10, 2)], &[usage(1, 10, 2)]).unwrap()), []);
        // What was taken back stands at nothing.
        let back = corrections(&[usage(1, 10, 0), usage(1, -10, 0)], &[usage(1, 4, 0)]).unwrap();
        assert_eq!(told(&back), [(EntryKind::Addition, 1, 4)]);
    }

    proptest! {
        #[test]
        fn what_stands_and_the_entries_sum_to_what_should_stand(
            standing in prop::collection::vec((0i64..6, -50i64..100, 0i64..20), 0..12),
            wanted in prop::collection::vec((0i64..6, 0i64..100, 0i64..20), 0..12),
        ) {
            let usages = |rows: &[(i64, i64, i64)]| -> Vec<Usage> {
                rows.iter().map(|(job, share, suspended)| usage(*job, *share, *suspended)).collect()
            };
            let (standing, wanted) = (usages(&standing), usages(&wanted));
            let entries = corrections(&standing, &wanted).unwrap();
            let all: Vec<Usage> = standing.iter().copied().chain(entries.iter().map(|entry| entry.usage)).collect();
            let (made, wanted) = (by_key(&all).unwrap(), by_key(&wanted).unwrap());
            for key in made.keys().chain(wanted.keys()) {
                let time = |sums: &BTreeMap<UsageKey, Usage>| {
                    sums.get(key).map_or((0, 0), |usage| (usage.share_us, usage.suspended_us))
                };
                prop_assert_eq!(time(&made), time(&wanted));
            }
            // It is settled then: asked again, nothing is left to correct.
            prop_assert!(corrections(&all, &wanted.into_values().collect::<Vec<_>>()).unwrap().is_empty());
        }
    }
}
