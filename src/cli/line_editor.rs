//! Lines that a person edits on the terminal, with a history in a file.

use std::io::{self, IsTerminal, Write};
use std::path::{Path, PathBuf};

use anstream::{AutoStream, ColorChoice};
use rustyline::error::ReadlineError;
use rustyline::{ColorMode, Config, DefaultEditor};

use super::local_terminal::{TerminalMode, window};
use super::{BOLD, DIM};

/// The name of the history, a file in the data directory.
const HISTORY: &str = "shell-history";
/// The largest number of lines in the history.
const HISTORY_LINES: usize = 1000;
const PASTE_UNMARKED: &[u8] = b"\x1b[?2004l";

/// A prompt, whose title is bold.
#[derive(Debug, Default)]
pub(super) struct EditorPrompt {
    pub(super) title: String,
    pub(super) rest: String,
}

pub(super) struct LineEditor {
    editor: DefaultEditor,
    history: PathBuf,
}

/// The terminal while its lines are edited. Restored on drop, also if the editor still reads then.
pub(super) struct EditedTerminal(TerminalMode);

impl EditedTerminal {
    pub(super) fn begin() -> io::Result<Self> {
        TerminalMode::unread().map(Self)
    }
}

impl Drop for EditedTerminal {
    fn drop(&mut self) {
        let mut stdout = io::stdout();
        // The terminal may be gone.
        drop(stdout.write_all(PASTE_UNMARKED).and_then(|()| stdout.flush()));
    }
}

impl LineEditor {
    /// Returns an editor that keeps lines in a file of a directory; `None` without a terminal that can be drawn on.
    pub(super) fn at_terminal(directory: &Path) -> Option<Self> {
        let is_dumb = std::env::var_os("TERM").is_none_or(|term| term.is_empty() || term == "dumb");
        if is_dumb || !io::stdin().is_terminal() || !io::stdout().is_terminal() {
            return None;
        }
        let is_plain = AutoStream::choice(&io::stdout()) == ColorChoice::Never;
        let colour = if is_plain { ColorMode::Disabled } else { ColorMode::Enabled };
        let config = Config::builder().max_history_size(HISTORY_LINES).ok()?.color_mode(colour).build();
        let (mut editor, history) = (DefaultEditor::with_config(config).ok()?, directory.join(HISTORY));
        // A helper that does nothing, since the prompt has no style without one.
        editor.set_helper(Some(()));
        // The history may not exist yet.
        drop(editor.load_history(&history));
        Some(Self { editor, history })
    }

    /// Reads a line with its end; empty at the end of the input. A cancelled line is blank.
    pub(super) fn read(&mut self, EditorPrompt { title, rest }: &EditorPrompt) -> io::Result<Vec<u8>> {
        begin_line()?;
        let prompt = (format!("{title}{rest}"), format!("{BOLD}{title}{BOLD:#}{rest}"));
        let line = match self.editor.readline(&prompt) {
            Ok(line) => line,
            Err(ReadlineError::Eof) => return Ok(Vec::new()),
            Err(ReadlineError::Io(error)) => return Err(error),
            Err(ReadlineError::Errno(errno)) => return Err(errno.into()),
            Err(_) => String::new(),
        };
        // A person can work without a history.
        drop(self.editor.add_history_entry(line.trim()));
        drop(self.editor.append_history(&self.history));
        Ok(format!("{line}\n").into_bytes())
    }
}

/// Moves to the next line if output ended within a line: a mark and spaces as wide as the terminal wrap only then. The
/// prompt overwrites them otherwise.
fn begin_line() -> io::Result<()> {
    let columns = window().map_or(80, |size| usize::from(size.columns));
    let mut stdout = io::stdout();
    write!(AutoStream::auto(&mut stdout), "{DIM}⏎{DIM:#}{:1$}\r", "", columns.saturating_sub(1))?;
    stdout.flush()
}
