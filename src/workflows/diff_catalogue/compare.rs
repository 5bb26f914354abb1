//! The statements of a month, priced twice, side by side. Exact values decide whether something changes.

use std::collections::{BTreeMap, BTreeSet};

use gpuledger_domain::calendar::Month;
use gpuledger_domain::ids::TeamId;
use gpuledger_domain::money::Printed;
use gpuledger_domain::pricing::Charge;
use gpuledger_domain::statements::{ExperimentLine, LineKey, Names, Statement, StatementLine, Sums};
use gpuledger_domain::units::{Fraction, Overflow};

use super::{
    Amount, Amounts, ExperimentDiff, LineDiff, Money, MonthDiff, NowThen, StatementDiff, UnpricedDiff, WordDiff,
};
use crate::error::AppError;
use crate::workflows::books::Books;
use crate::workflows::price_period::{PricedPeriod, UnpricedUsage};
use crate::workflows::statements::{self, Life, StatementView, drafts};

/// A month by one set of books.
struct Side {
    drafts: BTreeMap<String, Draft>,
    total: Amount,
    rounding: Amount,
    unpriced_gpu_us: Fraction,
}

/// A team's draft with all that may change on it.
struct Draft {
    view: StatementView,
    lines: Vec<StatementLine>,
    experiments: Vec<(Option<String>, ExperimentLine)>,
}

/// What differs in a month.
pub(super) fn month(
    month: Month,
    life: Life,
    priced: NowThen<&PricedPeriod>,
    books: NowThen<&Books>,
) -> Result<MonthDiff, AppError> {
    let credit_rate = books.map(|books| books.prices.credit_rate(month).cloned());
    let currency = same_currency(credit_rate.as_ref().map(|rate| rate.as_ref().map(|rate| rate.currency.as_str())));
    let sides = NowThen { now: side(priced.now, books.now)?, then: side(priced.then, books.then)? };
    let teams: BTreeSet<&String> = sides.now.drafts.keys().chain(sides.then.drafts.keys()).collect();
    let mut changed = Vec::new();
    let mut unchanged = Vec::new();
    for team in teams {
        let drafts = sides.as_ref().map(|side| side.drafts.get(team));
        match statement(team, drafts, currency)? {
            Some(diff) => changed.push(diff),
            None => unchanged.extend(drafts.then.map(amount)),
        }
    }
    let unchanged_count = unchanged.len();
    let same = unchanged.into_iter().try_fold(Amount::NoStatement, plus)?;
    Ok(MonthDiff {
        month,
        life,
        statements: changed,
        unchanged: unchanged_count,
        unchanged_amounts: amounts(NowThen { now: same, then: same }, currency)?,
        rounding: amounts(sides.as_ref().map(|side| side.rounding), currency)?,
        total: amounts(sides.as_ref().map(|side| side.total), currency)?,
        credit_rate,
        unpriced_gpu_us: sides.as_ref().map(|side| side.unpriced_gpu_us),
    })
}

/// Whether amounts in currency may be subtracted.
fn same_currency(currencies: NowThen<Option<&str>>) -> bool {
    currencies.now == currencies.then
}

fn side(priced: &PricedPeriod, books: &Books) -> Result<Side, AppError> {
    let views = drafts(priced, books)?;
    let row = statements::rounding(&views)?;
    let rounding = Money { credits: row.amount, exact: Fraction::ZERO, currency: row.currency_amount };
    let sum = views.iter().map(amount_of_view).try_fold(Amount::NoStatement, plus)?;
    let (total, rounding) = match plus(sum, Amount::Of(rounding))? {
        total @ Amount::Of(_) => (total, Amount::Of(rounding)),
        other => (other, Amount::NoStatement),
    };
    let by_team: BTreeMap<TeamId, &[Charge]> = priced
        .charges
        .chunk_by(|a, b| a.payer.team == b.payer.team)
        .filter_map(|charges| charges.first().map(|first| (first.payer.team, charges)))
        .collect();
    let mut drafts = BTreeMap::new();
    for view in views {
        let charges = by_team.get(&view.head.team).copied().unwrap_or_default();
        drafts.insert(view.head.team_code.clone(), draft(priced, books, view, charges)?);
    }
    let unpriced_gpu_us = Fraction::sum(priced.unpriced.iter().map(|unpriced| unpriced.gpu_us))?;
    Ok(Side { drafts, total, rounding, unpriced_gpu_us })
}

fn draft(priced: &PricedPeriod, books: &Books, view: StatementView, charges: &[Charge]) -> Result<Draft, AppError> {
    let rates = statements::credit_rates(priced, books);
    let made: Statement = statements::statement_of(charges.iter(), &priced.words, &rates)?;
    let by_experiment = made.by_experiment(charges, &priced.words)?;
    let by_experiment = by_experiment.ok_or_else(|| statements::lost("a word behind a charge"))?;
    let named = |line: ExperimentLine| (priced.words.experiment(line.experiment).map(str::to_owned), line);
    Ok(Draft { view, lines: made.lines, experiments: by_experiment.into_iter().map(named).collect() })
}

fn amount(draft: &Draft) -> Amount {
    amount_of_view(&draft.view)
}

fn amount_of_view(view: &StatementView) -> Amount {
    let sums = &view.head.sums;
    match view.unpriced.is_empty() {
        true => Amount::Of(Money { credits: sums.amount, exact: sums.exact, currency: sums.currency_amount }),
        false => Amount::Unpriced,
    }
}

fn plus(sum: Amount, added: Amount) -> Result<Amount, Overflow> {
    Ok(match (sum, added) {
        (Amount::Unpriced, _) | (_, Amount::Unpriced) => Amount::Unpriced,
        (Amount::NoStatement, other) | (other, Amount::NoStatement) => other,
        (Amount::Of(a), Amount::Of(b)) => Amount::Of(Money {
            credits: Printed(a.credits.0 + b.credits.0),
            exact: a.exact.plus(b.exact)?,
            currency: a.currency.zip(b.currency).map(|(a, b)| Printed(a.0 + b.0)),
        }),
    })
}

/// Two amounts with their difference. No statement is nothing; what has no price has no difference.
fn amounts(of: NowThen<Amount>, same_currency: bool) -> Result<Amounts, Overflow> {
    let money = of.map(|amount| match amount {
        Amount::Unpriced => None,
        Amount::NoStatement => Some(None),
        Amount::Of(money) => Some(Some(money)),
    });
    let difference = match (money.now, money.then) {
        (Some(None), Some(None)) => None,
        (Some(now), Some(then)) => {
            let credits = |money: Option<Money>| money.map_or(0, |money| money.credits.0);
            let exact = |money: Option<Money>| money.map_or(Fraction::ZERO, |money| money.exact);
            let currency = |money: Option<Money>| money.map_or(Some(Printed(0)), |money| money.currency);
            let currencies = currency(now).zip(currency(then)).filter(|_| same_currency);
            Some(Money {
                credits: Printed(credits(then) - credits(now)),
                exact: exact(then).minus(exact(now))?,
                currency: currencies.map(|(now, then)| Printed(then.0 - now.0)),
            })
        }
        _ => None,
    };
    Ok(Amounts { of, difference })
}

/// What differs on a team's statement; `None` where nothing does.
fn statement(
    team: &str,
    drafts: NowThen<Option<&Draft>>,
    same_currency: bool,
) -> Result<Option<StatementDiff>, Overflow> {
    let Some(newest) = drafts.newest() else { return Ok(None) };
    let amounts = amounts(drafts.map(|draft| draft.map_or(Amount::NoStatement, amount)), same_currency)?;
    let diff = StatementDiff {
        team: team.to_owned(),
        name: newest.view.head.team_name.clone(),
        amounts,
        words: words(drafts),
        lines: lines(drafts.map(|draft| draft.map_or(&[][..], |draft| draft.lines.as_slice()))),
        experiments: experiments(drafts.map(|draft| draft.map_or(&[][..], |draft| draft.experiments.as_slice()))),
        unpriced: unpriced(drafts.map(|draft| draft.map_or(&[][..], |draft| draft.view.unpriced.as_slice()))),
    };
    let rates = drafts.map(|draft| draft.and_then(|draft| draft.view.head.credit_rate.clone()));
    let same = amounts.of.now == amounts.of.then
        && rates.now == rates.then
        && diff.words.is_empty()
        && diff.lines.is_empty()
        && diff.experiments.is_empty()
        && diff.unpriced.is_empty();
    Ok((!same).then_some(diff))
}

/// Words of the head that differ; none where there is no statement to compare with.
fn words(drafts: NowThen<Option<&Draft>>) -> Vec<WordDiff> {
    let (Some(now), Some(then)) = (drafts.now, drafts.then) else { return Vec::new() };
    let (now, then) = (&now.view.head, &then.view.head);
    let words = [
        ("name", &now.team_name, &then.team_name),
        ("cost centre", &now.cost_centre, &then.cost_centre),
        ("owner", &now.owner_name, &then.owner_name),
    ];
    let differ = words.into_iter().filter(|(_, now, then)| now != then);
    differ.map(|(what, now, then)| WordDiff { what, words: NowThen { now: now.clone(), then: then.clone() } }).collect()
}

/// Items of both sides that belong together: first the same ones; of the rest in a group, one and one.
fn pairs<'a, T, K: Ord>(
    sides: NowThen<&'a [T]>,
    group: impl Fn(&'a T) -> K,
    same: impl Fn(&T, &T) -> bool,
) -> Vec<NowThen<Option<&'a T>>> {
    let mut groups: BTreeMap<K, NowThen<Vec<&'a T>>> = BTreeMap::new();
    let empty = || NowThen { now: Vec::new(), then: Vec::new() };
    for item in sides.now {
        groups.entry(group(item)).or_insert_with(empty).now.push(item);
    }
    for item in sides.then {
        groups.entry(group(item)).or_insert_with(empty).then.push(item);
    }
    let mut pairs = Vec::new();
    for NowThen { mut now, mut then } in groups.into_values() {
        now.retain(|item| {
            let Some(place) = then.iter().position(|other| same(item, other)) else { return true };
            pairs.push(NowThen { now: Some(*item), then: Some(then.remove(place)) });
            false
        });
        match (now.as_slice(), then.as_slice()) {
            ([now], [then]) => pairs.push(NowThen { now: Some(*now), then: Some(*then) }),
            _ => {
                pairs.extend(now.into_iter().map(|now| NowThen { now: Some(now), then: None }));
                pairs.extend(then.into_iter().map(|then| NowThen { now: None, then: Some(then) }));
            }
        }
    }
    pairs
}

/// Whether sums differ in anything that a statement or its evidence says of them. How slots cut their charges is not
/// such a thing.
fn sums_differ(a: &Sums, b: &Sums) -> bool {
    a.share_us != b.share_us
        || a.gpu_us != b.gpu_us
        || a.estimated_us != b.estimated_us
        || a.exact != b.exact
        || a.jobs != b.jobs
}

fn lines(sides: NowThen<&[StatementLine]>) -> Vec<LineDiff> {
    fn group(line: &StatementLine) -> impl Ord + '_ {
        let LineKey { kind, corrects, end_cause, workload, sku, pool, service_class, .. } = &line.key;
        (*kind, *corrects, *end_cause, *workload, &sku.code, pool, *service_class)
    }
    let mut pairs = pairs(sides, group, |a, b| a.key == b.key);
    pairs.retain(|pair| match (pair.now, pair.then) {
        (Some(now), Some(then)) => {
            now.key != then.key || now.amount != then.amount || sums_differ(&now.sums, &then.sums)
        }
        _ => true,
    });
    pairs.sort_by(|a, b| {
        let key = |pair: &NowThen<Option<&StatementLine>>| pair.now.or(pair.then).map(|line| line.key.clone());
        key(a).cmp(&key(b))
    });
    pairs.into_iter().map(|pair| LineDiff { lines: pair.map(Option::<&StatementLine>::cloned) }).collect()
}

fn experiments(sides: NowThen<&[(Option<String>, ExperimentLine)]>) -> Vec<ExperimentDiff> {
    if sides.now.iter().chain(sides.then).all(|(name, _)| name.is_none()) {
        return Vec::new();
    }
    let pairs = pairs(sides, |(name, _)| (name.is_none(), name), |_, _| true);
    let differ = pairs.into_iter().filter(|pair| match (pair.now, pair.then) {
        (Some((_, now)), Some((_, then))) => now.amount != then.amount || sums_differ(&now.sums, &then.sums),
        _ => true,
    });
    let diff = |pair: NowThen<Option<&(Option<String>, ExperimentLine)>>| ExperimentDiff {
        name: pair.newest().and_then(|(name, _)| name.clone()),
        lines: pair.map(|row| row.map(|(_, line)| line.clone())),
    };
    differ.map(diff).collect()
}

fn unpriced(sides: NowThen<&[UnpricedUsage]>) -> Vec<UnpricedDiff> {
    fn group(usage: &UnpricedUsage) -> impl Ord + '_ {
        (&usage.sku.code, &usage.pool, usage.service_class)
    }
    let pairs = pairs(sides, group, |a, b| a.reason == b.reason && a.sku == b.sku);
    let differ = pairs.into_iter().filter(|pair| match (pair.now, pair.then) {
        (Some(now), Some(then)) => {
            now.reason != then.reason
                || now.share_us != then.share_us
                || now.gpu_us != then.gpu_us
                || now.jobs != then.jobs
        }
        _ => true,
    });
    let diff = |pair: NowThen<Option<&UnpricedUsage>>| {
        let usage = pair.newest()?;
        Some(UnpricedDiff {
            sku: usage.sku.code.clone(),
            pool: usage.pool.clone(),
            service_class: usage.service_class,
            usage: pair.map(Option::<&UnpricedUsage>::cloned),
        })
    };
    differ.filter_map(diff).collect()
}
