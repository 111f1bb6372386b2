//! Bisections.

use std::collections::BTreeSet;
use std::sync::Arc;

use schemars::JsonSchema;
use serde::Serialize;
use serde_json::Value;
use utoipa::ToSchema;

use super::{ChangeDocument, changes_between, event, whole};
use crate::engine::clock::Timestamp;
use crate::engine::id::Seq;
use crate::engine::session::Session;
use crate::engine::session::error::SessionError;
use crate::tools::bisection::algorithm::BisectVerdict;
use crate::tools::{BisectFound, BisectReport, Predicate, ProbeRecord};

/// Bytes of what a probe printed that are given.
const SHOWN: usize = 4096;

/// What a bisection found. By a command it has `between`, `checks`, `probes`, `several` and `left_out`; by a predicate
/// `looks` and `predicate`.
#[derive(Debug, Clone, Serialize, JsonSchema, ToSchema)]
#[schemars(rename = "Bisect")]
#[schema(as = Bisect)]
pub struct BisectDocument {
    /// The last position that is known to be good.
    pub good: Seq,
    /// The first bad position; null when skips hide it.
    pub first_bad: Option<Seq>,
    /// The first bad change, or all of which it is one.
    pub bad: Vec<BadChange>,
    /// The positions between which was searched.
    pub ends: BisectEnds,
    /// How many changes lie between them.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub between: Option<usize>,
    /// What was run to be sure of the ends.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub checks: Option<Vec<ProbeDocument>>,
    /// What was run to search.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub probes: Option<Vec<ProbeDocument>>,
    /// Whether something good was seen after something bad.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub several: Option<bool>,
    /// Paths that the probes had not though they were there then.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub left_out: Option<Vec<String>>,
    /// Where the predicate was looked at.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub looks: Option<Vec<SliceLook>>,
    /// The predicate.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub predicate: Option<String>,
}

/// Between which positions was searched.
#[derive(Debug, Clone, Copy, Serialize, JsonSchema, ToSchema)]
pub struct BisectEnds {
    /// The good one.
    pub good: Seq,
    /// The bad one.
    pub bad: Seq,
}

/// A change after which something is bad.
#[derive(Debug, Clone, Serialize, JsonSchema, ToSchema)]
pub struct BadChange {
    /// Its position.
    pub seq: Seq,
    /// Who made it.
    #[schemars(with = "String")]
    #[schema(value_type = String)]
    pub agent: Arc<str>,
    /// When, in UTC.
    #[schemars(with = "String")]
    #[schema(value_type = String)]
    pub time: Timestamp,
    /// The beginning of its call, long texts whole; null where no call made it.
    #[schema(value_type = Object)]
    pub call: Value,
    /// What it did to the files.
    pub changes: Vec<ChangeDocument>,
}

/// A command's run at a position.
#[derive(Debug, Clone, Serialize, JsonSchema, ToSchema)]
#[schemars(rename = "Probe")]
#[schema(as = Probe)]
pub struct ProbeDocument {
    /// The position.
    pub seq: Seq,
    /// `good`, `bad` or `skip`.
    pub verdict: &'static str,
    /// How the command ended.
    pub exit_code: i32,
    /// Whether it took too long.
    pub timed_out: bool,
    /// How long it ran, in microseconds.
    pub micros: u64,
    /// What it printed, cut at 4 KiB.
    pub stdout: String,
    /// What it complained of, cut at 4 KiB.
    pub stderr: String,
}

/// A look at a predicate.
#[derive(Debug, Clone, Copy, Serialize, JsonSchema, ToSchema)]
pub struct SliceLook {
    /// The position.
    pub seq: Seq,
    /// Whether it holds there.
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
///
/// # Errors
/// What the session says.
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
///
/// # Errors
/// What the session says.
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
    let (between, checks, probes, several) = (None, None, None, None);
    let (left_out, looks, predicate) = (None, None, None);
    let good = found.good;
    Ok(BisectDocument { good, first_bad, bad, ends, between, checks, probes, several, left_out, looks, predicate })
}

fn bad_change(session: &Session, before: Seq, seq: Seq) -> Result<BadChange, SessionError> {
    let recorded = session.event(seq)?;
    let call = recorded.call.map(|call| session.event(call)).transpose()?;
    let call = call.map(|call| serde_json::to_value(event(session, &call.view())).unwrap_or_default());
    Ok(BadChange {
        seq,
        agent: recorded.agent,
        time: recorded.time,
        call: call.map(|call| whole(session, &call)).unwrap_or_default(),
        changes: changes_between(session, before, seq)?,
    })
}
