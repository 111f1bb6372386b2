//! Lines of standard input, read by a thread so that waiting for a person does not block.

use std::io::{self, BufRead, IsTerminal};
use std::path::{Path, PathBuf};
use std::sync::mpsc;

use rustyline::error::ReadlineError;
use rustyline::{Config, DefaultEditor};
use tokio::sync::mpsc::{UnboundedReceiver, unbounded_channel};

#[derive(Default)]
pub(super) struct StdinLines {
    reader: Option<StdinReader>,
}

struct StdinReader {
    /// Requests a line, with a prompt for the line editor.
    wanted: mpsc::Sender<String>,
    read: UnboundedReceiver<io::Result<Vec<u8>>>,
    is_reading: bool,
}

/// The largest number of lines in the history of a prompt.
const HISTORY_LINES: usize = 1000;

impl StdinLines {
    /// Returns lines that a person edits on the terminal; `None` without a terminal that can be drawn on. The lines are
    /// added to the file `history`, which only the user can read.
    pub(super) fn edited(history: PathBuf) -> Option<Self> {
        let is_dumb = std::env::var_os("TERM").is_none_or(|term| term.is_empty() || term == "dumb");
        if is_dumb || !io::stdin().is_terminal() || !io::stdout().is_terminal() {
            return None;
        }
        let config = Config::builder().max_history_size(HISTORY_LINES).ok()?.history_ignore_space(true);
        // A signal that ends the program would leave this mode of the terminal on.
        let mut editor = DefaultEditor::with_config(config.bracketed_paste(false).build()).ok()?;
        // With a printer, the editor also waits for SIGINT on other threads.
        drop(editor.create_external_printer().ok()?);
        // The history may not exist yet.
        drop(editor.load_history(&history));
        let reader = StdinReader::start(move |prompt| edited(&mut editor, &prompt, &history));
        reader.ok().map(|reader| Self { reader: Some(reader) })
    }

    /// Returns the next line with its end; empty at the end of the input. It is cancel-safe. Only a line editor shows
    /// the prompt.
    pub(super) async fn next(&mut self, prompt: &str) -> io::Result<Vec<u8>> {
        let reader = match &mut self.reader {
            Some(reader) => reader,
            None => self.reader.insert(StdinReader::start(|_| {
                let mut line = Vec::new();
                io::stdin().lock().read_until(b'\n', &mut line).map(|_| line)
            })?),
        };
        reader.next(prompt).await
    }

    /// Discards earlier input, which can't be an answer to the next question.
    pub(super) fn forget(&mut self) {
        if let Some(reader) = &mut self.reader
            && reader.read.try_recv().is_ok()
        {
            reader.is_reading = false;
        }
        // This fails only if the input is not a terminal.
        let _ = rustix::termios::tcflush(io::stdin(), rustix::termios::QueueSelector::IFlush);
    }
}

/// Reads a line with the line editor. A cancelled line is a blank line.
fn edited(editor: &mut DefaultEditor, prompt: &str, history: &Path) -> io::Result<Vec<u8>> {
    let line = match editor.readline(prompt) {
        Ok(line) => line,
        Err(ReadlineError::Eof) => return Ok(Vec::new()),
        Err(ReadlineError::Io(error)) => return Err(error),
        Err(ReadlineError::Errno(errno)) => return Err(errno.into()),
        Err(_) => String::new(),
    };
    // The history is a convenience, also where the data can't be written.
    drop(editor.add_history_entry(&line));
    drop(editor.append_history(history));
    Ok(format!("{line}\n").into_bytes())
}

impl StdinReader {
    fn start(mut read_line: impl FnMut(String) -> io::Result<Vec<u8>> + Send + 'static) -> io::Result<Self> {
        let (wanted, asked) = mpsc::channel();
        let (give, read) = unbounded_channel();
        let thread = std::thread::Builder::new().name("foldspace-lines".to_owned());
        thread.spawn(move || {
            while let Ok(prompt) = asked.recv() {
                if give.send(read_line(prompt)).is_err() {
                    return;
                }
            }
        })?;
        Ok(Self { wanted, read, is_reading: false })
    }

    async fn next(&mut self, prompt: &str) -> io::Result<Vec<u8>> {
        let ended = || io::Error::other("the thread that reads it has ended");
        if !self.is_reading {
            self.wanted.send(prompt.to_owned()).map_err(|_| ended())?;
            self.is_reading = true;
        }
        let line = self.read.recv().await;
        self.is_reading = false;
        line.unwrap_or_else(|| Err(ended()))
    }
}
