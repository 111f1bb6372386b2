//! The files of a workspace on a disk: one caller at a time, and errors with the backend's name.

use std::io::Read;
use std::path::Path;
use std::sync::{Mutex, MutexGuard};

use super::ignore_rules::IgnoreRules;
use super::sparse::SparseData;
use super::tree::TreeEntry;
use super::workspace_disk::WorkspaceDisk;
use crate::backends::git::GitPlace;
use crate::backends::{
    BackendError, Below, ChangeDetector, DirtyPath, FileChange, KeptAt, KnownFilesKeeper, Observed, Walked,
};
use crate::engine::clock::Timestamp;
use crate::engine::id::Digest;
use crate::engine::lock::lock;
use crate::engine::path::EntryPath;

pub(crate) struct OnDisk {
    backend: &'static str,
    is_overlay: bool,
    disk: Mutex<Box<dyn WorkspaceDisk>>,
    /// The findings of the last scan, whose changes may not be recorded yet.
    last: Mutex<Vec<DirtyPath>>,
}

impl OnDisk {
    pub(crate) fn new(backend: &'static str, disk: Box<dyn WorkspaceDisk>) -> Self {
        Self { backend, is_overlay: disk.is_overlay(), disk: Mutex::new(disk), last: Mutex::default() }
    }

    /// Returns true if changes are in a small upper layer. If not, finding them takes a full scan.
    pub(crate) fn is_overlay(&self) -> bool {
        self.is_overlay
    }

    pub(crate) fn lock(&self) -> MutexGuard<'_, Box<dyn WorkspaceDisk>> {
        lock(&self.disk)
    }

    pub(crate) fn apply(&self, changes: &[FileChange]) -> Result<(), BackendError> {
        if changes.is_empty() { Ok(()) } else { self.lock().apply(changes) }
    }

    pub(crate) fn populate(&self, changes: &[FileChange]) -> Result<(), BackendError> {
        if changes.is_empty() { Ok(()) } else { self.lock().populate(changes) }
    }

    /// Finds possible changes without any effect on scans, with those of the last scan.
    fn peek(&self) -> Result<Vec<DirtyPath>, BackendError> {
        let disk = self.lock();
        let mut found = disk.peek().map_err(|error| self.failed("scan", None, &error))?;
        found.extend(lock(&self.last).iter().cloned());
        Ok(found)
    }

    fn failed(&self, action: &str, path: Option<&EntryPath>, error: &std::io::Error) -> BackendError {
        let place = path.map_or_else(|| "the workspace".to_owned(), EntryPath::rooted);
        BackendError { backend: self.backend, reason: format!("can't {action} {place}: {error}") }
    }
}

impl ChangeDetector for OnDisk {
    fn is_quick(&self) -> bool {
        self.is_overlay
    }

    fn dirty(&self) -> Result<Vec<DirtyPath>, BackendError> {
        let mut disk = self.lock();
        let dirty = disk.dirty().map_err(|error| self.failed("scan", None, &error))?;
        lock(&self.last).clone_from(&dirty);
        Ok(dirty)
    }

    fn walk(&self) -> Result<Walked, BackendError> {
        let mut disk = self.lock();
        let walked = disk.walk().map_err(|error| self.failed("scan", None, &error))?;
        lock(&self.last).clone_from(&walked.dirty);
        Ok(walked)
    }

    fn live(&self) -> Option<Box<dyn ChangeDetector + '_>> {
        Some(Box::new(LiveDisk(self)))
    }

    fn is_walk_due(&self) -> bool {
        self.lock().is_walk_due()
    }

    fn keeper(&self) -> Option<&dyn KnownFilesKeeper> {
        Some(self)
    }

    fn mark_clean(&self) -> Result<(), BackendError> {
        self.lock().mark_clean().map_err(|error| self.failed("scan", None, &error))
    }

    fn adopt(&self) -> Result<(), BackendError> {
        self.lock().adopt().map_err(|error| self.failed("scan", None, &error))
    }

    fn observe(&self, path: &EntryPath) -> Result<Option<Observed>, BackendError> {
        let mut disk = self.lock();
        let observed = disk.tree().and_then(|tree| tree.observe(path));
        let observed = observed.map_err(|error| self.failed("read", Some(path), &error))?;
        if let Some(pending) = &mut disk.known().pending {
            pending.shown(path, observed.as_ref().map(|observed| &observed.identity));
        }
        Ok(observed.map(|observed| observed.kind))
    }

    fn is_closed(&self, path: &EntryPath) -> bool {
        let seen = self.lock().tree().and_then(|tree| tree.observe(path));
        seen.is_err_and(|error| error.kind() == std::io::ErrorKind::PermissionDenied)
    }

    fn below(&self, path: &EntryPath) -> Result<Below, BackendError> {
        let mut entries = Vec::new();
        let mut disk = self.lock();
        let mut pending = disk.known().pending.take();
        let mut is_known = |path: &EntryPath| pending.as_mut().is_some_and(|pending| pending.has(path));
        let mut take = |path, found: TreeEntry| entries.push((path, found));
        let walked = disk.tree().and_then(|tree| tree.walk_with(path, &mut is_known, &mut take));
        if let (Ok(closed), Some(pending)) = (&walked, &mut pending) {
            pending.shown_below(path, &entries, closed);
        }
        disk.known().pending = pending;
        let closed = walked.map_err(|error| self.failed("scan", Some(path), &error))?;
        let entries = entries.into_iter().filter(|(found, _)| found != path);
        Ok(Below { entries: entries.map(|(path, found)| (path, found.kind)).collect(), closed })
    }

    fn clear_set_id(&self, path: &EntryPath) -> Result<bool, BackendError> {
        let disk = self.lock();
        if disk.allows_set_id() {
            return Ok(false);
        }
        let cleared = disk.tree().and_then(|tree| tree.clear_set_id(path));
        cleared.map(|()| true).map_err(|error| self.failed("clear the set-user-ID bit of", Some(path), &error))
    }

    fn born(&self, path: &EntryPath) -> Option<Timestamp> {
        self.lock().tree().ok()?.born(path)
    }

    fn has_others(&self, directory: &EntryPath, is_known: &dyn Fn(&EntryPath) -> bool) -> Result<bool, BackendError> {
        match self.lock().tree().and_then(|tree| tree.entries_in(directory)) {
            Ok(found) => Ok(found.iter().any(|path| !is_known(path))),
            // A closed directory may have any.
            Err(error) if error.kind() == std::io::ErrorKind::PermissionDenied => Ok(true),
            Err(error) => Err(self.failed("scan", Some(directory), &error)),
        }
    }

    fn leaves_out(&self) -> bool {
        self.lock().rules().is_some()
    }

    fn borrow_from_git(&self, accept: &mut dyn FnMut(&Path) -> bool) {
        let mut disk = self.lock();
        let repository = disk.rules().and_then(IgnoreRules::repository);
        if repository.is_some_and(|repository| accept(&repository.common_directory)) {
            disk.borrow_from_git();
        }
    }

    fn git_place(&self) -> Result<Option<GitPlace>, BackendError> {
        let place = self.lock().rules().map_or(Ok(None), IgnoreRules::place);
        place.map_err(|error| self.failed("read the git worktree of", None, &error))
    }

    fn borrowed(&self, path: &EntryPath) -> Option<Digest> {
        self.lock().borrowed(path)
    }

    fn is_secret(&self, path: &EntryPath) -> bool {
        self.lock().rules().is_some_and(|rules| rules.is_secret(path))
    }

    fn sparse_data(&self, path: &EntryPath) -> Result<Option<Box<dyn Read + Send>>, BackendError> {
        let disk = self.lock();
        let data = disk.tree().and_then(|tree| SparseData::of(tree.open(path)?));
        match data {
            Ok(data) => Ok(data.map(|data| Box::new(data) as Box<dyn Read + Send>)),
            Err(error) => Err(self.failed("read", Some(path), &error)),
        }
    }

    fn keeps_secrets(&self) -> bool {
        self.lock().rules().is_some_and(IgnoreRules::keeps_secrets)
    }

    fn open(&self, path: &EntryPath) -> Result<Option<Box<dyn Read + Send>>, BackendError> {
        let mut disk = self.lock();
        let found = disk.tree().and_then(|tree| tree.regular_file(path));
        if let Some(pending) = &mut disk.known().pending {
            // The caller may continue without a missing file.
            pending.shown(path, found.as_ref().ok().map(|(stamp, _)| stamp));
        }
        match found.and_then(|(_, file)| file.open(path)) {
            Ok(file) => Ok(Some(Box::new(file))),
            Err(error) if error.kind() == std::io::ErrorKind::PermissionDenied => Ok(None),
            Err(error) => Err(self.failed("read", Some(path), &error)),
        }
    }
}

impl KnownFilesKeeper for OnDisk {
    fn resume(&self, changed_since: &dyn Fn(&KeptAt) -> Option<Vec<EntryPath>>) {
        self.lock().resume(changed_since);
    }

    fn is_due(&self) -> bool {
        self.lock().is_keeping_due()
    }

    fn keep(&self, at: &KeptAt) {
        self.lock().keep(at);
    }

    fn distrust(&self) {
        self.lock().distrust();
    }
}

/// A detector that leaves the disk's index and its pending scan unchanged.
struct LiveDisk<'a>(&'a OnDisk);

impl ChangeDetector for LiveDisk<'_> {
    /// Finds the changes since the last clean state, and since the scan before it, which may not be recorded yet.
    fn dirty(&self) -> Result<Vec<DirtyPath>, BackendError> {
        self.0.peek()
    }

    fn mark_clean(&self) -> Result<(), BackendError> {
        Ok(())
    }

    fn observe(&self, path: &EntryPath) -> Result<Option<Observed>, BackendError> {
        let observed = self.0.lock().tree().and_then(|tree| tree.observe(path));
        let observed = observed.map_err(|error| self.0.failed("read", Some(path), &error))?;
        Ok(observed.map(|observed| observed.kind))
    }

    fn is_closed(&self, path: &EntryPath) -> bool {
        self.0.is_closed(path)
    }

    fn below(&self, path: &EntryPath) -> Result<Below, BackendError> {
        let mut entries = Vec::new();
        let disk = self.0.lock();
        let walked = disk.tree().and_then(|tree| tree.walk(path, &mut |path, found| entries.push((path, found.kind))));
        let closed = walked.map_err(|error| self.0.failed("scan", Some(path), &error))?;
        entries.retain(|(found, _)| found != path);
        Ok(Below { entries, closed })
    }

    fn leaves_out(&self) -> bool {
        self.0.leaves_out()
    }

    fn is_secret(&self, path: &EntryPath) -> bool {
        self.0.is_secret(path)
    }

    fn keeps_secrets(&self) -> bool {
        self.0.keeps_secrets()
    }

    fn open(&self, path: &EntryPath) -> Result<Option<Box<dyn Read + Send>>, BackendError> {
        let opened = self.0.lock().tree().and_then(|tree| tree.open(path));
        match opened {
            Ok(file) => Ok(Some(Box::new(file))),
            Err(error) if error.kind() == std::io::ErrorKind::PermissionDenied => Ok(None),
            Err(error) => Err(self.0.failed("read", Some(path), &error)),
        }
    }
}
