use std::sync::Arc;

use foldspace::event::{CallStatus, CommandResult};
use foldspace::hub::OpenSession;
use foldspace::view::Position;
use foldspace::{Session, Sessions, ToolCall, ToolOutcome, Workspace};
use serde_json::json;

use super::interrupt::minding;
use super::live::LiveOutput;
use super::prompt::{LinePrompt, PromptRun, Typed};
use super::{
    Exit, Failure, Globals, LocalServer, Out, RuleArgs, Signals, events, external_command, open, text, workspace,
};

/// Opens a prompt in a session's workspace, and records each line
///
/// /bin/sh runs each line as a call. `cd` moves the prompt; other shell state, such as variables, lasts for one
/// line. `exit` or Ctrl-D ends the prompt; Ctrl-C cancels the command, and a second one ends the prompt.
#[derive(Debug, clap::Args)]
#[command(mut_args(workspace::unasked))]
pub(super) struct ShellArgs {
    /// The session, by name or by the beginning of its id
    session: String,
    /// The agent of the calls
    #[arg(long, value_name = "NAME", default_value = "person", value_parser = workspace::agent_name)]
    agent: String,
    /// Opens a throw-away copy of the workspace as it was at POSITION instead; nothing is recorded there
    #[arg(long, value_name = "POSITION", allow_hyphen_values = true)]
    at: Option<Position>,
    #[command(flatten)]
    rules: RuleArgs,
}

impl ShellArgs {
    pub(super) fn run(&self, globals: &Globals, out: &mut Out) -> Result<Exit, Failure> {
        if let Some(at) = &self.at {
            // A prompt may stay open for hours, and must not hold the store.
            let opened = open::following(globals)?;
            let session = opened.find(&self.session)?.session;
            out.go_live_for_good()?;
            return external_command::shell_at(globals, &session, at.resolve(&session)?);
        }
        let opened = open::changing(globals)?;
        let session = opened.find(&self.session)?.session;
        out.go_live_for_good()?;
        super::block_on(self.prompt(globals, &opened.sessions, &session))?
    }

    async fn prompt(&self, globals: &Globals, sessions: &Sessions, session: &Session) -> Result<Exit, Failure> {
        let desk = LocalServer::of_command(globals, sessions, self.rules.typed())?;
        let open = desk.hub().open(session.id()).await?.as_agent(&self.agent);
        let ended = match LocalServer::workspace_of(&open) {
            workspace if open.tool_runner().is_some() && workspace.shell().is_none() => {
                let what = format!("the {} workspace of {} has no shell", workspace.backend_name(), session.name());
                let failure = Failure::usage(what);
                let hint = "begin a session with `foldspace run --backend host` or `--backend podman`";
                Err(failure.with_hint(hint))
            }
            workspace => {
                let prompt = LinePrompt::new(text::one_line(open.session().name(), 80), workspace.root());
                prompt.read_lines(async move |typed, signals| run(&open, &workspace, typed, signals).await).await
            }
        };
        desk.close().await;
        ended
    }
}

async fn run(
    open: &OpenSession,
    workspace: &Arc<dyn Workspace>,
    typed: Typed<'_>,
    signals: &mut Signals,
) -> Result<PromptRun, Failure> {
    let call = ToolCall::new("shell_execute", json!({ "command": typed.command, "cwd": typed.cwd.rooted() }));
    let cancel = call.cancel.clone();
    let work = async {
        let mut live = None;
        let begun = |call| live = (!typed.quiet).then(|| LiveOutput::begin(open.session(), call, &cancel));
        let outcome = open.call_telling(call, begun).await;
        if let Some(live) = live {
            live?.end().await?;
        }
        Ok::<ToolOutcome, Failure>(outcome?)
    };
    let outcome = minding(signals, &cancel, workspace, work).await?;
    let code = outcome.result["exit_code"].as_i64().unwrap_or(1);
    Ok(match outcome.status {
        CallStatus::Ok if typed.quiet && code != 0 => {
            PromptRun::wrong(code, outcome.result["stderr"].as_str().unwrap_or_default().trim_end())
        }
        CallStatus::Ok => {
            let printed = if typed.quiet { printed(open, &outcome)? } else { Vec::new() };
            PromptRun { code, printed, complaint: None }
        }
        CallStatus::Error => PromptRun::wrong(code, outcome.text),
        CallStatus::Interrupted => PromptRun::wrong(code, "interrupted"),
    })
}

fn printed(open: &OpenSession, outcome: &ToolOutcome) -> Result<Vec<u8>, Failure> {
    let mut content = None;
    events::each(open.session(), outcome.call, outcome.finished, |event| {
        if let Some(Ok(result)) = event.typed::<CommandResult>() {
            content = Some(result.event.stdout.content);
        }
        Ok(())
    })?;
    content.map_or(Ok(Vec::new()), |content| Ok(open.session().content(&content)?.to_vec()))
}
