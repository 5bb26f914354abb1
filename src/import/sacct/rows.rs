//! Records of a list as text, one a line, with a delimiter that may stand in names and line breaks that may, too.

use std::collections::VecDeque;
use std::io::BufRead;
use std::ops::Range;

use super::clock;
use super::fields::{Cells, FIELDS, Field, is_free_text};
use super::record::{Life, id_parts};
use super::tres;

/// Longest line that is read, in bytes.
const LINE_BYTES_MAX: usize = 4 << 20;
/// Most lines of one record.
const RECORD_LINES_MAX: usize = 200;
/// After so many records that nothing completes, little is looked ahead.
const BROKEN_IN_A_ROW_MAX: u32 = 20;
/// Most lines in a free text that look like records of their own.
const WHOLE_RECORDS_MAX: u64 = 50;

/// Which column is which field.
#[derive(Clone, Debug)]
pub(super) struct Layout {
    pub(super) delimiter: String,
    /// The names of all columns.
    pub(super) names: Vec<String>,
    places: [Option<usize>; FIELDS],
    free: Vec<usize>,
    /// The columns that a record must have in a known form.
    strict: Vec<(Field, usize)>,
    /// The column by which the beginning of a record is known.
    id: usize,
    /// Whether each line ends with a delimiter.
    pub(super) trailing: bool,
    /// The fields without which nothing can be charged, as far as they are missing.
    pub(super) lacking: Vec<&'static str>,
}

/// A record as text, and where its cells are.
#[derive(Debug, Default)]
pub(super) struct Row {
    pub(super) line: u64,
    text: String,
    cells: Vec<Range<usize>>,
    /// Whether it had more delimiters than columns, or line breaks.
    pub(super) mended: bool,
    /// How many lines in a free text of it look like records of their own.
    pub(super) whole_records: u64,
}

/// What cannot be read as a record.
#[derive(Debug)]
pub(super) struct BadRow {
    pub(super) line: u64,
    pub(super) reason: String,
}

impl Layout {
    /// A layout of these columns.
    ///
    /// # Errors
    /// A sentence where no column tells which job a line is of.
    pub(super) fn new(delimiter: &str, names: Vec<String>, trailing: bool) -> Result<Layout, String> {
        let mut places = [None; FIELDS];
        // Of squeue's two ids, JobID is the raw one.
        let raw_beside = names.iter().any(|name| name.eq_ignore_ascii_case("JobArrayID"));
        let field = |name: &str| match Field::parse(name) {
            Some(Field::JobId) if raw_beside && name.eq_ignore_ascii_case("JobID") => Some(Field::JobIdRaw),
            field => field,
        };
        for (index, name) in names.iter().enumerate() {
            let place = field(name).and_then(|field| places.get_mut(field.index()));
            // Of two columns of one field the first counts; sacct gives both the same.
            if let Some(place @ None) = place {
                *place = Some(index);
            }
        }
        let place = |field: Field| places.get(field.index()).copied().flatten();
        let id = place(Field::JobIdRaw).or(place(Field::JobId)).ok_or("there is no column JobID or JobIDRaw")?;
        let mut lacking = Vec::new();
        if place(Field::Start).is_none() {
            lacking.push("Start");
        }
        if place(Field::End).is_none() && place(Field::Elapsed).is_none() && place(Field::ElapsedRaw).is_none() {
            lacking.push("End");
        }
        if place(Field::AllocTres).is_none() {
            lacking.push("AllocTRES (how many GPUs were held: without it that is unknown, not zero)");
        }
        let free: Vec<usize> =
            (0..names.len()).filter(|index| names.get(*index).is_some_and(|name| is_free_text(name))).collect();
        let strict = [
            Field::JobId,
            Field::JobIdRaw,
            Field::State,
            Field::Submit,
            Field::Start,
            Field::End,
            Field::Elapsed,
            Field::ElapsedRaw,
            Field::Suspended,
            Field::AllocTres,
            Field::ReqTres,
            Field::Nodes,
        ];
        let strict = strict.into_iter().filter_map(|field| place(field).map(|place| (field, place))).collect();
        Ok(Layout { delimiter: delimiter.to_owned(), names, places, free, strict, id, trailing, lacking })
    }

    /// Whether the last column holds whatever people write, so that a record may go on behind it.
    pub(super) fn ends_free(&self) -> bool {
        !self.trailing && self.free.contains(&(self.names.len().wrapping_sub(1)))
    }

    pub(super) fn has(&self, field: Field) -> bool {
        self.places.get(field.index()).copied().flatten().is_some()
    }

    /// The cells of a row by field.
    pub(super) fn cells<'a>(&self, row: &'a Row) -> Cells<'a> {
        self.places.map(|place| {
            let range = place.and_then(|place| row.cells.get(place)).cloned();
            range.and_then(|range| row.text.get(range)).map_or("", str::trim)
        })
    }

    /// Cuts a text at every delimiter.
    fn split(&self, text: &str, cells: &mut Vec<Range<usize>>) {
        cells.clear();
        let mut start = 0;
        if let [byte] = self.delimiter.as_bytes() {
            for at in memchr::memchr_iter(*byte, text.as_bytes()) {
                cells.push(start..at);
                start = at + 1;
            }
        } else {
            for (at, _) in text.match_indices(self.delimiter.as_str()) {
                cells.push(start..at);
                start = at + self.delimiter.len();
            }
        }
        cells.push(start..text.len());
        if self.trailing && cells.last().is_some_and(|last| last.is_empty()) {
            cells.pop();
        }
    }

    /// Whether these cells begin as a record does.
    fn begins(&self, text: &str, cells: &[Range<usize>]) -> bool {
        let id = cells.get(self.id).and_then(|range| text.get(range.clone()));
        id.is_some_and(|id| id_parts(id.trim()).is_some())
    }

    /// Whether every cell that must have a known form has it.
    fn fits(&self, text: &str, cells: &[Range<usize>]) -> bool {
        self.strict.iter().all(|(field, place)| {
            let cell = cells.get(*place).and_then(|range| text.get(range.clone())).map_or("", str::trim);
            match field {
                Field::JobId | Field::JobIdRaw => id_parts(cell).is_some(),
                Field::State => Life::of(cell).is_some(),
                Field::Elapsed | Field::Suspended => clock::length(cell).is_ok(),
                Field::ElapsedRaw => clock::seconds(cell).is_ok(),
                Field::Nodes => cell.is_empty() || cell.bytes().all(|byte| byte.is_ascii_digit()),
                Field::AllocTres | Field::ReqTres => {
                    (cell.is_empty() || cell.contains('=')) && tres::gpus(cell).is_ok()
                }
                _ => clock::is_nothing(cell) || cell.starts_with(|c: char| c.is_ascii_digit()),
            }
        })
    }

    /// Gives cells that are too many to columns of free text, in every way there is. All readings in which the other
    /// columns have their known forms must agree on them; then free texts alone are in doubt, which decide nothing.
    fn mend(&self, text: &str, cells: &[Range<usize>]) -> Option<Vec<Range<usize>>> {
        let surplus = cells.len().checked_sub(self.names.len()).filter(|surplus| *surplus > 0)?;
        let mut readings = 0;
        let mut found: Option<Vec<Range<usize>>> = None;
        let mut shares = vec![0; self.free.len()];
        *shares.first_mut()? = surplus;
        loop {
            readings += 1;
            if readings > READINGS_MAX {
                return None;
            }
            let mended = self.merged(cells, &shares)?;
            if self.fits(text, &mended) {
                let same = |other: &[Range<usize>]| {
                    (0..self.names.len())
                        .filter(|index| !self.free.contains(index))
                        .all(|index| other.get(index) == mended.get(index))
                };
                match &found {
                    Some(other) if !same(other) => return None,
                    Some(_) => {}
                    None => found = Some(mended),
                }
            }
            if !next_shares(&mut shares) {
                return found;
            }
        }
    }

    /// The cells, where each column of free text takes so many more than one.
    fn merged(&self, cells: &[Range<usize>], shares: &[usize]) -> Option<Vec<Range<usize>>> {
        let mut merged = Vec::with_capacity(self.names.len());
        let mut next = 0;
        for index in 0..self.names.len() {
            let more = self.free.iter().position(|free| *free == index).and_then(|place| shares.get(place));
            let last = next + more.copied().unwrap_or(0);
            merged.push(cells.get(next)?.start..cells.get(last)?.end);
            next = last + 1;
        }
        Some(merged)
    }
}

/// Most ways in which a record with too many cells is read.
const READINGS_MAX: u32 = 300;

/// The next way to share a sum, in a fixed order; `false` after the last.
fn next_shares(shares: &mut [usize]) -> bool {
    let Some(from) = shares.iter().rposition(|share| *share > 0) else { return false };
    let last = shares.len() - 1;
    let tail = if from == last { shares.last_mut().map_or(0, std::mem::take) } else { 0 };
    let Some(from) = shares.iter().take(last).rposition(|share| *share > 0) else { return false };
    if let Some(share) = shares.get_mut(from) {
        *share -= 1;
    }
    if let Some(share) = shares.get_mut(from + 1) {
        *share += tail + 1;
    }
    true
}

/// Reads records.
pub(super) struct Rows<R> {
    reader: R,
    layout: Layout,
    /// The line that was read last.
    line: u64,
    /// How many records before this one could not be completed, one after the other.
    broken_in_a_row: u32,
    /// Lines that were read but not used yet.
    ahead: VecDeque<(u64, String)>,
}

impl<R: BufRead> Rows<R> {
    /// Reads on in `reader`, of which `line` lines were read already.
    pub(super) fn new(reader: R, layout: Layout, line: u64) -> Rows<R> {
        Rows { reader, layout, line, broken_in_a_row: 0, ahead: VecDeque::new() }
    }

    pub(super) fn layout(&self) -> &Layout {
        &self.layout
    }

    /// Reads the next record into `row`; `false` at the end.
    ///
    /// # Errors
    /// What cannot be read as a record; the next call goes on behind it.
    pub(super) fn next(&mut self, row: &mut Row) -> Result<bool, BadRow> {
        (row.mended, row.whole_records) = (false, 0);
        let Some((line, text)) = self.line()? else { return Ok(false) };
        (row.line, row.text) = (line, text);
        self.layout.split(&row.text, &mut row.cells);
        let wanted = self.layout.names.len();
        if row.cells.len() < wanted {
            self.join(row)?;
        } else {
            self.broken_in_a_row = 0;
        }
        if self.layout.ends_free() {
            self.join_last(row)?;
        }
        if row.cells.len() > wanted {
            let mended = self.layout.mend(&row.text, &row.cells).ok_or_else(|| {
                bad(row, format!("it has {} columns, not {wanted}, and more than one reading of it is possible; export it with --delimiter=$'\\x1f' or --json", row.cells.len()))
            })?;
            row.cells = mended;
            row.mended = true;
        }
        Ok(true)
    }

    /// A record with too few columns goes on below: up to the line that completes it in all its known forms, where the
    /// break lies in a free text. What stands between, whole records too, is what somebody wrote into that text.
    fn join(&mut self, row: &mut Row) -> Result<(), BadRow> {
        let (wanted, begun) = (self.layout.names.len(), row.cells.len());
        let broken = |row: &Row| {
            bad(row, format!("it has {begun} columns, not {wanted}, and the lines below do not complete it"))
        };
        if !self.layout.free.contains(&(begun - 1)) {
            return Err(broken(row));
        }
        let mut next_cells = Vec::new();
        let mut whole_records = 0;
        // Where nothing was whole for long, the columns are other than was said, and looking far ahead finds nothing.
        let lines_max = if self.broken_in_a_row > BROKEN_IN_A_ROW_MAX { 2 } else { RECORD_LINES_MAX };
        self.broken_in_a_row += 1;
        for index in 0..lines_max {
            if self.ahead.len() <= index {
                // What cannot be read ends the search, and is told when its turn comes.
                let Ok(Some(line)) = self.read_line() else { break };
                self.ahead.push_back(line);
            }
            let Some((_, text)) = self.ahead.get(index) else { break };
            self.layout.split(text, &mut next_cells);
            if next_cells.len() >= wanted && self.layout.begins(text, &next_cells) {
                whole_records += 1;
                continue;
            }
            if begun + next_cells.len() > wanted
                && let Some((text, cells)) = self.completed(row, index, begun)
            {
                (row.text, row.cells) = (text, cells);
                (row.mended, row.whole_records) = (true, whole_records);
                self.ahead.drain(..=index);
                self.broken_in_a_row = 0;
                return Ok(());
            }
            if whole_records > WHOLE_RECORDS_MAX {
                break;
            }
        }
        Err(broken(row))
    }

    /// The record that begins in `row` and ends with the line `index` ahead, if all its columns have their known forms.
    fn completed(&self, row: &Row, index: usize, begun: usize) -> Option<(String, Vec<Range<usize>>)> {
        let mut text = row.text.clone();
        for (_, line) in self.ahead.iter().take(index) {
            text.push('\n');
            text.push_str(line);
        }
        text.push('\n');
        let last_start = text.len();
        let (_, last) = self.ahead.get(index)?;
        text.push_str(last);
        let mut last_cells = Vec::new();
        self.layout.split(last, &mut last_cells);
        let free = row.cells.get(begun - 1)?;
        let mut cells: Vec<Range<usize>> = row.cells.get(..begun - 1)?.to_vec();
        let mut rest = last_cells.into_iter().map(|cell| cell.start + last_start..cell.end + last_start);
        cells.push(free.start..rest.next()?.end);
        cells.extend(rest);
        let cells = if cells.len() > self.layout.names.len() { self.layout.mend(&text, &cells)? } else { cells };
        (cells.len() == self.layout.names.len() && self.layout.fits(&text, &cells)).then_some((text, cells))
    }

    /// What does not begin as a record belongs to the free text that the record before it ends with.
    fn join_last(&mut self, row: &mut Row) -> Result<(), BadRow> {
        let mut next_cells = Vec::new();
        for _ in 0..RECORD_LINES_MAX {
            let Some((line, text)) = self.line()? else { return Ok(()) };
            self.layout.split(&text, &mut next_cells);
            if self.layout.begins(&text, &next_cells) || next_cells.len() >= self.layout.names.len() {
                self.ahead.push_front((line, text));
                return Ok(());
            }
            let start = row.cells.last().map_or(0, |last| last.start);
            row.text.push('\n');
            row.text.push_str(&text);
            row.cells.pop();
            row.cells.push(start..row.text.len());
            row.mended = true;
        }
        Ok(())
    }

    /// The next line that is not empty, without its end.
    fn line(&mut self) -> Result<Option<(u64, String)>, BadRow> {
        if let Some(ahead) = self.ahead.pop_front() {
            return Ok(Some(ahead));
        }
        self.read_line()
    }

    /// The next line of the file that is not empty, without its end.
    fn read_line(&mut self) -> Result<Option<(u64, String)>, BadRow> {
        loop {
            let mut bytes = Vec::new();
            let line = self.line + 1;
            let mut limited = std::io::Read::take(&mut self.reader, LINE_BYTES_MAX as u64);
            let count = limited
                .read_until(b'\n', &mut bytes)
                .map_err(|error| BadRow { line, reason: format!("the file cannot be read on from here: {error}") })?;
            if count == 0 {
                return Ok(None);
            }
            self.line = line;
            if count == LINE_BYTES_MAX && bytes.last() != Some(&b'\n') {
                return Err(BadRow { line, reason: "it is longer than 4 MiB".into() });
            }
            while matches!(bytes.last(), Some(b'\n' | b'\r')) {
                bytes.pop();
            }
            if !bytes.is_empty() {
                let text = String::from_utf8(bytes)
                    .map_err(|_| BadRow { line, reason: "it is not UTF-8; save the file as UTF-8".into() })?;
                return Ok(Some((line, text)));
            }
        }
    }
}

/// The text of a row as people may look at it: not more than a few hundred letters of it.
fn bad(row: &Row, reason: String) -> BadRow {
    let end = row.text.floor_char_boundary(300.min(row.text.len()));
    let rest = if end < row.text.len() { "…" } else { "" };
    BadRow {
        line: row.line,
        reason: format!("{reason}: “{}{rest}”", row.text.get(..end).unwrap_or_default().escape_debug()),
    }
}
