use std::ops::ControlFlow;

use foldspace::event::{CallStatus, CommandResult};
use foldspace::hub::operations::SectionDocument;
use foldspace::tools::ShellRules;
use foldspace::view::Position;
use foldspace::{EntryPath, Session, ToolOutcome};
use serde_json::json;
use tokio_util::sync::CancellationToken;

use super::calling::{self, Calling};
use super::exec::TOOK_TOO_LONG;
use super::interrupt::minding;
use super::live::LiveOutput;
use super::local_terminal::{LocalInput, give_terminal};
use super::new::IfMissing;
use super::position::before;
use super::prompt::{LinePrompt, PromptRun, Typed};
use super::{
    Exit, Failure, Globals, Out, OwnerClient, RuleArgs, Signals, external_command, open, output, text, workspace,
};

/// Opens a prompt in a session's workspace, and records each line
///
/// /bin/sh runs each line as a call. `cd` moves the prompt; other shell state, such as variables, lasts for one
/// line. `exit` or Ctrl-D ends the prompt. Ctrl-C clears the line or cancels the command; a second Ctrl-C during a
/// command ends the prompt. On a terminal lines are edited, Up recalls earlier lines and Ctrl-R finds them.
#[derive(Debug, clap::Args)]
#[command(mut_args(workspace::unasked))]
pub(super) struct ShellArgs {
    /// The session, by name or by the beginning of its id
    session: String,
    /// The agent that makes the calls
    #[arg(long, value_name = "NAME", default_value = "person", value_parser = workspace::agent_name)]
    agent: String,
    /// Opens a throw-away copy of the workspace as it was at POSITION instead; nothing is recorded there
    #[arg(long, value_name = "POSITION", allow_hyphen_values = true)]
    at: Option<Position>,
    /// Opens a throw-away copy of the workspace as it was before CALL
    #[arg(long, value_name = "CALL", conflicts_with = "at", value_parser = before)]
    before: Option<Position>,
    /// Limits the running time of each line: 1 to 86,400 seconds [default: no limit]
    #[arg(long, value_name = "SECS", value_parser = workspace::command_seconds)]
    timeout: Option<f64>,
    /// Runs every line in a terminal, not only editors, pagers and the like
    #[arg(short = 't', long)]
    tty: bool,
    #[command(flatten)]
    missing: IfMissing,
    #[command(flatten)]
    rules: RuleArgs,
}

/// Programs that need a terminal.
const FULL_SCREEN: [&str; 14] =
    ["emacs", "htop", "info", "joe", "less", "man", "mc", "more", "nano", "nvim", "tig", "top", "vi", "vim"];

impl ShellArgs {
    pub(super) fn run(&self, globals: &Globals, out: &mut Out) -> Result<Exit, Failure> {
        if let Some(at) = self.at.as_ref().or(self.before.as_ref()) {
            // A prompt may stay open for hours, and must not hold the store.
            if self.tty {
                return Err(Failure::usage("--tty works on the session itself, not on a copy with --at"));
            }
            let opened = open::reading(globals)?;
            let session = opened.find(&self.session)?.session;
            out.go_live_for_good()?;
            return external_command::shell_at(globals, &session, at.resolve(&session)?, self.timeout);
        }
        out.go_live_for_good()?;
        super::block_on(self.prompt(globals))?
    }

    async fn prompt(&self, globals: &Globals) -> Result<Exit, Failure> {
        let owner = self.missing.owner(globals, &self.session).await?;
        let opened = owner.sessions()?;
        let session = opened.find(&self.session)?.session;
        workspace::check_runs_commands(&session)?;
        let (agent, rules, timeout) = (&self.agent, self.rules.typed()?, self.timeout);
        if self.tty {
            drop(LocalInput::terminal()?);
        }
        let prompt = SessionPrompt { owner: &owner, session: &session, agent, rules, timeout, tty: self.tty };
        let ended = prompt.read().await;
        owner.end().await;
        ended
    }
}

struct SessionPrompt<'a> {
    owner: &'a OwnerClient,
    session: &'a Session,
    agent: &'a str,
    rules: ShellRules,
    timeout: Option<f64>,
    tty: bool,
}

impl SessionPrompt<'_> {
    fn wants_terminal(&self, typed: &Typed<'_>) -> bool {
        let program = typed.command.split_whitespace().next().unwrap_or_default();
        !typed.quiet && (self.tty || (FULL_SCREEN.contains(&program) && LocalInput::is_possible()))
    }

    async fn read(&self) -> Result<Exit, Failure> {
        if self.session.backend() == "memory" {
            return Err(workspace::without_shell(self.session.name()));
        }
        let path = format!("/v1/sessions/{}/section", self.session.id());
        let section: SectionDocument = self.owner.client.get(&path).await?;
        let workdir = workspace::spec_of(self.session)?.commands().map(|commands| commands.workdir.clone());
        let workdir = workdir.unwrap_or_else(EntryPath::root);
        let title = text::one_line(self.session.name(), 80);
        let prompt = LinePrompt::new(title, section.root, workdir.clone(), &self.owner.directory);
        prompt.read_lines(async |typed, signals| self.run(typed, &workdir, signals).await).await
    }

    async fn run(&self, typed: Typed<'_>, workdir: &EntryPath, signals: &mut Signals) -> Result<PromptRun, Failure> {
        // Only the default directory is created if it is missing, so it is not named.
        let cwd = if typed.cwd == workdir { String::new() } else { typed.cwd.rooted() };
        let mut params = json!({ "command": typed.command, "cwd": cwd });
        if let Some(seconds) = self.timeout {
            params["timeout_seconds"] = json!(seconds);
        }
        let mut input = if self.wants_terminal(&typed) { Some(LocalInput::terminal()?) } else { None };
        if input.is_some() {
            give_terminal(&mut params);
        }
        let request = calling::request("shell_execute", params, Some(self.agent), &self.rules);
        let (cancel, id) = (CancellationToken::new(), self.session.id().to_string());
        let (client, rules) = (&self.owner.client, &self.rules);
        let call = Calling { client, session: &id, name: self.session.name(), request, rules, cancel: cancel.clone() };
        let work = async {
            let mut live = if typed.quiet { None } else { Some(LiveOutput::begin(&cancel)?) };
            let outcome = match &mut input {
                Some(input) => call.make_typed(input, live.as_mut(), output::progress).await,
                None => call.make(live.as_mut(), output::progress).await,
            };
            if let Some(live) = live {
                live.end().await?;
            }
            outcome
        };
        let outcome = minding(signals, &cancel, self.owner.closing(), work).await;
        // Restores the terminal before anything else is printed.
        drop(input);
        let outcome = outcome?;
        let code = outcome.result["exit_code"].as_i64().unwrap_or(1);
        Ok(match outcome.status {
            CallStatus::Ok if outcome.result["timed_out"] == true => PromptRun::wrong(code, TOOK_TOO_LONG),
            CallStatus::Ok if typed.quiet && code != 0 => {
                PromptRun::wrong(code, outcome.result["stderr"].as_str().unwrap_or_default().trim_end())
            }
            CallStatus::Ok => {
                let printed = if typed.quiet { printed(self.session, &outcome)? } else { Vec::new() };
                PromptRun { code, printed, complaint: outcome.result["note"].as_str().map(str::to_owned) }
            }
            CallStatus::Error => PromptRun::wrong(code, outcome.text),
            CallStatus::Interrupted => PromptRun::wrong(code, "interrupted"),
        })
    }
}

fn printed(session: &Session, outcome: &ToolOutcome) -> Result<Vec<u8>, Failure> {
    let mut content = None;
    session.visit_between(outcome.call, outcome.finished, &mut |event| {
        if let Some(Ok(result)) = event.typed::<CommandResult>() {
            content = Some(result.event.stdout.content);
        }
        ControlFlow::Continue(())
    })?;
    content.map_or(Ok(Vec::new()), |content| Ok(session.content(&content)?.to_vec()))
}
