//! The rules file.

use std::collections::BTreeMap;

use gpuledger_domain::calendar::BillingCalendar;
use gpuledger_domain::ids::{TeamCode, checked_name};
use gpuledger_domain::rules::{Condition, FactName, Rule, RuleBook, ServiceClass, Source, Test, Workload};
use gpuledger_domain::teams::TeamBook;
use serde::Deserialize;
use toml::Spanned;

use super::{SourceText, When};
use crate::diagnostics::Diagnostics;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct RulesFile {
    #[serde(default)]
    rule: Vec<RuleEntry>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct RuleEntry {
    name: Spanned<String>,
    #[serde(default)]
    when: BTreeMap<Spanned<String>, Spanned<Wanted>>,
    team: Option<Spanned<String>>,
    team_from: Option<Spanned<String>>,
    workload: Option<Spanned<String>>,
    experiment: Option<Spanned<String>>,
    experiment_from: Option<Spanned<String>>,
    class: Option<Spanned<String>>,
    from: Option<Spanned<When>>,
    until: Option<Spanned<When>>,
}

#[derive(Deserialize)]
#[serde(untagged)]
enum Wanted {
    Text(String),
    Number(i32),
    AnyOf(Vec<String>),
    Range(Range),
    Labels(BTreeMap<String, LabelWanted>),
    Unknown(serde::de::IgnoredAny),
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Range {
    at_least: Option<i32>,
    at_most: Option<i32>,
}

#[derive(Deserialize)]
#[serde(untagged)]
enum LabelWanted {
    Text(String),
    AnyOf(Vec<String>),
}

/// Reads a rules file.
///
/// # Errors
/// Every mistake in it.
pub fn parse(source: &SourceText, calendar: &BillingCalendar) -> Result<RuleBook, Diagnostics> {
    let file: RulesFile = source.parse_toml()?;
    let mut wrong = Diagnostics::default();
    let mut names: BTreeMap<&str, ()> = BTreeMap::new();
    let mut rules = Vec::new();
    for entry in &file.rule {
        rules.extend(rule(source, calendar, &mut wrong, entry));
        if names.insert(entry.name.get_ref(), ()).is_some() {
            wrong.push(source.at(entry.name.span().start, "name", "an earlier rule has this name; give each its own"));
        }
    }
    wrong.into_result()?;
    Ok(RuleBook { rules })
}

/// Checks that every team a rule names is a team at some time of the rule.
///
/// # Errors
/// Every rule that names no team.
pub fn check_teams(source: &SourceText, calendar: &BillingCalendar, teams: &TeamBook) -> Result<(), Diagnostics> {
    let file: RulesFile = source.parse_toml()?;
    let mut wrong = Diagnostics::default();
    for entry in &file.rule {
        let mut scratch = Diagnostics::default();
        let (Some(team), Some(validity)) =
            (&entry.team, scratch.validity(source, calendar, entry.from.as_ref(), entry.until.as_ref()))
        else {
            continue;
        };
        let known =
            teams.all().any(|(code, terms)| code.as_str() == team.get_ref() && terms.validity.overlaps(validity));
        if !known {
            let message = format!(
                "there is no team “{}” while this rule is in force; add it with `gpuledger teams apply` first",
                team.get_ref()
            );
            wrong.push(source.at(team.span().start, "team", message));
        }
    }
    wrong.into_result()
}

fn rule(source: &SourceText, calendar: &BillingCalendar, wrong: &mut Diagnostics, entry: &RuleEntry) -> Option<Rule> {
    let name = wrong.check(source, "name", &entry.name, |text| checked_name(text).map(str::to_owned));
    let conditions: Vec<Option<Vec<Condition>>> =
        entry.when.iter().map(|(fact, wanted)| conditions(source, wrong, fact, wanted)).collect();
    let team = one_of(source, wrong, "team", entry.team.as_ref(), entry.team_from.as_ref(), |text| {
        TeamCode::parse(text).map(|code| code.to_string())
    });
    let experiment =
        one_of(source, wrong, "experiment", entry.experiment.as_ref(), entry.experiment_from.as_ref(), |text| {
            checked_name(text).map(str::to_owned)
        });
    let workload = word(
        source,
        wrong,
        "workload",
        entry.workload.as_ref(),
        Workload::parse,
        "training, serving, notebook, evaluation or other",
    );
    let class =
        word(source, wrong, "class", entry.class.as_ref(), ServiceClass::parse, "on-demand, preemptible or reserved");
    let validity = wrong.validity(source, calendar, entry.from.as_ref(), entry.until.as_ref());
    let rule = Rule {
        name: name?,
        validity: validity?,
        conditions: conditions.into_iter().collect::<Option<Vec<_>>>()?.into_iter().flatten().collect(),
        team: team?,
        workload: workload?,
        experiment: experiment?,
        service_class: class?,
    };
    let says =
        rule.team.is_some() || rule.workload.is_some() || rule.experiment.is_some() || rule.service_class.is_some();
    if !says {
        wrong.push(source.at(
            entry.name.span().start,
            "name",
            "the rule says nothing; give it a team, workload, experiment or class",
        ));
    }
    Some(rule)
}

/// A word out of a list, which may be absent; `None` after a mistake.
#[allow(clippy::option_option)]
fn word<T>(
    source: &SourceText,
    wrong: &mut Diagnostics,
    field: &str,
    text: Option<&Spanned<String>>,
    parse: impl Fn(&str) -> Option<T>,
    words: &str,
) -> Option<Option<T>> {
    let Some(text) = text else { return Some(None) };
    let check = |text: &str| parse(text).ok_or_else(|| format!("“{text}” is unknown; write {words}"));
    wrong.check(source, field, text, check).map(Some)
}

/// `FIELD` or `FIELD_from`, or neither; `None` after a mistake.
#[allow(clippy::option_option)]
fn one_of(
    source: &SourceText,
    wrong: &mut Diagnostics,
    field: &str,
    fixed: Option<&Spanned<String>>,
    from: Option<&Spanned<String>>,
    check: impl Fn(&str) -> Result<String, String>,
) -> Option<Option<Source>> {
    match (fixed, from) {
        (None, None) => Some(None),
        (Some(text), None) => wrong.check(source, field, text, check).map(|text| Some(Source::Fixed(text))),
        (None, Some(text)) => {
            wrong.check(source, &format!("{field}_from"), text, fact).map(|fact| Some(Source::Fact(fact)))
        }
        (Some(_), Some(text)) => {
            wrong.push(source.at(
                text.span().start,
                &format!("{field}_from"),
                format!("give either {field} or {field}_from, not both"),
            ));
            None
        }
    }
}

fn fact(text: &str) -> Result<FactName, String> {
    FactName::parse(text).ok_or_else(|| format!("“{text}” is no fact of a job; write {}", FactName::WORDS))
}

fn conditions(
    source: &SourceText,
    wrong: &mut Diagnostics,
    name: &Spanned<String>,
    wanted: &Spanned<Wanted>,
) -> Option<Vec<Condition>> {
    let field = format!("when.{}", name.get_ref());
    if let ("label", Wanted::Labels(labels)) = (name.get_ref().as_str(), wanted.get_ref()) {
        if labels.values().any(|wanted| matches!(wanted, LabelWanted::AnyOf(texts) if texts.is_empty())) {
            wrong.push(source.at(
                name.span().start,
                &field,
                "an empty list never matches; write a text or a list of texts",
            ));
            return None;
        }
        return Some(labels.iter().map(|(key, wanted)| label_condition(key, wanted)).collect());
    }
    let fact = wrong.note(source, name.span().start, &field, fact(name.get_ref()))?;
    let tests = match wanted.get_ref() {
        Wanted::Text(text) => vec![Test::AnyOf(vec![text.clone()])],
        Wanted::Number(number) => vec![Test::AnyOf(vec![number.to_string()])],
        Wanted::AnyOf(texts) if !texts.is_empty() => vec![Test::AnyOf(texts.clone())],
        Wanted::Range(range) if fact == FactName::Gpus && (range.at_least.is_some() || range.at_most.is_some()) => {
            if range.at_least.zip(range.at_most).is_some_and(|(least, most)| least > most) {
                wrong.push(source.at(wanted.span().start, &field, "at_least is above at_most, so that no job matches"));
                return None;
            }
            let least = range.at_least.map(Test::AtLeast);
            least.into_iter().chain(range.at_most.map(Test::AtMost)).collect()
        }
        Wanted::AnyOf(_) | Wanted::Range(_) | Wanted::Labels(_) | Wanted::Unknown(_) => {
            let message =
                "write a text, a list of texts, or for gpus { at_least = 2, at_most = 8 }; * stands for any characters";
            wrong.push(source.at(wanted.span().start, &field, message));
            return None;
        }
    };
    Some(tests.into_iter().map(|test| Condition { fact: fact.clone(), test }).collect())
}

fn label_condition(key: &str, wanted: &LabelWanted) -> Condition {
    let texts = match wanted {
        LabelWanted::Text(text) => vec![text.clone()],
        LabelWanted::AnyOf(texts) => texts.clone(),
    };
    Condition { fact: FactName::Label(key.to_owned()), test: Test::AnyOf(texts) }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    fn parsed(text: &str) -> Result<RuleBook, String> {
        parse(&SourceText::new("rules.toml", text), &BillingCalendar::new("UTC").unwrap())
            .map_err(|wrong| wrong.to_string())
    }

    #[test]
    fn a_rule_reads_as_it_is_written() {
        let book = parsed("[[rule]]\nname = \"big\"\nwhen = { account = [\"a\", \"b*\"], gpus = { at_least = 8 }, label.x = \"y\" }\nteam_from = \"account\"\nworkload = \"training\"\nfrom = 2025-04-01\n").unwrap();
        let rule = &book.rules[0];
        assert_eq!(rule.conditions.len(), 3);
        assert_eq!(rule.team, Some(Source::Fact(FactName::Account)));
        assert_eq!(rule.validity.to_string(), "from 2025-04-01T00:00:00Z");
    }

    #[test]
    fn every_mistake_is_told_with_line_column_and_remedy() {
        let message = parsed("[[rule]]\nname = \"a\"\nwhen = { acount = \"x\" }\nteam = \"t\"\n\n[[rule]]\nname = \"a\"\nworkload = \"trainin\"\n").unwrap_err();
        let lines: Vec<&str> = message.lines().collect();
        assert!(
            lines[0].starts_with("rules.toml:3:10: when.acount: “acount” is no fact of a job; write cluster,"),
            "{message}"
        );
        assert!(lines[1].starts_with("rules.toml:8:12: workload: “trainin” is unknown; write training,"), "{message}");
        assert!(lines[2].starts_with("rules.toml:7:8: name: an earlier rule"), "{message}");
        assert!(
            parsed("[[rule]]\nname = \"a\"\nteem = \"x\"\n")
                .unwrap_err()
                .starts_with("rules.toml:3:1: unknown field `teem`")
        );
        assert!(parsed("[[rule]]\nname = \"a\"\n").unwrap_err().contains("says nothing"));
        for empty in ["gpus = {}", "user = []"] {
            let text = format!("[[rule]]\nname = \"a\"\nteam = \"t\"\nwhen = {{ {empty} }}\n");
            assert!(parsed(&text).unwrap_err().contains("write a text, a list of texts"), "{empty}");
        }
        assert!(
            parsed("[[rule]]\nname = \"a\"\nteam = \"x\"\nteam_from = \"user\"\n").unwrap_err().contains("not both")
        );
    }
}
