//! The price file in TOML.

use std::collections::BTreeSet;
use std::fmt::Write;

use gpuledger_domain::calendar::{BillingCalendar, Month};
use gpuledger_domain::ids::{PoolName, SkuCode, checked_fact};
use gpuledger_domain::money::{CreditRate, Rate};
use gpuledger_domain::pricing::{
    Basis, MigProfile, PoolTerms, PriceBook, PriceKey, PriceRow, Sku, SkuSlices, dearest_layout,
};
use gpuledger_domain::rules::ServiceClass;
use gpuledger_domain::time::Instant;
use gpuledger_domain::units::{Fraction, Ratio};
use serde::Deserialize;
use toml::Spanned;

use super::price_policies::{self, EndCausesEntry, SuspendedEntry};
use super::{SourceText, When};
use crate::diagnostics::Diagnostics;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct PricesFile {
    #[serde(default)]
    credit_rate: Vec<CreditRateEntry>,
    #[serde(default)]
    pool: Vec<PoolEntry>,
    #[serde(default)]
    sku: Vec<SkuEntry>,
    #[serde(default)]
    price: Vec<PriceEntry>,
    #[serde(default)]
    end_causes: Vec<EndCausesEntry>,
    #[serde(default)]
    suspended: Vec<SuspendedEntry>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct CreditRateEntry {
    from: Spanned<String>,
    currency: Spanned<String>,
    rate: Spanned<Number>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct PoolEntry {
    name: Spanned<String>,
    basis: Spanned<String>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct SkuEntry {
    code: Spanned<String>,
    compute: Option<Spanned<String>>,
    memory: Option<Spanned<String>>,
    #[serde(default)]
    aliases: Vec<Spanned<String>>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct PriceEntry {
    sku: Spanned<String>,
    rate: Spanned<Number>,
    class: Option<Spanned<String>>,
    pool: Option<Spanned<String>>,
    from: Option<Spanned<When>>,
    until: Option<Spanned<When>>,
}

/// A decimal in quotes, or a whole number. Anything else is refused: TOML's own decimals are inexact.
#[derive(Deserialize)]
#[serde(untagged)]
enum Number {
    Text(String),
    Whole(i64),
    Inexact(toml::Value),
}

impl Number {
    /// The rate; `None` where it is left empty.
    fn rate(&self) -> Result<Option<Rate>, String> {
        match self {
            Number::Text(text) if text.trim().is_empty() => Ok(None),
            Number::Text(text) => Rate::parse(text.trim()).map(Some),
            Number::Whole(number) => Rate::parse(&number.to_string()).map(Some),
            Number::Inexact(value) => {
                Err(format!("write it in quotes, like \"2.50\", so that it stays exact (found {value})"))
            }
        }
    }
}

/// How closely a price file is looked at.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Checks {
    /// For what people write.
    All,
    /// The same, but a GPU may cost more cut into slices than whole.
    AllowDearerSlices,
    /// For what was checked when it was applied: later versions of this program may check more.
    Stored,
}

/// Reads a price file.
///
/// # Errors
/// Every mistake in it that `checks` looks for.
pub fn parse(source: &SourceText, calendar: &BillingCalendar, checks: Checks) -> Result<PriceBook, Diagnostics> {
    let file: PricesFile = source.parse_toml()?;
    let mut wrong = Diagnostics::default();
    let rows: Vec<Option<PriceRow>> =
        file.price.iter().map(|entry| price(source, calendar, &mut wrong, entry)).collect();
    let skus: Vec<Option<Sku>> = file.sku.iter().map(|entry| sku(source, &mut wrong, entry)).collect();
    let (Some(rows), Some(skus)) =
        (rows.into_iter().collect::<Option<Vec<_>>>(), skus.into_iter().collect::<Option<Vec<_>>>())
    else {
        return Err(wrong);
    };
    let place = |index: usize| file.price.get(index).map_or(0, |entry| entry.sku.span().start);
    let mut book = match PriceBook::new(&rows) {
        Ok(book) => book,
        Err((index, message)) => {
            wrong.push(source.at(place(index), "price", message));
            return Err(wrong);
        }
    };
    skus.iter().for_each(|sku| book.describe_sku(sku));
    for (sku, entry) in skus.iter().zip(&file.sku) {
        for alias in &entry.aliases {
            let checked =
                checked_fact(alias.get_ref()).map(str::to_owned).and_then(|name| book.add_alias(&name, &sku.code));
            wrong.note(source, alias.span().start, "aliases", checked);
        }
    }
    for entry in &file.pool {
        pool(source, &mut wrong, &mut book, entry);
    }
    for entry in &file.credit_rate {
        credit_rate(source, &mut wrong, &mut book, entry);
    }
    price_policies::read(source, calendar, &mut wrong, &mut book, (&file.end_causes, &file.suspended));
    if checks != Checks::Stored {
        if let Some((code, message)) = undescribed_slice(&book) {
            let index = rows.iter().position(|row| row.key.sku == code).unwrap_or(0);
            wrong.push(source.at(place(index), "sku", message));
        }
        check_entries_are_given_once(source, &mut wrong, &file);
    }
    wrong.into_result()?;
    let mut wrong = Diagnostics::default();
    if checks == Checks::All
        && let Some((code, message)) = dearer_slices(&book)
    {
        let row = rows.iter().position(|row| row.key.sku == code).map(place);
        let entry = skus.iter().position(|sku| sku.code == code).and_then(|index| file.sku.get(index));
        let offset = row.or_else(|| entry.map(|entry| entry.code.span().start)).unwrap_or(0);
        wrong.push(source.at(offset, "rate", message));
        return Err(wrong);
    }
    Ok(book)
}

fn price(
    source: &SourceText,
    calendar: &BillingCalendar,
    wrong: &mut Diagnostics,
    entry: &PriceEntry,
) -> Option<PriceRow> {
    let sku = wrong.check(source, "sku", &entry.sku, |text| SkuCode::parse(text).map(with_profile));
    let rate = wrong.note(source, entry.rate.span().start, "rate", entry.rate.get_ref().rate());
    let class = match &entry.class {
        Some(text) => wrong.check(source, "class", text, class),
        None => Some(ServiceClass::OnDemand),
    };
    let pool = match &entry.pool {
        Some(text) => wrong.check(source, "pool", text, PoolName::parse).map(Some),
        None => Some(None),
    };
    let from = wrong.instant(source, calendar, "from", entry.from.as_ref());
    let until = wrong.instant(source, calendar, "until", entry.until.as_ref());
    let key = PriceKey { sku: sku?, pool: pool?, service_class: class? };
    Some(PriceRow { key, from: from?, until: until?, rate: rate? })
}

/// A model without a profile is a whole GPU.
pub(super) fn with_profile(code: SkuCode) -> SkuCode {
    if code.as_str().contains('/') { code } else { SkuCode::full(code.as_str()) }
}

/// Reads a service class.
pub(super) fn class(text: &str) -> Result<ServiceClass, String> {
    ServiceClass::parse(text).ok_or_else(|| format!("“{text}” is unknown; write on-demand, preemptible or reserved"))
}

fn sku(source: &SourceText, wrong: &mut Diagnostics, entry: &SkuEntry) -> Option<Sku> {
    let code = wrong.check(source, "code", &entry.code, |text| SkuCode::parse(text).map(with_profile))?;
    let part = |text: &str| {
        let (part, whole) = text.split_once('/').ok_or("")?;
        let ratio = Ratio::new(part.trim().parse().map_err(|_| "")?, whole.trim().parse().map_err(|_| "")?);
        ratio.filter(|ratio| ratio.part() > 0 && ratio.part() <= ratio.whole() && ratio.whole() <= 64).ok_or("")
    };
    let part = |text: &str| part(text).map_err(|_| format!("“{text}” is no part of a GPU; write slices like \"3/7\""));
    let slices = match (&entry.compute, &entry.memory) {
        (None, None) => SkuSlices::FULL,
        (Some(compute), Some(memory)) => {
            let (compute, memory) =
                (wrong.check(source, "compute", compute, part), wrong.check(source, "memory", memory, part));
            let (compute, memory) = (compute?, memory?);
            if let Some(message) = contradiction(&code, compute) {
                wrong.push(source.at(entry.compute.as_ref()?.span().start, "compute", message));
                return None;
            }
            SkuSlices::of(compute, memory)
        }
        _ => {
            wrong.push(source.at(
                entry.code.span().start,
                "code",
                "give both compute and memory, like compute = \"3/7\", memory = \"4/8\"",
            ));
            return None;
        }
    };
    Some(Sku { code, slices })
}

/// Most compute slices of any GPU.
const COMPUTE_SLICES_MAX: i64 = 8;

/// Why a profile cannot have this part of a GPU's compute slices: its name says how many it has, and no GPU has so many or so few
/// that they would be this part.
fn contradiction(code: &SkuCode, compute: Ratio) -> Option<String> {
    let profile = code.as_str().rsplit_once('/')?.1;
    let slices = i64::from(MigProfile::parse(profile)?.compute_slices);
    let (part, whole) = (i64::from(compute.part()), i64::from(compute.whole()));
    let of_gpu = slices * whole / part;
    let can_be = slices * whole % part == 0 && (slices..=COMPUTE_SLICES_MAX).contains(&of_gpu);
    (!can_be)
        .then(|| format!("{profile} has {slices} compute slices by its name, which cannot be {part}/{whole} of a GPU"))
}

fn pool(source: &SourceText, wrong: &mut Diagnostics, book: &mut PriceBook, entry: &PoolEntry) {
    let name = wrong.check(source, "name", &entry.name, PoolName::parse);
    let basis = wrong.check(source, "basis", &entry.basis, |text| {
        Basis::parse(text).ok_or_else(|| format!("“{text}” is unknown; write compute, memory or larger"))
    });
    if let (Some(name), Some(basis)) = (name, basis) {
        book.describe_pool(&name, PoolTerms { basis });
    }
}

fn credit_rate(source: &SourceText, wrong: &mut Diagnostics, book: &mut PriceBook, entry: &CreditRateEntry) {
    let from = wrong.check(source, "from", &entry.from, Month::parse);
    let currency = wrong.check(source, "currency", &entry.currency, |text| {
        let code = text.len() == 3 && text.bytes().all(|byte| byte.is_ascii_uppercase());
        if code {
            Ok(text.to_owned())
        } else {
            Err(format!("“{text}” is no currency; write its ISO 4217 code, like USD"))
        }
    });
    let rate = entry
        .rate
        .get_ref()
        .rate()
        .and_then(|rate| rate.ok_or_else(|| "it is empty; leave the whole entry out instead".into()));
    let rate = wrong.note(source, entry.rate.span().start, "rate", rate);
    if let (Some(from), Some(currency), Some(rate)) = (from, currency, rate) {
        book.set_credit_rate(from, CreditRate { currency, rate });
    }
}

/// Whether a profile reads like a MIG slice, such as `3g.40gb` or `1c.3g.40gb`.
fn is_slice_profile(profile: &str) -> bool {
    profile.split_once("g.").is_some_and(|(before, _)| before.ends_with(|c: char| c.is_ascii_digit()))
}

/// A slice that is priced must say which part of a GPU it is, or it would count as a whole one: such a slice, and a
/// sentence; `None` where there is none.
#[must_use]
pub fn undescribed_slice(book: &PriceBook) -> Option<(SkuCode, String)> {
    let unsaid = |sku: &Sku| sku.slices == SkuSlices::FULL && is_slice_profile(sku.profile());
    let sku = book.skus().find(unsaid)?;
    let message = format!(
        "{} is a slice, but nothing says of how much; add [[sku]] with its compute and memory slices",
        sku.code
    );
    Some((sku.code, message))
}

/// Of two entries for one thing, neither can be meant.
fn check_entries_are_given_once(source: &SourceText, wrong: &mut Diagnostics, file: &PricesFile) {
    let months = file.credit_rate.iter().map(|entry| ("from", &entry.from));
    let pools = file.pool.iter().map(|entry| ("name", &entry.name));
    let skus = file.sku.iter().map(|entry| ("code", &entry.code));
    let mut seen: BTreeSet<(&str, String)> = BTreeSet::new();
    for (field, text) in months.chain(pools).chain(skus) {
        // A model without a profile is its whole GPU.
        let whole = text.get_ref().strip_suffix("/full").unwrap_or(text.get_ref());
        if !seen.insert((field, whole.to_owned())) {
            wrong.push(source.at(text.span().start, field, "an earlier entry is for the same; keep one of the two"));
        }
    }
}

/// A GPU that costs more cut into slices than whole: a SKU of it, and a sentence; `None` where there is none. Rates of
/// the slices' own count, and those that follow from the pool's basis.
#[must_use]
pub fn dearer_slices(book: &PriceBook) -> Option<(SkuCode, String)> {
    let mut instants: Vec<Instant> = book.changes().into_iter().collect();
    instants.push(Instant::MIN);
    let any = PoolName::parse("any").into_iter();
    let pools: BTreeSet<PoolName> = any
        .chain(book.rows().filter_map(|(key, _, _)| key.pool.clone()))
        .chain(book.pools().map(|(name, _)| name.clone()))
        .collect();
    let models: BTreeSet<String> =
        book.skus().filter(|sku| !sku.is_full()).map(|sku| sku.gpu_model().to_owned()).collect();
    let mut seen = BTreeSet::new();
    for pool in &pools {
        for (model, class) in models.iter().flat_map(|model| ServiceClass::ALL.map(|class| (model, class))) {
            for at in &instants {
                let found = dearer_slices_at(book, model, pool, class, *at, &mut seen);
                if found.is_some() {
                    return found;
                }
            }
        }
    }
    None
}

fn dearer_slices_at(
    book: &PriceBook,
    model: &str,
    pool: &PoolName,
    class: ServiceClass,
    at: Instant,
    seen: &mut BTreeSet<(SkuCode, Vec<Fraction>)>,
) -> Option<(SkuCode, String)> {
    let full = Sku { code: SkuCode::full(model), slices: SkuSlices::FULL };
    let full = book.terms(&full, pool, class, at).ok()?;
    let described =
        book.skus().filter(|sku| !sku.is_full() && sku.gpu_model() == model && sku.slices != SkuSlices::FULL);
    let slices: Vec<(SkuCode, SkuSlices, Fraction)> = described
        .filter_map(|sku| {
            let terms = book.terms(&sku, pool, class, at).ok()?;
            let price = terms.rate.fraction().times(terms.weight.fraction()).ok()?;
            Some((sku.code, sku.slices, price))
        })
        .collect();
    // Most prices of a GPU are the same at most instants and in most pools.
    let prices = [full.rate.fraction()].into_iter().chain(slices.iter().map(|(_, _, price)| *price)).collect();
    if !seen.insert((SkuCode::full(model), prices)) {
        return None;
    }
    let (cost, layout) = dearest_layout(&slices)?;
    if cost <= full.rate.fraction() {
        return None;
    }
    let counts: Vec<String> = layout.iter().map(|(code, count)| format!("{count} × {code}")).collect();
    let message = format!(
        "{} would cost more than the whole GPU, which costs {}; lower the rates of the slices or choose another basis, or allow it with --allow-dearer-slices",
        counts.join(" + "),
        full.rate
    );
    layout.into_keys().next().map(|code| (code, message))
}

/// A book as the text of a price file, for books that came from elsewhere.
#[must_use]
pub fn to_toml(book: &PriceBook) -> String {
    let mut text = String::new();
    let quoted = |value: &str| toml::Value::String(value.to_owned()).to_string();
    // Writing to a String cannot fail.
    for (month, rate) in book.credit_rates() {
        let _ = writeln!(
            text,
            "[[credit_rate]]\nfrom = \"{month}\"\ncurrency = \"{}\"\nrate = \"{}\"\n",
            rate.currency, rate.rate
        );
    }
    for (name, terms) in book.pools() {
        let _ = writeln!(text, "[[pool]]\nname = {}\nbasis = \"{}\"\n", quoted(name.as_str()), terms.basis.as_str());
    }
    for sku in book.skus() {
        let aliases: Vec<String> =
            book.aliases().filter(|(_, code)| **code == sku.code).map(|(name, _)| quoted(name)).collect();
        if sku.slices == SkuSlices::FULL && aliases.is_empty() {
            continue;
        }
        let _ = writeln!(text, "[[sku]]\ncode = {}", quoted(sku.code.as_str()));
        if sku.slices != SkuSlices::FULL {
            let _ = writeln!(text, "compute = \"{}\"\nmemory = \"{}\"", sku.slices.compute, sku.slices.memory);
        }
        let _ = writeln!(text, "aliases = [{}]\n", aliases.join(", "));
    }
    for (key, validity, rate) in book.rows() {
        let rate = rate.map_or_else(String::new, |rate| rate.to_string());
        let _ = writeln!(
            text,
            "[[price]]\nsku = {}\nrate = \"{rate}\"\nclass = \"{}\"",
            quoted(key.sku.as_str()),
            key.service_class.as_str()
        );
        if let Some(pool) = &key.pool {
            let _ = writeln!(text, "pool = {}", quoted(pool.as_str()));
        }
        if validity.from() != Instant::MIN {
            let _ = writeln!(text, "from = \"{}\"", validity.from());
        }
        if validity.until() != Instant::MAX {
            let _ = writeln!(text, "until = \"{}\"", validity.until());
        }
        text.push('\n');
    }
    price_policies::write(&mut text, book);
    text
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    fn parsed(text: &str) -> Result<PriceBook, String> {
        parse(&SourceText::new("prices.toml", text), &BillingCalendar::new("UTC").unwrap(), Checks::All)
            .map_err(|wrong| wrong.to_string())
    }

    const SLICED: &str = "[[credit_rate]]\nfrom = \"2025-01\"\ncurrency = \"USD\"\nrate = \"0.25\"\n[[pool]]\nname = \"training\"\nbasis = \"larger\"\n\
        [[sku]]\ncode = \"h100/1g.10gb\"\ncompute = \"1/7\"\nmemory = \"1/8\"\naliases = [\"MIG 1g.10gb\"]\n\
        [[price]]\nsku = \"h100\"\nrate = \"7.00\"\nfrom = 2025-04-01\n[[price]]\nsku = \"h100/1g.10gb\"\nrate = \"RATE\"\nfrom = \"2025-04-01\"\nuntil = 2026-04-01\npool = \"training\"\n\
        [[end_causes]]\nplatform_pays = [\"node failure\"]\nfrom = 2025-05-01\n[[suspended]]\ncluster = \"c\"\ncharge = \"running\"\n";

    #[test]
    fn a_part_that_a_profiles_name_rules_out_is_refused() {
        let refused = |profile: &str, compute: &str| {
            let code = SkuCode::parse(&format!("h100/{profile}")).unwrap();
            let (part, whole) = compute.split_once('/').unwrap();
            contradiction(&code, Ratio::new(part.parse().unwrap(), whole.parse().unwrap()).unwrap()).is_some()
        };
        let fine = [("3g.40gb", "3/7"), ("7g.80gb", "1/1"), ("2g.12gb", "1/2"), ("1c.3g.40gb", "1/7"), ("mine", "5/9")];
        assert!(!fine.iter().any(|(profile, compute)| refused(profile, compute)));
        let wrong = [("3g.40gb", "4/7"), ("3g.40gb", "1/7"), ("1c.3g.40gb", "3/7"), ("2g.12gb", "2/1")];
        assert!(wrong.iter().all(|(profile, compute)| refused(profile, compute)));
    }

    #[test]
    fn a_book_survives_being_written_and_read() {
        let book = parsed(&SLICED.replace("RATE", "1.00")).unwrap();
        assert_eq!(parsed(&to_toml(&book)).unwrap(), book);
    }

    #[test]
    fn slices_that_sum_to_more_than_their_gpu_are_refused() {
        let message = parsed(&SLICED.replace("RATE", "1.01")).unwrap_err();
        assert!(message.contains("7 × h100/1g.10gb would cost more than the whole GPU, which costs 7;"), "{message}");
        // By the larger of compute and memory, 4g + 3g would be 15/14 of a GPU.
        let larger = "[[pool]]\nname = \"p\"\nbasis = \"larger\"\n[[price]]\nsku = \"h\"\nrate = \"70\"\n\
            [[sku]]\ncode = \"h/3g\"\ncompute = \"3/7\"\nmemory = \"4/8\"\n[[sku]]\ncode = \"h/4g\"\ncompute = \"4/7\"\nmemory = \"4/8\"\n";
        let message = parsed(larger).unwrap_err();
        assert!(
            message.contains("1 × h/3g + 1 × h/4g would cost more than the whole GPU, which costs 70;"),
            "{message}"
        );
        assert!(parsed(&larger.replace("larger", "memory")).is_ok());
        let twice = parsed(&larger.replace("h/4g", "h/3g")).unwrap_err();
        assert!(twice.contains("code: an earlier entry is for the same"), "{twice}");
    }

    #[test]
    fn every_mistake_is_told_with_line_column_and_remedy() {
        let message = parsed("[[price]]\nsku = \"a\"\nrate = 2.5\n[[price]]\nsku = \"b\"\nrate = \"2,50\"\nfrom = \"01/04/2025\"\nclass = \"spot\"\n").unwrap_err();
        let lines: Vec<&str> = message.lines().collect();
        assert!(lines[0].starts_with("prices.toml:3:8: rate: write it in quotes"), "{message}");
        assert!(lines[1].starts_with("prices.toml:6:8: rate: “2,50” holds a comma;"), "{message}");
        assert!(lines[2].starts_with("prices.toml:8:9: class: “spot” is unknown;"), "{message}");
        assert!(lines[3].starts_with("prices.toml:7:8: from: “01/04/2025” is ambiguous"), "{message}");
        assert!(
            parsed("[[price]]\nsku = \"h100/3g.40gb\"\nrate = \"1\"\n")
                .unwrap_err()
                .contains("is a slice, but nothing says of how much")
        );
        assert!(parsed("[[price]\n").unwrap_err().starts_with("prices.toml:1:"));
    }
}
