//! `foldspace run`: makes the calls of a script in a session.

mod expected;
mod mounts;
mod naming;
mod report;
mod script;
mod summary;

pub(in crate::cli) use mounts::{MountArgs, allowed_roots};

use std::path::PathBuf;
use std::time::Duration;

use foldspace::event::{CallStatus, MountHydrated};
use foldspace::hub::OpenSession;
use foldspace::store::Durability;
use foldspace::tools::{ShellRules, hydrate};
use foldspace::{ToolCall, ToolOutcome, WorkspaceSpec};
use tokio_util::sync::CancellationToken;

use super::Globals;
use super::exit::{Exit, Failure};
use super::local_server::LocalServer;
use super::open::{self, OpenedStore};
use super::output::{self, Out};
use super::workspace::{self, RuleArgs, WorkspaceArgs};
use super::{interrupt, text};
use naming::OpenedSession;
use report::RunReport;
pub(super) use script::{CallScript, Expect, ScriptStep};
use summary::Summary;

/// Makes the tool calls of a script in a session, and records them
#[derive(Debug, clap::Args)]
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
    /// Goes on with the session of that name, or begins it; else a new one is named after the script
    #[arg(long, value_name = "NAME")]
    session: Option<String>,
    /// Who makes the calls for which the script names nobody
    #[arg(long, value_name = "NAME", value_parser = workspace::agent_name)]
    agent: Option<String>,
    /// Goes on after a call that went wrong
    #[arg(long)]
    keep_going: bool,
    /// Does not wait for the disk after each call: a crash may lose the last moments
    #[arg(long)]
    no_wait: bool,
    /// How long one call may take, in seconds
    #[arg(long, value_name = "SECS", value_parser = seconds)]
    timeout: Option<Duration>,
    #[command(flatten)]
    mounts: mounts::MountArgs,
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
        self.expected.check()?;
        let script = CallScript::read(&self.script)?;
        let mounts = self.mounts.chosen()?;
        let durability = if self.no_wait { Durability::Buffered } else { Durability::Synced };
        let opened = open::writing(globals, durability)?;
        let expected = self.expected.find(globals, &opened)?;
        let begun = naming::begin(&opened.sessions, self.session.as_deref(), &script.name, self.workspace.spec()?)?;
        out.go_live_for_good()?;
        let summary = super::block_on(self.in_workspace(globals, &opened, &begun, &script, &mounts, out))??;
        // What was not waited for is on the disk before anything is said of it.
        opened.sessions.store().sync()?;
        let as_expected =
            expected.map(|expected| expected.compare(&begun, summary.before, globals, out)).transpose()?;
        summary.show(&begun, globals, out)?;
        match (summary.exit(), as_expected) {
            (Exit::Ok, Some(false)) => Ok(Exit::Failed),
            (exit, _) => Ok(exit),
        }
    }

    /// Makes the calls where the session's workspace is. Of a session that is new nothing is left when that can't be
    /// made ready.
    async fn in_workspace(
        &self,
        globals: &Globals,
        opened: &OpenedStore,
        begun: &OpenedSession,
        script: &CallScript,
        mounts: &mounts::Chosen,
        out: &mut Out,
    ) -> Result<Summary, Failure> {
        // From now on nobody else works in a new one, so that it can be taken back.
        let _lease = if begun.is_new { Some(begun.session.lease()?) } else { None };
        let desk = LocalServer::of_command(globals, &opened.sessions, ShellRules::default())?;
        let ready = self.ready(&desk, begun, mounts, out).await;
        let summary = match ready {
            Ok(open) => self.calls(begun, &open, script, out).await,
            Err(failure) => {
                desk.close().await;
                return Err(discarded(globals, opened, begun, failure));
            }
        };
        desk.close().await;
        summary
    }

    async fn ready(
        &self,
        desk: &LocalServer,
        begun: &OpenedSession,
        mounts: &mounts::Chosen,
        out: &mut Out,
    ) -> Result<OpenSession, Failure> {
        let open = desk.hub().open(begun.session.id()).await?;
        self.mount(begun, &open, mounts, out).await?;
        Ok(open)
    }

    /// Copies host directories into a workspace that is empty.
    async fn mount(
        &self,
        begun: &OpenedSession,
        open: &OpenSession,
        mounts: &mounts::Chosen,
        out: &mut Out,
    ) -> Result<(), Failure> {
        let (is_here, workspace) = (open.dispatcher().is_some(), LocalServer::workspace_of(open));
        let hydrated = match is_here {
            true => hydrate(&begun.session, workspace.as_ref(), &mounts.specs, &mounts.roots).await?,
            false => Vec::new(),
        };
        if hydrated.is_empty() && !mounts.specs.is_empty() {
            output::note("the workspace is not new; the mounts were not copied again");
        }
        if !out.is_json() {
            hydrated.iter().try_for_each(|mount| out.line(copied(mount)))?;
        }
        Ok(())
    }

    async fn calls(
        &self,
        begun: &OpenedSession,
        open: &OpenSession,
        script: &CallScript,
        out: &mut Out,
    ) -> Result<Summary, Failure> {
        let mut summary = Summary::before(begun, script)?;
        let mut report = RunReport::new(out, script, open.session());
        let workspace = LocalServer::workspace_of(open);
        report.watch(workspace.as_ref());
        let open = open.ruled(self.rules.asking(report.bar()))?;
        let open = self.agent.as_ref().map_or_else(|| open.clone(), |agent| open.by(agent));
        let cancel = CancellationToken::new();
        interrupt::watch(cancel.clone(), &workspace);
        for step in &script.steps {
            if cancel.is_cancelled() {
                break;
            }
            report.begin(step);
            let outcome = self.call(&open, step, &cancel).await;
            let outcome = outcome.map_err(|failure| failure.at(&format!("line {} of {}", step.line, script.place)))?;
            let right = is_right(step, outcome.status);
            let agent = step.agent.as_deref().or(self.agent.as_deref()).unwrap_or_default();
            report.end(step, agent, &outcome, right)?;
            summary.count(step, outcome.status, right);
            if !right && !self.keep_going {
                break;
            }
        }
        report.finish();
        summary.interrupted = cancel.is_cancelled();
        Ok(summary)
    }

    async fn call(
        &self,
        open: &OpenSession,
        step: &ScriptStep,
        cancel: &CancellationToken,
    ) -> Result<ToolOutcome, Failure> {
        let mut call = ToolCall::new(step.tool.clone(), step.params.clone());
        call.limit = self.timeout;
        call.cancel = cancel.child_token();
        Ok(match &step.agent {
            Some(agent) => open.by(agent).call(call).await?,
            None => open.call(call).await?,
        })
    }
}

/// Takes back a session that was begun and can't be used; gives why it can't.
fn discarded(globals: &Globals, opened: &OpenedStore, begun: &OpenedSession, failure: Failure) -> Failure {
    if !begun.is_new {
        return failure;
    }
    let spec = begun.session.started().and_then(|started| WorkspaceSpec::of_session(started).ok());
    let take_back = || -> Result<(), Failure> {
        if let Some(spec) = spec {
            spec.remove(begun.session.id(), &open::directory(globals)?)?;
        }
        Ok(opened.sessions.remove(begun.session.id())?)
    };
    let removed = take_back();
    if let Err(Failure::Told { message, .. }) = removed {
        output::note(&format!("the session that was begun could not be taken back: {message}"));
    }
    failure
}

fn is_right(step: &ScriptStep, status: CallStatus) -> bool {
    match step.expect {
        Expect::Ok => status == CallStatus::Ok,
        Expect::Error => status == CallStatus::Error,
    }
}

fn copied(mount: &MountHydrated) -> String {
    let (files, bytes) = (text::count(mount.files, "file"), text::size(mount.bytes));
    let (host, path) = (text::one_line(&mount.host_path, 4096), mount.mount_path.rooted());
    format!("copied {host} to {path}: {files}, {bytes}")
}
