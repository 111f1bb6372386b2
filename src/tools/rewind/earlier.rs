//! The entries of a person's own directory from before the session.

use std::collections::BTreeSet;
use std::ops::ControlFlow;

use crate::backends::{HostOptions, WorkspaceSpec};
use crate::engine::event::{CallStarted, DeleteEntry, DriftFound, Event, Isolation, SessionRewound, WriteFile};
use crate::engine::id::Seq;
use crate::engine::path::EntryPath;
use crate::engine::session::Session;
use crate::engine::session::sessions::SessionError;
use crate::reducers::{Change, VirtualFileSystem};
use crate::tools::error::WorkspaceError;

/// Refuses changes that remove what the directory of the session held before it began.
pub(super) fn check(session: &Session, changes: &[Change]) -> Result<(), WorkspaceError> {
    let removed: Vec<&EntryPath> = changes.iter().filter_map(removed).collect();
    if removed.is_empty() || !is_own_directory(session) {
        return Ok(());
    }
    let Some(last) = taken_up(session)? else { return Ok(()) };
    let found = VirtualFileSystem::of(&session.state_at(last)?);
    let earlier: BTreeSet<&EntryPath> = removed.into_iter().filter(|path| found.get(path).is_some()).collect();
    if earlier.is_empty() {
        return Ok(());
    }
    let is_top = |path: &&&EntryPath| path.parent().is_none_or(|parent| !earlier.contains(&parent));
    let paths = earlier.iter().filter(is_top).map(|path| (*path).clone()).collect();
    Err(WorkspaceError::Earlier { count: earlier.len(), paths })
}

fn removed(change: &Change) -> Option<&EntryPath> {
    match change {
        Change::Removed { path, .. } => Some(path),
        Change::Added { .. } | Change::Changed { .. } => None,
    }
}

/// Tells whether the session works in a directory that it was given.
fn is_own_directory(session: &Session) -> bool {
    let spec = session.started().and_then(|started| WorkspaceSpec::of_session(started).ok());
    matches!(spec, Some(WorkspaceSpec::Host(HostOptions { directory: Some(_) })))
}

/// The last event that took up what the directory held: what was found there before the first call. It may be several
/// commits.
fn taken_up(session: &Session) -> Result<Option<Seq>, SessionError> {
    let fork = session.origin().filter(|origin| origin.isolation == Isolation::Fork);
    let begun = fork.map_or(1, |origin| origin.at.saturating_add(1));
    let (mut is_taking, mut last) = (false, None);
    session.visit(begun, &mut |event| {
        match event.kind {
            CallStarted::KIND | SessionRewound::KIND => return ControlFlow::Break(()),
            DriftFound::KIND => is_taking = true,
            WriteFile::KIND | DeleteEntry::KIND => {}
            _ => is_taking = false,
        }
        if is_taking {
            last = Some(event.seq);
        }
        ControlFlow::Continue(())
    })?;
    Ok(last)
}
