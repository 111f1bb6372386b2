//! Blame: which change wrote each line of a file.

use std::collections::BTreeMap;

use bytes::Bytes;

use super::lines::{kept, lines};
use super::path::{PathChange, life, path_history};
use crate::engine::event::Node;
use crate::engine::id::Digest;
use crate::engine::path::EntryPath;
use crate::engine::recorded::Seq;
use crate::engine::session::Session;
use crate::engine::sessions::SessionError;

/// Bytes that a file may have whose lines are asked about.
pub const BLAME_BYTES_MAX: u64 = 16 << 20;

/// A file's lines, each with the change that wrote it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Blame {
    /// The changes that made the file what it is, the oldest first; a move begins no new file.
    pub changes: Vec<PathChange>,
    /// The lines in order.
    pub lines: Vec<BlameLine>,
    /// The positions of versions whose lines are not known: they were no text, too large, or not kept. What comes after
    /// counts as written then.
    pub unknown: Vec<Seq>,
    /// Whether versions differed in so many lines that some count as written later than they were.
    pub coarse: bool,
}

/// A line of a file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BlameLine {
    /// Which of the changes wrote it.
    pub change: usize,
    /// The line without its end.
    pub text: String,
}

/// Why nobody can say who wrote which line.
#[derive(Debug, Clone, thiserror::Error)]
pub enum BlameError {
    /// The session or its store failed.
    #[error(transparent)]
    Session(#[from] SessionError),
    /// Nothing is there.
    #[error("there is no {} at position {seq}", path.rooted())]
    NotThere {
        /// Where.
        path: EntryPath,
        /// When.
        seq: Seq,
    },
    /// It has no lines.
    #[error("{} is {what}; only text files have lines", path.rooted())]
    NotText {
        /// Where.
        path: EntryPath,
        /// What is there.
        what: &'static str,
    },
    /// Its contents are not known.
    #[error("the contents of {} were not kept: they were over a budget", path.rooted())]
    NotKept {
        /// Where.
        path: EntryPath,
    },
    /// It has too many bytes.
    #[error("{} has {size} bytes; lines of files of at most {BLAME_BYTES_MAX} can be asked about", path.rooted())]
    TooLarge {
        /// Where.
        path: EntryPath,
        /// How many bytes it has.
        size: u64,
    },
}

/// Finds out which change wrote each line of a text file, as it was at a position.
///
/// It goes forward through the versions of the file, through moves, too, and compares each with the next. Two versions
/// are in memory at a time. A rewind writes no lines: they are whose they were.
///
/// # Errors
/// [`BlameError`] when there is no text file, and what the session says.
pub fn blame(session: &Session, path: &EntryPath, at: Seq) -> Result<Blame, BlameError> {
    let head = session.head()?;
    if at > head {
        return Err(SessionError::NoPosition { seq: at, head }.into());
    }
    let changes = life(session, path, at)?;
    match changes.last().and_then(|change| change.after.as_ref()) {
        Some(last) => check(path, last)?,
        None if has_entries(session, path, at)? => check(path, &Node::Directory)?,
        None => return Err(BlameError::NotThere { path: path.clone(), seq: at }),
    }
    let mut file = File::default();
    for (number, change) in changes.iter().enumerate() {
        file.take(session, number, change)?;
    }
    let File { bytes, whose, unknown, coarse, .. } = file;
    let text = |line: &[u8]| {
        let line = line.strip_suffix(b"\n").unwrap_or(line);
        String::from_utf8_lossy(line.strip_suffix(b"\r").unwrap_or(line)).into_owned()
    };
    let lines = lines(&bytes).into_iter().zip(whose).map(|(line, change)| BlameLine { change, text: text(line) });
    let lines = lines.collect();
    Ok(Blame { changes, lines, unknown, coarse })
}

/// Whether there is something below a path: a directory comes with its files, and is told of by them.
fn has_entries(session: &Session, path: &EntryPath, at: Seq) -> Result<bool, SessionError> {
    let last: BTreeMap<EntryPath, bool> =
        path_history(session, path, at)?.into_iter().map(|change| (change.path, change.after.is_some())).collect();
    Ok(last.into_values().any(|is_there| is_there))
}

/// Whether an entry has lines that can be asked about.
fn check(path: &EntryPath, node: &Node) -> Result<(), BlameError> {
    let path = path.clone();
    match node {
        Node::File { incomplete: true, .. } => Err(BlameError::NotKept { path }),
        Node::File { text: false, .. } => Err(BlameError::NotText { path, what: "a binary file" }),
        Node::File { size, .. } if *size > BLAME_BYTES_MAX => Err(BlameError::TooLarge { path, size: *size }),
        Node::File { .. } => Ok(()),
        Node::Directory => Err(BlameError::NotText { path, what: "a directory" }),
        Node::Symlink { .. } => Err(BlameError::NotText { path, what: "a symbolic link" }),
        Node::Special { special } => Err(BlameError::NotText { path, what: special.name() }),
    }
}

/// A file on its way through its versions.
#[derive(Default)]
struct File {
    content: Option<Digest>,
    bytes: Bytes,
    /// Whose each line is.
    whose: Vec<usize>,
    unknown: Vec<Seq>,
    coarse: bool,
}

impl File {
    fn take(&mut self, session: &Session, number: usize, change: &PathChange) -> Result<(), BlameError> {
        // A file that goes comes again elsewhere, or it would be another one.
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
        let whose = |line: Option<usize>| line.and_then(|line| self.whose.get(line).copied()).unwrap_or(number);
        let whose = from.into_iter().map(whose).collect();
        (self.content, self.bytes, self.whose) = (Some(content), bytes, whose);
        Ok(())
    }
}
