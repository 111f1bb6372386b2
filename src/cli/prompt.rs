//! A prompt that runs each line that a person types as a separate command.

use std::io::Write;

use foldspace::EntryPath;

use super::interrupt::Interruption;
use super::lines::StdinLines;
use super::{BOLD, Exit, Failure, Signals, output, text};

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
    last: u8,
}

impl LinePrompt {
    pub(super) fn new(title: String, root: Option<String>, cwd: EntryPath) -> Self {
        Self { title, root, cwd, last: 0 }
    }

    /// Reads lines, and runs each as a command. `run` streams the output, or returns it if the command is quiet. A
    /// signal ends the command, a second signal the program.
    pub(super) async fn read_lines(
        mut self,
        mut run: impl AsyncFnMut(Typed<'_>, &mut Signals) -> Result<PromptRun, Failure>,
    ) -> Result<Exit, Failure> {
        let interactive = output::can_ask();
        let (mut lines, mut signals) = (StdinLines::default(), Signals::listen());
        while !signals.is_to_end() {
            if interactive {
                let (title, cwd) = (&self.title, text::one_line(&self.cwd.rooted(), 200));
                drop(write!(anstream::stderr(), "{BOLD}{title}{BOLD:#} {cwd} $ "));
            }
            let line = tokio::select! {
                line = lines.next() => line.map_err(|error| Failure::io("read", "the line", &error))?,
                wish = signals.next() => match wish {
                    Interruption::Stop if interactive => {
                        output::end_question();
                        continue;
                    }
                    Interruption::Stop | Interruption::End => return Ok(Exit::Interrupted),
                },
            };
            if line.is_empty() {
                return Ok(Exit::Command(self.last));
            }
            match std::str::from_utf8(&line).map(str::trim) {
                Ok("") => {}
                Ok("exit" | "logout") => return Ok(Exit::Command(self.last)),
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
