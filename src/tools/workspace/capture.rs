//! Capture of a command's changes: the disk compared with the slice.

use std::collections::{BTreeMap, BTreeSet};
use std::io::Read;

use bytes::Bytes;

use super::hard_links::add_found;
use super::plan::{NewContents, PlannedChange};
use crate::backends::{BackendError, ChangeDetector, DirtyPath, Observed};
use crate::engine::event::{DeleteEntry, FileMode, Node, WriteFile, WriteMode};
use crate::engine::id::Digest;
use crate::engine::path::EntryPath;
use crate::engine::session::Session;
use crate::engine::session::error::SessionError;
use crate::reducers::VirtualFileSystem;

const PIECE: usize = 256 << 10;
/// Maximum number of retries to open a file that exists again after each failure.
const RACES_MAX: usize = 64;

/// Limits for the stored contents of files that commands write. Larger files are recorded as `incomplete`: with digest
/// and size, or beyond `digest_bytes` with their size and a digest of zeros.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CaptureBudget {
    /// Bytes of one file.
    pub file_bytes: u64,
    /// Bytes of all files that one call changed. They are in memory together until they are recorded.
    pub step_bytes: u64,
    /// Bytes of one call's files that are read for their digests only. A sparse file may claim more bytes than any disk
    /// has.
    pub digest_bytes: u64,
}

impl Default for CaptureBudget {
    /// Returns 64 MiB per file, 256 MiB per call, and 16 GiB for digests.
    fn default() -> Self {
        Self { file_bytes: 64 << 20, step_bytes: 256 << 20, digest_bytes: 16 << 30 }
    }
}

#[derive(Debug, Default)]
pub(crate) struct Captured {
    /// Removed entries, each with everything below it; then new or changed ones, in path order.
    pub(crate) changes: Vec<PlannedChange>,
    pub(crate) contents: NewContents,
    /// Contents that stay on this machine.
    pub(crate) withheld: NewContents,
}

impl Captured {
    /// Stores the contents that stay on this machine. If the store can't, their files are recorded by digest only.
    pub(crate) fn withhold(&mut self, session: &Session) -> Result<(), SessionError> {
        for (digest, bytes) in std::mem::take(&mut self.withheld) {
            if session.withhold(&digest, &bytes)? {
                continue;
            }
            for change in &mut self.changes {
                if let PlannedChange::Write(WriteFile { node: Node::File { content, incomplete, .. }, .. }) = change
                    && *content == digest
                {
                    *incomplete = true;
                }
            }
        }
        Ok(())
    }
}

/// Clears new set-user-ID and set-group-ID bits on a disk that does not allow them, so that they are not changes.
pub(super) fn clear_set_id(
    disk: &dyn ChangeDetector,
    tree: &VirtualFileSystem,
    captured: &mut Captured,
) -> Result<(), BackendError> {
    let is_change = |change: &mut PlannedChange| {
        let PlannedChange::Write(WriteFile { path, node, .. }) = change else { return Ok(true) };
        let (known, Node::File { mode, .. }) = (tree.node(path), &mut *node) else { return Ok(true) };
        let before = known.and_then(Node::mode).unwrap_or(FileMode::FILE);
        if !mode.adds_set_id(before) || !disk.clear_set_id(path)? {
            return Ok(true);
        }
        tracing::warn!(path = %path.rooted(), "cleared new set-user-ID and set-group-ID bits");
        *mode = mode.without_set_id();
        Ok(known != Some(&*node))
    };
    let mut changes = Vec::with_capacity(captured.changes.len());
    for mut change in std::mem::take(&mut captured.changes) {
        if is_change(&mut change)? {
            changes.push(change);
        }
    }
    captured.changes = changes;
    Ok(())
}

/// Compares possibly changed entries of the disk with the slice. Marks none as clean.
pub(crate) fn compare(
    disk: &dyn ChangeDetector,
    touched: Vec<DirtyPath>,
    tree: &VirtualFileSystem,
    budget: CaptureBudget,
) -> Result<Captured, BackendError> {
    if touched.is_empty() {
        return Ok(Captured::default());
    }
    let mut found = BTreeMap::new();
    for touched in touched {
        look(disk, tree, touched, &mut found)?;
    }
    let mut comparison = CaptureComparison {
        disk,
        tree,
        file_bytes: budget.file_bytes,
        left: budget.step_bytes,
        unread: budget.digest_bytes,
        gone: BTreeSet::new(),
        deleted: Vec::new(),
        written: Vec::new(),
        contents: NewContents::new(),
        withheld: NewContents::new(),
    };
    for (path, observed) in &found {
        comparison.entry(path, observed.as_ref())?;
    }
    let CaptureComparison { deleted, written, contents, withheld, .. } = comparison;
    let above: BTreeSet<EntryPath> = written.iter().filter_map(|write| write.path.parent()).collect();
    // New directories that a new entry below implies need no event.
    let is_implied =
        |write: &WriteFile| write.node.is_implied() && write.mode == WriteMode::Create && above.contains(&write.path);
    let written = written.into_iter().filter(|write| !is_implied(write));
    let written = written.map(PlannedChange::Write);
    let mut changes: Vec<PlannedChange> = deleted.into_iter().map(PlannedChange::Delete).chain(written).collect();
    let is_shared = |found: &Option<Observed>| matches!(found, Some(Observed::File { shared: Some(_), .. }));
    if tree.has_hard_links() || found.values().any(is_shared) {
        add_found(disk, &found, tree, &mut changes)?;
    }
    Ok(Captured { changes, contents, withheld })
}

/// Observes possibly changed entries on the disk; `None` for entries that exist only in the slice. Entries below an
/// unreadable directory keep their recorded state.
fn look(
    disk: &dyn ChangeDetector,
    tree: &VirtualFileSystem,
    touched: DirtyPath,
    found: &mut BTreeMap<EntryPath, Option<Observed>>,
) -> Result<(), BackendError> {
    let (path, deep) = match touched {
        DirtyPath::Entry(path) => (path, false),
        DirtyPath::Subtree(path) => (path, true),
    };
    if !path.is_root() {
        match disk.observe(&path) {
            Err(_) if disk.is_closed(&path) => {}
            observed => drop(found.insert(path.clone(), observed?)),
        }
    }
    if deep {
        let below = disk.below(&path)?;
        let closed: BTreeSet<EntryPath> = below.closed.into_iter().collect();
        let above = |path: &EntryPath| std::iter::successors(path.parent(), EntryPath::parent);
        let is_hidden = |path: &EntryPath| !closed.is_empty() && above(path).any(|above| closed.contains(&above));
        let known = tree.below(&path).map(|(path, _)| path).filter(|path| !is_hidden(path));
        let known: Vec<EntryPath> = known.cloned().collect();
        found.extend(known.iter().map(|path| (path.clone(), None)));
        found.extend(below.entries.into_iter().map(|(path, observed)| (path, Some(observed))));
        if disk.leaves_out() {
            // An entry that was recorded before a rule excluded it stays recorded.
            for path in known {
                if let Some(missing @ None) = found.get_mut(&path) {
                    *missing = disk.observe(&path)?;
                }
            }
        }
    }
    Ok(())
}

struct CaptureComparison<'a> {
    disk: &'a dyn ChangeDetector,
    tree: &'a VirtualFileSystem,
    file_bytes: u64,
    left: u64,
    unread: u64,
    /// Entries in the slice that are not on the disk.
    gone: BTreeSet<EntryPath>,
    deleted: Vec<DeleteEntry>,
    written: Vec<WriteFile>,
    contents: NewContents,
    withheld: NewContents,
}

impl CaptureComparison<'_> {
    /// Compares one entry; paths come in order, each directory before its entries.
    fn entry(&mut self, path: &EntryPath, observed: Option<&Observed>) -> Result<(), BackendError> {
        let known = self.tree.node(path);
        let Some(observed) = observed else {
            if known.is_some() {
                // Removing a directory removes the entries below it.
                if !path.parent().is_some_and(|parent| self.gone.contains(&parent)) {
                    self.deleted.push(DeleteEntry { path: path.clone() });
                }
                self.gone.insert(path.clone());
            }
            return Ok(());
        };
        let node = match observed {
            Observed::Directory { mode } => Node::Directory { mode: *mode },
            Observed::Symlink { target } => Node::Symlink { target: target.clone() },
            Observed::Special(special) => Node::Special { special: *special },
            Observed::File { size, mode, .. } => match self.borrowed(path, (*size, *mode), known) {
                Some(node) => node,
                None => match self.file(path, *size, *mode, known)? {
                    Some(node) => node,
                    None => return self.entry(path, None),
                },
            },
        };
        if known == Some(&node) {
            return Ok(());
        }
        let mode = if known.is_some() { WriteMode::Overwrite } else { WriteMode::Create };
        self.written.push(WriteFile { path: path.clone(), mode, node });
        Ok(())
    }

    /// Returns the node of a new file without reading it. Git does not record which files are text, so text is assumed.
    fn borrowed(&self, path: &EntryPath, (size, mode): (u64, FileMode), known: Option<&Node>) -> Option<Node> {
        let content = if known.is_none() { self.disk.borrowed(path) } else { None }?;
        Some(Node::File { content, size, mode, text: true, incomplete: false })
    }

    fn file(
        &mut self,
        path: &EntryPath,
        size: u64,
        mode: FileMode,
        known: Option<&Node>,
    ) -> Result<Option<Node>, BackendError> {
        let mut reader = match self.open(path)? {
            Some(Some(reader)) => reader,
            Some(None) => return Ok(Some(unseen(size, mode))),
            None => return Ok(None),
        };
        let limit = self.file_bytes.min(self.left);
        if size > limit {
            if let Some(data) = self.disk.sparse_data(path)? {
                return self.sparse(path, (size, mode), data).map(Some);
            }
            if size > self.unread {
                return Ok(Some(unseen(size, mode)));
            }
        }
        let mut bytes = Vec::with_capacity(usize::try_from(size.min(limit)).unwrap_or(0).saturating_add(1));
        let read = (&mut reader).take(limit.saturating_add(1)).read_to_end(&mut bytes);
        read.map_err(|error| self.unreadable(path, &error.to_string()))?;
        if bytes.len() as u64 > limit {
            // The file may grow during the read.
            let reader = reader.take(self.unread.saturating_sub(bytes.len() as u64));
            let read = LargeFile::read_on(bytes, reader).map_err(|error| self.unreadable(path, &error.to_string()))?;
            self.unread = self.unread.saturating_sub(read.size);
            return Ok(Some(if self.unread == 0 { unseen(size, mode) } else { read.node(mode, known) }));
        }
        if let Some(Node::File { content, text, incomplete, .. }) = known
            && content.git_blob().is_some()
            && content.is_of(&bytes)
        {
            let (content, text, incomplete) = (*content, *text, *incomplete);
            return Ok(Some(Node::File { content, size: bytes.len() as u64, mode, text, incomplete }));
        }
        let mut node = Node::file_with(&bytes, mode);
        let is_secret = self.disk.is_secret(path);
        let is_withheld = is_secret && self.disk.keeps_secrets();
        if let Node::File { content, incomplete, .. } = &mut node {
            match known {
                // Unchanged contents are no change, even if the budget has room for them now.
                Some(Node::File { content: known, incomplete: was, .. })
                    if known == content && !(*was && is_withheld) =>
                {
                    *incomplete = *was;
                }
                _ if is_secret && !is_withheld => *incomplete = true,
                _ if is_withheld => drop(self.withheld.insert(*content, Bytes::from(bytes))),
                _ => {
                    self.left -= bytes.len() as u64;
                    self.contents.insert(*content, Bytes::from(bytes));
                }
            }
        }
        Ok(Some(node))
    }

    /// Reads a sparse file. Its digest covers the data and their positions: reading the holes would take seconds.
    fn sparse(
        &mut self,
        path: &EntryPath,
        (size, mode): (u64, FileMode),
        data: Box<dyn Read + Send>,
    ) -> Result<Node, BackendError> {
        let read = LargeFile::read_on(Vec::new(), data.take(self.unread));
        let read = read.map_err(|error| self.unreadable(path, &error.to_string()))?;
        self.unread = self.unread.saturating_sub(read.size);
        let content = Digest::from_bytes(*read.hasher.finalize().as_bytes());
        Ok(match self.unread {
            0 => unseen(size, mode),
            _ => Node::File { content, size, mode, text: false, incomplete: true },
        })
    }

    /// Opens a file; `None` if it is gone or no longer a file, `Some(None)` if it may not be read. An editor that
    /// replaces a file may remove it for a moment, so an existing file is retried.
    fn open(&self, path: &EntryPath) -> Result<Option<Option<Box<dyn Read + Send>>>, BackendError> {
        let mut tries = 0;
        loop {
            let opened = self.disk.open(path);
            let Err(error) = opened else { return opened.map(Some) };
            match self.disk.observe(path)? {
                Some(Observed::File { .. }) if tries < RACES_MAX => tries += 1,
                Some(Observed::File { .. }) => return Err(error),
                _ => return Ok(None),
            }
        }
    }

    fn unreadable(&self, path: &EntryPath, reason: &str) -> BackendError {
        BackendError { backend: "capture of the", reason: format!("{} could not be read: {reason}", path.rooted()) }
    }
}

/// Returns a node for an unreadable file. Its contents may or may not have changed.
fn unseen(size: u64, mode: FileMode) -> Node {
    Node::File { content: Digest::from_bytes([0; 32]), size, mode, text: false, incomplete: true }
}

struct LargeFile {
    hasher: blake3::Hasher,
    size: u64,
    text: bool,
    /// First bytes of a character that has not been read completely.
    begun: Vec<u8>,
}

impl LargeFile {
    fn read_on(bytes: Vec<u8>, mut reader: impl Read) -> std::io::Result<Self> {
        let mut seen = Self { hasher: blake3::Hasher::new(), size: 0, text: true, begun: Vec::new() };
        seen.add(&bytes);
        let mut piece = vec![0; PIECE];
        loop {
            match reader.read(&mut piece) {
                Ok(0) => return Ok(seen),
                Ok(read) => seen.add(&piece[..read]),
                Err(error) if error.kind() == std::io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
    }

    fn add(&mut self, bytes: &[u8]) {
        self.hasher.update(bytes);
        self.size += bytes.len() as u64;
        if !self.text {
            return;
        }
        let joined = [&std::mem::take(&mut self.begun)[..], bytes].concat();
        match std::str::from_utf8(&joined) {
            Ok(text) => self.text = !text.contains('\0'),
            Err(error) => {
                self.text = error.error_len().is_none() && !joined[..error.valid_up_to()].contains(&0);
                self.begun = joined[error.valid_up_to()..].to_vec();
            }
        }
    }

    fn node(self, mode: FileMode, known: Option<&Node>) -> Node {
        let content = Digest::from_bytes(*self.hasher.finalize().as_bytes());
        let is_kept = matches!(known, Some(Node::File { content: known, incomplete: false, .. }) if *known == content);
        let text = self.text && self.begun.is_empty();
        Node::File { content, size: self.size, mode, text, incomplete: !is_kept }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use super::*;
    use crate::backends::Below;
    use crate::engine::clock::Timestamp;

    /// File that fails to open at first, and exists at every observation.
    struct Flickering {
        away: AtomicUsize,
    }

    impl ChangeDetector for Flickering {
        fn dirty(&self) -> Result<Vec<DirtyPath>, BackendError> {
            Ok(vec![DirtyPath::Entry(EntryPath::lookup("a").unwrap())])
        }

        fn mark_clean(&self) -> Result<(), BackendError> {
            Ok(())
        }

        fn observe(&self, _: &EntryPath) -> Result<Option<Observed>, BackendError> {
            Ok(Some(Observed::File { size: 3, mode: FileMode::FILE, shared: None }))
        }

        fn below(&self, _: &EntryPath) -> Result<Below, BackendError> {
            Ok(Below::default())
        }

        fn open(&self, _: &EntryPath) -> Result<Option<Box<dyn Read + Send>>, BackendError> {
            let less = |away: usize| away.checked_sub(1);
            match self.away.fetch_update(Ordering::Relaxed, Ordering::Relaxed, less) {
                Ok(_) => Err(BackendError { backend: "test", reason: "No such file".to_owned() }),
                Err(_) => Ok(Some(Box::new(&b"new"[..]))),
            }
        }
    }

    /// A disk that does not allow set-user-ID bits.
    struct Restricted;

    impl ChangeDetector for Restricted {
        fn dirty(&self) -> Result<Vec<DirtyPath>, BackendError> {
            Ok(vec![])
        }

        fn mark_clean(&self) -> Result<(), BackendError> {
            Ok(())
        }

        fn observe(&self, _: &EntryPath) -> Result<Option<Observed>, BackendError> {
            Ok(None)
        }

        fn below(&self, _: &EntryPath) -> Result<Below, BackendError> {
            Ok(Below::default())
        }

        fn open(&self, _: &EntryPath) -> Result<Option<Box<dyn Read + Send>>, BackendError> {
            Ok(None)
        }

        fn clear_set_id(&self, _: &EntryPath) -> Result<bool, BackendError> {
            Ok(true)
        }
    }

    #[test]
    fn clear_set_id_drops_changes_of_those_bits_only() {
        let write = |name: &str, mode: u32, bytes: &[u8]| WriteFile {
            path: EntryPath::lookup(name).unwrap(),
            mode: WriteMode::Overwrite,
            node: Node::file_with(bytes, FileMode::of(mode)),
        };
        let mut tree = VirtualFileSystem::default();
        for before in [write("changed", 0o755, b"1"), write("had", 0o4755, b"1"), write("same", 0o755, b"1")] {
            tree.write(&before, Timestamp(0));
        }
        let after = [("changed", 0o4755, "2"), ("had", 0o4755, "2"), ("new", 0o6711, "1"), ("same", 0o2755, "1")];
        let changes = after.map(|(name, mode, text)| PlannedChange::Write(write(name, mode, text.as_bytes())));
        let mut captured = Captured { changes: changes.to_vec(), ..Captured::default() };
        clear_set_id(&Restricted, &tree, &mut captured).unwrap();
        let found = captured.changes.iter().map(|change| match change {
            PlannedChange::Write(write) => (write.path.rooted(), write.node.mode().unwrap().bits()),
            other => panic!("{other:?}"),
        });
        let wanted = [("/changed", 0o755), ("/had", 0o4755), ("/new", 0o711)];
        assert_eq!(found.collect::<Vec<_>>(), wanted.map(|(path, mode)| (path.to_owned(), mode)));
    }

    #[test]
    fn capture_reopens_file_that_was_away() {
        let compared = |away| {
            let disk = Flickering { away: AtomicUsize::new(away) };
            compare(&disk, disk.dirty()?, &VirtualFileSystem::default(), CaptureBudget::default())
        };
        for away in [0, 1, RACES_MAX] {
            assert_eq!(compared(away).unwrap().changes.len(), 1, "{away}");
        }
        assert!(compared(RACES_MAX + 1).unwrap_err().reason.contains("No such file"), "it can't be opened at all");
    }
}
