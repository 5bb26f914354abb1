//! The parts of the price file that say who pays by how a job ended, and what is charged of suspended jobs.

use std::collections::BTreeSet;
use std::fmt::Write;

use gpuledger_domain::calendar::BillingCalendar;
use gpuledger_domain::ids::ClusterName;
use gpuledger_domain::pricing::{EndCause, PriceBook, SuspendedTime};
use gpuledger_domain::time::{Instant, Validity};
use serde::Deserialize;
use toml::Spanned;

use super::{SourceText, When};
use crate::diagnostics::Diagnostics;

/// `[[end_causes]]`: for which causes the platform pays.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct EndCausesEntry {
    platform_pays: Spanned<Vec<Spanned<String>>>,
    from: Option<Spanned<When>>,
    until: Option<Spanned<When>>,
}

/// `[[suspended]]`: what is charged of a cluster's suspended jobs.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct SuspendedEntry {
    cluster: Spanned<String>,
    charge: Spanned<String>,
    from: Option<Spanned<When>>,
    until: Option<Spanned<When>>,
}

/// Takes the entries into a book.
pub(super) fn read(
    source: &SourceText,
    calendar: &BillingCalendar,
    wrong: &mut Diagnostics,
    book: &mut PriceBook,
    (end_causes, suspended): (&[EndCausesEntry], &[SuspendedEntry]),
) {
    for entry in end_causes {
        let offset = entry.platform_pays.span().start;
        let causes: Option<BTreeSet<EndCause>> = entry
            .platform_pays
            .get_ref()
            .iter()
            .map(|text| wrong.check(source, "platform_pays", text, cause))
            .collect();
        let validity = validity(source, calendar, wrong, offset, (entry.from.as_ref(), entry.until.as_ref()));
        if let (Some(causes), Some(validity)) = (causes, validity) {
            let added = book.end_causes.add(validity, causes);
            wrong.note(source, offset, "end_causes", added);
        }
    }
    for entry in suspended {
        let offset = entry.cluster.span().start;
        let cluster = wrong.check(source, "cluster", &entry.cluster, ClusterName::parse);
        let charge = wrong.check(source, "charge", &entry.charge, |text| {
            SuspendedTime::parse(text).ok_or_else(|| {
                format!("“{text}” is unknown; write held, for all the time a job held its GPUs, or running, without what it was suspended")
            })
        });
        let validity = validity(source, calendar, wrong, offset, (entry.from.as_ref(), entry.until.as_ref()));
        if let (Some(cluster), Some(charge), Some(validity)) = (cluster, charge, validity) {
            let added = book.suspended.add(cluster.as_str(), validity, charge);
            wrong.note(source, offset, "suspended", added);
        }
    }
}

fn cause(text: &str) -> Result<EndCause, String> {
    let words: Vec<&str> = EndCause::ALL.iter().map(|cause| cause.as_str()).collect();
    EndCause::parse(text).ok_or_else(|| format!("“{text}” is no end cause; write any of {}", words.join(", ")))
}

fn validity(
    source: &SourceText,
    calendar: &BillingCalendar,
    wrong: &mut Diagnostics,
    offset: usize,
    (from, until): (Option<&Spanned<When>>, Option<&Spanned<When>>),
) -> Option<Validity> {
    let (from, until) =
        (wrong.instant(source, calendar, "from", from)?, wrong.instant(source, calendar, "until", until)?);
    let validity = Validity::new(from, until).ok_or_else(|| "it ends before it begins".to_owned());
    wrong.note(source, offset, "from", validity)
}

/// The entries of a book as text.
pub(super) fn write(text: &mut String, book: &PriceBook) {
    let quoted = |value: &str| toml::Value::String(value.to_owned()).to_string();
    // Writing to a String cannot fail.
    for (validity, causes) in book.end_causes.entries() {
        let causes: Vec<String> = causes.iter().map(|cause| quoted(cause.as_str())).collect();
        let _ = writeln!(text, "[[end_causes]]\nplatform_pays = [{}]", causes.join(", "));
        write_validity(text, validity);
    }
    for (cluster, validity, time) in book.suspended.entries() {
        let _ = writeln!(text, "[[suspended]]\ncluster = {}\ncharge = \"{}\"", quoted(cluster), time.as_str());
        write_validity(text, validity);
    }
}

fn write_validity(text: &mut String, validity: Validity) {
    if validity.from() != Instant::MIN {
        let _ = writeln!(text, "from = \"{}\"", validity.from());
    }
    if validity.until() != Instant::MAX {
        let _ = writeln!(text, "until = \"{}\"", validity.until());
    }
    text.push('\n');
}
