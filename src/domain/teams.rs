//! Teams: who pays. An effective-dated tree.

use std::collections::{BTreeMap, BTreeSet};

use crate::ids::TeamCode;
use crate::time::{Instant, Validity};

/// A person who answers for a team.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Owner {
    /// As printed on the statement.
    pub name: String,
    /// Where mail goes.
    pub email: String,
}

/// What is true of a team for a time.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct TeamTerms {
    /// When this holds.
    pub validity: Validity,
    /// As printed on the statement.
    pub name: String,
    /// As accounting knows it; empty where there is none.
    pub cost_centre: String,
    /// The team above, whose statement is a summary of those below.
    pub parent: Option<TeamCode>,
    /// Who answers for it.
    pub owners: Vec<Owner>,
}

/// All teams, over time.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct TeamBook {
    teams: BTreeMap<TeamCode, Vec<TeamTerms>>,
}

/// Codes that mean something to the product and name no team.
pub const RESERVED_CODES: [&str; 4] = ["unassigned", "unattributed", "platform", "rounding"];

impl TeamBook {
    /// The book of these terms.
    ///
    /// # Errors
    /// The index of the first term that does not fit, and a sentence that says why.
    pub fn new(terms: Vec<(TeamCode, TeamTerms)>) -> Result<TeamBook, (usize, String)> {
        let mut teams: BTreeMap<TeamCode, Vec<TeamTerms>> = BTreeMap::new();
        for (index, (code, terms)) in terms.iter().enumerate() {
            if RESERVED_CODES.contains(&code.as_str()) {
                return Err((index, format!("the code “{code}” is reserved; choose another")));
            }
            let earlier = teams.entry(code.clone()).or_default();
            if earlier.iter().any(|other| other.validity.overlaps(terms.validity)) {
                return Err((index, format!("team “{code}” is described twice for the same time")));
            }
            earlier.push(terms.clone());
        }
        for terms in teams.values_mut() {
            terms.sort_by_key(|terms| terms.validity.from());
        }
        let book = TeamBook { teams };
        for (index, (code, terms)) in terms.iter().enumerate() {
            book.check_parents(code, terms).map_err(|reason| (index, reason))?;
        }
        Ok(book)
    }

    fn check_parents(&self, code: &TeamCode, terms: &TeamTerms) -> Result<(), String> {
        let Some(parent) = &terms.parent else { return Ok(()) };
        let mut instants: BTreeSet<Instant> = [terms.validity.from()].into();
        instants.extend(self.changes().into_iter().filter(|at| terms.validity.contains(*at)));
        for at in instants {
            let mut above = Some(parent);
            let mut depth = 0;
            while let Some(next) = above {
                if next == code || depth > self.teams.len() {
                    return Err(format!("team “{code}” is above itself through “{parent}”"));
                }
                let Some(next_terms) = self.terms(next, at) else {
                    return Err(format!("its parent “{next}” is not in force at all times of “{code}”"));
                };
                above = next_terms.parent.as_ref();
                depth += 1;
            }
        }
        Ok(())
    }

    /// What is true of a team at an instant.
    #[must_use]
    pub fn terms(&self, code: &TeamCode, at: Instant) -> Option<&TeamTerms> {
        self.teams.get(code)?.iter().find(|terms| terms.validity.contains(at))
    }

    /// All teams with their terms, by code and time.
    pub fn all(&self) -> impl Iterator<Item = (&TeamCode, &TeamTerms)> {
        self.teams.iter().flat_map(|(code, terms)| terms.iter().map(move |terms| (code, terms)))
    }

    /// Every instant at which something changes.
    #[must_use]
    pub fn changes(&self) -> BTreeSet<Instant> {
        self.all().flat_map(|(_, terms)| terms.validity.changes()).collect()
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    fn team(code: &str, parent: Option<&str>, from: Option<i64>, until: Option<i64>) -> (TeamCode, TeamTerms) {
        let at = |day: Option<i64>| day.map(|day| Instant::from_micros(day * 86_400_000_000));
        let terms = TeamTerms {
            validity: Validity::new(at(from), at(until)).unwrap(),
            name: code.to_uppercase(),
            cost_centre: String::new(),
            parent: parent.map(|parent| TeamCode::parse(parent).unwrap()),
            owners: Vec::new(),
        };
        (TeamCode::parse(code).unwrap(), terms)
    }

    #[test]
    fn a_team_may_change_but_not_overlap_itself() {
        let book = TeamBook::new(vec![team("a", None, None, Some(10)), team("a", None, Some(10), None)]).unwrap();
        assert_eq!(book.changes().len(), 1);
        let (index, reason) =
            TeamBook::new(vec![team("a", None, None, Some(11)), team("a", None, Some(10), None)]).unwrap_err();
        assert_eq!((index, reason.as_str()), (1, "team “a” is described twice for the same time"));
    }

    #[test]
    fn a_tree_has_no_circle_and_no_missing_parent() {
        assert!(TeamBook::new(vec![team("a", Some("b"), None, None), team("b", None, None, None)]).is_ok());
        assert!(TeamBook::new(vec![team("a", Some("b"), None, None), team("b", Some("a"), None, None)]).is_err());
        assert!(TeamBook::new(vec![team("a", Some("b"), None, None), team("b", None, Some(3), None)]).is_err());
        assert!(TeamBook::new(vec![team("a", Some("a"), None, None)]).is_err());
        assert!(TeamBook::new(vec![team("unassigned", None, None, None)]).is_err());
    }
}
