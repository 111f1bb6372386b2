//! Search for the first change after which a command fails or a predicate holds.

use std::collections::BTreeSet;
use std::ops::{ControlFlow, RangeInclusive};
use std::sync::Arc;
use std::time::Duration;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::{Operation, OperationContext, OperationEffect, OperationError, OperationRoute, OperationTool, TooLong};
use super::{position, reading};
use crate::backends::ShellCommand;
use crate::engine::clock::Timestamp;
use crate::engine::event::ChildMerged;
use crate::engine::id::{Seq, SessionId};
use crate::engine::session::Session;
use crate::engine::session::error::SessionError;
use crate::tools::bisection::algorithm::BisectVerdict;
use crate::tools::{
    BisectFound, BisectReport, Bisection, EnvironmentDifference, Predicate, ProbeRecord, bisect, bisect_slices,
};
use crate::view::{self, ChangeDocument, Position, file_changes, whole};

/// Limit for concurrent probes.
const JOBS: usize = 64;
/// Allowed time limits of a command, in seconds.
const SECONDS: RangeInclusive<f64> = 0.1..=600.0;
/// Default time limit of a model's command, in seconds.
const MODELS_SECONDS: f64 = 120.0;
/// Number of bytes of each probe output that are returned.
const SHOWN: usize = 4096;

/// Finds the first change in a session's history after which a command fails or a predicate over slices holds. Runs the
/// command in throw-away copies of the workspace at past positions. The session is only read.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[schemars(rename = "BisectRequest")]
#[serde(deny_unknown_fields)]
pub struct Bisect {
    /// The command, which succeeds at the good position and fails at the bad one: a script for /bin/sh, or a program
    /// with its arguments. Exit code 125 skips a position. The command policy must allow it, once for all runs.
    /// Copies of a session with the `memory` backend run on the server's machine, without a sandbox.
    pub command: Option<ProbeCommand>,
    /// Instead of a command, a predicate over slices, such as `count(VirtualFileSystem) > 10`.
    #[serde(default, alias = "predicate")]
    pub slice: Option<String>,
    /// A good position; by default before the first call, or for a predicate before the first event.
    pub good: Option<Position>,
    /// A later, bad position; the last one by default.
    pub bad: Option<Position>,
    /// The number of concurrent probes, from 1 to 64.
    #[serde(default = "one")]
    pub jobs: usize,
    /// Time limit of each run, 0.1 to 600 seconds; 600 by default, 120 for a model.
    pub timeout_seconds: Option<f64>,
    /// Programs that the command may run without a question.
    #[serde(default)]
    pub allow: Vec<String>,
    /// True to answer every question about the command with yes.
    #[serde(default)]
    pub auto_confirm: bool,
}

/// The command of a bisection.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[serde(untagged)]
pub enum ProbeCommand {
    /// A script for /bin/sh.
    Text(String),
    /// A program with its arguments.
    Words(Vec<String>),
}

fn one() -> usize {
    1
}

impl Operation for Bisect {
    const NAME: &'static str = "bisect";
    const ROUTE: Option<OperationRoute> = OperationRoute::post("states", "/v1/sessions/{session}/bisect", 200);
    const TOOL: Option<OperationTool> = Some(
        OperationTool::new(
            "session_bisect",
            OperationEffect::Runs,
            TooLong::Cut("session_diff shows what changed between two positions"),
        )
        .hiding(&["jobs", "allow", "auto_confirm"]),
    );
    type Output = BisectDocument;

    async fn run(self, context: &OperationContext<'_>) -> Result<BisectDocument, OperationError> {
        match (&self.slice, &self.command) {
            (Some(predicate), None) => {
                let (text, session) = (predicate.clone(), context.session().await?);
                reading(move || self.by_slice(&session, &Predicate::parse_for(&text, &session.state()?)?)).await
            }
            (None, Some(command)) => {
                let command = self.shell_command(command, context.caller.is_model())?;
                self.by_command(context, command).await
            }
            _ => Err(OperationError::invalid("either a command or a predicate (`slice`) is required")),
        }
    }

    fn text(found: &BisectDocument) -> String {
        let mut text = match found.first_bad {
            Some(first) => format!("the first bad change is event {first}; {} is good", found.good),
            None => {
                let which: Vec<String> = found.bad.iter().map(|bad| bad.seq.to_string()).collect();
                format!("the first bad change is one of {}; {} is good", which.join(", "), found.good)
            }
        };
        for change in found.bad.iter().flat_map(|bad| &bad.changes) {
            text.push_str(&format!("\n{}", change.patch));
        }
        for difference in found.environment.iter().flatten() {
            text.push_str(&format!("\n{difference}"));
        }
        text
    }
}

impl Bisect {
    fn by_slice(&self, session: &Session, predicate: &Predicate) -> Result<BisectDocument, OperationError> {
        let good = position(session, self.good.clone(), 0)?;
        let bad = self.bad.as_ref().unwrap_or(&Position::Back(0)).resolve(session)?;
        let found = bisect_slices(session, predicate, good, bad)?;
        Ok(bisected_by_slice(session, predicate, (good, bad), &found)?)
    }

    fn shell_command(&self, command: &ProbeCommand, is_models: bool) -> Result<ShellCommand, OperationError> {
        let wrong = |what: String| Err(OperationError::invalid(what));
        if !(1..=JOBS).contains(&self.jobs) {
            return wrong(format!("jobs is {}; it must be from 1 to {JOBS}", self.jobs));
        }
        let usual = if is_models { MODELS_SECONDS } else { *SECONDS.end() };
        let seconds = self.timeout_seconds.unwrap_or(usual);
        if !SECONDS.contains(&seconds) {
            return wrong(format!("timeout_seconds is {seconds}; it must be from 0.1 to 600"));
        }
        let mut shell = match command {
            ProbeCommand::Words(words) => ShellCommand::args(words.iter().cloned()),
            ProbeCommand::Text(text) => ShellCommand::shell(text.clone()),
        };
        shell.timeout = Some(Duration::from_secs_f64(seconds));
        shell.check()?;
        Ok(shell)
    }

    async fn by_command(
        self,
        context: &OperationContext<'_>,
        command: ShellCommand,
    ) -> Result<BisectDocument, OperationError> {
        let session = context.session().await?;
        let mut rules = context.caller.rules().clone();
        rules.policy.auto_confirm |= self.auto_confirm;
        rules.policy.allow.extend(self.allow);
        let (home, jobs) = (context.hub.options().home.clone(), self.jobs);
        let bisection = reading(move || {
            let end = |end: Option<Position>| end.map(|end| end.resolve(&session)).transpose();
            let ends = (end(self.good)?, end(self.bad)?);
            Ok(Bisection::of_session(session, command, rules, ends, home, jobs)?)
        });
        let bisection = context.caller.allow(bisection.await?).await?;
        let note = |record: &ProbeRecord| {
            if let Some(progress) = &context.progress {
                // One message per probe, so an unbounded channel is fine.
                drop(progress.send(format!("position {}: exit {}", record.seq, record.exit_code)));
            }
        };
        let report = bisect(&bisection, &note, &context.cancel).await?;
        reading(move || Ok(bisected(&bisection.session, &report)?)).await
    }
}

/// The result of a bisection. With a command it has `between`, `checks`, `probes`, `several`, `left_out` and
/// `environment`; with a
/// predicate, `looks` and `predicate`.
#[derive(Debug, Clone, Default, Serialize, JsonSchema)]
#[schemars(rename = "Bisect")]
pub struct BisectDocument {
    /// The last position known to be good.
    pub good: Seq,
    /// The first bad position; null if skipped positions hide it.
    pub first_bad: Option<Seq>,
    /// The first bad change, or all candidates for it.
    pub bad: Vec<BadChange>,
    /// The ends of the search.
    pub ends: BisectEnds,
    /// The number of changes between them.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub between: Option<usize>,
    /// The probes of the ends.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub checks: Option<Vec<ProbeDocument>>,
    /// The probes of the search.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub probes: Option<Vec<ProbeDocument>>,
    /// True if a good position was found after a bad one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub several: Option<bool>,
    /// Paths that existed in the session but were missing from the probes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub left_out: Option<Vec<String>>,
    /// Differences between the session's container at the bad end and the probes' container.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub environment: Option<Vec<EnvironmentDifference>>,
    /// The positions where the predicate was evaluated.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub looks: Option<Vec<SliceLook>>,
    /// The predicate.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub predicate: Option<String>,
}

/// The searched range of positions.
#[derive(Debug, Clone, Copy, Default, Serialize, JsonSchema)]
pub struct BisectEnds {
    /// The good one.
    pub good: Seq,
    /// The bad one.
    pub bad: Seq,
}

/// A change that made the position bad.
#[derive(Debug, Clone, Serialize, JsonSchema)]
pub struct BadChange {
    /// Its position.
    pub seq: Seq,
    /// The agent that made it.
    #[schemars(with = "String")]
    pub agent: Arc<str>,
    /// The time, in UTC.
    #[schemars(with = "String")]
    pub time: Timestamp,
    /// The `CallStarted` event of its call, with long texts in full; null if no call made it.
    pub call: Value,
    /// The merge that made it, if it is one.
    pub merged: Option<BadMerge>,
    /// Its file changes.
    pub changes: Vec<ChangeDocument>,
}

/// A merge of a child that made a position bad.
#[derive(Debug, Clone, Serialize, JsonSchema)]
pub struct BadMerge {
    /// The child.
    #[schemars(with = "String")]
    pub child: SessionId,
    /// The child's name.
    pub name: String,
    /// The child's changes that were merged, by position in its history.
    pub seqs: BTreeSet<Seq>,
}

/// A command's run at a position.
#[derive(Debug, Clone, Serialize, JsonSchema)]
#[schemars(rename = "Probe")]
pub struct ProbeDocument {
    /// The position.
    pub seq: Seq,
    /// `good`, `bad` or `skip`.
    pub verdict: &'static str,
    /// The exit code of the command.
    pub exit_code: i32,
    /// True if it exceeded the time limit.
    pub timed_out: bool,
    /// Its duration in microseconds.
    pub micros: u64,
    /// Its output, cut at 4 KiB.
    pub stdout: String,
    /// Its error output, cut at 4 KiB.
    pub stderr: String,
}

/// An evaluation of the predicate.
#[derive(Debug, Clone, Copy, Serialize, JsonSchema)]
pub struct SliceLook {
    /// The position.
    pub seq: Seq,
    /// True if it holds.
    pub holds: bool,
}

impl From<&ProbeRecord> for ProbeDocument {
    fn from(record: &ProbeRecord) -> Self {
        Self {
            seq: record.seq,
            verdict: match record.verdict {
                BisectVerdict::Good => "good",
                BisectVerdict::Bad => "bad",
                BisectVerdict::Skip => "skip",
            },
            exit_code: record.exit_code,
            timed_out: record.timed_out,
            micros: record.micros,
            stdout: record.stdout.text(SHOWN).0,
            stderr: record.stderr.text(SHOWN).0,
        }
    }
}

/// Returns a bisection by a command as a document.
pub fn bisected(session: &Session, report: &BisectReport) -> Result<BisectDocument, SessionError> {
    let records = |records: &[ProbeRecord]| Some(records.iter().map(ProbeDocument::from).collect());
    let left_out: BTreeSet<_> = report.checks.iter().chain(&report.probes).flat_map(|one| &one.left_out).collect();
    Ok(BisectDocument {
        between: Some(report.changes),
        checks: records(&report.checks),
        probes: records(&report.probes),
        several: Some(report.is_odd),
        left_out: Some(left_out.into_iter().map(ToString::to_string).collect()),
        environment: Some(report.environment.clone()),
        ..found(session, &report.found, report.ends)?
    })
}

/// Returns a bisection by a predicate as a document.
pub fn bisected_by_slice(
    session: &Session,
    predicate: &Predicate,
    ends: (Seq, Seq),
    (found_there, looks): &(BisectFound, Vec<(Seq, bool)>),
) -> Result<BisectDocument, SessionError> {
    Ok(BisectDocument {
        looks: Some(looks.iter().map(|&(seq, holds)| SliceLook { seq, holds }).collect()),
        predicate: Some(predicate.text().to_owned()),
        ..found(session, found_there, ends)?
    })
}

fn found(session: &Session, found: &BisectFound, ends: (Seq, Seq)) -> Result<BisectDocument, SessionError> {
    let (mut before, mut bad) = (found.good, Vec::new());
    for &seq in &found.bad {
        bad.push(bad_change(session, before, seq)?);
        before = seq;
    }
    let first_bad = if found.bad.len() == 1 { found.bad.first().copied() } else { None };
    let ends = BisectEnds { good: ends.0, bad: ends.1 };
    Ok(BisectDocument { good: found.good, first_bad, bad, ends, ..BisectDocument::default() })
}

fn bad_change(session: &Session, before: Seq, seq: Seq) -> Result<BadChange, SessionError> {
    let recorded = session.event(seq)?;
    let call = recorded.call.map(|call| session.event(call)).transpose()?;
    let call = call.map(|call| serde_json::to_value(view::event(session, &call.view())).unwrap_or_default());
    let changes = file_changes(session, before, seq, None)?;
    let changes = changes.iter().map(|change| view::change(session, change));
    Ok(BadChange {
        seq,
        agent: recorded.agent,
        time: recorded.time,
        call: call.map(|call| whole(session, &call)).unwrap_or_default(),
        merged: merged(session, before, seq)?,
        changes: changes.collect::<Result<_, _>>()?,
    })
}

/// Finds the last merge after one position, up to another.
fn merged(session: &Session, before: Seq, seq: Seq) -> Result<Option<BadMerge>, SessionError> {
    let mut found = None;
    session.visit_between(before + 1, seq, &mut |event| {
        if let Some(ChildMerged { child, child_name: name, merged, .. }) = event.decoded() {
            found = Some(BadMerge { child, name, seqs: merged.iter().filter_map(|entry| entry.from).collect() });
        }
        ControlFlow::Continue(())
    })?;
    Ok(found)
}
