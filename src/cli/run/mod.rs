mod expected;
pub(in crate::cli) mod mounts;
pub(in crate::cli) mod naming;
mod report;
mod script;
mod summary;

use std::path::PathBuf;
use std::time::Duration;

use foldspace::event::MountHydrated;
use foldspace::hub::operations::{CopiedMounts, CopyMounts, NewMount};
use foldspace::reducers::{Allowances, Mounts};
use foldspace::store::Durability;
use foldspace::{Session, Sessions};
use tokio_util::sync::CancellationToken;

use mounts::MountArgs;

use super::calling::{self, Calling};
use super::{
    Exit, Failure, Globals, Out, OwnerClient, RuleArgs, WorkspaceArgs, interrupt, new, output, owner, text, workspace,
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
    /// Continues or starts the session with this name [default: a new session, named after the script]
    #[arg(long, value_name = "NAME")]
    session: Option<String>,
    /// The agent of calls without one in the script
    #[arg(long, value_name = "NAME", value_parser = workspace::agent_name)]
    agent: Option<String>,
    /// Continues after a failed call
    #[arg(long)]
    keep_going: bool,
    /// Skips the lines before line N
    #[arg(long, value_name = "N")]
    from_line: Option<u64>,
    /// Shows the output of commands; --json always includes it
    #[arg(long)]
    show_output: bool,
    /// Does not wait for the disk after each call: a crash may lose the last calls
    #[arg(long)]
    no_wait: bool,
    /// Limits the time of each call; its command has a separate limit, see --max-timeout
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
    let wrong = || "expected a number of seconds above 0, such as 30 or 0.5".to_owned();
    let seconds: f64 = text.parse().map_err(|_| wrong())?;
    let limit = Duration::try_from_secs_f64(seconds).map_err(|_| wrong())?;
    if limit.is_zero() { Err(wrong()) } else { Ok(limit) }
}

impl RunArgs {
    pub(super) fn run(&self, globals: &Globals, out: &mut Out) -> Result<Exit, Failure> {
        let mut script = CallScript::read(&self.script)?;
        self.from_line.map_or(Ok(()), |line| script.skip_to(line))?;
        let mounts = self.mounts.chosen()?;
        let durability = if self.no_wait { Durability::Buffered } else { Durability::Synced };
        super::block_on(async {
            let owner = OwnerClient::of(globals, durability).await?;
            self.check(&script, &owner).await?;
            let opened = owner.sessions()?;
            let expected = self.expected.find(globals, &opened)?;
            let usual = expected.as_ref().map(|expected| expected.spec(globals)).transpose()?.unwrap_or_default();
            let (wanted, spec) = (self.session.as_deref(), self.workspace.spec()?);
            let chosen = naming::choose(&opened.sessions, wanted, &script.name, spec, usual)?;
            self.check_commands(&script, &chosen)?;
            out.go_live_for_good()?;
            let run = ScriptRun { args: self, owner: &owner, script: &script, mounts: &mounts };
            let ran = run.in_session(&opened.sessions, chosen, out).await;
            // Makes everything durable before the summary, since --no-wait did not wait.
            let synced = opened.sessions.store().sync();
            owner.end().await;
            let (session, summary) = ran?;
            synced?;
            let as_expected =
                expected.map(|expected| expected.compare(&session, summary.before, globals, out)).transpose()?;
            let exit = if as_expected == Some(false) { Exit::Failed } else { Exit::Ok };
            let exit = if summary.exit() == Exit::Ok { exit } else { summary.exit() };
            summary.show(&session, &self.script, globals, out)?;
            Ok(exit)
        })?
    }
}

impl RunArgs {
    async fn check(&self, script: &CallScript, owner: &OwnerClient) -> Result<(), Failure> {
        let tools = owner::all_tools()?;
        let others = match script.has_others(&tools) {
            true => registered(owner, self.session.as_deref()).await?,
            false => Vec::new(),
        };
        script.check(&tools, &others)
    }

    fn check_commands(&self, script: &CallScript, chosen: &ChosenSession) -> Result<(), Failure> {
        let rules = self.rules.asking(None)?;
        match chosen {
            ChosenSession::New(_, spec) => script.check_commands(spec, &rules, &Allowances::default()),
            ChosenSession::Known(session) => {
                let allowed = session.state()?.slice().cloned().unwrap_or_default();
                script.check_commands(&workspace::spec_of(session)?, &rules, &allowed)
            }
        }
    }
}

/// Returns the tools that other programs have registered, for a session or for all.
async fn registered(owner: &OwnerClient, session: Option<&str>) -> Result<Vec<String>, Failure> {
    #[derive(serde::Deserialize)]
    struct Named {
        name: String,
    }
    let known = match session {
        Some(session) => owner.client.session(session).await.ok(),
        None => None,
    };
    let query = known.map_or_else(String::new, |known| format!("?session={}", known.session));
    let tools: Vec<Named> = owner.client.get(&format!("/v1/tools{query}")).await?;
    Ok(tools.into_iter().map(|tool| tool.name).collect())
}

/// The run of a script through the owner.
struct ScriptRun<'a> {
    args: &'a RunArgs,
    owner: &'a OwnerClient,
    script: &'a CallScript,
    mounts: &'a mounts::Chosen,
}

impl ScriptRun<'_> {
    /// Makes the calls in the session's workspace. If the workspace of a new session can't be opened, the session is
    /// removed.
    async fn in_session(
        &self,
        sessions: &Sessions,
        chosen: ChosenSession,
        out: &mut Out,
    ) -> Result<(Session, Summary), Failure> {
        let is_new = matches!(chosen, ChosenSession::New(..));
        let (session, copied) = match chosen {
            ChosenSession::New(name, spec) => {
                let begun = new::create(self.owner, name, &spec, self.mounts, None).await?;
                let session = sessions.session(begun.session)?;
                let mounts = session.state()?.slice().map(|mounts: &Mounts| mounts.iter().cloned().collect());
                (session, mounts.unwrap_or_default())
            }
            ChosenSession::Known(session) => {
                let (name, head) = (text::one_line(session.name(), 80), session.head()?);
                output::note(&format!("session {name} continues after {}", text::count(head, "event")));
                let copied = self.copy_mounts(&session).await?;
                (session, copied)
            }
        };
        if copied.is_empty() && !self.mounts.specs.is_empty() {
            output::note("the workspace is not empty; the mounts were not copied");
        }
        if !out.is_json() {
            copied.iter().try_for_each(|mount| out.line(told(mount)))?;
        }
        let summary = self.calls(&session, is_new, out).await?;
        Ok((session, summary))
    }

    /// Copies the mounts if the workspace is still empty. This opens the workspace, which records external changes.
    async fn copy_mounts(&self, session: &Session) -> Result<Vec<MountHydrated>, Failure> {
        let mounts = self.mounts.specs.iter().map(NewMount::from).collect();
        let asked = CopyMounts { mounts, allow_roots: self.mounts.named_roots() };
        let path = format!("/v1/sessions/{}/mounts", session.id());
        let done: CopiedMounts = self.owner.client.work(&path, &asked, output::progress).await?;
        Ok(done.copied)
    }

    async fn calls(&self, session: &Session, is_new: bool, out: &mut Out) -> Result<Summary, Failure> {
        let (args, script) = (self.args, self.script);
        let mut summary = Summary::before(session, is_new, script)?;
        let mut report = RunReport::new(out, script, session, args.show_output);
        let (rules, id) = (args.rules.asking(report.bar())?, session.id().to_string());
        let cancel = CancellationToken::new();
        interrupt::watch(cancel.clone(), self.owner.closing());
        for step in &script.steps {
            if cancel.is_cancelled() {
                break;
            }
            report.begin(step);
            let agent = step.agent.as_deref().or(args.agent.as_deref());
            let mut request = calling::request(&step.tool, step.params.clone(), agent, &rules);
            request.timeout_seconds = args.timeout.map(|limit| limit.as_secs_f64());
            let (client, cancel) = (&self.owner.client, cancel.child_token());
            let call = Calling { client, session: &id, name: session.name(), request, rules: &rules, cancel };
            let outcome = call.make(None, |line| report.progress(line)).await;
            let place = || format!("line {} of {}", step.line, script.place);
            let outcome = outcome.map_err(|failure| failure.at(&place()))?;
            let right = step.expect.is_met(outcome.status);
            report.end(step, agent.unwrap_or_default(), &outcome, right)?;
            summary.count(step, &outcome, right);
            if !right && !args.keep_going {
                break;
            }
        }
        report.finish();
        summary.interrupted = cancel.is_cancelled();
        Ok(summary)
    }
}

pub(in crate::cli) fn told(mount: &MountHydrated) -> String {
    let (files, bytes) = (text::count(mount.files, "file"), text::size(mount.bytes));
    let (host, path) = (text::one_line(&mount.host_path, 4096), mount.mount_path.rooted());
    format!("copied {host} to {path}: {files}, {bytes}")
}
