use std::collections::BTreeSet;
use std::ops::ControlFlow;
use std::sync::Arc;

use serde::Serialize;

use super::cause::{Cause, Causes};
use super::renames::{Moves, known_by, moves};
use super::watched::{EntryStep, WatchedEntry};
use crate::engine::event::{Node, takes_back};
use crate::engine::{EntryPath, Seq, Session, SessionError, SessionResult, Timestamp};

/// Change of one entry.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct PathChange {
    /// Position of the event.
    pub seq: Seq,
    /// Time of the event.
    pub time: Timestamp,
    /// Path of the entry.
    pub path: EntryPath,
    /// Cause of the change.
    #[serde(flatten)]
    pub cause: Cause,
    /// Agent that made the call; empty for none.
    pub agent: Arc<str>,
    /// Entry before the change; `None` if the path was empty.
    pub before: Option<Node>,
    /// Entry after the change; `None` if the path is empty.
    pub after: Option<Node>,
    /// Path that the event names, if it differs: for example a removed directory above.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub by: Option<EntryPath>,
    /// Previous path of the file, if it was moved here.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub moved_from: Option<EntryPath>,
    /// New path of the file, if it was moved away.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub moved_to: Option<EntryPath>,
    /// Last position at its previous path.
    #[serde(skip)]
    left: Seq,
}

impl PathChange {
    /// Returns the kind of the change: `created`, `changed`, `deleted`, `moved here` or `moved away`.
    pub fn what(&self) -> &'static str {
        match (&self.before, &self.after) {
            _ if self.moved_from.is_some() => "moved here",
            _ if self.moved_to.is_some() => "moved away",
            (None, _) => "created",
            (Some(_), None) => "deleted",
            (Some(_), Some(_)) => "changed",
        }
    }

    fn is_birth(&self) -> bool {
        is_none_or_directory(self.before.as_ref()) && !is_none_or_directory(self.after.as_ref())
    }

    fn is_end(&self) -> bool {
        !is_none_or_directory(self.before.as_ref()) && is_none_or_directory(self.after.as_ref())
    }
}

fn is_none_or_directory(node: Option<&Node>) -> bool {
    node.is_none_or(|node| node.is_directory())
}

/// Returns every change of an entry and of the entries below it, up to a position, in order. A moved file is followed
/// to its previous path. Files below a directory are not followed, but their changes name their previous paths.
///
/// The history is read at most twice, and at most twice more for each followed move. Memory holds the returned changes
/// and the current entries at and below the path. Fails with [`SessionError::NoPosition`] if the history is shorter.
pub fn path_history(session: &Session, path: &EntryPath, until: Seq) -> SessionResult<Vec<PathChange>> {
    let head = session.head()?;
    if until > head {
        return Err(SessionError::NoPosition { seq: until, head });
    }
    let mut changes = changes(session, path, until)?;
    let births: Vec<(EntryPath, Seq)> = changes
        .iter()
        .filter(|change| change.path == *path)
        .filter_map(|change| change.moved_from.clone().map(|from| (from, change.left)))
        .collect();
    for (from, left) in births {
        changes.extend(life(session, &from, left)?);
    }
    changes.sort_by(|one, other| (one.seq, &one.path).cmp(&(other.seq, &other.path)));
    changes.dedup();
    Ok(changes)
}

/// Returns the changes of the latest file at a path, as of a position, from its creation through its moves. A rewind
/// continues the file's life at the restored position, without the changes that it undid. So does an undo that restores
/// an earlier version.
pub(super) fn life(session: &Session, path: &EntryPath, until: Seq) -> SessionResult<Vec<PathChange>> {
    let (mut path, mut until) = (path.clone(), until);
    let mut life: Vec<PathChange> = Vec::new();
    loop {
        let mut changes = changes(session, &path, until)?;
        changes.retain(|change| change.path == path);
        let begins = |at: &usize| changes[*at].is_birth() || returns_to(&changes, *at).is_some();
        let Some(begin) = (0..changes.len()).rev().find(begins) else { return Ok(life) };
        let PathChange { moved_from, left, .. } = &changes[begin];
        // Each step leads to an earlier position.
        let before = match (returns_to(&changes, begin), moved_from) {
            (Some(to), _) => Some((path.clone(), to)),
            (None, Some(from)) => Some((from.clone(), *left)),
            (None, None) => None,
        };
        life.splice(0..0, changes.drain(begin..));
        match before {
            Some(before) => (path, until) = before,
            None => return Ok(life),
        }
    }
}

/// Returns true for a change by an undo or a revert.
pub(super) fn is_undo(change: &PathChange) -> bool {
    matches!(&change.cause, Cause::Call { tool, .. } if takes_back(tool))
}

/// Returns the entries at a path before a position, latest first, each with its position.
pub(super) fn versions(session: &Session, path: &EntryPath, before: Seq) -> SessionResult<Vec<(Seq, Node)>> {
    let mut changes = plain_changes(session, path, before.saturating_sub(1))?;
    changes.retain(|change| change.path == *path);
    Ok(changes.into_iter().rev().filter_map(|change| Some((change.seq, change.after?))).collect())
}

/// Returns the position of the version that a rewind or an undo restores. All changes have the same path.
fn returns_to(changes: &[PathChange], at: usize) -> Option<Seq> {
    let (earlier, change) = (&changes[..at], &changes[at]);
    match &change.cause {
        _ if change.after.is_none() => None,
        Cause::Rewind { to } => to.filter(|to| *to < change.seq),
        _ if is_undo(change) => {
            earlier.iter().rev().find(|earlier| earlier.after == change.after).map(|earlier| earlier.seq)
        }
        _ => None,
    }
}

fn changes(session: &Session, path: &EntryPath, until: Seq) -> SessionResult<Vec<PathChange>> {
    let mut changes = plain_changes(session, path, until)?;
    let born = changes.iter().filter(|change| change.is_birth()).filter_map(|change| change.after.as_ref());
    let gone = changes.iter().filter(|change| change.is_end()).filter_map(|change| change.before.as_ref());
    let contents: BTreeSet<_> = born.chain(gone).filter_map(known_by).collect();
    let Moves { to, from } = moves(session, &contents, until)?;
    for change in &mut changes {
        let key = (change.path.clone(), change.seq);
        if let Some((from, left)) = to.get(&key).filter(|_| change.is_birth()) {
            (change.moved_from, change.left) = (Some(from.clone()), *left);
        }
        if change.is_end() {
            change.moved_to = from.get(&key).cloned();
        }
    }
    Ok(changes)
}

fn plain_changes(session: &Session, path: &EntryPath, until: Seq) -> SessionResult<Vec<PathChange>> {
    let mut changes: Vec<PathChange> = Vec::new();
    let (mut causes, mut watched) = (Causes::default(), WatchedEntry::new(path.clone()));
    let (mut run, mut since) = (0, 0);
    session.visit_between(1, until, &mut |event| {
        let place = causes.take(event);
        if place.run != run {
            (run, since) = (place.run, changes.len());
        }
        if let Some(why) = place.tells {
            let told = |change: &mut PathChange| change.cause = why.cause(change.by.as_ref().unwrap_or(&change.path));
            changes.iter_mut().skip(since).for_each(told);
        }
        let Some((named, steps)) = watched.take(event) else { return ControlFlow::Continue(()) };
        let cause = place.why.cause(&named);
        for EntryStep { path, before, after } in steps {
            changes.push(PathChange {
                seq: event.seq,
                time: event.time,
                by: (named != path).then(|| named.clone()),
                path,
                cause: cause.clone(),
                agent: Arc::from(event.agent),
                before,
                after,
                moved_from: None,
                moved_to: None,
                left: 0,
            });
        }
        ControlFlow::Continue(())
    })?;
    Ok(changes)
}
