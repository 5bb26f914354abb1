//! Prices as a table, the way spreadsheets write it. The table is a whole: one mistake, and none of it is used.

use gpuledger_domain::calendar::BillingCalendar;
use gpuledger_domain::ids::{PoolName, SkuCode};
use gpuledger_domain::money::Rate;
use gpuledger_domain::pricing::{PriceBook, PriceKey, PriceRow};
use gpuledger_domain::rules::ServiceClass;
use gpuledger_domain::time::Instant;

use super::SourceText;
use super::prices::{class, with_profile};
use super::source::instant;
use crate::diagnostics::Diagnostics;

/// The columns, each with the headings it may have. The first three must be there.
const COLUMNS: [(&str, &[&str]); 6] = [
    ("sku", &["sku", "model"]),
    ("rate", &["rate", "price"]),
    ("from", &["effective_from", "from"]),
    ("until", &["effective_until", "until"]),
    ("class", &["class", "service_class"]),
    ("pool", &["pool"]),
];

/// Reads a table of prices. What a table cannot say (slices, aliases, pools, the worth of a credit) is kept from
/// `current`; its prices are replaced. An empty rate is unpriced.
///
/// # Errors
/// Every mistake in it.
pub fn parse(source: &SourceText, calendar: &BillingCalendar, current: &PriceBook) -> Result<PriceBook, Diagnostics> {
    let mut wrong = Diagnostics::default();
    // The reader counts lines wrongly where they end in CRLF.
    let text = source.text.replace("\r\n", "\n");
    let mut reader = csv::ReaderBuilder::new().trim(csv::Trim::All).from_reader(text.as_bytes());
    let headings = match reader.headers() {
        Ok(headings) => headings.clone(),
        Err(error) => {
            wrong.push(source.at_line(1, "", format!("the first line is no heading: {error}")));
            return Err(wrong);
        }
    };
    let column = |names: &[&str]| headings.iter().position(|heading| names.contains(&heading.to_lowercase().as_str()));
    for heading in headings
        .iter()
        .filter(|heading| !COLUMNS.iter().any(|(_, names)| names.contains(&heading.to_lowercase().as_str())))
    {
        wrong.push(source.at_line(
            1,
            "heading",
            format!(
                "“{heading}” is unknown; write sku, rate, effective_from, and optionally effective_until, class, pool"
            ),
        ));
    }
    for (_, names) in COLUMNS.iter().take(3).filter(|(_, names)| column(names).is_none()) {
        wrong.push(source.at_line(1, "heading", format!("there is no column “{}”", names.first().unwrap_or(&""))));
    }
    wrong.into_result()?;

    let mut wrong = Diagnostics::default();
    let mut rows = Vec::new();
    let mut lines = Vec::new();
    for (number, record) in (1..).zip(reader.records()) {
        let record = match record {
            Ok(record) => record,
            Err(error) => {
                let line =
                    error.position().map_or(number + 1, |position| usize::try_from(position.line()).unwrap_or(0));
                wrong.push(source.at_line(line, &format!("row {number}"), format!("it cannot be read: {error}")));
                continue;
            }
        };
        let line = record.position().map_or(number + 1, |position| usize::try_from(position.line()).unwrap_or(0));
        let cell = |name: &str| {
            let names = COLUMNS.iter().find(|(column, _)| *column == name).map_or(&[][..], |(_, names)| names);
            column(names).and_then(|index| record.get(index)).unwrap_or("")
        };
        let mut note =
            |field: &str, message: String| wrong.push(source.at_line(line, &format!("row {number}, {field}"), message));
        if let Some(row) = price_row(&cell, calendar, current, &mut note) {
            rows.push(row);
            lines.push((line, number));
        }
    }
    match PriceBook::new(&rows) {
        Ok(mut book) => {
            wrong.into_result()?;
            keep_descriptions(&mut book, current);
            Ok(book)
        }
        Err((index, message)) => {
            let (line, number) = lines.get(index).copied().unwrap_or((1, 0));
            wrong.push(source.at_line(line, &format!("row {number}"), message));
            Err(wrong)
        }
    }
}

fn price_row<'a>(
    cell: &impl Fn(&str) -> &'a str,
    calendar: &BillingCalendar,
    current: &PriceBook,
    note: &mut impl FnMut(&str, String),
) -> Option<PriceRow> {
    let mut take = |field: &str, value: Result<(), String>| value.map_err(|message| note(field, message)).is_ok();
    let (mut sku, mut rate, mut from, mut until) = (None, None, None, None);
    let (mut service_class, mut pool) = (ServiceClass::OnDemand, None);
    let optional = |text: &str| (!text.is_empty()).then_some(text.to_owned());
    let good = [
        take(
            "sku",
            SkuCode::parse(cell("sku")).map(|code| {
                sku = Some(current.sku(code.as_str()).map_or_else(|| with_profile(code), |known| known.code));
            }),
        ),
        take("rate", optional(cell("rate")).map(|text| Rate::parse(&text)).transpose().map(|read| rate = read)),
        take("from", instant(cell("from"), calendar).map(|read| from = Some(read))),
        take(
            "until",
            optional(cell("until"))
                .map(|text| instant(&text, calendar))
                .transpose()
                .map(|read: Option<Instant>| until = read),
        ),
        take(
            "class",
            optional(cell("class"))
                .map(|text| class(&text))
                .transpose()
                .map(|read| service_class = read.unwrap_or(service_class)),
        ),
        take("pool", optional(cell("pool")).map(|text| PoolName::parse(&text)).transpose().map(|read| pool = read)),
    ];
    if good.contains(&false) {
        return None;
    }
    Some(PriceRow { key: PriceKey { sku: sku?, pool, service_class }, from, until, rate })
}

fn keep_descriptions(book: &mut PriceBook, current: &PriceBook) {
    for sku in current.skus() {
        book.describe_sku(&sku);
    }
    for (name, code) in current.aliases() {
        // The current book has no two meanings for a name, and the table brought none.
        let _ = book.add_alias(name, code);
    }
    for (name, terms) in current.pools() {
        book.describe_pool(name, terms);
    }
    book.end_causes = current.end_causes.clone();
    book.suspended = current.suspended.clone();
    for (month, rate) in current.credit_rates() {
        book.set_credit_rate(month, rate.clone());
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    const IMP_01: &str = "\u{feff}model,rate,effective_from\r\nA100,\"2,50\",2025-04-01T00:00:00Z\r\nH100,\" 3.75 \",2025-04-01T00:00:00Z\r\n\
        GB200,125.50,2025-04-01T00:00:00Z\r\nA30,0.000231,2025-04-01T00:00:00Z\r\nL4,-1,2025-04-01T00:00:00Z\r\nT4,1.00,01/04/2025\r\n\
        H100,4.00,2025-04-01T00:00:00Z\r\n";

    fn parsed(text: &str) -> Result<PriceBook, String> {
        parse(&SourceText::new("prices.csv", text), &BillingCalendar::new("UTC").unwrap(), &PriceBook::default())
            .map_err(|wrong| wrong.to_string())
    }

    #[test]
    fn imp_01_a_price_file_made_in_a_spreadsheet_is_a_whole() {
        let message = parsed(IMP_01).unwrap_err();
        let lines: Vec<&str> = message.lines().collect();
        assert_eq!(lines.len(), 4, "{message}");
        for (line, start) in lines.iter().zip([
            "prices.csv:2:1: row 1, rate: “2,50” holds a comma",
            "prices.csv:6:1: row 5, rate: “-1” is negative",
            "prices.csv:7:1: row 6, from: “01/04/2025” is ambiguous",
            "prices.csv:8:1: row 7: a second price for H100/full",
        ]) {
            assert!(line.starts_with(start), "{line}");
        }
        let good: String = IMP_01
            .split_inclusive("\r\n")
            .enumerate()
            .filter(|(row, _)| ![1, 5, 6, 7].contains(row))
            .map(|(_, line)| line)
            .collect();
        let rates: Vec<String> =
            parsed(&good).unwrap().rows().map(|(key, _, rate)| format!("{} {}", key.sku, rate.unwrap())).collect();
        assert_eq!(rates, ["A30/full 0.000231", "GB200/full 125.5", "H100/full 3.75"]);
    }

    #[test]
    fn an_empty_price_is_unpriced_and_an_unknown_heading_is_refused() {
        let book = parsed("sku,rate,from\nT4,,2025-04-01\n").unwrap();
        assert_eq!(book.rows().map(|(_, _, rate)| rate).collect::<Vec<_>>(), [None]);
        assert!(parsed("sku,prise,from\nT4,1,2025-04-01\n").unwrap_err().contains("“prise” is unknown"));
        assert!(parsed("sku,rate,from\nT4,1\n").unwrap_err().starts_with("prices.csv:2:1: row 1: it cannot be read"));
    }
}
