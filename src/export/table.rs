//! A table as text: columns aligned, numbers to the right.

/// A table under construction.
#[derive(Clone, Debug)]
pub struct Table {
    rows: Vec<Vec<String>>,
    right: Vec<usize>,
}

impl Table {
    /// A table with these headings.
    #[must_use]
    pub fn new(headings: &[&str]) -> Table {
        Table { rows: vec![headings.iter().map(ToString::to_string).collect()], right: Vec::new() }
    }

    /// Aligns these columns to the right, whatever they hold.
    #[must_use]
    pub fn right(mut self, columns: &[usize]) -> Table {
        self.right = columns.to_vec();
        self
    }

    /// Adds a row.
    pub fn row(&mut self, cells: impl IntoIterator<Item = String>) {
        self.rows.push(cells.into_iter().collect());
    }

    /// The table: two spaces between columns; a column of numbers is aligned to the right.
    #[must_use]
    pub fn text(&self) -> String {
        let columns = self.rows.iter().map(Vec::len).max().unwrap_or(0);
        let cell = |row: &Vec<String>, column: usize| row.get(column).cloned().unwrap_or_default();
        let layout: Vec<(usize, bool)> = (0..columns)
            .map(|column| {
                let width = self.rows.iter().map(|row| cell(row, column).chars().count()).max().unwrap_or(0);
                let numeric = |text: String| text.chars().all(|c| c.is_ascii_digit() || ".,-−–%".contains(c));
                let right = self.right.contains(&column);
                (width, right || self.rows.iter().skip(1).all(|row| numeric(cell(row, column))))
            })
            .collect();
        let mut text = String::new();
        for row in &self.rows {
            let mut line = String::new();
            for (column, (width, numeric)) in layout.iter().enumerate() {
                let gap = if column > 0 { "  " } else { "" };
                let cell = cell(row, column);
                line += &if *numeric { format!("{gap}{cell:>width$}") } else { format!("{gap}{cell:<width$}") };
            }
            text.push_str(line.trim_end());
            text.push('\n');
        }
        text
    }
}
