mod outside;
mod pick;
mod script;

use std::io::IsTerminal;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use clap::builder::NonEmptyStringValueParser;
use foldspace::tools::running_calls;
use foldspace::{Session, Sessions};

use super::interrupt::Interruption;
use super::{AtArg, Exit, Failure, Globals, Out, Signals, block_on, open, position};
use crate::tui;
use crate::tui::model::{DebuggerAction, Direction, Model, SessionHistory};
use outside::{DebuggerSignals, PagerProgram};
pub(super) use pick::pick;

/// Debugs a session, on the terminal or by options in a script
#[derive(Debug, clap::Args)]
#[command(mut_args(position::meaning("Begins at", "Begins right before")))]
#[command(after_help = "\
Examples:
  foldspace replay                               on the terminal; ? shows keys
  foldspace replay NAME --at 12 --show event     event 12
  foldspace replay NAME --step 3 --show slices   what event 3 changed in slices
  foldspace replay NAME --step-call 2 --show diff
  foldspace replay NAME --until 'path src/**' --show file src/main.rs
  foldspace replay NAME --search 'panicked|Traceback' --all --json
  foldspace replay NAME --changes Cargo.toml --backward

Conditions: path GLOB, kind KIND, agent NAME, tool NAME, failed, /REGEX/, or a predicate over slices (see \
`foldspace bisect --help`). Searches: a regular expression over events, paths and contents; path:REGEX, \
content:REGEX and event:REGEX search only these.

Forward options start before the first event, backward options after the last, unless --at or --before is given. \
Exits with 1 if nothing is found.")]
pub(super) struct ReplayArgs {
    /// The session, by name or by the beginning of its id
    session: String,
    #[command(flatten)]
    at: AtArg,
    #[command(flatten)]
    verb: Verb,
    /// Goes towards earlier events
    #[arg(long)]
    backward: bool,
    /// Shows every match, not only the first
    #[arg(long)]
    all: bool,
    /// Shows this part of a step: event, files, file PATH, slices, slice NAME, output or diff
    #[arg(long, num_args = 1..=2, value_names = ["WHAT", "NAME"])]
    show: Vec<String>,
    /// Shows the whole file, with a mark before each changed line
    #[arg(long)]
    whole: bool,
    /// Leaves the mouse to the terminal, as the key M does
    #[arg(long)]
    no_mouse: bool,
}

#[derive(Debug, Default, PartialEq, clap::Args)]
#[group(multiple = false)]
struct Verb {
    /// Steps forward by N events
    #[arg(long, value_name = "N")]
    step: Option<u64>,
    /// Steps back by N events
    #[arg(long, value_name = "N")]
    back: Option<u64>,
    /// Steps forward by N calls, and shows the changes of the whole call
    #[arg(long, value_name = "N")]
    step_call: Option<u64>,
    /// Continues until a condition is met; may be given several times, for any of the conditions
    #[arg(long, value_name = "CONDITION", value_parser = NonEmptyStringValueParser::new())]
    until: Vec<String>,
    /// Continues to the next match of a regular expression
    #[arg(long, value_name = "REGEX", value_parser = NonEmptyStringValueParser::new())]
    search: Option<String>,
    /// Continues to the next change at a path
    #[arg(long, value_name = "PATH", value_parser = NonEmptyStringValueParser::new())]
    changes: Option<String>,
    /// Compares two positions: N or -N of this session, NAME or NAME@SEQ of another session
    #[arg(long, value_name = "A..B", allow_hyphen_values = true)]
    diff: Option<String>,
}

impl Verb {
    fn is_given(&self) -> bool {
        *self != Self::default()
    }

    fn goes(&self) -> bool {
        self.is_given() && self.diff.is_none()
    }
}

impl ReplayArgs {
    pub(super) fn run(&self, globals: &Globals, out: &mut Out) -> Result<Exit, Failure> {
        if (self.backward || self.all) && !self.verb.goes() {
            let option = if self.backward { "--backward" } else { "--all" };
            return Err(Failure::usage(format!("{option} requires an option that moves"))
                .with_hint("add --step, --step-call, --until, --search or --changes"));
        }
        let scripted = self.verb.is_given() || !self.show.is_empty() || out.is_json();
        let has_terminal = std::io::stdin().is_terminal() && std::io::stdout().is_terminal();
        if !scripted && !has_terminal {
            return Err(Failure::usage("the debugger needs a terminal")
                .with_hint("without one, use --step N, --until CONDITION, --show WHAT; see --help"));
        }
        let opened = open::reading(globals)?;
        let session = opened.find(&self.session)?.session;
        let past = Arc::new(SessionHistory::new(&opened.sessions, &session, Arc::new(running_calls))?);
        match scripted {
            true => script::run(self, &session, past, out),
            false => self.on_terminal(globals, &opened.sessions, &session, past),
        }
    }

    fn on_terminal(
        &self,
        globals: &Globals,
        sessions: &Sessions,
        session: &Session,
        past: Arc<SessionHistory>,
    ) -> Result<Exit, Failure> {
        let at = self.position(session, past.head())?;
        let colour = anstream::AutoStream::choice(&std::io::stdout()) != anstream::ColorChoice::Never;
        crossterm::style::force_color_output(colour);
        let mut model = Model::new(past, at);
        model.mouse = !self.no_mouse;
        if !self.at.is_given() {
            // A running session is shown at its end, an ended session from its first call.
            match running_calls(session).is_empty() {
                false => model.apply(DebuggerAction::Last),
                true => [DebuggerAction::First, DebuggerAction::Call(Direction::Forward)]
                    .into_iter()
                    .for_each(|action| model.apply(action)),
            }
            model.message = None;
        }
        let signals = Arc::new(DebuggerSignals::default());
        let ending = block_on(async {
            tokio::spawn(mind(Signals::listen(), Arc::clone(&signals)));
            tui::run(model, colour, &mut PagerProgram { globals, sessions, signals: &signals }, &signals.told)
        })?;
        ending.map_err(|error| Failure::io("use", "the terminal", &error))
    }

    fn position(&self, session: &Session, head: u64) -> Result<u64, Failure> {
        let at = self.at.position().map_or(Ok(head), |at| at.event(session))?;
        if at == 0 {
            return Err(
                Failure::missing("no event at position 0").with_hint("a step is an event: the first event is --at 1")
            );
        }
        Ok(at)
    }
}

async fn mind(mut signals: Signals, found: Arc<DebuggerSignals>) {
    // In raw mode Ctrl-C is a key; as a signal it ends the debugger, like other signals, or a prompt's command.
    while signals.next().await == Interruption::Stop && found.away.load(Ordering::Relaxed) {
        found.interrupted.store(true, Ordering::Relaxed);
    }
    found.told.store(true, Ordering::Relaxed);
}
