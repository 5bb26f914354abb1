//! The teams file.

use gpuledger_domain::calendar::BillingCalendar;
use gpuledger_domain::ids::{TeamCode, checked_fact, checked_name};
use gpuledger_domain::teams::{Owner, TeamBook, TeamTerms};
use serde::Deserialize;
use toml::Spanned;

use super::{SourceText, When};
use crate::diagnostics::Diagnostics;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct TeamsFile {
    #[serde(default)]
    team: Vec<Spanned<TeamEntry>>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct TeamEntry {
    code: Spanned<String>,
    name: Spanned<String>,
    cost_centre: Option<Spanned<String>>,
    parent: Option<Spanned<String>>,
    #[serde(default)]
    owners: Vec<OwnerEntry>,
    from: Option<Spanned<When>>,
    until: Option<Spanned<When>>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct OwnerEntry {
    name: Spanned<String>,
    email: Spanned<String>,
}

/// Reads a teams file.
///
/// # Errors
/// Every mistake in it.
pub fn parse(source: &SourceText, calendar: &BillingCalendar) -> Result<TeamBook, Diagnostics> {
    let file: TeamsFile = source.parse_toml()?;
    let mut wrong = Diagnostics::default();
    let terms: Vec<Option<(TeamCode, TeamTerms)>> =
        file.team.iter().map(|entry| team(source, calendar, &mut wrong, entry.get_ref())).collect();
    let Some(terms) = terms.into_iter().collect() else { return Err(wrong) };
    wrong.into_result()?;
    TeamBook::new(terms).map_err(|(index, message)| {
        let mut wrong = Diagnostics::default();
        wrong.push(source.at(
            file.team.get(index).map_or(0, |entry| entry.get_ref().code.span().start),
            "team",
            message,
        ));
        wrong
    })
}

fn team(
    source: &SourceText,
    calendar: &BillingCalendar,
    wrong: &mut Diagnostics,
    entry: &TeamEntry,
) -> Option<(TeamCode, TeamTerms)> {
    let code = wrong.check(source, "code", &entry.code, TeamCode::parse);
    let name = wrong.check(source, "name", &entry.name, |text| checked_name(text).map(str::to_owned));
    let cost_centre = match &entry.cost_centre {
        Some(text) => wrong.check(source, "cost_centre", text, |text| checked_name(text).map(str::to_owned)),
        None => Some(String::new()),
    };
    let parent = match &entry.parent {
        Some(text) => wrong.check(source, "parent", text, TeamCode::parse).map(Some),
        None => Some(None),
    };
    let owners: Vec<Option<Owner>> = entry.owners.iter().map(|owner| owner_of(source, wrong, owner)).collect();
    let validity = wrong.validity(source, calendar, entry.from.as_ref(), entry.until.as_ref());
    let terms = TeamTerms {
        validity: validity?,
        name: name?,
        cost_centre: cost_centre?,
        parent: parent?,
        owners: owners.into_iter().collect::<Option<_>>()?,
    };
    Some((code?, terms))
}

fn owner_of(source: &SourceText, wrong: &mut Diagnostics, entry: &OwnerEntry) -> Option<Owner> {
    let name = wrong.check(source, "owners.name", &entry.name, |text| checked_name(text).map(str::to_owned));
    let email = wrong.check(source, "owners.email", &entry.email, |text| {
        let address = text.split_once('@').is_some_and(|(user, host)| !user.is_empty() && host.contains('.'));
        let plain = !text.contains(|c: char| c.is_whitespace() || "<>,;\"".contains(c));
        checked_fact(text)?;
        if address && plain {
            Ok(text.to_owned())
        } else {
            Err(format!("“{text}” is no e-mail address; write it like a@example.org"))
        }
    });
    Some(Owner { name: name?, email: email? })
}
