//! Pictures of the tables of figures in a markdown document, as SVG.

use std::fmt::Write as _;
use std::path::Path;

use anyhow::{Context, Result};

const LABELS: f64 = 250.0;
const PANEL: f64 = 250.0;
const BAR: f64 = 150.0;
const ROW: f64 = 26.0;
const TOP: f64 = 64.0;

/// A picture: a bar for each figure, a panel for each column that has figures only.
#[derive(Debug)]
pub struct Plot {
    /// The name of its file.
    pub name: String,
    /// Its SVG.
    pub svg: String,
}

struct Column {
    head: String,
    cells: Vec<Option<(f64, String)>>,
}

/// Makes the plots of a document. A table has one if it has a column of figures: numbers, also with a unit and remarks.
pub fn plots(markdown: &str) -> Vec<Plot> {
    let (mut plots, mut heading, mut table): (Vec<Plot>, &str, Vec<Vec<&str>>) = (Vec::new(), "", Vec::new());
    for line in markdown.lines().chain([""]) {
        if let Some(cells) = line.strip_prefix('|') {
            table.push(cells.trim_end().trim_end_matches('|').split('|').map(str::trim).collect());
            continue;
        }
        if let Some(svg) = drawn(heading, &std::mem::take(&mut table)) {
            let same = |plot: &&Plot| plot.name.starts_with(&slug(heading));
            let name = match plots.iter().filter(same).count() {
                0 => format!("{}.svg", slug(heading)),
                more => format!("{}-{}.svg", slug(heading), more + 1),
            };
            plots.push(Plot { name, svg });
        }
        heading = line.strip_prefix("## ").unwrap_or(heading);
    }
    plots
}

/// Writes the plots of the document at a path into the directory `plots` beside it, and returns their names.
///
/// # Errors
/// The document can't be read, or a file not be written.
pub fn write(document: &Path) -> Result<Vec<String>> {
    let directory = document.with_file_name("plots");
    std::fs::create_dir_all(&directory)?;
    let markdown = std::fs::read_to_string(document).with_context(|| document.display().to_string())?;
    let plots = plots(&markdown);
    for plot in &plots {
        std::fs::write(directory.join(&plot.name), &plot.svg)?;
    }
    Ok(plots.into_iter().map(|plot| plot.name).collect())
}

fn slug(heading: &str) -> String {
    let words = heading.split([',', ':']).next().unwrap_or(heading).to_lowercase();
    words.split(|c: char| !c.is_ascii_alphanumeric()).filter(|word| !word.is_empty()).collect::<Vec<_>>().join("-")
}

fn plain(cell: &str) -> String {
    cell.replace("**", "").replace('`', "")
}

/// The number that a cell begins with, and its text up to the first remark.
fn figure(cell: &str) -> Option<(f64, String)> {
    let cell = plain(cell);
    let text = cell.split([';', '(']).next().unwrap_or_default().split(", ").next().unwrap_or_default().trim();
    let number: String = text.chars().take_while(|c| is_of_number(*c)).collect();
    let number = number.replace(',', "").parse().ok()?;
    Some((number, text.to_owned()))
}

fn is_of_number(c: char) -> bool {
    c.is_ascii_digit() || matches!(c, '.' | ',')
}

/// Returns the columns to draw: those of figures in one unit, where these are most of those with figures.
fn columns(table: &[Vec<&str>]) -> Vec<Column> {
    let Some((head, rows)) = table.split_first().and_then(|(head, rest)| Some((head, rest.get(1..)?))) else {
        return Vec::new();
    };
    let (mut with_figures, mut drawn) = (0, Vec::new());
    for (column, head) in head.iter().enumerate().skip(1) {
        let text: Vec<&str> = rows.iter().map(|row| row.get(column).copied().unwrap_or_default()).collect();
        let cells: Vec<_> = text.iter().map(|cell| figure(cell)).collect();
        let is_figures = cells.iter().zip(&text).all(|(figure, cell)| figure.is_some() || cell.is_empty());
        if !is_figures || ["ratio", "bar", "target"].iter().any(|word| head.starts_with(word)) {
            continue;
        }
        with_figures += 1;
        // Bars of different units, or of ranges, would say nothing.
        let mut units = cells.iter().flatten().map(|(_, text)| text.trim_start_matches(is_of_number).trim());
        let unit = units.next().unwrap_or_default();
        if !unit.contains(' ') && units.all(|other| other == unit) && cells.iter().flatten().count() > 1 {
            drawn.push(Column { head: plain(head), cells });
        }
    }
    if drawn.len() * 2 > with_figures { drawn } else { Vec::new() }
}

fn drawn(heading: &str, table: &[Vec<&str>]) -> Option<String> {
    let columns = columns(table);
    let rows = table.get(2..)?;
    if columns.is_empty() {
        return None;
    }
    let (width, height) = (LABELS + PANEL * columns.len() as f64, TOP + ROW * rows.len() as f64 + 8.0);
    let mut svg = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {width} {height}\" width=\"{width}\" role=\"img\" \
         aria-label=\"{title}\">\n<style>text{{font:12px system-ui,sans-serif;fill:#24292f}}.h{{font-weight:600}}\
         .n{{fill:#57606a}}rect{{fill:#afb8c1}}rect.o{{fill:#0969da}}\
         @media(prefers-color-scheme:dark){{text{{fill:#e6edf3}}.n{{fill:#8d96a0}}rect{{fill:#484f58}}\
         rect.o{{fill:#4493f8}}}}</style>\n<text class=\"h\" x=\"0\" y=\"18\">{title}</text>\n",
        title = escaped(heading)
    );
    for (number, row) in rows.iter().enumerate() {
        let y = TOP + ROW * number as f64 + 12.0;
        line(&mut svg, "", 0.0, y, &cut(&plain(row[0]), 40));
    }
    for (number, column) in columns.iter().enumerate() {
        let x = LABELS + PANEL * number as f64;
        line(&mut svg, "n", x, TOP - 16.0, &cut(&column.head, 38));
        let most = column.cells.iter().flatten().map(|(number, _)| *number).fold(f64::MIN_POSITIVE, f64::max);
        for (number, (cell, row)) in column.cells.iter().zip(rows).enumerate() {
            let Some((value, text)) = cell else { continue };
            let (y, length) = (TOP + ROW * number as f64, (value / most * BAR).max(1.0));
            let class = if row[0].starts_with("**") { " class=\"o\"" } else { "" };
            let _ = writeln!(svg, "<rect{class} x=\"{x}\" y=\"{y}\" width=\"{length:.1}\" height=\"16\" rx=\"2\"/>");
            line(&mut svg, "n", x + length + 6.0, y + 12.0, text);
        }
    }
    svg.push_str("</svg>\n");
    Some(svg)
}

fn line(svg: &mut String, class: &str, x: f64, y: f64, text: &str) {
    let _ = writeln!(svg, "<text class=\"{class}\" x=\"{x:.1}\" y=\"{y}\">{}</text>", escaped(text));
}

fn cut(text: &str, most: usize) -> String {
    match text.chars().count() > most {
        true => text.chars().take(most - 1).chain(['…']).collect(),
        false => text.to_owned(),
    }
}

fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('"', "&quot;")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_of_one_unit_are_drawn() {
        let table = "## Read, cold\n\n| engine | p50 | ratio |\n| --- | --- | --- |\n| **ours** | **1.5 ms** | 1 |\n| a<b | 3 ms (2 to 4) | 2 |\n";
        let drawn = plots(table);
        assert_eq!(drawn.len(), 1);
        assert_eq!(drawn[0].name, "read.svg");
        assert!(
            drawn[0].svg.contains("class=\"o\" x=\"250\" y=\"64\" width=\"75.0\"") && drawn[0].svg.contains(">a&lt;b<")
        );
        assert!(plots(&table.replace("3 ms", "3 us")).is_empty(), "bars of two units");
    }
}
