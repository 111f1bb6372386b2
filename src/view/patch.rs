//! Differences between files as patches for `git apply` and `patch -p1`.

use std::time::Duration;

use bytes::Bytes;
use schemars::JsonSchema;
use serde::Serialize;
use similar::{ChangeTag, TextDiff};

use super::EntryShape;
use crate::engine::event::{FileMode, Node};
use crate::engine::id::{Digest, Seq};
use crate::engine::path::EntryPath;
use crate::engine::session::Session;
use crate::engine::session::error::SessionError;
use crate::engine::store::StoreError;
use crate::reducers::{Change, Entry, VirtualFileSystem};

/// Time limit to compare one file; after it the difference is coarser.
const DIFF_TIME_LIMIT: Duration = Duration::from_secs(5);

/// The mode of a directory.
const DIRECTORY: &str = "040000";

/// The change of one path as a patch.
#[derive(Debug, Clone)]
pub struct Patch {
    /// The path.
    pub path: String,
    /// `added`, `removed` or `changed`.
    pub change: &'static str,
    /// The whole patch, without colour.
    pub text: String,
    /// True if binary contents differ.
    pub binary: bool,
    /// The number of lines added.
    pub added: u64,
    /// The number of lines removed.
    pub removed: u64,
}

/// Reads the contents of a file.
type ReadContents<'a> = &'a dyn Fn(&Digest) -> Result<Bytes, SessionError>;

#[derive(Default)]
struct Side {
    /// Empty if the entry does not exist.
    mode: &'static str,
    bits: Option<FileMode>,
    text: String,
    /// The digest of binary contents.
    binary: Option<Digest>,
}

impl Side {
    fn read(contents: ReadContents<'_>, entry: Option<&Entry>) -> Result<Self, SessionError> {
        let bits = entry.and_then(|entry| entry.node.mode());
        let (mode, bytes) = match entry.map(|entry| &entry.node) {
            None => return Ok(Self::default()),
            Some(Node::Directory { .. }) => return Ok(Self { mode: DIRECTORY, bits, ..Self::default() }),
            Some(Node::Symlink { target }) => ("120000", target.clone()),
            Some(Node::Special { special }) => return Ok(Self { mode: special.name(), ..Self::default() }),
            Some(
                Node::File { content, text: false, mode, .. } | Node::File { content, incomplete: true, mode, .. },
            ) => {
                return Ok(Self { mode: mode_of(*mode), bits, text: String::new(), binary: Some(*content) });
            }
            Some(Node::File { content, mode, .. }) => match contents(content) {
                // The content is withheld, or git has lost it.
                Err(SessionError::Store(StoreError::NoContent(_))) => {
                    return Ok(Self { mode: mode_of(*mode), bits, text: String::new(), binary: Some(*content) });
                }
                read => (mode_of(*mode), read?.to_vec()),
            },
        };
        let text = String::from_utf8(bytes).unwrap_or_else(|e| String::from_utf8_lossy(e.as_bytes()).into_owned());
        Ok(Self { mode, bits, text, binary: None })
    }

    fn name(&self, prefix: &str, path: &str) -> String {
        if self.mode.is_empty() { "/dev/null".to_owned() } else { format!("{prefix}/{path}") }
    }
}

fn mode_of(mode: FileMode) -> &'static str {
    if mode.is_executable() { "100755" } else { "100644" }
}

/// Returns true if git supports such entries; it skips lines for others.
fn is_known_to_git(mode: &str) -> bool {
    mode != DIRECTORY && mode.chars().all(|c| c.is_ascii_digit())
}

fn came_or_went(word: &str, mode: &str, path: &str) -> String {
    match mode {
        DIRECTORY => format!("{word} directory {path}/\n"),
        mode if is_known_to_git(mode) => format!("{word} file mode {mode}\n"),
        special => format!("{word} {special} {path}\n"),
    }
}

/// Returns the patches of a change: two if the kind of the entry changes.
pub fn patches(session: &Session, change: &Change) -> Result<Vec<Patch>, SessionError> {
    patches_between(session, session, change)
}

/// Returns the patches of a change from one session's files to another's.
pub fn patches_between(from: &Session, to: &Session, change: &Change) -> Result<Vec<Patch>, SessionError> {
    patches_with(&|digest| from.content(digest), &|digest| to.content(digest), change)
}

fn patches_with(from: ReadContents<'_>, to: ReadContents<'_>, change: &Change) -> Result<Vec<Patch>, SessionError> {
    let (before, after) = change.sides();
    let path = change.path().to_string();
    let (old, new) = (Side::read(from, before)?, Side::read(to, after)?);
    let other_kind = before.zip(after).is_some_and(|(b, a)| kind_of(b) != kind_of(a));
    Ok(match other_kind {
        false => vec![Patch::between(path, &old, &new)],
        true => {
            vec![Patch::between(path.clone(), &old, &Side::default()), Patch::between(path, &Side::default(), &new)]
        }
    })
}

fn kind_of(entry: &Entry) -> std::mem::Discriminant<Node> {
    std::mem::discriminant(&entry.node)
}

impl Patch {
    /// Compares two texts, which the patch calls `name`.
    pub fn of_texts(name: &str, old: &str, new: &str) -> Self {
        let side = |text: &str| Side { mode: mode_of(FileMode::FILE), bits: None, text: text.to_owned(), binary: None };
        Self::between(name.to_owned(), &side(old), &side(new))
    }

    fn between(path: String, old: &Side, new: &Side) -> Self {
        let (change, modes) = match (old.mode, new.mode) {
            ("", mode) => ("added", came_or_went("new", mode, &path)),
            (mode, "") => ("removed", came_or_went("deleted", mode, &path)),
            (a, b) if a == b => ("changed", String::new()),
            (a, b) => ("changed", format!("old mode {a}\nnew mode {b}\n")),
        };
        let (from, to) = (old.name("a", &path), new.name("b", &path));
        let binary = old.binary != new.binary;
        // Git has only the executable bit of a mode, and skips such a line.
        let bits = match (old.bits, new.bits) {
            (Some(before), Some(after)) if modes.is_empty() && before != after => {
                format!("mode {before} -> {after} {path}\n")
            }
            _ => String::new(),
        };
        let is_more = bits.is_empty() || binary || old.text != new.text;
        let text = match is_more && is_known_to_git(old.mode) && is_known_to_git(new.mode) {
            true => format!("{bits}diff --git a/{path} b/{path}\n{modes}"),
            false => format!("{bits}{modes}"),
        };
        let mut patch = Self { path, change, text, binary, added: 0, removed: 0 };
        if binary {
            patch.text.push_str(&format!("Binary files {from} and {to} differ\n"));
        } else if old.text != new.text {
            patch.text.push_str(&format!("--- {from}\n+++ {to}\n"));
            patch.compare(&old.text, &new.text);
        }
        patch
    }

    fn compare(&mut self, old: &str, new: &str) {
        let (old, new): (Vec<&str>, Vec<&str>) =
            (old.split_inclusive('\n').collect(), new.split_inclusive('\n').collect());
        let diff = TextDiff::configure().newline_terminated(true).timeout(DIFF_TIME_LIMIT).diff_slices(&old, &new);
        for hunk in diff.unified_diff().iter_hunks() {
            self.text.push_str(&format!("{}\n", hunk.header()));
            for change in hunk.iter_changes() {
                self.removed += u64::from(change.tag() == ChangeTag::Delete);
                self.added += u64::from(change.tag() == ChangeTag::Insert);
                let end = if change.value().ends_with('\n') { "" } else { "\n\\ No newline at end of file\n" };
                self.text.push_str(&format!("{}{}{end}", change.tag(), change.value()));
            }
        }
    }
}

/// A change of an entry with its patch.
#[derive(Debug, Clone, Serialize, JsonSchema)]
#[schemars(rename = "Change")]
pub struct ChangeDocument {
    /// The change, its path, and the entries: `before` unless it was added, `after` unless it was removed.
    #[serde(flatten)]
    #[schemars(with = "ChangeShape")]
    pub change: Change,
    /// True if binary contents differ.
    pub binary: bool,
    /// The number of lines added.
    pub lines_added: u64,
    /// The number of lines removed.
    pub lines_removed: u64,
    /// The patch, for `git apply` and `patch -p1`.
    pub patch: String,
}

/// The form of a change.
#[derive(Debug, Clone, Serialize, JsonSchema)]
pub struct ChangeShape {
    /// `added`, `removed` or `changed`.
    pub change: String,
    /// The path.
    pub path: String,
    /// The entry before.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub before: Option<EntryShape>,
    /// The entry after.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub after: Option<EntryShape>,
}

/// Returns a change as a document.
pub fn change(session: &Session, change: &Change) -> Result<ChangeDocument, SessionError> {
    change_between(session, session, change)
}

/// Returns a change from one session's files to another's as a document.
pub fn change_between(from: &Session, to: &Session, change: &Change) -> Result<ChangeDocument, SessionError> {
    Ok(document(change, patches_between(from, to, change)?))
}

/// Returns a change as a document, with contents from `contents`.
pub fn change_with(contents: ReadContents<'_>, change: &Change) -> Result<ChangeDocument, SessionError> {
    Ok(document(change, patches_with(contents, contents, change)?))
}

fn document(change: &Change, patches: Vec<Patch>) -> ChangeDocument {
    ChangeDocument {
        change: change.clone(),
        binary: patches.iter().any(|patch| patch.binary),
        lines_added: patches.iter().map(|patch| patch.added).sum(),
        lines_removed: patches.iter().map(|patch| patch.removed).sum(),
        patch: patches.into_iter().map(|patch| patch.text).collect(),
    }
}

/// Compares the files at two positions, optionally only at or below a path.
pub fn file_changes(
    session: &Session,
    from: Seq,
    to: Seq,
    path: Option<&EntryPath>,
) -> Result<Vec<Change>, SessionError> {
    changes_to(session, from, &VirtualFileSystem::of(&session.state_at(to)?), path)
}

/// Compares the files at a position with others, optionally only at or below a path.
pub fn changes_to(
    session: &Session,
    from: Seq,
    to: &VirtualFileSystem,
    path: Option<&EntryPath>,
) -> Result<Vec<Change>, SessionError> {
    let mut changes = VirtualFileSystem::of(&session.state_at(from)?).diff(to);
    changes.retain(|change| path.is_none_or(|path| change.path() == path || change.path().is_below(path)));
    Ok(changes)
}
