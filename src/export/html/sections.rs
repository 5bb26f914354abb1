//! The lines of a statement's page, in sections: by workload, then what is corrected of each closed month.

use std::collections::BTreeMap;

use gpuledger_db::statement::IssuedLine;
use gpuledger_domain::calendar::Month;
use gpuledger_domain::money::{Column, Printed};
use gpuledger_domain::rules::{ServiceClass, Workload};
use gpuledger_domain::units::Overflow;

use crate::export::screen::{grouped, measured, rate_text};

pub(super) struct Section {
    pub(super) title: String,
    pub(super) gpu_hours: String,
    pub(super) amount: String,
    pub(super) currency_amount: String,
    pub(super) lines: Vec<LineTexts>,
}

pub(super) struct LineTexts {
    pub(super) sku: String,
    pub(super) code: String,
    pub(super) note: String,
    pub(super) hours: String,
    pub(super) gpu_hours: String,
    pub(super) measured: String,
    pub(super) rate: String,
    pub(super) amount: String,
    pub(super) currency_amount: String,
}

/// By workload, then what is corrected of each closed month.
pub(super) fn sections(lines: &[IssuedLine], held: &Column<2>, gpu: &Column<2>) -> Result<Vec<Section>, Overflow> {
    let place = |line: &IssuedLine| {
        let workload = Workload::ALL.iter().position(|workload| *workload == line.workload);
        (line.corrects, workload.filter(|_| line.corrects.is_none()))
    };
    let mut placed: BTreeMap<_, Vec<(usize, &IssuedLine)>> = BTreeMap::new();
    for (index, line) in lines.iter().enumerate() {
        placed.entry(place(line)).or_default().push((index, line));
    }
    let at = |column: &Column<2>, index: usize| column.parts.get(index).copied().unwrap_or_default();
    let section = |((corrects, _), chosen): ((Option<Month>, _), Vec<(usize, &IssuedLine)>)| {
        let sum = |of: &dyn Fn(usize, &IssuedLine) -> Printed<2>| {
            grouped(Printed::<2>(chosen.iter().map(|(index, line)| of(*index, line).0).sum()))
        };
        let has_currency = chosen.iter().any(|(_, line)| line.sums.currency_amount.is_some());
        let in_currency = || sum(&|_, line| line.sums.currency_amount.unwrap_or_default());
        let texts = chosen.iter().map(|(index, line)| line_texts(line, at(held, *index), at(gpu, *index)));
        Ok(Section {
            title: match corrects {
                Some(month) => format!("Correction for {} {}", month.name(), month.year()),
                None => chosen.first().map_or("", |(_, line)| section_title(line.workload)).to_owned(),
            },
            gpu_hours: sum(&|index, _| at(gpu, index)),
            amount: sum(&|_, line| line.sums.amount),
            currency_amount: if has_currency { in_currency() } else { String::new() },
            lines: texts.collect::<Result<_, _>>()?,
        })
    };
    placed.into_iter().map(section).collect()
}

const fn section_title(workload: Workload) -> &'static str {
    match workload {
        Workload::Training => "Training",
        Workload::Serving => "Serving",
        Workload::Notebook => "Notebooks",
        Workload::Evaluation => "Evaluation",
        Workload::Other => "Other work",
    }
}

fn line_texts(line: &IssuedLine, held: Printed<2>, gpu: Printed<2>) -> Result<LineTexts, Overflow> {
    let code = line.sku_code.to_string();
    let class = match line.service_class {
        ServiceClass::OnDemand => String::new(),
        other => format!(", {}", other.as_str()),
    };
    let taken_over = line.end_cause.map_or_else(String::new, |cause| format!(", {cause}: paid by the platform"));
    let work = line.corrects.map_or_else(String::new, |_| format!(", {}", line.workload.as_str()));
    // The time is told where it was charged.
    let time = |text: String| if line.end_cause.is_some() { String::new() } else { text };
    Ok(LineTexts {
        sku: code.strip_suffix("/full").map_or_else(|| code.replace('/', " "), str::to_owned),
        note: format!("{}{work}{class}{taken_over}", line.pool),
        code,
        hours: time(grouped(held)),
        gpu_hours: time(grouped(gpu)),
        measured: time(measured(line.sums.share_us, line.sums.estimated_us)),
        rate: rate_text(line.rate, line.weight)?,
        amount: grouped(line.sums.amount),
        currency_amount: line.sums.currency_amount.map(grouped).unwrap_or_default(),
    })
}
