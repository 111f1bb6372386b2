//! `foldspace shell`: a person's prompt into a session's workspace.

use std::io::{BufRead, Write};

use foldspace::{CallStatus, Dispatcher, Durability, EntryPath, Session, ToolCall};
use serde_json::json;
use tokio_util::sync::CancellationToken;

use super::Globals;
use super::exit::{Exit, Failure};
use super::live::Live;
use super::output::{self, BAD, BOLD, Out};
use super::workspace::{self, RuleArgs};
use super::{open, text};

/// Opens a prompt into a session's workspace; each line is recorded as a call
///
/// Each line is run by /bin/sh. `cd` moves the prompt; other changes of a shell's own state, such as
/// variables, last for one line. `exit`, or Ctrl-D, ends it; Ctrl-C ends the command under way.
#[derive(Debug, clap::Args)]
pub(super) struct Shell {
    /// The session, by name or by the beginning of its id
    session: String,
    /// Who types [default: person]
    #[arg(long, value_name = "NAME", default_value = "person")]
    agent: String,
    #[command(flatten)]
    rules: RuleArgs,
}

impl Shell {
    pub(super) fn run(&self, globals: &Globals, out: &mut Out) -> Result<Exit, Failure> {
        open::existing(globals)?;
        let opened = open::writing(globals, Durability::default())?;
        let session = opened.find(&self.session)?.session.as_agent(self.agent.as_str());
        let runtime = super::runtime()?;
        out.go_live_for_good()?;
        let workspace = workspace::of_session(globals, &session)?;
        if workspace.shell().is_none() {
            let what = format!("the {} workspace of {} has no shell", workspace.backend_name(), session.name());
            let failure = Failure::new(Exit::Usage, what);
            return Err(failure.with_hint("begin a session with `foldspace run --backend host` or `--backend podman`"));
        }
        let dispatcher = workspace::dispatcher(session.clone(), workspace.clone(), self.rules.rules(true))?;
        let mut prompt = Prompt { session, dispatcher, cwd: EntryPath::root(), last: 0 };
        let ended = runtime.block_on(prompt.read_lines(out));
        workspace.close();
        ended?;
        Ok(Exit::Command(prompt.last))
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
    async fn read_lines(&mut self, out: &mut Out) -> Result<(), Failure> {
        let interactive = output::can_ask();
        loop {
            if interactive {
                let name = text::one_line(self.session.name(), 80);
                let cwd = text::one_line(&self.cwd.rooted(), 200);
                drop(write!(anstream::stderr(), "{BOLD}{name}{BOLD:#} {cwd} $ "));
            }
            let line = tokio::task::spawn_blocking(|| {
                let mut line = String::new();
                std::io::stdin().lock().read_line(&mut line).map(|read| (read, line))
            });
            let line = match line.await {
                Ok(Ok((0, _))) | Err(_) => return Ok(()),
                Ok(Ok((_, line))) => line,
                Ok(Err(error)) => return Err(Failure::io("read", "the line", &error)),
            };
            match line.trim() {
                "" => {}
                "exit" | "logout" => return Ok(()),
                line => self.line(line, out).await?,
            }
        }
    }

    async fn line(&mut self, line: &str, out: &mut Out) -> Result<(), Failure> {
        let moves = matches!(line.split_whitespace().next(), Some("cd")) && !line.contains([';', '&', '|', '\n']);
        // Where the shell is afterwards is asked from itself: it knows what `cd` means by links and quotes.
        let command = if moves { format!("{line} && pwd -P") } else { line.to_owned() };
        let mut call = ToolCall::new("shell_execute", json!({ "command": command, "cwd": self.cwd.rooted() }));
        let cancel = CancellationToken::new();
        call.cancel = cancel.clone();
        let live = (!moves).then(|| Live::begin(&self.session));
        let outcome = {
            let ended = self.dispatcher.call(call);
            tokio::pin!(ended);
            loop {
                tokio::select! {
                    outcome = &mut ended => break outcome?,
                    pressed = tokio::signal::ctrl_c() => if pressed.is_ok() { cancel.cancel() },
                }
            }
        };
        drop(live);
        let code = outcome.result["exit_code"].as_i64().unwrap_or(1);
        self.last = u8::try_from(code).unwrap_or(1);
        match outcome.status {
            CallStatus::Ok if moves && code == 0 => self.moved(outcome.result["stdout"].as_str().unwrap_or_default()),
            CallStatus::Ok if moves => out.line(outcome.result["stderr"].as_str().unwrap_or_default().trim_end()),
            CallStatus::Ok => Ok(()),
            CallStatus::Error => out.line(out.paint(BAD, text::visible(&outcome.text))),
            CallStatus::Interrupted => out.line("interrupted"),
        }
    }

    /// The shell has gone to a directory, which it names in full.
    fn moved(&mut self, printed: &str) -> Result<(), Failure> {
        let directory = printed.lines().next_back().unwrap_or_default();
        let root = self.dispatcher.workspace().root();
        let below = root.as_deref().and_then(|root| directory.strip_prefix(root));
        match below.filter(|below| below.is_empty() || below.starts_with('/')) {
            Some(below) => self.cwd = EntryPath::lookup(below)?,
            None => output::note(&format!("{directory} is outside of the workspace; the prompt stays where it is")),
        }
        Ok(())
    }
}
