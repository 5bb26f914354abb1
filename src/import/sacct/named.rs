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
    /// The first line of the next record.
    ahead: String,
    broken: bool,
}

impl<R: BufRead> Named<R> {
    pub(super) fn new(reader: R) -> Named<R> {
        Named { reader, line: 0, ahead: String::new(), broken: false }
    }

    /// The next record and the line it begins on, or what is wrong with it.
    pub(super) fn next(&mut self) -> Option<Result<(u64, OwnedCells), (u64, String)>> {
        if self.broken {
            return None;
        }
        let (mut text, mut begun) = (std::mem::take(&mut self.ahead), self.line);
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
            // Sonar's records are a line each; scontrol's end with an empty line, or where the next begins.
            if !text.is_empty() && (text.starts_with("v=") || line.starts_with("JobId=")) {
                self.ahead = line.trim_end().to_owned() + "\n";
                break;
            }
            if text.is_empty() {
                begun = self.line;
            }
            text.push_str(line.trim_end());
            text.push('\n');
        }
        Some(cells(&text).map(|cells| (begun, cells)).map_err(|reason| (begun, reason)))
    }
}

/// The cells of a record. A field that comes twice refuses it: names may hold blanks, and so whole fields.
fn cells(text: &str) -> Result<OwnedCells, String> {
    let mut cells = OwnedCells::empty();
    let mut seen = Vec::new();
    let mut add = |entry: &str| {
        if let Some((name, value)) = entry.split_once('=')
            && let Some(field) = Field::parse(name.trim())
        {
            if seen.contains(&field) {
                return Err(format!("it tells {name} twice; export the job by sacct"));
            }
            seen.push(field);
            // `alice(1001)`, as scontrol writes users.
            let value = if field == Field::User { value.split('(').next().unwrap_or_default() } else { value };
            cells.set(field, if value == "(null)" { String::new() } else { value.to_owned() });
        }
        Ok(())
    };
    if text.starts_with("v=") {
        let mut reader = csv::ReaderBuilder::new().has_headers(false).flexible(true).from_reader(text.as_bytes());
        for record in reader.records() {
            record.map_err(|error| format!("it cannot be read: {error}"))?.iter().try_for_each(&mut add)?;
        }
    } else {
        for line in text.lines() {
            // The rest of such a line is whatever somebody wrote.
            let first = line.split('=').next().unwrap_or_default().trim();
            if !FREE_LINES.contains(&first) {
                line.split_whitespace().try_for_each(&mut add)?;
            }
        }
    }
    cells.name_by_plain_id();
    Ok(cells)
}

/// Fields that `scontrol` writes on lines of their own, as somebody gave them.
const FREE_LINES: [&str; 10] = [
    "Command",
    "WorkDir",
    "StdErr",
    "StdIn",
    "StdOut",
    "Comment",
    "AdminComment",
    "SystemComment",
    "SubmitLine",
    "Extra",
];
