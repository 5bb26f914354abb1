//! How jobs on one unit share its time.

use std::collections::BTreeMap;

use crate::sample::{JobId, Use};

/// How jobs that are on one GPU at once share it, where it is not cut.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Sharing {
    /// Into how many shares a GPU is divided. `None`: among the jobs that hold it now; else what no job holds is idle.
    pub replicas: Option<u32>,
    /// How a job's share is weighed.
    pub weight: Weight,
}

/// How a job's share is weighed. Where the weight of any job is not known, or all are zero, all weigh the same.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Weight {
    /// All the same.
    #[default]
    Equal,
    /// By how busy each kept the multiprocessors.
    Sm,
    /// By the memory that each uses.
    Memory,
    /// By the thread percentage that an administrator set for each job's MPS server. It is a share of the whole GPU, so that
    /// what is not promised is idle; what is promised more than once is scaled.
    Limit(BTreeMap<JobId, u32>),
}

/// How much of a GPU an administrator lets some jobs' MPS server have.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Limit {
    /// Whose.
    pub of: Limited,
    /// The percentage of threads; 100 at most.
    pub percent: u32,
}

/// Whom a limit is for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Limited {
    /// One job.
    Job(JobId),
    /// All jobs of an account.
    Account(String),
    /// All processes of a user, by number: MPS has a server for each.
    Uid(u32),
}

impl Limit {
    /// Whether it is for a job of which this is known.
    #[must_use]
    pub fn names(&self, job: &str, facts: &gpuledger_wire::Facts) -> bool {
        match &self.of {
            Limited::Job(limited) => limited == job,
            Limited::Account(account) => *account == facts.account,
            Limited::Uid(uid) => facts.labels.get("uid").is_some_and(|known| *known == uid.to_string()),
        }
    }
}

/// Shares of a whole, by job: so many of so many.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Shares {
    /// Each job's part.
    pub parts: Vec<(JobId, u64)>,
    /// The whole; at least the sum of the parts.
    pub whole: u64,
}

/// A hundred percent.
const PERCENT: u64 = 100;

impl Sharing {
    /// The shares of jobs that are on a unit together.
    #[must_use]
    pub fn shares(&self, users: &BTreeMap<JobId, Use>) -> Shares {
        let equal = || users.keys().map(|job| (job.clone(), 1)).collect::<Vec<(JobId, u64)>>();
        let count = u64::try_from(users.len()).unwrap_or(u64::MAX);
        if let Weight::Limit(limits) = &self.weight {
            let known: Option<Vec<(JobId, u64)>> =
                users.keys().map(|job| Some((job.clone(), u64::from(*limits.get(job)?).min(PERCENT)))).collect();
            if let Some(parts) = known.filter(|parts| parts.iter().any(|(_, part)| *part > 0)) {
                let sum: u64 = parts.iter().map(|(_, part)| *part).sum();
                return Shares { parts, whole: sum.max(PERCENT) };
            }
        }
        if let Some(replicas) = self.replicas {
            return Shares { parts: equal(), whole: u64::from(replicas).max(count) };
        }
        let weigh = |of: &dyn Fn(&Use) -> Option<u64>| {
            let known: Option<Vec<(JobId, u64)>> =
                users.iter().map(|(job, usage)| Some((job.clone(), of(usage)?))).collect();
            known.filter(|parts| parts.iter().any(|(_, part)| *part > 0))
        };
        let parts = match self.weight {
            Weight::Sm => weigh(&|usage| usage.sm_percent.map(u64::from)),
            // In MiB, so that sums stay small.
            Weight::Memory => weigh(&|usage| usage.memory_bytes.map(|bytes| bytes >> 20)),
            Weight::Equal | Weight::Limit(_) => None,
        };
        let parts = parts.unwrap_or_else(equal);
        let whole = parts.iter().map(|(_, part)| *part).sum();
        Shares { parts, whole }
    }
}

/// Splits a total by weights of which `whole` is the sum of all, those that are not here included: each gets its exact part or
/// the next whole number, by largest remainder, the first of equals first. What the missing would get is not given out.
///
/// The sum of what is given is the total where nothing is missing.
#[must_use]
pub fn split(total: i64, weights: &[u64], whole: u64) -> Vec<i64> {
    if whole == 0 {
        return vec![0; weights.len()];
    }
    let exact = |weight: u64| i128::from(total) * i128::from(weight);
    let whole = i128::from(whole);
    let mut parts: Vec<(i128, i128)> =
        weights.iter().map(|weight| (exact(*weight).div_euclid(whole), exact(*weight).rem_euclid(whole))).collect();
    // The sum of all, rounded to the nearest, stays with those that are here.
    let here: i128 = weights.iter().map(|weight| i128::from(*weight)).sum();
    let due = (i128::from(total) * here).div_euclid(whole);
    let mut missing = due - parts.iter().map(|(part, _)| *part).sum::<i128>();
    let mut order: Vec<usize> = (0..parts.len()).collect();
    order.sort_by_key(|place| parts.get(*place).map(|(_, rest)| std::cmp::Reverse(*rest)));
    for place in order {
        if missing <= 0 {
            break;
        }
        if let Some((part, _)) = parts.get_mut(place) {
            *part += 1;
            missing -= 1;
        }
    }
    parts.into_iter().map(|(part, _)| i64::try_from(part).unwrap_or(i64::MAX)).collect()
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    fn usage(memory: Option<u64>, sm: Option<u32>) -> Use {
        Use { since_us: None, active: true, suspended: false, memory_bytes: memory, sm_percent: sm }
    }

    fn users(of: &[(&str, Use)]) -> BTreeMap<JobId, Use> {
        of.iter().map(|(job, usage)| ((*job).to_owned(), *usage)).collect()
    }

    fn seconds(sharing: &Sharing, users: &BTreeMap<JobId, Use>, seconds: i64) -> Vec<i64> {
        let shares = sharing.shares(users);
        let weights: Vec<u64> = shares.parts.iter().map(|(_, part)| *part).collect();
        split(seconds * 1_000_000, &weights, shares.whole)
    }

    #[test]
    fn shr_02_limits_are_the_promised_shares_and_the_card_is_charged_once() {
        let limited = |limits: &[(&str, u32)]| {
            let limits: BTreeMap<JobId, u32> = limits.iter().map(|(job, limit)| ((*job).to_owned(), *limit)).collect();
            let clients: Vec<(&str, Use)> = limits.keys().map(|job| (job.as_str(), usage(None, None))).collect();
            let clients = users(&clients);
            seconds(&Sharing { replicas: None, weight: Weight::Limit(limits) }, &clients, 3_600)
        };
        let s = 1_000_000;
        assert_eq!(limited(&[("9201", 30), ("9202", 70)]), [1_080 * s, 2_520 * s]);
        assert_eq!(limited(&[("9201", 20), ("9202", 30)]), [720 * s, 1_080 * s]);
        assert_eq!(limited(&[("9201", 50), ("9202", 50), ("9203", 50)]), [1_200 * s, 1_200 * s, 1_200 * s]);
    }

    #[test]
    fn shr_03_and_att_05_what_is_not_known_of_all_weighs_nothing() {
        let sm = Sharing { replicas: None, weight: Weight::Sm };
        assert_eq!(seconds(&sm, &users(&[("A", usage(None, None)), ("B", usage(None, None))]), 10), [5_000_000; 2]);
        assert_eq!(
            seconds(&sm, &users(&[("A", usage(None, Some(60))), ("B", usage(None, Some(20)))]), 10),
            [7_500_000, 2_500_000]
        );
        let memory = Sharing { replicas: None, weight: Weight::Memory };
        let known = usage(Some(2_147_483_648), None);
        assert_eq!(seconds(&memory, &users(&[("A", known), ("B", usage(None, None))]), 10), [5_000_000; 2]);
        assert_eq!(
            seconds(&memory, &users(&[("A", usage(Some(0), None)), ("B", usage(Some(0), None))]), 10),
            [5_000_000; 2]
        );
    }

    #[test]
    fn replicas_that_nobody_holds_are_idle() {
        let four = Sharing { replicas: Some(4), weight: Weight::Equal };
        assert_eq!(seconds(&four, &users(&[("A", usage(None, None))]), 8), [2_000_000]);
        let five: Vec<(&str, Use)> = ["A", "B", "C", "D", "E"].iter().map(|job| (*job, usage(None, None))).collect();
        assert_eq!(seconds(&four, &users(&five), 10), [2_000_000; 5], "more jobs than replicas share the whole");
    }

    #[test]
    fn a_split_gives_out_all_of_what_is_due() {
        assert_eq!(split(10, &[1, 1, 1], 3), [4, 3, 3]);
        assert_eq!(split(10, &[1, 1], 3), [3, 3], "a third stays: 6 of 6.67");
        assert_eq!(
            split(i64::MAX, &[u64::MAX / 2, u64::MAX / 2 + 1], u64::MAX)
                .iter()
                .map(|part| i128::from(*part))
                .sum::<i128>(),
            i128::from(i64::MAX)
        );
        assert_eq!(split(7, &[], 0), [0; 0]);
        for total in [1, 2, 3, 999_999_937] {
            for weights in [vec![1, 2, 4], vec![7, 11, 13, 17], vec![1; 56]] {
                let sum: i64 = split(total, &weights, weights.iter().sum()).iter().sum();
                assert_eq!(sum, total);
            }
        }
    }
}
