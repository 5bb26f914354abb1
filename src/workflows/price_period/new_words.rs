//! Numbers for words that pricing meets first: a team, an experiment, a SKU as the price book means it.

use std::collections::BTreeMap;

use gpuledger_db::{Db, dimensions};
use gpuledger_domain::ids::{ExperimentId, SkuId, TeamCode, TeamId};
use gpuledger_domain::pricing::Sku;
use gpuledger_domain::units::Overflow;

use crate::error::AppError;

/// What becomes of words that the books do not know yet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NewWords {
    /// They are interned: for amounts that are kept.
    Interned,
    /// They get numbers below zero, which mean nothing once the pricing is over; nothing is written.
    Passing,
}

/// Gives new words their numbers.
pub(super) struct Numbers {
    new_words: NewWords,
    last_passing: i32,
}

impl Numbers {
    pub(super) const fn new(new_words: NewWords) -> Numbers {
        Numbers { new_words, last_passing: 0 }
    }

    pub(super) fn team(&mut self, db: &mut Db, code: &TeamCode) -> Result<TeamId, AppError> {
        match self.new_words {
            NewWords::Interned => Ok(dimensions::intern_team(db, code)?),
            NewWords::Passing => Ok(TeamId(self.passing()?)),
        }
    }

    pub(super) fn experiment(&mut self, db: &mut Db, team: TeamId, name: &str) -> Result<ExperimentId, AppError> {
        match self.new_words {
            NewWords::Interned => Ok(dimensions::intern_experiment(db, team, name)?),
            NewWords::Passing => Ok(ExperimentId(self.passing()?)),
        }
    }

    /// `known`: the SKUs that have a number.
    pub(super) fn sku(&mut self, db: &mut Db, sku: &Sku, known: &BTreeMap<SkuId, Sku>) -> Result<SkuId, AppError> {
        match self.new_words {
            NewWords::Interned => Ok(dimensions::intern_sku(db, sku)?),
            NewWords::Passing => match known.iter().find(|(_, other)| *other == sku) {
                Some((id, _)) => Ok(*id),
                None => Ok(SkuId(self.passing()?)),
            },
        }
    }

    fn passing(&mut self) -> Result<i32, Overflow> {
        self.last_passing = self.last_passing.checked_sub(1).ok_or(Overflow)?;
        Ok(self.last_passing)
    }
}
