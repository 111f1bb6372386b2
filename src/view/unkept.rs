//! Entries that can't be recreated, tracked while a history is read.

use std::collections::BTreeMap;

use crate::engine::id::{Digest, Seq};
use crate::engine::path::EntryPath;
use crate::engine::session::Session;
use crate::engine::session::error::SessionError;
use crate::reducers::{VirtualFileSystem, can_be_made};
use crate::tools::PlannedChange;

/// Entries that can't be recreated, by path, with their digests if recorded.
pub(super) type Unkept = BTreeMap<EntryPath, Option<Digest>>;

/// Returns the entry at the path of a change, with its digest, if it can't be recreated.
fn left_by(change: &PlannedChange) -> Option<(&EntryPath, Option<Digest>)> {
    match change {
        PlannedChange::Write(write) if !can_be_made(&write.node) => Some((&write.path, write.node.known_content())),
        PlannedChange::Write(_) | PlannedChange::Link(_) | PlannedChange::Delete(_) => None,
    }
}

/// Returns true if a change leaves the contents of an entry at or below its path.
fn keeps(change: &PlannedChange, path: &EntryPath, known: Option<Digest>) -> bool {
    match change {
        PlannedChange::Write(write) if write.path != *path => write.node.is_directory(),
        PlannedChange::Write(write) => known.is_some() && write.node.known_content() == known,
        PlannedChange::Link(_) => true,
        PlannedChange::Delete(_) => false,
    }
}

/// Returns the entries before a position that can't be recreated.
pub(super) fn unkept_before(session: &Session, from: Seq) -> Result<Unkept, SessionError> {
    if from <= 1 {
        return Ok(Unkept::new());
    }
    let files = VirtualFileSystem::of(&session.state_at(from - 1)?);
    let unkept = files.iter().filter(|(_, entry)| !can_be_made(&entry.node));
    Ok(unkept.map(|(path, entry)| (path.clone(), entry.node.known_content())).collect())
}

/// Applies a change. Returns the entries that it removes or replaces and that can't be recreated.
pub(super) fn follow(unkept: &mut Unkept, change: &PlannedChange) -> Unkept {
    let at = change.path();
    let related = unkept.range(at.clone()..).take_while(|(path, _)| path.as_bytes().starts_with(at.as_bytes()));
    let is_gone = |path: &EntryPath, known| (path == at || path.is_below(at)) && !keeps(change, path, known);
    let gone: Vec<EntryPath> =
        related.filter(|(path, known)| is_gone(path, **known)).map(|(path, _)| path.clone()).collect();
    let gone = gone.into_iter().filter_map(|path| unkept.remove_entry(&path)).collect();
    unkept.extend(left_by(change).map(|(path, digest)| (path.clone(), digest)));
    gone
}

/// Entries that can't be recreated and that one call made or removed.
#[derive(Debug, Clone, Default)]
pub(super) struct UnkeptOfCall {
    /// Entries that it made or changed.
    pub(super) made: Unkept,
    /// Entries that it removed or replaced without having made them.
    pub(super) lost: Unkept,
}

impl UnkeptOfCall {
    pub(super) fn take(&mut self, change: &PlannedChange, gone: &Unkept) {
        let of_others = gone.iter().filter(|(path, _)| !self.made.contains_key(*path));
        self.lost.extend(of_others.map(|(path, digest)| (path.clone(), *digest)));
        follow(&mut self.made, change);
        if let Some((_, moved @ Some(_))) = left_by(change) {
            // The entry was moved, and is not lost.
            self.lost.retain(|_, digest| *digest != moved);
        }
    }
}
