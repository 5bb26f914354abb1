//! Which jobs of a list cannot be known yet, so that nobody needs to look for them.
//!
//! Where a cluster had no jobs before an import, only what the import itself brought can be known. A filter of fixed
//! size remembers those ids: it may take an unknown one for known, which costs a look, and never the other way round.
//! As soon as anybody else numbers jobs, every id is looked for.

use std::hash::BuildHasher;

use foldhash::fast::FixedState;
use gpuledger_db::dimensions::ClusterId;
use gpuledger_db::{Db, allocation};

use super::told::Told;
use crate::error::AppError;

/// Bits of the filter, 16 MiB of them: ten million ids make it wrong for one in seventy.
const BITS: u64 = 1 << 27;
/// Bits that each id sets.
const BITS_PER_ID: u64 = 4;

/// What is known of a cluster that had no jobs.
#[derive(Default)]
pub(super) struct Fresh {
    state: State,
}

#[derive(Default)]
enum State {
    /// Nothing was asked yet.
    #[default]
    Unasked,
    /// The cluster had no jobs; these ids were numbered since, and the next job's number is this.
    Fresh { cluster: ClusterId, seen: Box<Filter>, next_job: i64 },
    /// Jobs may be known that this import did not bring.
    Stale,
}

struct Filter {
    words: Vec<u64>,
}

impl Filter {
    fn new() -> Filter {
        Filter { words: vec![0; usize::try_from(BITS / 64).unwrap_or(1)] }
    }

    /// The places of an id's bits: double hashing (Kirsch and Mitzenmacher, "Less hashing, same performance", 2006).
    fn places(id: &str) -> impl Iterator<Item = (usize, u64)> {
        let hash = FixedState::default().hash_one(id);
        let (first, step) = (hash & 0xffff_ffff, (hash >> 32) | 1);
        (0..BITS_PER_ID).map(move |index| {
            let bit = (first + index * step) % BITS;
            (usize::try_from(bit / 64).unwrap_or(0), 1u64 << (bit % 64))
        })
    }

    fn add(&mut self, id: &str) {
        for (word, bit) in Filter::places(id) {
            if let Some(word) = self.words.get_mut(word) {
                *word |= bit;
            }
        }
    }

    fn may_hold(&self, id: &str) -> bool {
        Filter::places(id).all(|(word, bit)| self.words.get(word).is_some_and(|word| word & bit != 0))
    }
}

impl Fresh {
    /// Leaves only the ids that the database may know. Call it in the transaction that imports, before it numbers jobs.
    pub(super) fn keep_those_that_may_be_known(
        &mut self,
        db: &mut Db,
        cluster: ClusterId,
        ids: &mut Vec<&str>,
    ) -> Result<(), AppError> {
        if matches!(self.state, State::Unasked) {
            self.state = if allocation::has_jobs(db, cluster)? {
                State::Stale
            } else {
                State::Fresh { cluster, seen: Box::new(Filter::new()), next_job: allocation::next_job(db)? }
            };
        }
        match &self.state {
            State::Fresh { cluster: fresh, seen, next_job }
                if *fresh == cluster && *next_job == allocation::next_job(db)? =>
            {
                ids.retain(|id| seen.may_hold(id));
            }
            _ => self.state = State::Stale,
        }
        Ok(())
    }

    /// Remembers the ids of a chunk that was written in this transaction.
    pub(super) fn note_written(&mut self, db: &mut Db, written: ClusterId, told: &[&Told]) -> Result<(), AppError> {
        if let State::Fresh { cluster, seen, next_job } = &mut self.state
            && *cluster == written
        {
            told.iter().for_each(|told| seen.add(&told.name.source_id));
            *next_job = allocation::next_job(db)?;
        }
        Ok(())
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn the_filter_never_forgets_and_seldom_errs() {
        let mut filter = Filter::new();
        (0..100_000).for_each(|id| filter.add(&format!("{id}")));
        assert!((0..100_000).all(|id| filter.may_hold(&format!("{id}"))));
        let wrong = (100_000..200_000).filter(|id| filter.may_hold(&format!("{id}"))).count();
        assert!(wrong < 100, "{wrong} of 100,000");
    }
}
