//! Aligned columns.

use anstyle::Style;

use super::{BOLD, Failure, Out, PLAIN};

/// The number of columns between two cells.
const GAP: usize = 2;
/// The width below which no cell is cut.
const CELL_MIN: usize = 5;

pub(super) struct Cell {
    text: String,
    style: Style,
    right: bool,
}

impl Cell {
    pub(super) fn left(text: impl Into<String>) -> Self {
        Self { text: text.into(), style: PLAIN, right: false }
    }

    pub(super) fn right(text: impl ToString) -> Self {
        Self { text: text.to_string(), style: PLAIN, right: true }
    }

    #[must_use]
    pub(super) fn styled(mut self, style: impl Into<Style>) -> Self {
        self.style = style.into();
        self
    }

    fn width(&self) -> usize {
        self.text.chars().count()
    }
}

#[derive(Default)]
pub(super) struct TextTable {
    rows: Vec<Vec<Cell>>,
}

impl TextTable {
    /// Creates a table with titles; `>` before a title aligns its column right.
    pub(super) fn with_titles(titles: &[&str]) -> Self {
        let title = |text: &&str| match text.strip_prefix('>') {
            Some(text) => Cell::right(text).styled(BOLD),
            None => Cell::left(*text).styled(BOLD),
        };
        Self { rows: vec![titles.iter().map(title).collect()] }
    }

    pub(super) fn row(&mut self, cells: impl IntoIterator<Item = Cell>) {
        self.rows.push(cells.into_iter().collect());
    }

    pub(super) fn show(&self, out: &mut Out) -> Result<(), Failure> {
        self.show_in(&self.widths(), out)
    }

    /// Shows the table on a narrow terminal with the widest of its first columns cut, and room for `rest` characters
    /// after them.
    pub(super) fn show_cut(&mut self, first: usize, rest: usize, out: &mut Out) -> Result<(), Failure> {
        let mut widths = self.widths();
        let room = out.columns().unwrap_or(usize::MAX).saturating_sub(rest + GAP * first.saturating_sub(1));
        let is_over = |widths: &[usize]| widths.iter().take(first).sum::<usize>() > room;
        while is_over(&widths)
            && let Some(widest) = widths.iter_mut().take(first).max().filter(|width| **width > CELL_MIN)
        {
            *widest -= 1;
        }
        for (cell, width) in self.rows.iter_mut().flat_map(|row| row.iter_mut().zip(&widths)) {
            if cell.width() > *width {
                cell.text = cell.text.chars().take(width - 1).chain(['…']).collect();
            }
        }
        self.show_in(&widths, out)
    }

    fn widths(&self) -> Vec<usize> {
        let columns = self.rows.iter().map(Vec::len).max().unwrap_or(0);
        let widest = |column| self.rows.iter().filter_map(|row| row.get(column)).map(Cell::width).max();
        (0..columns).map(|column| widest(column).unwrap_or(0)).collect()
    }

    fn show_in(&self, widths: &[usize], out: &mut Out) -> Result<(), Failure> {
        for row in &self.rows {
            let mut line = String::new();
            for (at, (cell, width)) in row.iter().zip(widths).enumerate() {
                let gap = " ".repeat(width - cell.width());
                let painted = out.paint(cell.style, &cell.text);
                let last = at + 1 == row.len();
                line.push_str(if at > 0 { "  " } else { "" });
                match (cell.right, last) {
                    (true, _) => line.push_str(&format!("{gap}{painted}")),
                    (false, true) => line.push_str(&painted),
                    (false, false) => line.push_str(&format!("{painted}{gap}")),
                }
            }
            out.line(line.trim_end())?;
        }
        Ok(())
    }
}
