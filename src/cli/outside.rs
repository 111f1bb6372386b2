//! A prompt into a throw-away copy of a session's workspace as it was at a moment.

use std::io::{self, Write};
use std::sync::Arc;

use foldspace::{CommandPolicy, EntryPath, OutputStream, OutputWatch, Probe, Seq, Session, ShellCommand, unwatched};
use tokio_util::sync::CancellationToken;

use super::exit::{Exit, Failure};
use super::interrupt::{Signals, Wish};
use super::lines::Lines;
use super::output::{self, BOLD};
use super::{Globals, bisect, text, workspace};

/// Opens a prompt into the workspace as it was at a position. Nothing of what is done there is recorded, and it is
/// gone when the prompt ends.
pub(super) fn shell_at(globals: &Globals, session: &Session, seq: Seq) -> Result<Exit, Failure> {
    let (spec, home) = (workspace::spec_of(session)?, bisect::home(globals)?);
    let policy = CommandPolicy { auto_confirm: true, ..CommandPolicy::default() };
    let probe = Probe::open(session, &session.state_at(seq)?, &spec, &home, policy)?;
    let left_out = probe.left_out();
    if !left_out.is_empty() {
        let count = text::count(left_out.len() as u64, "entry");
        output::note(&format!("{count} of then could not be made again, such as {}", left_out[0].rooted()));
    }
    if output::can_ask() {
        output::note("this is a copy: nothing is recorded, and it is gone when you leave (exit, or Ctrl-D)");
    }
    let title = format!("{}@{seq}", text::one_line(session.name(), 80));
    super::block_on(Prompt { probe, title, cwd: EntryPath::root(), last: 0 }.read_lines())?
}

struct Prompt {
    probe: Probe,
    title: String,
    cwd: EntryPath,
    /// The exit code of the last command.
    last: u8,
}

impl Prompt {
    async fn read_lines(mut self) -> Result<Exit, Failure> {
        let interactive = output::can_ask();
        let (mut lines, mut signals) = (Lines::default(), Signals::listen());
        while !signals.is_to_end() {
            if interactive {
                let cwd = text::one_line(&self.cwd.rooted(), 200);
                drop(write!(anstream::stderr(), "{BOLD}{}{BOLD:#} {cwd} $ ", self.title));
            }
            let line = tokio::select! {
                line = lines.next() => line.map_err(|error| Failure::io("read", "the line", &error))?,
                wish = signals.next() => match wish {
                    Wish::Stop if interactive => {
                        output::end_question();
                        continue;
                    }
                    Wish::Stop | Wish::End => return Ok(Exit::Interrupted),
                },
            };
            match std::str::from_utf8(&line).map(str::trim) {
                _ if line.is_empty() => return Ok(Exit::Command(self.last)),
                Ok("") => {}
                Ok("exit" | "logout") => return Ok(Exit::Command(self.last)),
                Ok(line) => self.line(line, &mut signals).await,
                Err(_) => {
                    self.last = 1;
                    output::note("the line is not UTF-8 and was not run");
                }
            }
        }
        Ok(Exit::Interrupted)
    }

    async fn line(&mut self, line: &str, signals: &mut Signals) {
        let moves = matches!(line.split_whitespace().next(), Some("cd")) && !line.contains([';', '&', '|', '\n']);
        // As in a recorded prompt: the shell itself says where `cd` leads.
        let line = if moves { format!("set -e; {line}\npwd -P") } else { line.to_owned() };
        let command = ShellCommand { cwd: self.cwd.clone(), ..ShellCommand::shell(line) };
        let watch = if moves { unwatched() } else { shown() };
        let cancel = CancellationToken::new();
        let root = self.probe.root().unwrap_or_default();
        let result = {
            let mut work = std::pin::pin!(self.probe.run(command, watch, cancel.clone()));
            loop {
                tokio::select! {
                    done = &mut work => break done,
                    _ = signals.next() => cancel.cancel(),
                }
            }
        };
        let result = match result {
            Ok(result) => result,
            Err(error) => {
                self.last = 1;
                return complain(&error.to_string());
            }
        };
        self.last = u8::try_from(result.exit_code).unwrap_or(1);
        match (result.timed_out, result.cancelled) {
            (true, _) => output::note("it took too long and was ended"),
            (_, true) => complain("interrupted"),
            _ if moves && result.exit_code == 0 => self.moved(&root, &result.stdout.kept),
            _ if moves => complain(String::from_utf8_lossy(&result.stderr.kept).trim_end()),
            _ => {}
        }
    }

    /// The shell has gone to a directory, which it names in full.
    fn moved(&mut self, root: &str, printed: &[u8]) {
        let directory = printed.strip_suffix(b"\n").unwrap_or(printed);
        let below = directory.strip_prefix(root.as_bytes()).filter(|below| below.is_empty() || below.starts_with(b"/"));
        match below.map(EntryPath::from_bytes) {
            Some(Ok(below)) => self.cwd = below,
            _ => {
                let shown = directory.escape_ascii();
                output::note(&format!("{shown} is outside of the workspace; the prompt stays where it is"));
            }
        }
    }
}

/// Passes on what a command prints. Who does not read holds it up.
fn shown() -> OutputWatch {
    Arc::new(|stream, bytes| {
        // Nobody may read any more, which is nobody's fault.
        drop(match stream {
            OutputStream::Stdout => io::stdout().lock().write_all(bytes).and_then(|()| io::stdout().flush()),
            OutputStream::Stderr => io::stderr().lock().write_all(bytes),
        });
    })
}

/// Says what went wrong, apart from what commands print.
fn complain(words: &str) {
    // Without an error stream there is nobody to tell.
    drop(writeln!(anstream::stderr(), "{}", text::visible(words)));
}
