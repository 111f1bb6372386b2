//! Decision on one path that the child has changed.

use bytes::Bytes;

use super::sides::{Nodes, Sides, is_leaf};
use super::text::{self, MergedLines};
use crate::engine::event::{ConflictKind, FileMode, MergeSide, Node, Special};
use crate::engine::{Digest, EntryPath};

pub(super) enum EntryDecision {
    /// Keep the parent's entry.
    Nothing,
    /// Take the child's entry.
    Take,
    /// Write a combination of both sides; `bytes` if its contents are new.
    Merge { node: Node, bytes: Option<Bytes> },
    /// The entry can't be created, so a child without it may never have had it.
    Unavailable,
    /// Leave out the child's entry, which can't be created.
    LeaveOut,
    /// A side must be chosen.
    Conflict(ConflictKind),
    /// Both sides changed the same lines, in this many hunks; with the result, if each hunk has a chosen side.
    Lines(usize, Option<(Node, Bytes)>),
}

#[derive(Clone, Copy)]
struct MergeFile<'a> {
    content: &'a Digest,
    size: u64,
    mode: FileMode,
    text: bool,
    incomplete: bool,
}

impl<'a> MergeFile<'a> {
    fn of(node: Option<&'a Node>) -> Option<Self> {
        match node? {
            Node::File { content, size, mode, text, incomplete } => {
                let (size, mode, text, incomplete) = (*size, *mode, *text, *incomplete);
                Some(Self { content, size, mode, text, incomplete })
            }
            Node::Symlink { .. } | Node::Directory { .. } | Node::Special { .. } => None,
        }
    }

    /// Returns true if the contents are equal. Contents that could not be read equal no others.
    fn has_contents_of(&self, other: &Self) -> bool {
        self.content == other.content && !(self.incomplete && *self.content == Digest::from_bytes([0; 32]))
    }

    fn node(&self, mode: FileMode) -> Node {
        let Self { content, size, text, incomplete, .. } = *self;
        Node::File { content: *content, size, mode, text, incomplete }
    }
}

/// Returns true if an entry can be created, as its contents are stored. A pipe needs no contents; a socket or device
/// needs the program or the number behind it.
pub fn can_be_made(node: &Node) -> bool {
    match node {
        Node::File { incomplete, .. } => !incomplete,
        Node::Special { special } => *special == Special::Fifo,
        Node::Symlink { .. } | Node::Directory { .. } => true,
    }
}

/// Decides on a path that the child has changed, and where nothing [clashes](Sides::clashes). `chosen` returns the side
/// of a hunk by its number.
pub(super) fn decide<E>(
    sides: &Sides<'_>,
    path: &EntryPath,
    chosen: &dyn Fn(usize) -> Option<MergeSide>,
    read: &mut impl FnMut(&Digest) -> Result<Bytes, E>,
) -> Result<EntryDecision, E> {
    let nodes = sides.nodes(path);
    let Nodes { base, ours, theirs } = nodes;
    if theirs.is_none() && base.is_some_and(|base| !can_be_made(base)) {
        return Ok(EntryDecision::Unavailable);
    }
    if ours == base {
        return Ok(taken(sides, path, nodes));
    }
    if let (Some(Node::Directory { mode: ours }), Some(Node::Directory { mode: theirs })) = (ours, theirs) {
        let merged = match base {
            Some(Node::Directory { mode: base }) => FileMode::merged(*base, *ours, *theirs),
            _ => *ours,
        };
        return Ok(match merged == *ours {
            true => EntryDecision::Nothing,
            false => EntryDecision::Merge { node: Node::Directory { mode: merged }, bytes: None },
        });
    }
    let files = [MergeFile::of(base), MergeFile::of(ours), MergeFile::of(theirs)];
    if let [Some(base), Some(ours), Some(theirs)] = files {
        return merged(base, ours, theirs, chosen, read);
    }
    if ours == theirs {
        return Ok(match files {
            [_, Some(ours), Some(theirs)] if !ours.has_contents_of(&theirs) => {
                EntryDecision::Conflict(ConflictKind::Incomplete)
            }
            _ => EntryDecision::Nothing,
        });
    }
    Ok(EntryDecision::Conflict(match (ours, theirs) {
        (None, _) => ConflictKind::DeletedByOurs,
        (_, None) => ConflictKind::DeletedByTheirs,
        (Some(Node::Symlink { .. }), Some(Node::Symlink { .. })) => ConflictKind::Link,
        _ => match files {
            [_, Some(ours), Some(theirs)] if ours.has_contents_of(&theirs) => ConflictKind::Mode,
            [_, Some(_), Some(theirs)] if theirs.incomplete => ConflictKind::Incomplete,
            [_, Some(_), Some(_)] => ConflictKind::Added,
            _ => ConflictKind::Kind,
        },
    }))
}

/// Decides on a path that only the child has changed.
fn taken(sides: &Sides<'_>, path: &EntryPath, nodes: Nodes<'_>) -> EntryDecision {
    let Nodes { base, theirs, .. } = nodes;
    if base.is_none() && sides.is_in_deleted(path) {
        // A directory comes with its entries, and so does the conflict about it.
        return match is_leaf(sides.theirs, path) {
            true => EntryDecision::Conflict(ConflictKind::DirectoryDeletedByOurs),
            false => EntryDecision::Nothing,
        };
    }
    match theirs {
        None => EntryDecision::Take,
        Some(node) if can_be_made(node) => EntryDecision::Take,
        Some(Node::File { .. }) => EntryDecision::Conflict(ConflictKind::Incomplete),
        Some(_) if matches!(base, None | Some(Node::Special { .. })) => EntryDecision::LeaveOut,
        Some(_) => EntryDecision::Conflict(ConflictKind::Kind),
    }
}

fn merged<E>(
    base: MergeFile<'_>,
    ours: MergeFile<'_>,
    theirs: MergeFile<'_>,
    chosen: &dyn Fn(usize) -> Option<MergeSide>,
    read: &mut impl FnMut(&Digest) -> Result<Bytes, E>,
) -> Result<EntryDecision, E> {
    let mode = FileMode::merged(base.mode, ours.mode, theirs.mode);
    if ours.has_contents_of(&theirs) || theirs.has_contents_of(&base) {
        return Ok(match ours.mode == mode {
            true => EntryDecision::Nothing,
            false => whole(ours, mode),
        });
    }
    if ours.has_contents_of(&base) {
        return Ok(whole(theirs, mode));
    }
    let all = [base, ours, theirs];
    if all.iter().any(|file| file.incomplete) {
        return Ok(EntryDecision::Conflict(ConflictKind::Incomplete));
    }
    if all.iter().any(|file| file.size > text::MERGED_BYTES_MAX) {
        let are_texts = all.iter().all(|file| file.text);
        return Ok(EntryDecision::Conflict(if are_texts { ConflictKind::Large } else { ConflictKind::Binary }));
    }
    let [base, ours, theirs] = [read(base.content)?, read(ours.content)?, read(theirs.content)?];
    Ok(match text::merge(&base, &ours, &theirs, chosen) {
        MergedLines::Merged(bytes) => {
            EntryDecision::Merge { node: Node::file_with(&bytes, mode), bytes: Some(bytes.into()) }
        }
        MergedLines::Conflict(hunks, bytes) => {
            EntryDecision::Lines(hunks, bytes.map(|bytes| (Node::file_with(&bytes, mode), bytes.into())))
        }
        MergedLines::TooMany => EntryDecision::Conflict(ConflictKind::Large),
        MergedLines::NoText => EntryDecision::Conflict(ConflictKind::Binary),
    })
}

fn whole(file: MergeFile<'_>, mode: FileMode) -> EntryDecision {
    match file.incomplete {
        true => EntryDecision::Conflict(ConflictKind::Incomplete),
        false => EntryDecision::Merge { node: file.node(mode), bytes: None },
    }
}
