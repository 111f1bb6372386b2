//! History of a path with the work of merged children.

use std::collections::{BTreeMap, BTreeSet};

use super::cause::Cause;
use super::lineage::{DEPTH_MAX, SessionChange, SessionLineage};
use super::path::{PathChange, path_history};
use crate::engine::{EntryPath, Seq, Session, SessionId, SessionResult};

/// Returns the [history](path_history) of a path. Before each merge it has the child's changes of the merged entries,
/// including changes of the child's own children.
pub fn history_through_merges(session: &Session, path: &EntryPath, until: Seq) -> SessionResult<Vec<SessionChange>> {
    let changes = path_history(session, path, until)?;
    let mut walk = MergeWalk { kin: SessionLineage::of(session), seen: BTreeSet::new(), found: Vec::new() };
    walk.add(session, path, changes, 0)?;
    Ok(walk.found)
}

struct MergeWalk {
    kin: SessionLineage,
    seen: BTreeSet<(SessionId, Seq, EntryPath)>,
    found: Vec<SessionChange>,
}

/// Source of a merge: the child's changes since a position, at and below a path.
#[derive(PartialEq, Eq, PartialOrd, Ord)]
struct Brought {
    child: SessionId,
    since: Seq,
    root: EntryPath,
}

impl MergeWalk {
    /// Adds changes of a session, each merge preceded by the child's changes.
    fn add(
        &mut self,
        session: &Session,
        root: &EntryPath,
        changes: Vec<PathChange>,
        depth: usize,
    ) -> SessionResult<()> {
        let mut changes = changes.into_iter().peekable();
        while let Some(first) = changes.next() {
            let mut together = vec![first];
            while let Some(next) = changes.next_if(|next| is_one_merge(&together[0], next)) {
                together.push(next);
            }
            let brought = brought(root, &together);
            let mut gone = BTreeSet::new();
            for (Brought { child, since, root }, from) in brought {
                match self.kin.find(child)? {
                    Some(child) if depth < DEPTH_MAX => self.follow(&child, since, &root, &from, depth)?,
                    Some(_) => {}
                    None => drop(gone.insert(child)),
                }
            }
            for change in together {
                let child_removed =
                    matches!(&change.cause, Cause::Merge { child_id: Some(child), .. } if gone.contains(child));
                self.push(session, change, child_removed)?;
            }
        }
        Ok(())
    }

    /// Adds a child's changes of the given entries since a position, each up to its merge.
    fn follow(
        &mut self,
        child: &Session,
        since: Seq,
        root: &EntryPath,
        from: &BTreeMap<EntryPath, Seq>,
        depth: usize,
    ) -> SessionResult<()> {
        // An imported history may claim any position.
        let until = from.values().copied().max().unwrap_or(0).min(child.head()?);
        let mut wanted = from.clone();
        let mut changes = path_history(child, root, until)?;
        changes.reverse();
        changes.retain(|change| {
            let is_wanted = change.seq > since && wanted.get(&change.path).is_some_and(|from| change.seq <= *from);
            if let Some(moved) = change.moved_from.clone().filter(|_| is_wanted) {
                wanted.insert(moved, change.seq);
            }
            is_wanted
        });
        changes.reverse();
        self.add(child, root, changes, depth + 1)
    }

    fn push(&mut self, session: &Session, change: PathChange, child_removed: bool) -> SessionResult<()> {
        let change = SessionChange { child_removed, ..self.kin.owned(session, change)? };
        if self.seen.insert((change.session, change.change.seq, change.change.path.clone())) {
            self.found.push(change);
        }
        Ok(())
    }
}

fn is_one_merge(one: &PathChange, other: &PathChange) -> bool {
    let key = |change: &PathChange| match change.cause {
        Cause::Merge { child_id, since, .. } => Some((child_id, since, change.time)),
        _ => None,
    };
    key(one).is_some() && key(one) == key(other)
}

fn brought(root: &EntryPath, merged: &[PathChange]) -> BTreeMap<Brought, BTreeMap<EntryPath, Seq>> {
    let mut brought: BTreeMap<Brought, BTreeMap<EntryPath, Seq>> = BTreeMap::new();
    for change in merged {
        if let Cause::Merge { child_id: Some(child), since: Some(since), from: Some(from), .. } = change.cause {
            let is_inside = change.path == *root || change.path.is_below(root);
            let root = if is_inside { root.clone() } else { change.path.clone() };
            brought.entry(Brought { child, since, root }).or_default().insert(change.path.clone(), from);
        }
    }
    brought
}
