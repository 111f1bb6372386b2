//! Blame documents.

use std::collections::BTreeSet;

use schemars::JsonSchema;
use serde::Serialize;
use serde_json::{Map, Value};

use super::observed::{ObservedCalls, RunMention};
use crate::engine::history::{BlameLine, HistoryError, SessionChange, blame};
use crate::engine::id::{Seq, SessionId};
use crate::engine::path::EntryPath;
use crate::engine::session::Session;

/// A file with the change that wrote each line.
#[derive(Debug, Clone, Serialize, JsonSchema)]
#[schemars(rename = "Blame")]
pub struct BlameDocument {
    /// The path.
    #[schemars(with = "String")]
    pub path: EntryPath,
    /// The position.
    pub at: Seq,
    /// The changes that wrote these lines, with session, position, path, cause, agent and time; across moves and
    /// merges.
    #[schemars(with = "Vec<Map<String, Value>>")]
    pub changes: Vec<SessionChange>,
    /// The changes among them that observed calls made, or that existed before a directory was attached.
    pub observed: Vec<ObservedChange>,
    /// The lines.
    pub lines: Vec<BlamedLine>,
    /// Positions of versions without known lines; all lines of the next version count as written by that version.
    pub unknown: Vec<Seq>,
    /// True if versions differed in so many lines that some lines count as written later than they were.
    pub coarse: bool,
}

/// A change of a directory that is only watched.
#[derive(Debug, Clone, Serialize, JsonSchema)]
pub struct ObservedChange {
    /// Its position.
    pub seq: Seq,
    /// The call that made it, or all calls that may have made it; empty for a change that existed before.
    pub by: Vec<RunMention>,
}

/// A line with the event that wrote it.
#[derive(Debug, Clone, Serialize, JsonSchema)]
pub struct BlamedLine {
    /// Its number, from 1.
    pub line_number: u64,
    /// The line without its end.
    pub line: String,
    /// The session of the event.
    #[schemars(with = "String")]
    pub session: SessionId,
    /// Its position there.
    pub seq: Seq,
}

/// Finds the change that wrote each line of a file at a position; see [`blame`].
pub fn blamed(session: &Session, path: &EntryPath, at: Seq) -> Result<BlameDocument, HistoryError> {
    let (blamed, observed) = (blame(session, path, at)?, ObservedCalls::of(session)?);
    let by = |change: &SessionChange| {
        let (seq, by) = (change.change.seq, observed.by(change.change.cause.call(), change.change.seq));
        let is_told = change.session == session.id() && (!by.is_empty() || observed.was_there(seq));
        is_told.then_some(ObservedChange { seq, by })
    };
    let line = |(number, line): (u64, &BlameLine)| {
        let change = blamed.changes.get(line.change)?;
        let (session, seq) = (change.session, change.change.seq);
        Some(BlamedLine { line_number: number, line: line.text.clone(), session, seq })
    };
    let wrote: BTreeSet<usize> = blamed.lines.iter().map(|line| line.change).collect();
    let changes: Vec<SessionChange> =
        wrote.into_iter().filter_map(|change| blamed.changes.get(change)).cloned().collect();
    Ok(BlameDocument {
        path: path.clone(),
        at,
        observed: changes.iter().filter_map(by).collect(),
        changes,
        lines: (1..).zip(&blamed.lines).filter_map(line).collect(),
        unknown: blamed.unknown,
        coarse: blamed.coarse,
    })
}
