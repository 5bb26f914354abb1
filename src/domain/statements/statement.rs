//! A statement: the charges of a team in a period, summed into lines, each total rounded once.

use std::collections::{BTreeMap, BTreeSet};

use crate::calendar::Month;
use crate::ids::{ExperimentId, JobId, PoolId, PoolName, SkuId};
use crate::money::{Column, CreditRate, Printed, Rate};
use crate::pricing::{Charge, ChargeKind, EndCause, Sku};
use crate::rules::{ServiceClass, Workload};
use crate::units::{Fraction, Overflow, Ratio};

/// What is the same for all charges in a line. Lines are ordered by it: by words people know, never by a number
/// the database gave.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct LineKey {
    /// Why.
    pub kind: ChargeKind,
    /// For a correction, the closed month that it corrects.
    pub corrects: Option<Month>,
    /// The section it stands in.
    pub workload: Workload,
    /// Of what.
    pub sku: Sku,
    /// In which pool.
    pub pool: PoolName,
    /// On what terms.
    pub service_class: ServiceClass,
    /// Credits per hour.
    pub rate: Rate,
    /// The part of the rate that applies.
    pub weight: Ratio,
    /// For an adjustment, the end cause it is made for.
    pub end_cause: Option<EndCause>,
}

/// Sums over charges, exact.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Sums {
    /// Instance-time held, in microseconds.
    pub share_us: i128,
    /// GPU-equivalent time, in microseconds: share × compute slices ÷ the GPU's.
    pub gpu_us: Fraction,
    /// Of `share_us`, inferred over gaps.
    pub estimated_us: i128,
    /// Σ quantity × rate in credits.
    pub exact: Fraction,
    /// Σ of the charges' rounded amounts, in micro-credits. What it lacks from `exact` is residue.
    pub charged_micros: i128,
    /// How many charges.
    pub charges: u64,
    /// Which jobs.
    pub jobs: BTreeSet<JobId>,
}

/// Amounts of a column in credits, and in currency where the period has a rate.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct MoneyColumn {
    /// In credits.
    pub credits: Column<2>,
    /// In currency: the printed credit total at the rate, spread first over sections, then over lines.
    pub currency: Option<Column<2>>,
}

/// A line of a statement.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct StatementLine {
    /// What it is for.
    pub key: LineKey,
    /// Its sums.
    pub sums: Sums,
    /// Its printed amount in credits.
    pub amount: Printed<2>,
    /// Its printed amount in currency.
    pub currency_amount: Option<Printed<2>>,
}

/// An experiment's part of a statement.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ExperimentLine {
    /// The experiment; 0 for jobs that name none.
    pub experiment: ExperimentId,
    /// Its sums.
    pub sums: Sums,
    /// Its printed amount in credits.
    pub amount: Printed<2>,
    /// Its printed amount in currency.
    pub currency_amount: Option<Printed<2>>,
}

/// A part of a statement: jobs that ended alike.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct EndCauseLine {
    /// By what; `None` where that is not told.
    pub cause: Option<EndCause>,
    /// Its sums, with what the platform took over.
    pub sums: Sums,
    /// Its printed amount in credits.
    pub amount: Printed<2>,
    /// Its printed amount in currency.
    pub currency_amount: Option<Printed<2>>,
}

/// A team's charges of a period.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Statement {
    /// By kind, workload, SKU, pool, class and rate.
    pub lines: Vec<StatementLine>,
    /// Of all lines.
    pub sums: Sums,
    /// The total in credits, rounded once.
    pub amount: Printed<2>,
    /// The total in currency.
    pub currency_amount: Option<Printed<2>>,
    /// What a credit is worth on it.
    pub credit_rates: CreditRates,
}

/// What a credit is worth on a statement: as in its own period, but for corrections as in the month that they correct.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct CreditRates {
    /// In the statement's own period; `None` where it has none.
    pub own: Option<CreditRate>,
    /// In corrected months, as far as they had the same currency.
    pub corrected: BTreeMap<Month, Rate>,
}

impl CreditRates {
    /// Only that of the statement's own period.
    #[must_use]
    pub fn own(rate: Option<CreditRate>) -> CreditRates {
        CreditRates { own: rate, corrected: BTreeMap::new() }
    }

    /// For a line; `None` where the period has no rate.
    #[must_use]
    pub fn of(&self, corrects: Option<Month>) -> Option<Rate> {
        let own = self.own.as_ref()?.rate;
        Some(corrects.and_then(|month| self.corrected.get(&month)).copied().unwrap_or(own))
    }
}

/// The words behind the numbers of charges.
pub trait Names {
    /// The SKU behind its number.
    fn sku(&self, id: SkuId) -> Option<&Sku>;
    /// The pool behind its number.
    fn pool(&self, id: PoolId) -> Option<&PoolName>;
    /// The experiment behind its number; `None` also for 0.
    fn experiment(&self, id: ExperimentId) -> Option<&str>;
}

impl Sums {
    /// Nothing.
    #[must_use]
    pub fn none() -> Sums {
        Sums {
            share_us: 0,
            gpu_us: Fraction::ZERO,
            estimated_us: 0,
            exact: Fraction::ZERO,
            charged_micros: 0,
            charges: 0,
            jobs: BTreeSet::new(),
        }
    }

    fn add_charge(&mut self, charge: &Charge) {
        self.share_us += i128::from(charge.share_us);
        self.estimated_us += i128::from(charge.estimated_us);
        self.charged_micros += i128::from(charge.amount.0);
        self.charges += 1;
        self.jobs.insert(charge.job);
    }

    /// GPU-time and exact amount of sums that share one SKU, rate and weight: multiplied once, not charge by charge.
    fn price(&mut self, sku: &Sku, weight: Ratio, rate: Rate) -> Result<(), Overflow> {
        self.gpu_us = Fraction::whole(self.share_us).times(sku.slices.compute.fraction())?;
        self.exact = crate::money::exact_cost(self.share_us, weight, rate)?;
        Ok(())
    }

    /// The same amount, of no GPU-time: who pays is told once more, the time was held once.
    fn of_amount_alone(self) -> Sums {
        Sums { share_us: 0, gpu_us: Fraction::ZERO, estimated_us: 0, ..self }
    }

    /// The sums of both.
    ///
    /// # Errors
    /// [`Overflow`] where a sum cannot be held exactly.
    pub fn plus(mut self, other: &Sums) -> Result<Sums, Overflow> {
        self.share_us += other.share_us;
        self.estimated_us += other.estimated_us;
        self.charged_micros += other.charged_micros;
        self.charges += other.charges;
        self.gpu_us = self.gpu_us.plus(other.gpu_us)?;
        self.exact = self.exact.plus(other.exact)?;
        self.jobs.extend(other.jobs.iter().copied());
        Ok(self)
    }
}

impl Statement {
    /// The statement of these charges, all of one team and period, in any order. Charges whose SKU or pool `names`
    /// does not know are an inconsistency of the caller and give `Ok(None)`.
    ///
    /// # Errors
    /// [`Overflow`] where a sum cannot be held exactly.
    pub fn of<'a>(
        charges: impl IntoIterator<Item = &'a Charge>,
        names: &impl Names,
        credit_rates: &CreditRates,
    ) -> Result<Option<Statement>, Overflow> {
        let Some(lines) = sums_by_line(charges, names, |_| ())? else { return Ok(None) };
        let lines: Vec<(LineKey, Sums)> = lines.into_iter().map(|((key, ()), sums)| (key, sums)).collect();
        let total = lines.iter().try_fold(Sums::none(), |total, (_, sums)| total.plus(sums))?;
        let exact: Vec<Fraction> = lines.iter().map(|(_, sums)| sums.exact).collect();
        let section = |key: &LineKey| (key.kind, key.corrects, key.workload);
        let sections: Vec<_> = lines.iter().map(|(key, _)| section(key)).collect();
        let own = credit_rates.own.as_ref().map(|rate| rate.rate);
        let rates: Vec<Rate> = lines.iter().filter_map(|(key, _)| credit_rates.of(key.corrects)).collect();
        let money = MoneyColumn::spread(&exact, &sections, own.map(|own| (own, rates.as_slice())))?;
        let currency = money.currency.as_ref();
        let lines = lines.into_iter().enumerate().map(|(index, (key, sums))| StatementLine {
            key,
            sums,
            amount: part(&money.credits, index),
            currency_amount: currency.map(|column| part(column, index)),
        });
        Ok(Some(Statement {
            lines: lines.collect(),
            sums: total,
            amount: money.credits.total,
            currency_amount: currency.map(|column| column.total),
            credit_rates: credit_rates.clone(),
        }))
    }

    /// The same total by experiment, in the order of their names, "none named" last.
    ///
    /// # Errors
    /// [`Overflow`] where a sum cannot be held exactly.
    pub fn by_experiment<'a>(
        &self,
        charges: impl IntoIterator<Item = &'a Charge>,
        names: &impl Names,
    ) -> Result<Option<Vec<ExperimentLine>>, Overflow> {
        let Some(parts) = sums_by_line(charges, names, |charge| charge.payer.experiment)? else { return Ok(None) };
        let mut by_experiment: BTreeMap<(bool, Option<&str>, ExperimentId), Part> = BTreeMap::new();
        for ((key, experiment), sums) in parts {
            let name = names.experiment(experiment);
            let part = by_experiment.entry((name.is_none(), name, experiment)).or_insert_with(Part::none);
            part.add(&sums, self.credit_rates.of(key.corrects))?;
        }
        let (credits, currency) = self.spread_over(by_experiment.values())?;
        let parts = by_experiment.into_iter().map(|((_, _, experiment), part)| (experiment, part.sums));
        let lines = parts.enumerate().map(|(index, (experiment, sums))| ExperimentLine {
            experiment,
            sums,
            amount: part(&credits, index),
            currency_amount: currency.as_ref().map(|column| part(column, index)),
        });
        Ok(Some(lines.collect()))
    }

    /// The same total by end cause, in the order of causes, "not told" last.
    ///
    /// # Errors
    /// [`Overflow`] where a sum cannot be held exactly.
    pub fn by_end_cause<'a>(
        &self,
        charges: impl IntoIterator<Item = &'a Charge>,
        names: &impl Names,
        cause: impl Fn(JobId) -> Option<EndCause>,
    ) -> Result<Option<Vec<EndCauseLine>>, Overflow> {
        let Some(parts) = sums_by_line(charges, names, |charge| cause(charge.job))? else { return Ok(None) };
        let mut by_cause: BTreeMap<(bool, Option<EndCause>), Part> = BTreeMap::new();
        for ((key, cause), sums) in parts {
            let part = by_cause.entry((cause.is_none(), cause)).or_insert_with(Part::none);
            part.add(&sums, self.credit_rates.of(key.corrects))?;
        }
        let (credits, currency) = self.spread_over(by_cause.values())?;
        let parts = by_cause.into_iter().map(|((_, cause), part)| (cause, part.sums));
        let lines = parts.enumerate().map(|(index, (cause, sums))| EndCauseLine {
            cause,
            sums,
            amount: part(&credits, index),
            currency_amount: currency.as_ref().map(|column| part(column, index)),
        });
        Ok(Some(lines.collect()))
    }

    /// The printed totals spread over parts of the statement, so that their columns add up.
    fn spread_over<'a>(
        &self,
        parts: impl Iterator<Item = &'a Part>,
    ) -> Result<(Column<2>, Option<Column<2>>), Overflow> {
        let (exact, in_currency): (Vec<Fraction>, Vec<Fraction>) =
            parts.map(|part| (part.sums.exact, part.in_currency)).unzip();
        let credits = Printed::column_of(self.amount, &exact)?;
        let currency = self.currency_amount.map(|total| Printed::column_of(total, &in_currency)).transpose()?;
        Ok((credits, currency))
    }
}

/// A part of a statement, across its lines.
struct Part {
    sums: Sums,
    /// Its exact amount at the rate of each line.
    in_currency: Fraction,
}

impl Part {
    fn none() -> Part {
        Part { sums: Sums::none(), in_currency: Fraction::ZERO }
    }

    fn add(&mut self, sums: &Sums, rate: Option<Rate>) -> Result<(), Overflow> {
        if let Some(rate) = rate {
            self.in_currency = self.in_currency.plus(sums.exact.times(rate.fraction())?)?;
        }
        self.sums = std::mem::replace(&mut self.sums, Sums::none()).plus(sums)?;
        Ok(())
    }
}

type SumsByLine<T> = BTreeMap<(LineKey, T), Sums>;

/// Sums charges by line and one more attribute; `None` where a name is missing.
fn sums_by_line<'a, T: Ord + Copy>(
    charges: impl IntoIterator<Item = &'a Charge>,
    names: &impl Names,
    attribute: impl Fn(&Charge) -> T,
) -> Result<Option<SumsByLine<T>>, Overflow> {
    // Numbers first: there are few lines and many charges, and words are slow to compare.
    let mut by_number: BTreeMap<_, Sums> = BTreeMap::new();
    for charge in charges {
        let payer = charge.payer;
        let key = (
            charge.kind,
            charge.corrects.map(|corrects| corrects.month),
            payer.workload,
            charge.sku,
            payer.pool,
            payer.service_class,
            charge.rate,
            charge.weight,
            charge.end_cause,
        );
        by_number.entry((key, attribute(charge))).or_insert_with(Sums::none).add_charge(charge);
    }
    let mut by_word: SumsByLine<T> = BTreeMap::new();
    for ((key, attribute), mut sums) in by_number {
        let (kind, corrects, workload, sku, pool, service_class, rate, weight, end_cause) = key;
        let (Some(sku), Some(pool)) = (names.sku(sku), names.pool(pool)) else { return Ok(None) };
        sums.price(sku, weight, rate)?;
        if kind == ChargeKind::Adjustment {
            sums = sums.of_amount_alone();
        }
        let (sku, pool) = (sku.clone(), pool.clone());
        let key = LineKey { kind, corrects, workload, sku, pool, service_class, rate, weight, end_cause };
        let entry = by_word.entry((key, attribute)).or_insert_with(Sums::none);
        *entry = std::mem::replace(entry, Sums::none()).plus(&sums)?;
    }
    Ok(Some(by_word))
}

impl MoneyColumn {
    /// Prints exact amounts so that they add up: credits by largest remainder under their total; currency from the
    /// printed credit amounts at the rates, spread first over runs of equal `sections`, then over lines. `rates` are that
    /// of the whole, and that of each line.
    ///
    /// # Errors
    /// [`Overflow`] where a number cannot be held exactly.
    pub fn spread<S: PartialEq>(
        exact: &[Fraction],
        sections: &[S],
        rates: Option<(Rate, &[Rate])>,
    ) -> Result<MoneyColumn, Overflow> {
        let credits = Printed::<2>::column(exact)?;
        let Some((own, rates)) = rates else { return Ok(MoneyColumn { credits, currency: None }) };
        let at_rates = credits.parts.iter().copied().zip(rates.iter().copied());
        let total = in_currency(credits.total, own, at_rates)?;
        let converted = exact.iter().zip(rates).map(|(exact, rate)| exact.times(rate.fraction()));
        let converted = converted.collect::<Result<Vec<_>, _>>()?;
        let pairs: Vec<(&S, &Fraction)> = sections.iter().zip(&converted).collect();
        let groups: Vec<Vec<Fraction>> =
            pairs.chunk_by(|a, b| a.0 == b.0).map(|group| group.iter().map(|(_, exact)| **exact).collect()).collect();
        let sums = groups.iter().map(|group| Fraction::sum(group.iter().copied())).collect::<Result<Vec<_>, _>>()?;
        let mut parts = Vec::new();
        for (group, total) in groups.iter().zip(Printed::column_of(total, &sums)?.parts) {
            parts.extend(Printed::column_of(total, group)?.parts);
        }
        Ok(MoneyColumn { credits, currency: Some(Column { total, parts }) })
    }
}

/// A printed total in currency, rounded once: at its own rate, but for those of its printed parts that have another.
///
/// # Errors
/// [`Overflow`] where a number cannot be held exactly.
pub fn in_currency(
    total: Printed<2>,
    own: Rate,
    parts: impl IntoIterator<Item = (Printed<2>, Rate)>,
) -> Result<Printed<2>, Overflow> {
    let mut exact = total.fraction().times(own.fraction())?;
    for (part, rate) in parts.into_iter().filter(|(_, rate)| *rate != own) {
        exact = exact.plus(part.fraction().times(rate.fraction().minus(own.fraction())?)?)?;
    }
    Printed::rounded(exact)
}

fn part<const PLACES: u32>(column: &Column<PLACES>, index: usize) -> Printed<PLACES> {
    column.parts.get(index).copied().unwrap_or_default()
}

/// What a list of statements needs as its last row so that it adds up: the exact total rounded once, less the
/// printed totals, each of which was rounded by itself. Zero where nothing is missing.
///
/// # Errors
/// [`Overflow`] where the sum cannot be held exactly.
pub fn rounding_row<const PLACES: u32>(
    exact: &[Fraction],
    printed: &[Printed<PLACES>],
) -> Result<Printed<PLACES>, Overflow> {
    let total = Printed::<PLACES>::rounded(Fraction::sum(exact.iter().copied())?)?;
    Ok(Printed(total.0 - printed.iter().map(|printed| printed.0).sum::<i128>()))
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests;
