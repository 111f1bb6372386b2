//! `foldspace shell`: a person's prompt into a session's workspace.

use std::io::Write;
use std::sync::Arc;

use foldspace::{
    CallStatus, CommandResult, Dispatcher, Durability, EntryPath, Session, ToolCall, ToolOutcome, Workspace,
};
use serde_json::json;

use super::Globals;
use super::exit::{Exit, Failure};
use super::interrupt::{Signals, Wish, minding};
use super::lines::Lines;
use super::live::Live;
use super::output::{self, BOLD, Out};
use super::position::Position;
use super::workspace::{self, RuleArgs};
use super::{events, open, outside, text};

/// Opens a prompt into a session's workspace; each line is recorded as a call
///
/// Each line is run by /bin/sh. `cd` moves the prompt; other changes of a shell's own state, such as
/// variables, last for one line. `exit`, or Ctrl-D, ends it; Ctrl-C ends the command under way, and a
/// second one the prompt.
#[derive(Debug, clap::Args)]
pub(super) struct Shell {
    /// The session, by name or by the beginning of its id
    session: String,
    /// Who types [default: person]
    #[arg(long, value_name = "NAME", default_value = "person", value_parser = workspace::agent_name)]
    agent: String,
    /// Opens a throw-away copy of the workspace as it was at POSITION instead; nothing is recorded there
    #[arg(long, value_name = "POSITION", allow_hyphen_values = true)]
    at: Option<Position>,
    #[command(flatten)]
    rules: RuleArgs,
}

impl Shell {
    pub(super) fn run(&self, globals: &Globals, out: &mut Out) -> Result<Exit, Failure> {
        if let Some(at) = &self.at {
            let opened = open::reading(globals)?;
            let session = opened.find(&self.session)?.session;
            out.go_live_for_good()?;
            return outside::shell_at(globals, &session, at.resolve(&session)?);
        }
        open::existing(globals)?;
        let opened = open::writing(globals, Durability::default())?;
        let session = opened.find(&self.session)?.session.as_agent(self.agent.as_str());
        out.go_live_for_good()?;
        let workspace = workspace::of_session(globals, &session)?;
        if workspace.shell().is_none() {
            let what = format!("the {} workspace of {} has no shell", workspace.backend_name(), session.name());
            let failure = Failure::new(Exit::Usage, what);
            return Err(failure.with_hint("begin a session with `foldspace run --backend host` or `--backend podman`"));
        }
        let dispatcher = workspace::dispatcher(session.clone(), workspace.clone(), self.rules.typed())?;
        let prompt = Prompt { session, dispatcher: dispatcher.clone(), cwd: EntryPath::root(), last: 0 };
        let ended = super::block_on(prompt.read_lines());
        dispatcher.close()?;
        ended?
    }
}

struct Prompt {
    session: Session,
    dispatcher: Dispatcher,
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
                let name = text::one_line(self.session.name(), 80);
                let cwd = text::one_line(&self.cwd.rooted(), 200);
                drop(write!(anstream::stderr(), "{BOLD}{name}{BOLD:#} {cwd} $ "));
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
            if line.is_empty() {
                return Ok(Exit::Command(self.last));
            }
            match std::str::from_utf8(&line).map(str::trim) {
                Ok("") => {}
                Ok("exit" | "logout") => return Ok(Exit::Command(self.last)),
                Ok(line) => self.line(line, &mut signals).await?,
                Err(_) => {
                    self.last = 1;
                    output::note("the line is not UTF-8 and was not run");
                }
            }
        }
        Ok(Exit::Interrupted)
    }

    async fn line(&mut self, line: &str, signals: &mut Signals) -> Result<(), Failure> {
        let moves = matches!(line.split_whitespace().next(), Some("cd")) && !line.contains([';', '&', '|', '\n']);
        // Where the shell is afterwards is asked from itself: it knows what `cd` means by links and quotes. A
        // line of its own, as the one before may end in a comment.
        let command = if moves { format!("set -e; {line}\npwd -P") } else { line.to_owned() };
        let call = ToolCall::new("shell_execute", json!({ "command": command, "cwd": self.cwd.rooted() }));
        let (cancel, workspace) = (call.cancel.clone(), Arc::clone(self.dispatcher.workspace()));
        let work = async {
            let live = if moves { None } else { Some(Live::begin(&self.session, &cancel)?) };
            let outcome = self.dispatcher.call(call).await;
            if let Some(live) = live {
                live.end().await?;
            }
            Ok::<ToolOutcome, Failure>(outcome?)
        };
        let outcome = minding(signals, &cancel, &workspace, work).await?;
        let code = outcome.result["exit_code"].as_i64().unwrap_or(1);
        self.last = u8::try_from(code).unwrap_or(1);
        match outcome.status {
            CallStatus::Ok if moves && code == 0 => self.moved(&self.printed(&outcome)?, workspace.as_ref()),
            CallStatus::Ok if moves => complain(outcome.result["stderr"].as_str().unwrap_or_default().trim_end()),
            CallStatus::Ok => {}
            CallStatus::Error => complain(&outcome.text),
            CallStatus::Interrupted => complain("interrupted"),
        }
        Ok(())
    }

    /// What a command printed, as it is.
    fn printed(&self, outcome: &ToolOutcome) -> Result<Vec<u8>, Failure> {
        let mut content = None;
        events::each(&self.session, outcome.call, outcome.finished, |event| {
            if let Some(Ok(result)) = event.typed::<CommandResult>() {
                content = Some(result.event.stdout.content);
            }
            Ok(())
        })?;
        match content {
            Some(content) => Ok(self.session.content(&content)?.to_vec()),
            None => Ok(Vec::new()),
        }
    }

    /// The shell has gone to a directory, which it names in full.
    fn moved(&mut self, printed: &[u8], workspace: &dyn Workspace) {
        let directory = printed.strip_suffix(b"\n").unwrap_or(printed);
        let root = workspace.root();
        let below = root.as_deref().and_then(|root| directory.strip_prefix(root.as_bytes()));
        let below = below.filter(|below| below.is_empty() || below.starts_with(b"/"));
        let shown = directory.escape_ascii();
        match below.map(|below| EntryPath::from_bytes(below.strip_prefix(b"/").unwrap_or(below))) {
            Some(Ok(below)) => self.cwd = below,
            Some(Err(error)) => output::note(&format!("{error}; the prompt stays where it is")),
            None => output::note(&format!("{shown} is outside of the workspace; the prompt stays where it is")),
        }
    }
}

/// Says what went wrong, apart from what commands print.
fn complain(words: &str) {
    // Without an error stream there is nobody to tell.
    drop(writeln!(anstream::stderr(), "{}", text::visible(words)));
}
