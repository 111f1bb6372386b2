use std::io::Read;
use std::path::{Path, PathBuf};
use std::time::Duration;

use foldspace::sql::{SqlAnswer, SqlLimits, query};
use serde_json::{Value, json};

use super::{Cell, Failure, Globals, Out, TextTable, open, output, text};

/// Limit for the characters of a cell of the table.
const CELL_MAX: usize = 120;
const INPUT_MAX: u64 = 1 << 20;
/// Limit for the result in bytes.
const BYTES: usize = 256 << 20;

/// Answers questions about all sessions: an SQL query over their events, calls, files and slices
///
/// The engine is SQLite, on tables that read the sessions in place. A query is one SELECT, and can change nothing.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Tables:
  sessions   session, id, parent, inherited, backend, agent, events, calls, created, updated
  events     session, seq, time, call, agent, kind, path, data, inherited
  calls      session, call, time, agent, tool, summary, status, failed, exit_code, finished, micros,
             changed, params, result, message, digest, outcome, inherited
  commands   session, seq, time, call, agent, kind, command, cwd, exit_code, timed_out, cancelled,
             micros, stdout, stderr, inherited
  changes    session, seq, time, call, agent, path, kind, type, size, digest, inherited
  files('SESSION', AT), content('DIGEST'), slices('SESSION', 'NAME', AT)
  \"KIND\", \"SLICE\"  recorded kinds of events and slices, with a column for each field

Examples:
  foldspace sql 'SELECT agent, sum(micros) FROM calls GROUP BY agent'
  foldspace sql \"SELECT call, kind FROM changes WHERE path = 'src/main.rs'\"
  foldspace sql \"SELECT path FROM files('demo', -10) WHERE size > 1e6\"
  foldspace sql --csv 'SELECT * FROM calls' > calls.csv
  foldspace sql --parquet calls.parquet 'SELECT * FROM calls'
  foldspace sql - < question.sql

docs/sql.md has the columns, the limits and twelve worked questions.")]
pub(super) struct SqlArgs {
    /// The query; `-` reads it from standard input
    query: String,
    /// Prints CSV
    #[arg(long)]
    csv: bool,
    /// Writes the rows to a Parquet file
    #[arg(long, value_name = "FILE", conflicts_with = "csv", value_hint = clap::ValueHint::FilePath)]
    parquet: Option<PathBuf>,
    /// Limits the rows
    #[arg(long, value_name = "ROWS", default_value_t = SqlLimits::default().rows)]
    limit: usize,
    /// Limits the time
    #[arg(long, value_name = "SECONDS", default_value_t = SqlLimits::default().time.as_secs())]
    timeout: u64,
}

impl SqlArgs {
    pub(super) fn run(&self, globals: &Globals, out: &mut Out) -> Result<(), Failure> {
        let mut asked = self.query.clone();
        if asked == "-" {
            asked.clear();
            let read = std::io::stdin().take(INPUT_MAX).read_to_string(&mut asked);
            read.map_err(|error| Failure::io("read", "standard input", &error))?;
        }
        let opened = open::reading(globals)?;
        let limits = SqlLimits { rows: self.limit, bytes: BYTES, time: Duration::from_secs(self.timeout) };
        let answer = query(&opened.sessions, None, &asked, limits, || false)?;
        if answer.truncated && (self.parquet.is_some() || !out.is_json()) {
            output::note(&format!("these are the first {} rows; --limit ROWS returns more", answer.rows.len()));
        }
        if let Some(file) = &self.parquet {
            return parquet(&answer, file, out);
        }
        if out.is_json() {
            return out.document(&answer);
        }
        if self.csv { csv(&answer, out) } else { table(&answer, out) }
    }
}

/// Writes the rows to a file: all of them, or the file stays as it was.
fn parquet(answer: &SqlAnswer, file: &Path, out: &mut Out) -> Result<(), Failure> {
    let mut bytes = Vec::new();
    answer.write_parquet(&mut bytes)?;
    #[expect(clippy::disallowed_methods, reason = "the user named the file")]
    std::fs::write(file, &bytes).map_err(|error| Failure::io("write", file.display().to_string(), &error))?;
    let count = answer.rows.len();
    match out.is_json() {
        true => out.document(&json!({ "file": file, "rows": count })),
        false => out.line(format!("wrote {}, rows: {count}", file.display())),
    }
}

fn table(answer: &SqlAnswer, out: &mut Out) -> Result<(), Failure> {
    let is_number = |at: usize| answer.rows.iter().all(|row| row[at].is_number() || row[at].is_null());
    let are_numbers: Vec<bool> = (0..answer.columns.len()).map(is_number).collect();
    let titles = answer.columns.iter().zip(&are_numbers);
    let titles: Vec<String> = titles
        .map(|(title, right)| format!("{}{}", if *right { ">" } else { "" }, text::one_line(title, 80)))
        .collect();
    let mut shown = TextTable::with_titles(&titles.iter().map(String::as_str).collect::<Vec<_>>());
    for row in &answer.rows {
        shown.row(row.iter().zip(&are_numbers).map(|(value, is_right)| match value {
            Value::Null if *is_right => Cell::right("-"),
            Value::Null => Cell::left("-"),
            Value::String(words) => Cell::left(text::one_line(words, CELL_MAX)),
            other if *is_right => Cell::right(other),
            other => Cell::left(other.to_string()),
        }));
    }
    shown.show_cut(answer.columns.len(), 0, out)
}

/// Prints CSV: an empty field is NULL, an empty text has quotes.
fn csv(answer: &SqlAnswer, out: &mut Out) -> Result<(), Failure> {
    let line = |fields: Vec<String>| format!("{}\n", fields.join(","));
    out.raw(line(answer.columns.iter().map(|name| field(name)).collect()).as_bytes())?;
    answer.rows.iter().try_for_each(|row| {
        let fields = row.iter().map(|value| match value {
            Value::Null => String::new(),
            Value::String(words) => field(words),
            other => other.to_string(),
        });
        let line = line(fields.collect());
        out.raw(out.content(&line).into_owned().as_bytes())
    })
}

fn field(words: &str) -> String {
    let is_plain = !words.is_empty() && !words.contains(['"', ',', '\n', '\r']);
    if is_plain { words.to_owned() } else { format!("\"{}\"", words.replace('"', "\"\"")) }
}
