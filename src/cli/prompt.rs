//! A prompt that runs each line that a person types as a separate command.

use std::io::Write;
use std::path::{Path, PathBuf};

use foldspace::EntryPath;

use super::interrupt::Interruption;
use super::line_editor::{EditedTerminal, EditorPrompt, LineEditor};
use super::lines::StdinLines;
use super::{BOLD, Exit, Failure, Signals, output, text};

const HELP: &str = "\
/bin/sh runs each line separately: `cd` moves the prompt; variables last for one line.
exit, Ctrl-D    ends the prompt
Ctrl-C          clears the line, or cancels the command; a second Ctrl-C during a command ends the prompt
Up, Ctrl-R      recalls or finds an earlier line; the history is a file in the data directory
";

pub(super) struct Typed<'a> {
    pub(super) command: String,
    pub(super) cwd: &'a EntryPath,
    pub(super) quiet: bool,
}

pub(super) struct PromptRun {
    pub(super) code: i64,
    pub(super) printed: Vec<u8>,
    pub(super) complaint: Option<String>,
}

impl PromptRun {
    pub(super) fn wrong(code: i64, words: impl Into<String>) -> Self {
        Self { code, printed: Vec::new(), complaint: Some(words.into()) }
    }
}

pub(super) struct LinePrompt {
    title: String,
    /// The directory of the workspace, as its commands see it.
    root: Option<String>,
    cwd: EntryPath,
    /// The directory of the history.
    data: PathBuf,
    last: u8,
}

impl LinePrompt {
    pub(super) fn new(title: String, root: Option<String>, cwd: EntryPath, data: &Path) -> Self {
        Self { title, root, cwd, data: data.to_owned(), last: 0 }
    }

    /// Reads lines, and runs each as a command. `run` streams the output, or returns it if the command is quiet. A
    /// signal ends the command, a second signal the program.
    pub(super) async fn read_lines(
        mut self,
        mut run: impl AsyncFnMut(Typed<'_>, &mut Signals) -> Result<PromptRun, Failure>,
    ) -> Result<Exit, Failure> {
        let interactive = output::can_ask();
        let editor = if interactive { LineEditor::at_terminal(&self.data) } else { None };
        let unread = |error| Failure::io("read", "the line", &error);
        let edited = editor.as_ref().map(|_| EditedTerminal::begin()).transpose().map_err(unread)?;
        let mut lines = editor.map_or_else(|| Ok(StdinLines::default()), StdinLines::edited).map_err(unread)?;
        let mut signals = Signals::listen();
        while !signals.is_to_end() {
            let rest = format!(" {} $ ", text::one_line(&self.cwd.rooted(), 200));
            let prompt = EditorPrompt { title: self.title.clone(), rest };
            if interactive && edited.is_none() {
                let EditorPrompt { title, rest } = &prompt;
                drop(write!(anstream::stderr(), "{BOLD}{title}{BOLD:#}{rest}"));
            }
            let line = tokio::select! {
                biased;
                wish = signals.next() => match wish {
                    // Ctrl-C is a key of the editor; this signal came before it read, or from another process.
                    Interruption::Stop if edited.is_some() => continue,
                    Interruption::Stop if interactive => {
                        output::end_question();
                        continue;
                    }
                    Interruption::Stop | Interruption::End => return Ok(Exit::Interrupted),
                },
                line = lines.next(prompt) => line.map_err(unread)?,
            };
            if line.is_empty() {
                return Ok(Exit::Command(self.last));
            }
            match std::str::from_utf8(&line).map(str::trim) {
                Ok("") => {}
                Ok("exit" | "logout") => return Ok(Exit::Command(self.last)),
                Ok("help") if interactive => drop(write!(anstream::stderr(), "{HELP}")),
                Ok(line) => self.line(line, &mut run, &mut signals).await?,
                Err(_) => {
                    self.last = 1;
                    output::note("the line is not UTF-8 and was not run");
                }
            }
        }
        Ok(Exit::Interrupted)
    }

    async fn line(
        &mut self,
        line: &str,
        run: &mut impl AsyncFnMut(Typed<'_>, &mut Signals) -> Result<PromptRun, Failure>,
        signals: &mut Signals,
    ) -> Result<(), Failure> {
        let moves = matches!(line.split_whitespace().next(), Some("cd")) && !line.contains([';', '&', '|', '\n']);
        // Asks the shell for the new directory, since it resolves links and quotes of `cd`. `pwd` is on a separate
        // line, because the first may end in a comment.
        let command = if moves { format!("set -e; {line}\npwd -P") } else { line.to_owned() };
        let ran = run(Typed { command, cwd: &self.cwd, quiet: moves }, signals).await?;
        self.last = u8::try_from(ran.code).unwrap_or(1);
        match ran.complaint {
            Some(words) => complain(&words),
            None if moves && ran.code == 0 => self.moved(&ran.printed),
            None => {}
        }
        Ok(())
    }

    fn moved(&mut self, printed: &[u8]) {
        let directory = printed.strip_suffix(b"\n").unwrap_or(printed);
        let below = self.root.as_deref().and_then(|root| directory.strip_prefix(root.as_bytes()));
        let below = below.filter(|below| below.is_empty() || below.starts_with(b"/"));
        let shown = directory.escape_ascii();
        match below.map(|below| EntryPath::from_bytes(below.strip_prefix(b"/").unwrap_or(below))) {
            Some(Ok(below)) => self.cwd = below,
            Some(Err(error)) => output::note(&format!("{error}; the prompt stays where it is")),
            None => output::note(&format!("{shown} is outside of the workspace; the prompt stays where it is")),
        }
    }
}

fn complain(words: &str) {
    // A closed error stream is not a failure.
    drop(writeln!(anstream::stderr(), "{}", text::visible(words)));
}
