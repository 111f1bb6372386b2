//! The first change after which a command fails, or a predicate holds.

use std::collections::BTreeSet;
use std::ops::RangeInclusive;
use std::sync::Arc;
use std::time::Duration;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::{Operation, OperationContext, OperationEffect, OperationError, OperationRoute, OperationTool, TooLong};
use super::{position, reading};
use crate::backends::ShellCommand;
use crate::engine::clock::Timestamp;
use crate::engine::id::Seq;
use crate::engine::session::Session;
use crate::engine::session::error::SessionError;
use crate::tools::bisection::algorithm::BisectVerdict;
use crate::tools::{BisectFound, BisectReport, Bisection, Predicate, ProbeRecord, bisect, bisect_slices};
use crate::view::{self, ChangeDocument, Position, changes_between, whole};

/// Probes at once at most.
const JOBS: usize = 64;
/// Seconds that a command may run.
const SECONDS: RangeInclusive<f64> = 0.1..=600.0;
/// Seconds that a command of a model may run when nothing is said.
const MODELS_SECONDS: f64 = 120.0;
/// Bytes of what a probe printed that are given.
const SHOWN: usize = 4096;

/// Finds the first change in a session's history after which a command fails, by running it in throw-away copies of the
/// workspace as it was; or after which a predicate over slices holds. The session is only read.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[schemars(rename = "BisectRequest")]
#[serde(deny_unknown_fields)]
pub struct Bisect {
    /// The command that succeeds at the good position and fails at the bad one: a text for /bin/sh, or a program with its
    /// arguments. 125 says that it can't tell. The policy for commands must allow it, once for all of its runs. The
    /// copies of a session in memory are on the server's machine, where nothing is sandboxed.
    pub command: Option<ProbeCommand>,
    /// In place of a command: a predicate over slices, such as `count(VirtualFileSystem) > 10`.
    #[serde(default, alias = "predicate")]
    pub slice: Option<String>,
    /// A good position; by default before the first call, with a predicate before the first event.
    pub good: Option<Position>,
    /// A bad position after it; by default the last one.
    pub bad: Option<Position>,
    /// The number of probes at once, from 1 to 64.
    #[serde(default = "one")]
    pub jobs: usize,
    /// The time that the command may run each time, 0.1 to 600 seconds; 600 by default, 120 for a model.
    pub timeout_seconds: Option<f64>,
    /// Programs that the command may run without a question.
    #[serde(default)]
    pub allow: Vec<String>,
    /// Answers every question about the command with yes.
    #[serde(default)]
    pub auto_confirm: bool,
}

/// The command of a bisection.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[serde(untagged)]
pub enum ProbeCommand {
    /// A text for /bin/sh.
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
                let predicate = Predicate::parse(predicate, context.hub.sessions().registry())?;
                let session = context.session().await?;
                reading(move || self.by_slice(&session, &predicate)).await
            }
            (None, Some(command)) => {
                let command = self.shell_command(command, context.caller.is_model())?;
                self.by_command(context, command).await
            }
            _ => Err(OperationError::invalid("give either a command or a predicate (`slice`)")),
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
                // There are as many as probes: few.
                drop(progress.send(format!("position {}: exit {}", record.seq, record.exit_code)));
            }
        };
        let report = bisect(&bisection, &note, &context.cancel).await?;
        reading(move || Ok(bisected(&bisection.session, &report)?)).await
    }
}

/// The result of a bisection. By a command it has `between`, `checks`, `probes`, `several` and `left_out`; by a predicate
/// `looks` and `predicate`.
#[derive(Debug, Clone, Default, Serialize, JsonSchema)]
#[schemars(rename = "Bisect")]
pub struct BisectDocument {
    /// The last position that is known to be good.
    pub good: Seq,
    /// The first bad position; null when skips hide it.
    pub first_bad: Option<Seq>,
    /// The first bad change, or all of which it is one.
    pub bad: Vec<BadChange>,
    /// The positions between which was searched.
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
    /// True where something good was seen after something bad.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub several: Option<bool>,
    /// Paths that the probes had not though they were there then.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub left_out: Option<Vec<String>>,
    /// The positions where the predicate was evaluated.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub looks: Option<Vec<SliceLook>>,
    /// The predicate.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub predicate: Option<String>,
}

/// Between which positions was searched.
#[derive(Debug, Clone, Copy, Default, Serialize, JsonSchema)]
pub struct BisectEnds {
    /// The good one.
    pub good: Seq,
    /// The bad one.
    pub bad: Seq,
}

/// A change after which something is bad.
#[derive(Debug, Clone, Serialize, JsonSchema)]
pub struct BadChange {
    /// Its position.
    pub seq: Seq,
    /// The agent that made it.
    #[schemars(with = "String")]
    pub agent: Arc<str>,
    /// When, in UTC.
    #[schemars(with = "String")]
    pub time: Timestamp,
    /// The beginning of its call, long texts whole; null where no call made it.
    pub call: Value,
    /// Its changes of files.
    pub changes: Vec<ChangeDocument>,
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
    /// True where it took too long.
    pub timed_out: bool,
    /// Its duration in microseconds.
    pub micros: u64,
    /// Its output, cut at 4 KiB.
    pub stdout: String,
    /// Its error output, cut at 4 KiB.
    pub stderr: String,
}

/// A look at a predicate.
#[derive(Debug, Clone, Copy, Serialize, JsonSchema)]
pub struct SliceLook {
    /// The position.
    pub seq: Seq,
    /// True where it holds.
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

/// A bisection by a command as a document.
pub fn bisected(session: &Session, report: &BisectReport) -> Result<BisectDocument, SessionError> {
    let records = |records: &[ProbeRecord]| Some(records.iter().map(ProbeDocument::from).collect());
    let left_out: BTreeSet<_> = report.checks.iter().chain(&report.probes).flat_map(|one| &one.left_out).collect();
    Ok(BisectDocument {
        between: Some(report.changes),
        checks: records(&report.checks),
        probes: records(&report.probes),
        several: Some(report.is_odd),
        left_out: Some(left_out.into_iter().map(ToString::to_string).collect()),
        ..found(session, &report.found, report.ends)?
    })
}

/// A bisection by a predicate as a document.
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
    Ok(BadChange {
        seq,
        agent: recorded.agent,
        time: recorded.time,
        call: call.map(|call| whole(session, &call)).unwrap_or_default(),
        changes: changes_between(session, before, seq)?,
    })
}
