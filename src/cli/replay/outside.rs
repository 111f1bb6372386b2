//! Runs commands for the debugger, which itself only reads.

use std::io;
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};

use foldspace::view::Position;
use foldspace::{Seq, Sessions};
use rustix::event::{PollFd, PollFlags, Timespec};

use crate::cli::{Exit, Failure, Globals, external_command, open, output, text};
use crate::tui::DebuggerHost;
use crate::tui::model::{OutsideCommand, OutsideVerb};

/// The time between two checks for a signal: 30 ms.
const PAUSE: Timespec = Timespec { tv_sec: 0, tv_nsec: 30_000_000 };

pub(super) struct PagerProgram<'a> {
    pub(super) globals: &'a Globals,
    pub(super) sessions: &'a Sessions,
    pub(super) signals: &'a DebuggerSignals,
}

/// The signals that have come. One task receives them, so that a signal has one meaning: it answers a question or ends
/// the debugger.
#[derive(Default)]
pub(super) struct DebuggerSignals {
    /// The debugger has to end.
    pub(super) told: AtomicBool,
    /// A command or a question has the terminal.
    pub(super) away: AtomicBool,
    /// Ctrl-C was pressed meanwhile.
    pub(super) interrupted: AtomicBool,
}

/// Runs work on a new thread, outside of the current runtime, since the work starts its own runtime.
fn away_from_runtime<T: Send>(work: impl FnOnce() -> Result<T, Failure> + Send) -> Result<T, Failure> {
    let ended = std::thread::scope(|scope| scope.spawn(work).join());
    ended.unwrap_or_else(|_| Err(Failure::failed("the program panicked, which is a bug in foldspace")))
}

impl PagerProgram<'_> {
    fn prompt(&self, session: &str, at: Seq) -> Result<String, Failure> {
        let session = self.sessions.session(self.sessions.find(session)?.id)?;
        let words = match away_from_runtime(|| external_command::shell_at(self.globals, &session, at, None))? {
            Exit::Interrupted => "the prompt was interrupted".to_owned(),
            exit => format!("the prompt ended with {}", exit.code()),
        };
        Ok(format!("{words}; the copy is gone"))
    }

    /// Returns the arguments of a command, with the name of its session, or the id if the name is unsafe to paste.
    fn arguments(&self, command: &OutsideCommand) -> Result<Vec<String>, Failure> {
        let session = self.sessions.session(self.sessions.find(&command.session)?.id)?;
        let name = session.name();
        let is_harmless = open::named(&session) == name;
        let name = if is_harmless { name.to_owned() } else { session.id().to_string() };
        let at = Position::Exact(command.at).to_string();
        let words = match &command.verb {
            OutsideVerb::Show => vec!["show".to_owned(), name, command.at.to_string()],
            OutsideVerb::Rewind => vec!["rewind".to_owned(), name, "--to".to_owned(), at],
            OutsideVerb::Fork { name: None } => vec!["fork".to_owned(), name, "--at".to_owned(), at],
            OutsideVerb::Fork { name: Some(fork) } => {
                let fork = format!("--name={fork}");
                vec!["fork".to_owned(), name, "--at".to_owned(), at, fork]
            }
        };
        Ok(words)
    }

    fn run(&self, command: &OutsideCommand) -> Result<String, Failure> {
        let (line, arguments) = (self.command_line(command)?, self.arguments(command)?);
        // Earlier keys must not answer the question. This fails only if the input is not a terminal.
        let _ = rustix::termios::tcflush(io::stdin(), rustix::termios::QueueSelector::IFlush);
        let given = self.answer(&format!("$ {line}\nrun this?"), "[y/N]")?;
        if !matches!(given.as_str(), "y" | "Y" | "yes") {
            return Ok(format!("not run: {line}"));
        }
        let ended = self.start(&arguments)?;
        self.answer("\npress Enter to return to the debugger", "")?;
        match ended {
            Exit::Ok => Ok(format!("done: {line}")),
            exit => Err(Failure::failed(format!("exit {} of {line}", exit.code()))),
        }
    }

    /// Asks, and waits for a line; a signal counts as an empty answer.
    fn answer(&self, question: &str, choices: &str) -> Result<String, Failure> {
        let failed = |error: io::Error| Failure::io("read", "the answer", &error);
        self.signals.interrupted.store(false, Ordering::Relaxed);
        output::ask(question, choices);
        while !has_line().map_err(failed)? {
            if self.signals.interrupted.load(Ordering::Relaxed) || self.signals.told.load(Ordering::Relaxed) {
                output::end_question();
                return Ok(String::new());
            }
        }
        let mut line = String::new();
        io::stdin().read_line(&mut line).map_err(failed)?;
        Ok(line.trim().to_owned())
    }

    /// Runs this program as from the command line, and waits for it.
    #[expect(clippy::disallowed_methods, reason = "the person confirmed it, and a face starts it")]
    fn start(&self, arguments: &[String]) -> Result<Exit, Failure> {
        let failed = |error: io::Error| Failure::io("run", "this program", &error);
        let mut command = Command::new(std::env::current_exe().map_err(failed)?);
        if let Some(data) = &self.globals.data {
            command.arg("--data").arg(data);
        }
        if self.globals.in_process {
            command.arg("--in-process");
        }
        let status = command.args(arguments).status().map_err(failed)?;
        Ok(status.code().map_or(Exit::Interrupted, |code| Exit::of_code(u8::try_from(code).unwrap_or(1))))
    }
}

/// Waits a moment for a line. Polls, since a blocked reader thread would take the debugger's keys later.
fn has_line() -> io::Result<bool> {
    let input = io::stdin();
    let mut asked = [PollFd::new(&input, PollFlags::IN)];
    match rustix::event::poll(&mut asked, Some(&PAUSE)) {
        Ok(ready) => Ok(ready > 0),
        Err(rustix::io::Errno::INTR) => Ok(false),
        Err(error) => Err(error.into()),
    }
}

impl DebuggerHost for PagerProgram<'_> {
    fn command_line(&self, command: &OutsideCommand) -> Result<String, Failure> {
        let arguments = self.arguments(command)?;
        let words: Vec<_> = arguments.iter().map(|word| text::shell_word(word)).collect();
        Ok(format!("{} {}", open::same_program(self.globals), words.join(" ")))
    }

    fn run_command(&mut self, command: &OutsideCommand) -> Result<String, Failure> {
        self.signals.away.store(true, Ordering::Relaxed);
        let ended = self.run(command);
        self.signals.away.store(false, Ordering::Relaxed);
        ended
    }

    fn shell_here(&mut self, session: &str, at: Seq) -> Result<String, Failure> {
        self.signals.away.store(true, Ordering::Relaxed);
        let ended = self.prompt(session, at);
        self.signals.away.store(false, Ordering::Relaxed);
        ended
    }
}
