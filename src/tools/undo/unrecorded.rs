//! Entries that an undo must not remove because they existed, unrecorded, before its calls.
//!
//! A call that moves an ignored file, or removes the ignore rule, makes a path appear without having made its contents.
//! Only the birth time on the disk shows that: it is before the call.

use std::collections::BTreeSet;
use std::ops::ControlFlow;

use super::left::UndoLeftReason;
use super::select::UndoSelection;
use crate::backends::ChangeDetector;
use crate::engine::clock::Timestamp;
use crate::engine::event::{Event, ReportLate, WriteFile};
use crate::engine::id::{Digest, Seq};
use crate::engine::path::EntryPath;
use crate::engine::session::Session;
use crate::engine::session::error::SessionError;
use crate::reducers::{Change, VirtualFileSystem};
use crate::tools::error::WorkspaceError;

/// The largest error of a birth time: file systems date births too early.
const SLACK_MILLIS: i64 = 100;

/// Lists the entries that an undo must leave in place, with the reasons. `changes` lead to `files`.
pub(super) fn unrecorded(
    session: &Session,
    disk: &dyn ChangeDetector,
    selection: &UndoSelection,
    (changes, files): (&[Change], &VirtualFileSystem),
    is_forced: bool,
) -> Result<Vec<(EntryPath, UndoLeftReason)>, WorkspaceError> {
    let mut kept = Vec::new();
    if disk.leaves_out() {
        let known: BTreeSet<&EntryPath> = changes.iter().map(Change::path).collect();
        for change in changes.iter().filter(|change| loses_directory(change)) {
            if disk.has_others(change.path(), &|path| known.contains(path))? {
                kept.push((change.path().clone(), UndoLeftReason::NotEmpty));
            }
        }
    }
    let Some(began) = selection.calls.first().filter(|_| !is_forced).map(|call| began(session, *call)).transpose()?
    else {
        return Ok(kept);
    };
    let is_older = |path: &EntryPath| disk.born(path).is_some_and(|born| born.0 + SLACK_MILLIS < began.0);
    let removed = changes.iter().filter_map(|change| match change.sides() {
        (Some(entry), None) if !entry.is_directory() => Some((change.path(), &entry.node)),
        _ => None,
    });
    let older: Vec<_> = removed.filter(|(path, _)| is_older(path)).collect();
    if !older.is_empty() {
        // Contents that also exist at another path are not lost.
        let present: BTreeSet<&Digest> = files.iter().filter_map(|(_, entry)| entry.node.content()).collect();
        for (path, node) in older {
            let is_present = match node.content() {
                Some(content) => is_present(session, content, &present)?,
                None => files.iter().any(|(_, entry)| entry.node == *node),
            };
            if !is_present && !was_recorded(session, selection.calls[0], path)? {
                kept.push((path.clone(), UndoLeftReason::NotMade));
            }
        }
    }
    Ok(kept)
}

/// Returns true if a path appeared, after the start of a call, with contents that another path had: a recorded file was
/// moved or copied there.
fn was_recorded(session: &Session, from: Seq, path: &EntryPath) -> Result<bool, WorkspaceError> {
    let mut appeared = None;
    session.visit(from, &mut |event| match event.decoded::<WriteFile>().filter(|write| write.path == *path) {
        Some(write) => {
            appeared = Some((event.call.unwrap_or(event.seq - 1), write.node));
            ControlFlow::Break(())
        }
        None => ControlFlow::Continue(()),
    })?;
    let Some((before, node)) = appeared else { return Ok(false) };
    let then = VirtualFileSystem::of(&session.state_at(before)?);
    Ok(node.content().is_some() && then.iter().any(|(_, entry)| entry.node.content() == node.content()))
}

/// Returns true if `present` has the digest of the same contents, as BLAKE3 or as a git blob.
fn is_present(session: &Session, content: &Digest, present: &BTreeSet<&Digest>) -> Result<bool, SessionError> {
    if present.contains(content) || !session.has_content(content)? {
        return Ok(present.contains(content));
    }
    let bytes = session.content(content)?;
    Ok(present.contains(&Digest::as_git_blob(&bytes)) || present.contains(&Digest::of(&bytes)))
}

fn loses_directory(change: &Change) -> bool {
    let (before, after) = change.sides();
    before.is_some_and(|entry| entry.is_directory()) && !after.is_some_and(|entry| entry.is_directory())
}

/// Returns the start time of a call, even if it was reported late.
fn began(session: &Session, call: Seq) -> Result<Timestamp, SessionError> {
    let (mut time, mut late) = (Timestamp(i64::MIN), 0);
    session.visit(call, &mut |event| {
        match event.kind {
            _ if event.seq == call => time = event.time,
            _ if event.call != Some(call) || event.time != time => return ControlFlow::Break(()),
            ReportLate::KIND => late = event.decoded::<ReportLate>().map_or(0, |late| late.micros / 1000),
            _ => {}
        }
        ControlFlow::Continue(())
    })?;
    Ok(Timestamp(time.0.saturating_sub(i64::try_from(late).unwrap_or(i64::MAX))))
}
