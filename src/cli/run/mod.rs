mod expected;
pub(in crate::cli) mod mounts;
mod naming;
mod report;
mod script;
mod summary;

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use foldspace::backends::ProgressWatch;
use foldspace::event::MountHydrated;
use foldspace::hub::{HubOptions, OpenSession};
use foldspace::reducers::Mounts;
use foldspace::store::Durability;
use foldspace::tools::hydrate;
use foldspace::{Hub, Session, Sessions, ToolCall};
use tokio_util::sync::CancellationToken;

use mounts::MountArgs;

use super::{
    Exit, Failure, Globals, LocalServer, Out, RuleArgs, WorkspaceArgs, interrupt, open, output, text, workspace,
};
use naming::ChosenSession;
use report::RunReport;
pub(super) use script::{CallScript, ScriptStep};
use summary::Summary;

/// Makes the tool calls of a script in a session
#[derive(Debug, clap::Args)]
#[command(mut_args(expected::wants_session))]
#[command(after_help = "\
A script has one JSON object a line; blank lines, and lines that begin with # or //, are skipped:
  {\"tool\": \"write_file\", \"params\": {\"file_path\": \"a.txt\", \"content\": \"hello\\n\"}}
  {\"tool\": \"rm\", \"params\": {\"path\": \"nothing\"}, \"agent\": \"tidy\", \"expect\": \"error\"}
The whole script is checked before the first call. With \"expect\": \"error\" a call must fail.

Examples:
  foldspace run script.jsonl --mount ./project --mount-exclude 'target/**'
  generate-calls | foldspace run - --session nightly --keep-going")]
pub(super) struct RunArgs {
    /// The script; - is standard input
    #[arg(value_hint = clap::ValueHint::FilePath)]
    script: PathBuf,
    /// Continues the session of that name, or begins it; else a new one is named after the script
    #[arg(long, value_name = "NAME")]
    session: Option<String>,
    /// The agent of calls for which the script names none
    #[arg(long, value_name = "NAME", value_parser = workspace::agent_name)]
    agent: Option<String>,
    /// Continues after a call that went wrong
    #[arg(long)]
    keep_going: bool,
    /// Does not wait for the disk after each call: a crash may lose the last moments
    #[arg(long)]
    no_wait: bool,
    /// Limits the time of one call
    #[arg(long, value_name = "SECS", value_parser = seconds)]
    timeout: Option<Duration>,
    #[command(flatten)]
    mounts: MountArgs,
    #[command(flatten)]
    workspace: WorkspaceArgs,
    #[command(flatten)]
    rules: RuleArgs,
    #[command(flatten)]
    expected: expected::ExpectArgs,
}

fn seconds(text: &str) -> Result<Duration, String> {
    let wrong = || "give a number of seconds above 0, such as 30 or 0.5".to_owned();
    let seconds: f64 = text.parse().map_err(|_| wrong())?;
    let limit = Duration::try_from_secs_f64(seconds).map_err(|_| wrong())?;
    if limit.is_zero() { Err(wrong()) } else { Ok(limit) }
}

impl RunArgs {
    pub(super) fn run(&self, globals: &Globals, out: &mut Out) -> Result<Exit, Failure> {
        let script = CallScript::read(&self.script)?;
        let mounts = self.mounts.chosen()?;
        let durability = if self.no_wait { Durability::Buffered } else { Durability::Synced };
        let opened = open::writing(globals, durability)?;
        let expected = self.expected.find(globals, &opened)?;
        let chosen = naming::choose(&opened.sessions, self.session.as_deref(), &script.name, self.workspace.spec()?)?;
        out.go_live_for_good()?;
        let run = ScriptRun { args: self, chosen, script: &script, mounts: &mounts };
        let (session, summary) = super::block_on(run.in_workspace(globals, &opened.sessions, out))??;
        // What was not waited for is on the disk before anything is said of it.
        opened.sessions.store().sync()?;
        let as_expected =
            expected.map(|expected| expected.compare(&session, summary.before, globals, out)).transpose()?;
        let exit = if as_expected == Some(false) { Exit::Failed } else { Exit::Ok };
        let exit = if summary.exit() == Exit::Ok { exit } else { summary.exit() };
        summary.show(&session, globals, out)?;
        Ok(exit)
    }
}

/// A script with its session.
struct ScriptRun<'a> {
    args: &'a RunArgs,
    chosen: ChosenSession,
    script: &'a CallScript,
    mounts: &'a mounts::Chosen,
}

impl ScriptRun<'_> {
    async fn in_workspace(
        &self,
        globals: &Globals,
        sessions: &Sessions,
        out: &mut Out,
    ) -> Result<(Session, Summary), Failure> {
        let (progress, roots) = (Some(Arc::new(output::progress) as ProgressWatch), self.mounts.roots.clone());
        let desk =
            LocalServer::open(sessions, HubOptions { progress, roots, ..HubOptions::new(open::directory(globals)?) });
        let ran = self.in_session(desk.hub(), out).await;
        desk.close().await;
        ran
    }

    /// Makes the calls in the session's workspace. Of a new session whose workspace can't be opened nothing is left.
    async fn in_session(&self, hub: &Hub, out: &mut Out) -> Result<(Session, Summary), Failure> {
        let mounts::Chosen { specs, roots } = self.mounts;
        let (open, copied) = match &self.chosen {
            ChosenSession::New(name, spec) => {
                let open = hub.create(Some(name.clone()), spec, specs).await?;
                let mounts = open.session().state()?.slice().map(|mounts: &Mounts| mounts.iter().cloned().collect());
                (open, mounts.unwrap_or_default())
            }
            ChosenSession::Known(session) => {
                let open = hub.open(session.id()).await?;
                let copied = match open.tool_runner() {
                    Some(runner) => hydrate(session, runner.workspace().as_ref(), specs, roots).await?,
                    None => Vec::new(),
                };
                (open, copied)
            }
        };
        if copied.is_empty() && !specs.is_empty() {
            output::note("the workspace is not new; the mounts were not copied again");
        }
        if !out.is_json() {
            copied.iter().try_for_each(|mount| out.line(told(mount)))?;
        }
        let summary = self.calls(&open, out).await?;
        Ok((open.session().clone(), summary))
    }

    async fn calls(&self, open: &OpenSession, out: &mut Out) -> Result<Summary, Failure> {
        let (args, script) = (self.args, self.script);
        let is_new = matches!(self.chosen, ChosenSession::New(..));
        let mut summary = Summary::before(open.session(), is_new, script)?;
        let mut report = RunReport::new(out, script, open.session());
        let workspace = LocalServer::workspace_of(open);
        report.watch(workspace.as_ref());
        let open = open.with_shell_rules(args.rules.asking(report.bar()))?;
        let open = match &args.agent {
            Some(agent) => open.as_agent(agent),
            None => open,
        };
        let cancel = CancellationToken::new();
        interrupt::watch(cancel.clone(), &workspace);
        for step in &script.steps {
            if cancel.is_cancelled() {
                break;
            }
            report.begin(step);
            let mut call = ToolCall::new(step.tool.clone(), step.params.clone());
            (call.limit, call.cancel) = (args.timeout, cancel.child_token());
            let outcome = match &step.agent {
                Some(agent) => open.as_agent(agent).call(call).await,
                None => open.call(call).await,
            };
            let place = || format!("line {} of {}", step.line, script.place);
            let outcome = outcome.map_err(|error| Failure::from(error).at(&place()))?;
            let right = step.expect.is_met(outcome.status);
            let agent = step.agent.as_deref().or(args.agent.as_deref()).unwrap_or_default();
            report.end(step, agent, &outcome, right)?;
            summary.count(step, outcome.status, right);
            if !right && !args.keep_going {
                break;
            }
        }
        report.finish();
        summary.interrupted = cancel.is_cancelled();
        Ok(summary)
    }
}

fn told(mount: &MountHydrated) -> String {
    let (files, bytes) = (text::count(mount.files, "file"), text::size(mount.bytes));
    let (host, path) = (text::one_line(&mount.host_path, 4096), mount.mount_path.rooted());
    format!("copied {host} to {path}: {files}, {bytes}")
}
