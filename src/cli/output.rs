//! The only place that prints.
//!
//! What a command shows is held back until it has let go of the store, so that neither a pager nor a
//! slow reader keeps others from it; only very long output goes on before that.

use std::fmt::Display;
use std::io::{self, ErrorKind, IsTerminal, Write};

use anstream::{AutoStream, ColorChoice};
use anstyle::Style;
use serde::Serialize;

use super::Globals;
use super::exit::Failure;
use super::pager::Pager;
use super::text;
pub(super) use crate::terminal::style::{BAD, BOLD, DIM, DIRECTORY, GOOD, NOTED, ODD, PLAIN};

/// Bytes that are held back at most.
const HELD_MAX: usize = 4 << 20;

/// Where a command's results go.
pub(super) struct Out {
    held: Vec<u8>,
    way: OutputMode,
    colour: bool,
    terminal: bool,
    json: bool,
    /// Whether the work goes on when nobody reads any more.
    unread_is_fine: bool,
}

/// How output leaves.
enum OutputMode {
    /// Held back, then through a pager.
    Paged,
    /// Held back, then straight on.
    Held,
    /// Straight on, a line at a time.
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

    /// From here on output goes out at once and through no pager.
    pub(super) fn go_live(&mut self) -> Result<(), Failure> {
        self.way = OutputMode::Live;
        self.pass_on()
    }

    /// The same; and the work goes on when nobody reads any more.
    pub(super) fn go_live_for_good(&mut self) -> Result<(), Failure> {
        self.unread_is_fine = true;
        self.go_live()
    }

    /// Whether the output is a terminal's.
    pub(super) fn is_terminal(&self) -> bool {
        self.terminal
    }

    /// Whether the output is JSON.
    pub(super) fn is_json(&self) -> bool {
        self.json
    }

    /// Text in a style, where colour is wanted.
    pub(super) fn paint(&self, style: Style, text: impl Display) -> String {
        if self.colour { format!("{style}{text}{style:#}") } else { text.to_string() }
    }

    /// A text of a workspace: on a terminal its control characters are escaped.
    pub(super) fn content<'a>(&self, text: &'a str) -> std::borrow::Cow<'a, str> {
        if self.terminal { text::visible(text) } else { text.into() }
    }

    pub(super) fn line(&mut self, line: impl Display) -> Result<(), Failure> {
        self.raw(format!("{line}\n").as_bytes())
    }

    /// Bytes as they are.
    pub(super) fn raw(&mut self, bytes: &[u8]) -> Result<(), Failure> {
        self.held.extend_from_slice(bytes);
        let live = matches!(self.way, OutputMode::Live);
        if live || self.held.len() > HELD_MAX { self.pass_on() } else { Ok(()) }
    }

    /// A value as one JSON document.
    pub(super) fn document(&mut self, value: &impl Serialize) -> Result<(), Failure> {
        self.json_text(serde_json::to_string_pretty(value))
    }

    /// A value as one line of JSON.
    pub(super) fn json_line(&mut self, value: &impl Serialize) -> Result<(), Failure> {
        self.json_text(serde_json::to_string(value))
    }

    fn json_text(&mut self, text: serde_json::Result<String>) -> Result<(), Failure> {
        let text = text.map_err(|e| Failure::io("write", "JSON", &e.into()))?;
        let safe = if self.terminal { json_visible(text) } else { text };
        self.line(safe)
    }

    /// Passes on what is held back.
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
        let written = written.map_err(|error| match error.kind() {
            ErrorKind::BrokenPipe => Failure::Closed,
            _ => Failure::io("write", "the output", &error),
        });
        match written {
            Err(Failure::Closed) if self.unread_is_fine => Ok(()),
            other => other,
        }
    }

    /// Passes on the rest and waits for the pager.
    pub(super) fn finish(mut self) -> Result<(), Failure> {
        let passed = if self.held.is_empty() { Ok(()) } else { self.pass_on() };
        match self.way {
            OutputMode::Pager(pager) => pager.finish().and(passed),
            _ => passed,
        }
    }
}

/// JSON without characters that a terminal could obey: those that JSON leaves as they are.
fn json_visible(text: String) -> String {
    if !text.contains(|c: char| c != '\n' && c.is_control()) {
        return text;
    }
    let escape = |c: char| match c {
        '\n' => "\n".to_owned(),
        c if c.is_control() => format!("\\u{:04x}", u32::from(c)),
        c => c.to_string(),
    };
    text.chars().map(escape).collect()
}

/// Tells the person what went wrong, on the error stream.
pub(super) fn tell(failure: &Failure) {
    let Failure::Told { message, hint, .. } = failure else { return };
    aside("error", BAD.bold(), message);
    if let Some(hint) = hint {
        aside("hint", NOTED.bold(), hint);
    }
}

/// Tells the person something by the way.
pub(super) fn note(words: &str) {
    aside("note", ODD.bold(), words);
}

/// Tells the person how something that takes long gets on.
pub(super) fn progress(line: &str) {
    // Without an error stream there is nobody to tell.
    drop(writeln!(anstream::stderr(), "{DIM}{}{DIM:#}", text::one_line(line, 300)));
}

fn aside(label: &str, style: Style, words: &str) {
    // Without an error stream there is nobody to tell.
    drop(writeln!(anstream::stderr(), "{style}{label}{style:#}: {}", text::visible(words)));
}

/// Asks a question on the terminal; none when there is no terminal.
pub(super) fn confirmed(question: &str) -> Option<bool> {
    if !can_ask() {
        return None;
    }
    ask(question, "[y/N]");
    let mut answer = String::new();
    let read = io::stdin().read_line(&mut answer);
    Some(read.is_ok() && matches!(answer.trim(), "y" | "Y" | "yes" | "Yes"))
}

/// Whether there is a terminal to ask on.
pub(super) fn can_ask() -> bool {
    io::stdin().is_terminal() && io::stderr().is_terminal()
}

/// Puts a question on the terminal.
pub(super) fn ask(question: &str, choices: &str) {
    let lines: Vec<_> = question.lines().map(text::visible).collect();
    drop(write!(anstream::stderr(), "{} {choices} ", lines.join("\n")));
}

/// Ends the line of a question that nobody has answered.
pub(super) fn end_question() {
    drop(writeln!(anstream::stderr()));
}

#[cfg(test)]
mod tests {
    use super::json_visible;

    #[test]
    fn json_output_stays_json() {
        let text = serde_json::to_string("a\u{9b}b\u{7f}\u{1b}\n").unwrap();
        let safe = json_visible(text);
        assert_eq!(safe, "\"a\\u009bb\\u007f\\u001b\\n\"");
        assert_eq!(serde_json::from_str::<String>(&safe).unwrap(), "a\u{9b}b\u{7f}\u{1b}\n");
    }
}
