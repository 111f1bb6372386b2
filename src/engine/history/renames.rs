//! Renames have no event: a file is moved if it vanishes while the same content appears elsewhere among the changes
//! that were recorded together.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::ControlFlow;

use super::FileEvent;
use super::cause::Causes;
use super::watched::{remove, replace};
use crate::engine::event::Node;
use crate::engine::{Digest, EntryPath, Seq, Session, SessionResult};

#[derive(Default)]
pub(super) struct Moves {
    /// By new path and position of the write: the previous path and its last position there.
    pub(super) to: BTreeMap<(EntryPath, Seq), (EntryPath, Seq)>,
    /// By previous path and position of its removal: the new path.
    pub(super) from: BTreeMap<(EntryPath, Seq), EntryPath>,
}

/// Returns the content that identifies a file; `None` for an empty file, which equals any other.
pub(super) fn known_by(node: &Node) -> Option<Digest> {
    match node {
        Node::File { content, size, incomplete: false, .. } if *size > 0 => Some(*content),
        _ => None,
    }
}

pub(super) fn moves(session: &Session, contents: &BTreeSet<Digest>, until: Seq) -> SessionResult<Moves> {
    let mut search =
        RenameSearch { contents, live: BTreeMap::new(), run: RecordedTogether::default(), moves: Moves::default() };
    if contents.is_empty() {
        return Ok(search.moves);
    }
    let mut causes = Causes::default();
    session.visit_between(1, until, &mut |event| {
        let place = causes.take(event);
        if search.run.number != place.run {
            search.end_run();
            search.run.number = place.run;
        }
        match FileEvent::of(event) {
            Some(FileEvent::Write(write)) => search.write(event.seq, write.path, &write.node),
            Some(FileEvent::Delete(delete)) => {
                let gone = remove(&mut search.live, &delete.path);
                search.run.lose(event.seq, gone);
            }
            None => {}
        }
        ControlFlow::Continue(())
    })?;
    search.end_run();
    Ok(search.moves)
}

struct RenameSearch<'a> {
    contents: &'a BTreeSet<Digest>,
    live: BTreeMap<EntryPath, Digest>,
    run: RecordedTogether,
    moves: Moves,
}

#[derive(Default)]
struct RecordedTogether {
    number: u64,
    born: Vec<(EntryPath, Seq, Digest)>,
    gone: Vec<(EntryPath, Seq, Digest)>,
}

impl RecordedTogether {
    fn lose(&mut self, seq: Seq, gone: Vec<(EntryPath, Digest)>) {
        self.gone.extend(gone.into_iter().map(|(path, content)| (path, seq, content)));
    }
}

impl RenameSearch<'_> {
    fn write(&mut self, seq: Seq, path: EntryPath, node: &Node) {
        let content = known_by(node).filter(|content| self.contents.contains(content));
        if content.is_some() && self.live.get(&path) == content.as_ref() {
            return;
        }
        self.run.lose(seq, replace(&mut self.live, &path, node));
        if let Some(content) = content {
            self.run.born.push((path.clone(), seq, content));
            self.live.insert(path, content);
        }
    }

    fn end_run(&mut self) {
        let RecordedTogether { born, gone, .. } = std::mem::take(&mut self.run);
        // By content, then by reversed path: neighbours share the longest suffix.
        let mut left: BTreeMap<Digest, BTreeMap<(Vec<u8>, Seq), EntryPath>> = BTreeMap::new();
        for (path, seq, content) in gone {
            if self.live.get(&path) != Some(&content) {
                left.entry(content).or_default().insert((backwards(&path), seq), path);
            }
        }
        for (path, seq, content) in born {
            if self.live.get(&path) != Some(&content) {
                continue;
            }
            let Some(left) = left.get_mut(&content) else { continue };
            let key = (backwards(&path), 0);
            let near =
                [left.range::<(Vec<u8>, Seq), _>(..&key).next_back(), left.range::<(Vec<u8>, Seq), _>(&key..).next()];
            let near = near.into_iter().flatten().map(|(key, _)| key);
            let Some(nearest) = near.max_by_key(|(other, _)| common_begin(other, &key.0)).cloned() else { continue };
            let vanished = nearest.1;
            if let Some(from) = left.remove(&nearest) {
                self.moves.from.insert((from.clone(), vanished), path.clone());
                self.moves.to.insert((path, seq), (from, seq.min(vanished.saturating_sub(1))));
            }
        }
    }
}

fn backwards(path: &EntryPath) -> Vec<u8> {
    path.as_bytes().iter().rev().copied().collect()
}

fn common_begin(one: &[u8], other: &[u8]) -> usize {
    one.iter().zip(other).take_while(|(a, b)| a == b).count()
}
