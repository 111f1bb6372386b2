//! `session_bisect`: the first change after which something is bad.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use rmcp::model::{ProgressNotificationParam, Tool};
use schemars::JsonSchema;
use serde::Deserialize;
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;

use super::shorten::Shortened;
use super::{OperationContext, OperationEffect, OperationError, OperationOutcome, allowing};
use crate::backends::ShellCommand;
use crate::tools::WorkspaceError;
use crate::tools::{BisectReport, Bisection, Predicate, ProbeRecord, bisect, bisect_slices};
use crate::view::{self, BisectDocument, Position};

pub(super) const NAME: &str = "session_bisect";

/// How long a command may run in each probe.
const TIMEOUT: f64 = 120.0;
const TIMEOUT_MAX: f64 = 600.0;

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct BisectParams {
    /// The session, by name or by the beginning of its id; this client's own by default.
    session: Option<String>,
    /// The command that succeeds at the good position and fails at the bad one: a text for /bin/sh, or a program with its
    /// arguments. 125 says that it can't tell. It is asked about as other commands are, once for all of its runs.
    command: Option<ProbeCommand>,
    /// In place of a command: a predicate over slices, such as "count(VirtualFileSystem) > 10".
    predicate: Option<String>,
    /// A good position; by default before the first call, with a predicate before the first event.
    good: Option<Position>,
    /// A bad position after it; by default the last one.
    bad: Option<Position>,
    /// How long the command may run each time, 0.1 to 600 seconds; 120 by default.
    timeout_seconds: Option<f64>,
}

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(untagged)]
enum ProbeCommand {
    Text(String),
    Words(Vec<String>),
}

pub(super) fn tool() -> Tool {
    let words = "Finds the first change in a session's history after which a command fails, by running it in throw-away \
                 copies of the workspace as it was; or after which a predicate over slices holds. The session is only read.";
    super::tool::<BisectParams, Shortened<BisectDocument>>(NAME, words, OperationEffect::Runs)
}

pub(super) async fn call(
    request: OperationContext<'_>,
    params: BisectParams,
) -> Result<OperationOutcome, OperationError> {
    let document = match (&params.command, &params.predicate) {
        (Some(command), None) => {
            allowing::check_offer(&request)?;
            let command = shell_command(command, params.timeout_seconds)?;
            by_command(&request, &params, command).await?
        }
        (None, Some(predicate)) => by_slice(&request, &params, predicate).await?,
        _ => return Err(OperationError("give either a command or a predicate".to_owned())),
    };
    Ok(OperationOutcome::new(words(&document), &document)?
        .shortened("session_diff shows what changed between two positions"))
}

async fn by_slice(
    request: &OperationContext<'_>,
    params: &BisectParams,
    text: &str,
) -> Result<BisectDocument, OperationError> {
    let session = request.session(params.session.as_deref()).await?;
    let predicate = Predicate::parse(text, request.client.hub().sessions().registry())?;
    let (good, bad) = (params.good, params.bad);
    super::reading(move || {
        let good = super::position(&session, good, 0)?;
        let bad = super::position(&session, bad, session.head()?)?;
        let found = bisect_slices(&session, &predicate, good, bad)?;
        Ok(view::bisected_by_slice(&session, &predicate, (good, bad), &found)?)
    })
    .await
}

fn shell_command(command: &ProbeCommand, seconds: Option<f64>) -> Result<ShellCommand, OperationError> {
    let mut shell = match command {
        ProbeCommand::Text(text) => ShellCommand::shell(text.clone()),
        ProbeCommand::Words(words) => ShellCommand::args(words.iter().cloned()),
    };
    let seconds = seconds.unwrap_or(TIMEOUT);
    if !(0.1..=TIMEOUT_MAX).contains(&seconds) {
        return Err(OperationError("timeout_seconds is a number from 0.1 to 600".to_owned()));
    }
    shell.timeout = Some(Duration::try_from_secs_f64(seconds)?);
    shell.check()?;
    Ok(shell)
}

async fn by_command(
    request: &OperationContext<'_>,
    params: &BisectParams,
    command: ShellCommand,
) -> Result<BisectDocument, OperationError> {
    let session = request.session(params.session.as_deref()).await?;
    let own = request.client.joined(request.context).await?.open.session().clone();
    let (policy, home) = (request.client.options().rules.policy.clone(), request.client.hub().options().home.clone());
    let (client, good, bad) = (own.clone(), params.good, params.bad);
    let wanted = super::reading(move || {
        let end = |end: Option<Position>| end.map(|end| end.resolve(&session)).transpose();
        let ends = (end(good)?, end(bad)?);
        allowing::wanted(&client, session, command, policy, ends, home)
    });
    let bisection = allowing::decided(request, &own, wanted.await?).await?;
    let report = told(request, &bisection).await?;
    super::reading(move || Ok(view::bisected(&bisection.session, &report)?)).await
}

/// Searches and tells of each probe, until it is done or taken back.
async fn told(request: &OperationContext<'_>, bisection: &Bisection) -> Result<BisectReport, OperationError> {
    let cancel = request.client.gone.child_token();
    let (seen, records) = mpsc::unbounded_channel();
    let (search, told) = (search(bisection, seen, &cancel), tell(request, records));
    let mut work = std::pin::pin!(async { tokio::join!(search, told).0 });
    let report = tokio::select! {
        report = &mut work => report?,
        () = request.context.ct.cancelled() => {
            // The probes are removed first.
            cancel.cancel();
            work.await?
        }
    };
    Ok(report)
}

async fn search(
    bisection: &Bisection,
    seen: mpsc::UnboundedSender<String>,
    cancel: &CancellationToken,
) -> Result<BisectReport, WorkspaceError> {
    let note = |record: &ProbeRecord| {
        let words = format!("position {}: exit {}", record.seq, record.exit_code);
        // There are as many as probes: few.
        drop(seen.send(words));
    };
    bisect(bisection, &note, cancel).await
}

/// Tells a client that wants to know of each probe.
async fn tell(request: &OperationContext<'_>, mut records: mpsc::UnboundedReceiver<String>) {
    let Some(token) = request.context.meta.get_progress_token() else { return };
    let probes = AtomicU64::new(0);
    while let Some(words) = records.recv().await {
        let count = u32::try_from(probes.fetch_add(1, Ordering::Relaxed) + 1).unwrap_or(u32::MAX);
        let said = ProgressNotificationParam::new(token.clone(), f64::from(count)).with_message(words);
        if request.context.peer.notify_progress(said).await.is_err() {
            return;
        }
    }
}

fn words(found: &BisectDocument) -> String {
    let mut text = match found.first_bad {
        Some(first) => format!("the first bad change is event {first}; {} is good", found.good),
        None => {
            let which: Vec<String> = found.bad.iter().map(|bad| bad.seq.to_string()).collect();
            format!("the first bad change is one of {}; {} is good", which.join(", "), found.good)
        }
    };
    for bad in &found.bad {
        for change in &bad.changes {
            text.push_str(&format!("\n{}", change.patch));
        }
    }
    text
}
