//! Blame: the change that wrote each line of a file.

use std::collections::BTreeMap;

use bytes::Bytes;

use super::cause::Cause;
use super::lineage::{DEPTH_MAX, SessionChange, SessionLineage};
use super::lines::{kept, lines};
use super::path::{PathChange, is_undo, life, path_history, versions};
use crate::engine::event::Node;
use crate::engine::history::error::{BLAME_BYTES_MAX, HistoryError};
use crate::engine::{Digest, EntryPath, Seq, Session, SessionError, SessionId, SessionResult};

/// Lines of a file, each with the change that wrote it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Blame {
    /// Changes that made the file, oldest first, through moves; then the children's changes behind merged lines.
    pub changes: Vec<SessionChange>,
    /// Lines in order.
    pub lines: Vec<BlameLine>,
    /// Positions of versions with unknown lines: not text, too large, or not stored. Lines after them count as written
    /// then. Positions in children are not listed.
    pub unknown: Vec<Seq>,
    /// True if versions differed in so many lines that some count as written later than they were.
    pub coarse: bool,
}

/// Line of a file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BlameLine {
    /// Index of the change that wrote it.
    pub change: usize,
    /// Line without its end.
    pub text: String,
}

/// Maximum number of earlier versions to read for lines that undos restored.
const READS_MAX: usize = 256;

/// Finds the change that wrote each line of a text file, as of a position.
///
/// It compares successive versions of the file, following moves, with two versions in memory at a time. Rewinds, undos
/// and merges write no lines: restored lines and the parent's lines keep their changes, and merged lines have the
/// changes of the child's history. If the child was removed, the merge is named. Fails with [`HistoryError`] if the
/// path is not a text file or the session failed.
pub fn blame(session: &Session, path: &EntryPath, at: Seq) -> Result<Blame, HistoryError> {
    let file = BlamedFile::read(session, path, at, &mut { READS_MAX })?;
    let mut search = BlameSearch {
        kin: SessionLineage::of(session),
        known: BTreeMap::new(),
        changes: Vec::new(),
        coarse: file.coarse,
    };
    for change in file.changes.iter().take(file.life) {
        search.add(session, change)?;
    }
    let all: Vec<usize> = (0..file.whose.len()).collect();
    let whose = search.whose(session, &file, &all, 0)?;
    let text = |line: &[u8]| {
        let line = line.strip_suffix(b"\n").unwrap_or(line);
        String::from_utf8_lossy(line.strip_suffix(b"\r").unwrap_or(line)).into_owned()
    };
    let lines = lines(&file.bytes).into_iter().zip(whose).map(|(line, change)| BlameLine { change, text: text(line) });
    let lines = lines.collect();
    Ok(Blame { changes: search.changes, lines, unknown: file.unknown, coarse: search.coarse })
}

/// Owners of lines, also in the histories of merged children.
struct BlameSearch {
    kin: SessionLineage,
    known: BTreeMap<(SessionId, Seq, EntryPath), usize>,
    changes: Vec<SessionChange>,
    coarse: bool,
}

impl BlameSearch {
    fn add(&mut self, session: &Session, change: &PathChange) -> SessionResult<usize> {
        let change = self.kin.owned(session, change.clone())?;
        let key = (change.session, change.change.seq, change.change.path.clone());
        let number = *self.known.entry(key).or_insert(self.changes.len());
        if number == self.changes.len() {
            self.changes.push(change);
        }
        Ok(number)
    }

    fn whose(
        &mut self,
        session: &Session,
        file: &BlamedFile,
        wanted: &[usize],
        depth: usize,
    ) -> Result<Vec<usize>, HistoryError> {
        let mut by_change: BTreeMap<usize, Vec<(usize, usize)>> = BTreeMap::new();
        for (place, line) in wanted.iter().enumerate() {
            if let Some((change, line)) = file.whose.get(*line) {
                by_change.entry(*change).or_default().push((place, *line));
            }
        }
        let mut whose = vec![0; wanted.len()];
        for (change, lines) in by_change {
            let Some(change) = file.changes.get(change) else { continue };
            let numbers: Vec<usize> = lines.iter().map(|(_, line)| *line).collect();
            let theirs = self.brought(session, change, &numbers, depth)?;
            let is_all_theirs = numbers.iter().all(|line| theirs.contains_key(line));
            let own = if is_all_theirs { None } else { Some(self.add(session, change)?) };
            for (place, line) in lines {
                whose[place] = theirs.get(&line).copied().or(own).unwrap_or_default();
            }
        }
        Ok(whose)
    }

    /// Returns the lines of a change that a child wrote, by number; empty if the change is not a merge, its child can't
    /// be read, or the merge is too deep.
    fn brought(
        &mut self,
        session: &Session,
        change: &PathChange,
        wanted: &[usize],
        depth: usize,
    ) -> Result<BTreeMap<usize, usize>, HistoryError> {
        let (Cause::Merge { child_id: Some(child), from: Some(from), .. }, Some(Node::File { content, .. })) =
            (&change.cause, &change.after)
        else {
            return Ok(BTreeMap::new());
        };
        if depth >= DEPTH_MAX {
            return Ok(BTreeMap::new());
        }
        let Some(child) = self.kin.find(*child)? else {
            let number = self.add(session, change)?;
            self.changes[number].child_removed = true;
            return Ok(BTreeMap::new());
        };
        let theirs = match BlamedFile::read(&child, &change.path, *from, &mut { READS_MAX }) {
            Ok(theirs) => theirs,
            Err(HistoryError::Session(SessionError::NoPosition { .. })) => return Ok(BTreeMap::new()),
            Err(HistoryError::Session(error)) => return Err(error.into()),
            // The child's history contradicts the merge.
            Err(_) => return Ok(BTreeMap::new()),
        };
        let merged = session.content(content)?;
        let (kept, is_coarse) = kept(&lines(&theirs.bytes), &lines(&merged));
        self.coarse |= is_coarse || theirs.coarse;
        let found = wanted.iter().filter_map(|line| Some((*line, kept.get(*line).copied().flatten()?)));
        let (ours, asked): (Vec<usize>, Vec<usize>) = found.unzip();
        let whose = self.whose(&child, &theirs, &asked, depth + 1)?;
        Ok(ours.into_iter().zip(whose).collect())
    }
}

/// Returns true if there are entries below a path, since file events imply their directory.
fn has_entries(session: &Session, path: &EntryPath, at: Seq) -> SessionResult<bool> {
    let last: BTreeMap<EntryPath, bool> =
        path_history(session, path, at)?.into_iter().map(|change| (change.path, change.after.is_some())).collect();
    Ok(last.into_values().any(|is_there| is_there))
}

fn check(path: &EntryPath, node: &Node) -> Result<(), HistoryError> {
    let path = path.clone();
    match node {
        Node::File { incomplete: true, .. } => Err(HistoryError::NotKept { path }),
        Node::File { text: false, .. } => Err(HistoryError::NotText { path, what: "a binary file" }),
        Node::File { size, .. } if *size > BLAME_BYTES_MAX => Err(HistoryError::TooLarge { path, size: *size }),
        Node::File { .. } => Ok(()),
        Node::Directory { .. } => Err(HistoryError::NotText { path, what: "a directory" }),
        Node::Symlink { .. } => Err(HistoryError::NotText { path, what: "a symbolic link" }),
        Node::Special { special } => Err(HistoryError::NotText { path, what: special.name() }),
    }
}

#[derive(Default)]
struct BlamedFile {
    /// Changes of the file's life, then the changes behind lines that an undo restored.
    changes: Vec<PathChange>,
    /// Number of changes of the file's life.
    life: usize,
    content: Option<Digest>,
    bytes: Bytes,
    /// Change that wrote each line, and the line's index there.
    whose: Vec<(usize, usize)>,
    unknown: Vec<Seq>,
    coarse: bool,
}

impl BlamedFile {
    /// Reads the file at a position. `reads` limits the earlier versions that are read for restored lines.
    fn read(session: &Session, path: &EntryPath, at: Seq, reads: &mut usize) -> Result<Self, HistoryError> {
        let head = session.head()?;
        if at > head {
            return Err(SessionError::NoPosition { seq: at, head }.into());
        }
        let changes = life(session, path, at)?;
        match changes.last().and_then(|change| change.after.as_ref()) {
            Some(last) => check(path, last)?,
            None if has_entries(session, path, at)? => check(path, &Node::DIRECTORY)?,
            None => return Err(HistoryError::NotThere { path: path.clone(), seq: at }),
        }
        let mut file = Self { life: changes.len(), changes: changes.clone(), ..Self::default() };
        for (number, change) in changes.iter().enumerate() {
            file.take(session, number, change, reads)?;
        }
        Ok(file)
    }

    fn take(
        &mut self,
        session: &Session,
        number: usize,
        change: &PathChange,
        reads: &mut usize,
    ) -> Result<(), HistoryError> {
        // A moved file is next written at its new path; any other removal starts another file.
        let Some(node) = &change.after else { return Ok(()) };
        let content = match node {
            Node::File { content, .. } if check(&change.path, node).is_ok() => *content,
            _ => {
                self.unknown.push(change.seq);
                (self.content, self.bytes, self.whose) = (None, Bytes::new(), Vec::new());
                return Ok(());
            }
        };
        if self.content == Some(content) {
            return Ok(());
        }
        let bytes = session.content(&content)?;
        let (from, is_coarse) = kept(&lines(&self.bytes), &lines(&bytes));
        self.coarse |= is_coarse;
        let known = |line: Option<usize>| line.and_then(|line| self.whose.get(line).copied());
        let mut whose: Vec<Option<(usize, usize)>> = from.into_iter().map(known).collect();
        if is_undo(change) && whose.iter().any(Option::is_none) {
            self.restore(session, change, &lines(&bytes), &mut whose, reads)?;
        }
        let whose = whose.into_iter().enumerate().map(|(at, whose)| whose.unwrap_or((number, at))).collect();
        (self.content, self.bytes, self.whose) = (Some(content), bytes, whose);
        Ok(())
    }

    /// Finds the lines that an undo restored in the versions before it.
    fn restore(
        &mut self,
        session: &Session,
        undo: &PathChange,
        new: &[&[u8]],
        whose: &mut [Option<(usize, usize)>],
        reads: &mut usize,
    ) -> Result<(), HistoryError> {
        for (seq, node) in versions(session, &undo.path, undo.seq)? {
            let Node::File { content, .. } = &node else { continue };
            if *reads == 0 || whose.iter().all(Option::is_some) {
                return Ok(());
            }
            if check(&undo.path, &node).is_err() {
                continue;
            }
            *reads -= 1;
            let bytes = session.content(content)?;
            let (from, is_coarse) = kept(&lines(&bytes), new);
            self.coarse |= is_coarse;
            let found = whose.iter_mut().zip(from).filter(|(whose, _)| whose.is_none());
            let found: Vec<_> = found.filter_map(|(whose, line)| Some((whose, line?))).collect();
            if found.is_empty() {
                continue;
            }
            let earlier = Self::read(session, &undo.path, seq, reads)?;
            let first = self.changes.len();
            self.changes.extend(earlier.changes);
            for (whose, line) in found {
                *whose = earlier.whose.get(line).map(|(change, line)| (first + change, *line));
            }
        }
        Ok(())
    }
}
