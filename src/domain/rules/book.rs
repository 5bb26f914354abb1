//! Ordered, effective-dated rules; the first that matches and says something decides it; each decision can be
//! explained.

use std::collections::BTreeSet;

use super::{FactName, JobFacts, ServiceClass, Workload};
use crate::ids::{TeamCode, checked_name};
use crate::teams::TeamBook;
use crate::time::{Instant, Validity};

/// What a fact must look like.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Test {
    /// One of these texts; `*` stands for any run of characters.
    AnyOf(Vec<String>),
    /// A number of at least this.
    AtLeast(i32),
    /// A number of at most this.
    AtMost(i32),
}

/// One fact and its test.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Condition {
    /// Which fact.
    pub fact: FactName,
    /// What it must look like.
    pub test: Test,
}

/// Where a rule takes a text from.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Source {
    /// The rule itself.
    Fixed(String),
    /// A fact of the job.
    Fact(FactName),
}

/// A rule: where all its conditions hold, what it says is so.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Rule {
    /// As people call it.
    pub name: String,
    /// When it is in force.
    pub validity: Validity,
    /// All must hold; none is "always".
    pub conditions: Vec<Condition>,
    /// The team, if the rule says one.
    pub team: Option<Source>,
    /// The workload, if the rule says one.
    pub workload: Option<Workload>,
    /// The experiment, if the rule says one.
    pub experiment: Option<Source>,
    /// The service class, if the rule says one.
    pub service_class: Option<ServiceClass>,
}

/// All rules, in the order in which they are asked.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct RuleBook {
    /// The rules.
    pub rules: Vec<Rule>,
}

/// What the rules say of a job: each part decided by the first rule that matches and says it.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Attribution {
    /// The team; [`TeamCode::unassigned`] where no rule says one.
    pub team: TeamCode,
    /// The workload; [`Workload::Other`] where no rule says one.
    pub workload: Workload,
    /// The experiment, if a rule names one.
    pub experiment: Option<String>,
    /// The service class; [`ServiceClass::OnDemand`] where no rule says one.
    pub service_class: ServiceClass,
    /// Which rules, by their place in the book.
    pub decided_by: Decision,
}

/// The places (from 0) of the rules that decided an attribution; `None` where none did.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub struct Decision {
    /// Of the team.
    pub team: Option<usize>,
    /// Of the workload.
    pub workload: Option<usize>,
    /// Of the experiment.
    pub experiment: Option<usize>,
    /// Of the service class.
    pub service_class: Option<usize>,
}

/// Why a rule did or did not decide.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Outcome {
    /// It matches, and decided what is named.
    Decided(Vec<&'static str>),
    /// It matches, but rules before it had said all that it says.
    NothingLeft,
    /// It is not in force at the instant.
    NotInForce,
    /// This condition does not hold.
    Failed(Condition),
    /// It matches, but the team it names is not in force.
    NoSuchTeam(String),
}

/// One rule's part in a decision.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Explanation<'a> {
    /// The rule.
    pub rule: &'a Rule,
    /// What came of it.
    pub outcome: Outcome,
}

impl Condition {
    /// Whether the facts pass the test.
    #[must_use]
    pub fn holds(&self, facts: &JobFacts) -> bool {
        let text = facts.text(&self.fact);
        match &self.test {
            Test::AnyOf(patterns) => patterns.iter().any(|pattern| matches_pattern(pattern, &text)),
            Test::AtLeast(number) => text.parse::<i32>().is_ok_and(|value| value >= *number),
            Test::AtMost(number) => text.parse::<i32>().is_ok_and(|value| value <= *number),
        }
    }
}

impl RuleBook {
    /// What the rules say of a job at an instant.
    #[must_use]
    pub fn attribution(&self, facts: &JobFacts, at: Instant, teams: &TeamBook) -> Attribution {
        self.decide(facts, at, teams, |_, _| {})
    }

    /// The same, with every rule's part in it.
    #[must_use]
    pub fn explain(&self, facts: &JobFacts, at: Instant, teams: &TeamBook) -> (Attribution, Vec<Explanation<'_>>) {
        let mut explanations = Vec::new();
        let attribution = self.decide(facts, at, teams, |place, outcome| {
            explanations.extend(self.rules.get(place).map(|rule| Explanation { rule, outcome }));
        });
        (attribution, explanations)
    }

    /// Every instant at which a rule comes into force or ends.
    #[must_use]
    pub fn changes(&self) -> BTreeSet<Instant> {
        self.rules.iter().flat_map(|rule| rule.validity.changes()).collect()
    }

    fn decide(
        &self,
        facts: &JobFacts,
        at: Instant,
        teams: &TeamBook,
        mut tell: impl FnMut(usize, Outcome),
    ) -> Attribution {
        let (mut team, mut workload, mut experiment, mut class) = (None, None, None, None);
        let mut decided_by = Decision::default();
        for (place, rule) in self.rules.iter().enumerate() {
            if !rule.validity.contains(at) {
                tell(place, Outcome::NotInForce);
                continue;
            }
            if let Some(failed) = rule.conditions.iter().find(|condition| !condition.holds(facts)) {
                tell(place, Outcome::Failed(failed.clone()));
                continue;
            }
            let named = rule.team.as_ref().map(|source| source.text(facts));
            let code = named
                .as_deref()
                .map(|named| TeamCode::parse(named).ok().filter(|code| teams.terms(code, at).is_some()));
            if code == Some(None) {
                tell(place, Outcome::NoSuchTeam(named.unwrap_or_default()));
                continue;
            }
            let named =
                rule.experiment.as_ref().map(|source| source.text(facts)).filter(|name| checked_name(name).is_ok());
            let mut decided = Vec::new();
            let mut settle = |word, settled: bool| {
                if settled {
                    decided.push(word)
                }
            };
            settle("team", settle_once(&mut team, code.flatten(), place, &mut decided_by.team));
            settle("workload", settle_once(&mut workload, rule.workload, place, &mut decided_by.workload));
            settle("experiment", settle_once(&mut experiment, named, place, &mut decided_by.experiment));
            settle("class", settle_once(&mut class, rule.service_class, place, &mut decided_by.service_class));
            tell(place, if decided.is_empty() { Outcome::NothingLeft } else { Outcome::Decided(decided) });
        }
        Attribution {
            team: team.unwrap_or_else(TeamCode::unassigned),
            workload: workload.unwrap_or(Workload::Other),
            experiment,
            service_class: class.unwrap_or(ServiceClass::OnDemand),
            decided_by,
        }
    }
}

impl Source {
    fn text(&self, facts: &JobFacts) -> String {
        match self {
            Source::Fixed(text) => text.clone(),
            Source::Fact(name) => facts.text(name).into_owned(),
        }
    }
}

/// Fills `slot` if it is empty and the rule says something; whether it did.
fn settle_once<T>(slot: &mut Option<T>, said: Option<T>, place: usize, by: &mut Option<usize>) -> bool {
    if slot.is_some() || said.is_none() {
        return false;
    }
    *slot = said;
    *by = Some(place);
    true
}

/// Whether `text` is `pattern`, where `*` stands for any run of characters, also an empty one.
fn matches_pattern(pattern: &str, text: &str) -> bool {
    let mut pieces = pattern.split('*');
    let first = pieces.next().unwrap_or("");
    let Some(mut rest) = text.strip_prefix(first) else { return false };
    let mut pieces: Vec<&str> = pieces.collect();
    let Some(last) = pieces.pop() else { return rest.is_empty() };
    for piece in pieces {
        match rest.split_once(piece) {
            Some((_, after)) => rest = after,
            None => return false,
        }
    }
    rest.ends_with(last)
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use crate::teams::TeamTerms;

    fn teams(codes: &[&str]) -> TeamBook {
        let terms = |name: &&str| TeamTerms {
            validity: Validity::ALWAYS,
            name: (*name).to_owned(),
            cost_centre: String::new(),
            parent: None,
            owners: Vec::new(),
        };
        TeamBook::new(codes.iter().map(|code| (TeamCode::parse(code).unwrap(), terms(code))).collect()).unwrap()
    }

    fn rule(name: &str, fact: &str, patterns: &[&str]) -> Rule {
        let test = Test::AnyOf(patterns.iter().map(ToString::to_string).collect());
        Rule {
            name: name.into(),
            validity: Validity::ALWAYS,
            team: None,
            workload: None,
            experiment: None,
            service_class: None,
            conditions: vec![Condition { fact: FactName::parse(fact).unwrap(), test }],
        }
    }

    fn team(code: &str) -> Option<Source> {
        Some(Source::Fixed(code.into()))
    }

    #[test]
    fn the_first_rule_that_says_something_decides_it() {
        let book = RuleBook {
            rules: vec![
                Rule { workload: Some(Workload::Serving), ..rule("endpoints", "name", &["serve-*"]) },
                Rule { team: team("a"), workload: Some(Workload::Training), ..rule("a", "account", &["a", "a-*"]) },
                Rule { team: team("b"), ..rule("anyone", "account", &["*"]) },
            ],
        };
        let facts = JobFacts { account: "a-1".into(), name: "serve-x".into(), ..JobFacts::default() };
        let (attribution, why) = book.explain(&facts, Instant::from_micros(0), &teams(&["a", "b"]));
        assert_eq!((attribution.team.as_str(), attribution.workload), ("a", Workload::Serving));
        let outcomes: Vec<_> = why.into_iter().map(|explanation| explanation.outcome).collect();
        assert_eq!(
            outcomes,
            [Outcome::Decided(vec!["workload"]), Outcome::Decided(vec!["team"]), Outcome::NothingLeft]
        );
        assert_eq!(book.attribution(&facts, Instant::from_micros(0), &teams(&["a", "b"])), attribution);
    }

    #[test]
    fn a_team_that_is_not_in_force_leaves_the_job_to_later_rules_and_then_unassigned() {
        let book = RuleBook {
            rules: vec![Rule { team: Some(Source::Fact(FactName::Account)), ..rule("own", "account", &["*"]) }],
        };
        let facts = JobFacts { account: "gone".into(), ..JobFacts::default() };
        let (attribution, why) = book.explain(&facts, Instant::from_micros(0), &teams(&["a"]));
        assert_eq!(attribution.team, TeamCode::unassigned());
        assert_eq!(why.first().map(|why| why.outcome.clone()), Some(Outcome::NoSuchTeam("gone".into())));
    }

    #[test]
    fn rules_are_effective_dated_half_open() {
        let change = Instant::from_micros(100);
        let book = RuleBook {
            rules: vec![
                Rule {
                    team: team("a"),
                    validity: Validity::new(None, Some(change)).unwrap(),
                    ..rule("old", "user", &["u"])
                },
                Rule {
                    team: team("b"),
                    validity: Validity::new(Some(change), None).unwrap(),
                    ..rule("new", "user", &["u"])
                },
            ],
        };
        let facts = JobFacts { user: "u".into(), ..JobFacts::default() };
        let at = |micros| book.attribution(&facts, Instant::from_micros(micros), &teams(&["a", "b"])).team.to_string();
        assert_eq!((at(99), at(100)), ("a".into(), "b".into()));
        assert_eq!(book.changes(), BTreeSet::from([change]));
    }

    #[test]
    fn patterns_and_numbers() {
        for (pattern, text, right) in [
            ("*", "", true),
            ("a*c", "abc", true),
            ("a*c", "ac", true),
            ("a*c", "acb", false),
            ("a*b*c", "a-b-b-c", true),
            ("*x", "y", false),
            ("ab", "abc", false),
            ("a*a", "a", false),
            ("**", "q", true),
        ] {
            assert_eq!(matches_pattern(pattern, text), right, "{pattern} {text}");
        }
        let eight = Condition { fact: FactName::Gpus, test: Test::AtLeast(8) };
        let facts = |gpus| JobFacts { gpus, ..JobFacts::default() };
        assert!(eight.holds(&facts(8)) && !eight.holds(&facts(7)) && !eight.holds(&facts(0)));
    }

    #[test]
    fn an_experiment_from_a_label_must_be_a_name_fit_for_print() {
        let source = Some(Source::Fact(FactName::parse("label.experiment").unwrap()));
        let book = RuleBook { rules: vec![Rule { experiment: source, ..rule("x", "user", &["*"]) }] };
        let with = |value: &str| {
            let labels = [("experiment".to_owned(), value.to_owned())].into();
            book.attribution(&JobFacts { labels, ..JobFacts::default() }, Instant::from_micros(0), &teams(&[]))
                .experiment
        };
        assert_eq!(with("ltr-255"), Some("ltr-255".to_owned()));
        assert_eq!((with("=1+1"), with("")), (None, None));
    }
}
