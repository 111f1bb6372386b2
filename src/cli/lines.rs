//! Lines of standard input, read by a thread so that waiting for a person does not block.

use std::io::{self, BufRead};
use std::sync::mpsc;

use tokio::sync::mpsc::{UnboundedReceiver, unbounded_channel};

use super::line_editor::{EditorPrompt, LineEditor};

#[derive(Default)]
pub(super) struct StdinLines {
    reader: Option<StdinReader>,
}

struct StdinReader {
    /// Requests a line, with the prompt for a line editor.
    wanted: mpsc::Sender<EditorPrompt>,
    read: UnboundedReceiver<io::Result<Vec<u8>>>,
    is_reading: bool,
}

impl StdinLines {
    /// Returns lines that a person edits.
    pub(super) fn edited(mut editor: LineEditor) -> io::Result<Self> {
        Ok(Self { reader: Some(StdinReader::start(move |prompt| editor.read(&prompt))?) })
    }

    /// Returns the next line with its end; empty at the end of the input. It is cancel-safe. Only a line editor shows
    /// the prompt.
    pub(super) async fn next(&mut self, prompt: EditorPrompt) -> io::Result<Vec<u8>> {
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

impl StdinReader {
    fn start(mut read_line: impl FnMut(EditorPrompt) -> io::Result<Vec<u8>> + Send + 'static) -> io::Result<Self> {
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

    async fn next(&mut self, prompt: EditorPrompt) -> io::Result<Vec<u8>> {
        let ended = || io::Error::other("the thread that reads it has ended");
        if !self.is_reading {
            self.wanted.send(prompt).map_err(|_| ended())?;
            self.is_reading = true;
        }
        let line = self.read.recv().await;
        self.is_reading = false;
        line.unwrap_or_else(|| Err(ended()))
    }
}
