//! Records that write each value with its name: Sonar's CSV (`JobID=5,State=COMPLETED,…`, one a line) and
//! `scontrol show job` (`JobId=5 JobName=…`, over several lines, an empty line between).

use std::io::BufRead;

use super::fields::Field;
use super::json::OwnedCells;

/// Longest record that is read, in bytes.
const RECORD_BYTES_MAX: usize = 1 << 20;

/// Whether a list begins as such a one.
pub(super) fn is_named(first_line: &str) -> bool {
    first_line.starts_with("JobId=") || (first_line.starts_with("v=") && first_line.contains(",JobID="))
}

/// Reads records.
pub(super) struct Named<R> {
    reader: R,
    line: u64,
    broken: bool,
}

impl<R: BufRead> Named<R> {
    pub(super) fn new(reader: R) -> Named<R> {
        Named { reader, line: 0, broken: false }
    }

    /// The next record and the line it begins on, or what is wrong with it.
    pub(super) fn next(&mut self) -> Option<Result<(u64, OwnedCells), (u64, String)>> {
        if self.broken {
            return None;
        }
        let (mut text, mut begun) = (String::new(), 0);
        loop {
            let mut line = String::new();
            match std::io::Read::take(&mut self.reader, RECORD_BYTES_MAX as u64).read_line(&mut line) {
                Err(error) => {
                    self.broken = true;
                    return Some(Err((self.line + 1, format!("the file cannot be read on from here: {error}"))));
                }
                Ok(0) if text.is_empty() => return None,
                Ok(0) => break,
                Ok(_) => {}
            }
            self.line += 1;
            let blank = line.trim().is_empty();
            if blank && text.is_empty() {
                continue;
            }
            if blank || text.len() > RECORD_BYTES_MAX {
                break;
            }
            if text.is_empty() {
                begun = self.line;
            }
            text.push_str(line.trim_end());
            // Sonar's records are a line each, scontrol's go on until an empty one.
            if text.starts_with("v=") {
                break;
            }
            text.push(' ');
        }
        Some(cells(&text).map(|cells| (begun, cells)).map_err(|reason| (begun, reason)))
    }
}

fn cells(text: &str) -> Result<OwnedCells, String> {
    let mut cells = OwnedCells::empty();
    let mut add = |entry: &str| {
        if let Some((name, value)) = entry.split_once('=')
            && let Some(field) = Field::parse(name.trim())
        {
            // `alice(1001)`, as scontrol writes users.
            let value = if field == Field::User { value.split('(').next().unwrap_or_default() } else { value };
            cells.set(field, if value == "(null)" { String::new() } else { value.to_owned() });
        }
    };
    if text.starts_with("v=") {
        let mut reader = csv::ReaderBuilder::new().has_headers(false).flexible(true).from_reader(text.as_bytes());
        for record in reader.records() {
            record.map_err(|error| format!("it cannot be read: {error}"))?.iter().for_each(&mut add);
        }
    } else {
        text.split_whitespace().for_each(&mut add);
    }
    cells.name_by_array();
    Ok(cells)
}
