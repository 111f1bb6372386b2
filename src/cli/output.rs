//! The only module that prints. Short output is buffered until the command has closed the store; longer output is
//! written as it comes.

use std::fmt::Display;
use std::io::{self, ErrorKind, IsTerminal, Write};

use anstream::{AutoStream, ColorChoice};
use anstyle::Style;
use serde::Serialize;

use super::pager::Pager;
use super::{BAD, DIM, Failure, Globals, NOTED, ODD, text};

const HELD_MAX: usize = 32 << 10;

pub(super) struct Out {
    held: Vec<u8>,
    way: OutputMode,
    colour: bool,
    terminal: bool,
    json: bool,
    unread_is_fine: bool,
}

enum OutputMode {
    Paged,
    Held,
    Live,
    Pager(Pager),
}

impl Out {
    pub(super) fn new(globals: &Globals) -> Self {
        let stdout = io::stdout();
        let terminal = stdout.is_terminal();
        let colour = AutoStream::choice(&stdout) != ColorChoice::Never;
        let way = if terminal && !globals.no_pager { OutputMode::Paged } else { OutputMode::Held };
        Self { held: Vec::new(), way, colour, terminal, json: globals.json, unread_is_fine: false }
    }

    /// Writes output at once from here on, without a pager.
    pub(super) fn go_live(&mut self) -> Result<(), Failure> {
        self.way = OutputMode::Live;
        self.pass_on()
    }

    /// Writes output at once, and ignores that its reader has closed it.
    pub(super) fn go_live_for_good(&mut self) -> Result<(), Failure> {
        self.unread_is_fine = true;
        self.go_live()
    }

    pub(super) fn is_terminal(&self) -> bool {
        self.terminal
    }

    /// Returns the width of the terminal, or `None` if the output is not a terminal.
    pub(super) fn columns(&self) -> Option<usize> {
        let size = rustix::termios::tcgetwinsize(io::stdout()).ok()?;
        self.terminal.then_some(size.ws_col.into()).filter(|columns| *columns > 0)
    }

    pub(super) fn is_json(&self) -> bool {
        self.json
    }

    pub(super) fn paint(&self, style: impl Into<Style>, text: impl Display) -> String {
        let style = style.into();
        if self.colour { format!("{style}{text}{style:#}") } else { text.to_string() }
    }

    /// Escapes control characters of workspace text for a terminal.
    pub(super) fn content<'a>(&self, text: &'a str) -> std::borrow::Cow<'a, str> {
        if self.terminal { text::visible(text) } else { text.into() }
    }

    pub(super) fn line(&mut self, line: impl Display) -> Result<(), Failure> {
        self.raw(format!("{line}\n").as_bytes())
    }

    pub(super) fn raw(&mut self, bytes: &[u8]) -> Result<(), Failure> {
        self.held.extend_from_slice(bytes);
        let live = matches!(self.way, OutputMode::Live);
        if live || self.held.len() > HELD_MAX { self.pass_on() } else { Ok(()) }
    }

    /// Shows a value as one JSON document, or as the text that `text` prints.
    pub(super) fn show(
        &mut self,
        value: &impl Serialize,
        text: impl FnOnce(&mut Self) -> Result<(), Failure>,
    ) -> Result<(), Failure> {
        if self.json { self.document(value) } else { text(self) }
    }

    pub(super) fn document(&mut self, value: &impl Serialize) -> Result<(), Failure> {
        let text = self.safe_json(serde_json::to_string_pretty(value))?;
        self.line(text)
    }

    pub(super) fn json_line(&mut self, value: &impl Serialize) -> Result<(), Failure> {
        let text = self.json(value)?;
        self.line(text)
    }

    /// Returns a value as one line of JSON.
    pub(super) fn json(&self, value: &impl Serialize) -> Result<String, Failure> {
        self.safe_json(serde_json::to_string(value))
    }

    fn safe_json(&self, text: serde_json::Result<String>) -> Result<String, Failure> {
        let text = text.map_err(|error| Failure::io("write", "JSON", &error.into()))?;
        Ok(if self.terminal { json_visible(&text) } else { text })
    }

    /// Returns true if the held output fits on the screen, with a line for the prompt.
    fn fits_screen(&self) -> bool {
        let Ok(size) = rustix::termios::tcgetwinsize(io::stdout()) else { return false };
        let columns = usize::from(size.ws_col).max(1);
        let text = String::from_utf8_lossy(&self.held);
        let rows = |line: &str| anstream::adapter::strip_str(line).to_string().chars().count().div_ceil(columns).max(1);
        text.lines().map(rows).sum::<usize>() < size.ws_row.into()
    }

    fn pass_on(&mut self) -> Result<(), Failure> {
        if matches!(self.way, OutputMode::Paged) {
            self.way = Pager::start().map_or(OutputMode::Held, OutputMode::Pager);
        }
        let written = match &mut self.way {
            OutputMode::Pager(pager) => pager.write(&self.held),
            OutputMode::Paged | OutputMode::Held | OutputMode::Live => {
                let mut stdout = io::stdout().lock();
                stdout.write_all(&self.held).and_then(|()| stdout.flush())
            }
        };
        self.held.clear();
        match written.map_err(|error| Failure::io("write", "the output", &error)) {
            Err(Failure::Closed) if self.unread_is_fine => Ok(()),
            other => other,
        }
    }

    pub(super) fn finish(mut self) -> Result<(), Failure> {
        if matches!(self.way, OutputMode::Paged) && self.fits_screen() {
            self.way = OutputMode::Held;
        }
        let passed = if self.held.is_empty() { Ok(()) } else { self.pass_on() };
        match self.way {
            OutputMode::Pager(pager) => pager.finish().and(passed),
            _ => passed,
        }
    }
}

impl Write for Out {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match self.raw(bytes) {
            Ok(()) => Ok(bytes.len()),
            Err(Failure::Closed) => Err(ErrorKind::BrokenPipe.into()),
            Err(failure) => Err(io::Error::other(failure.to_string())),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Escapes control characters that JSON leaves as they are.
fn json_visible(text: &str) -> String {
    let escape = |c: char| match c {
        c if c.is_control() && c != '\n' => format!("\\u{:04x}", u32::from(c)),
        c => c.to_string(),
    };
    text.chars().map(escape).collect()
}

pub(super) fn tell(failure: &Failure) {
    let Failure::Told { message, hint, .. } = failure else { return };
    aside("error", BAD.bold(), message);
    if let Some(hint) = hint {
        aside("hint", NOTED.bold(), hint);
    }
}

pub(super) fn note(words: &str) {
    aside("note", ODD.bold(), words);
}

pub(super) fn progress(line: &str) {
    // A closed error stream is not a failure.
    drop(writeln!(anstream::stderr(), "{DIM}{}{DIM:#}", text::one_line(line, 300)));
}

fn aside(label: &str, style: Style, words: &str) {
    // A closed error stream is not a failure.
    drop(writeln!(anstream::stderr(), "{style}{label}{style:#}: {}", text::visible(words)));
}

/// Asks a yes-or-no question. Fails with `refused` on a no, and with `unasked` without a terminal. Flushes earlier
/// output first: a pager would show it after the question.
pub(super) fn confirm(out: &mut Out, question: &str, refused: &str, unasked: Failure) -> Result<(), Failure> {
    if !can_ask() {
        return Err(unasked);
    }
    out.go_live()?;
    if agrees(question, false) { Ok(()) } else { Err(Failure::usage(refused)) }
}

/// Asks a yes-or-no question. Any other answer counts as `usual`.
pub(super) fn agrees(question: &str, usual: bool) -> bool {
    ask(question, if usual { "[Y/n]" } else { "[y/N]" });
    let mut answer = String::new();
    let read = io::stdin().read_line(&mut answer);
    let is_answered = match answer.trim() {
        "y" | "Y" | "yes" | "Yes" => true,
        "n" | "N" | "no" | "No" => false,
        _ => usual,
    };
    read.is_ok() && is_answered
}

pub(super) fn can_ask() -> bool {
    io::stdin().is_terminal() && io::stderr().is_terminal()
}

pub(super) fn ask(question: &str, choices: &str) {
    let lines: Vec<_> = question.lines().map(text::visible).collect();
    drop(write!(anstream::stderr(), "{} {choices} ", lines.join("\n")));
}

pub(super) fn end_question() {
    drop(writeln!(anstream::stderr()));
}

#[cfg(test)]
mod tests {
    use super::json_visible;

    #[test]
    fn json_output_stays_json() {
        let text = serde_json::to_string("a\u{9b}b\u{7f}\u{1b}\n").unwrap();
        let safe = json_visible(&text);
        assert_eq!(safe, "\"a\\u009bb\\u007f\\u001b\\n\"");
        assert_eq!(serde_json::from_str::<String>(&safe).unwrap(), "a\u{9b}b\u{7f}\u{1b}\n");
    }
}
