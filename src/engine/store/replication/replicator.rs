//! The replicator: copies the new parts of a journal, pass by pass.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::claim::{self, Claim, Claimant};
use super::error::{CopyResult, ReplicationError};
use super::journal_file::{self, JournalFile, Tail};
use super::manifest::{self, CopiedPiece, CopiedSegment, CopyManifest, CopyWriter, FileStamp};
use super::progress::ReplicationProgress;
use super::target::{self, CopyTarget};
use crate::engine::store::StoreError;
use crate::engine::store::journal::segment::{FIRST, HEADER};
use crate::engine::store::local::borrowed::BorrowedContents;
use crate::engine::store::lock::StoreLock;
use crate::engine::{Clock, SystemClock, Timestamp};

/// Maximum bytes of a piece.
const PIECE: u64 = 8 << 20;
/// Maximum bytes of a merged piece at the end of a growing segment.
const MERGED: u64 = 1 << 20;
/// Time before objects that the manifest no longer names are deleted, because a reader may still need them.
const GRACE_MICROS: u64 = 60_000_000;
/// Maximum objects deleted in one pass, to bound its duration.
const DELETED_AT_ONCE: usize = 16;
/// Attempts to copy a journal that is being rewritten.
const TRIES: usize = 3;

/// Options of a replicator.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct ReplicatorOptions {
    /// True to take over the copy of another data directory with the same journal.
    pub take_over: bool,
}

/// Copies the journal in a data directory to object storage, with or without an owner process of the store.
pub struct Replicator {
    journal: PathBuf,
    borrowed: BorrowedContents,
    target: CopyTarget,
    writer: CopyWriter,
    take_over: bool,
    /// Epoch of the last claim; 0 for none.
    epoch: u64,
    open: Option<OpenCopy>,
    progress: Arc<ReplicationProgress>,
    clock: SystemClock,
    _lock: StoreLock,
}

/// A copy that this process writes.
struct OpenCopy {
    manifest: CopyManifest,
    version: object_store::UpdateVersion,
    /// The copied segments; the manifest may name an earlier state.
    segments: BTreeMap<u32, CopiedSegment>,
    tail: Option<Tail>,
    /// Number of the last written object.
    object: u64,
    is_changed: bool,
    /// True if the list of sealed segments must be rewritten.
    is_list_changed: bool,
    /// Objects that the next manifest no longer names.
    replaced: Vec<String>,
    /// Objects that no manifest names, with their deletion times.
    dropped: Vec<(u64, String)>,
}

impl Replicator {
    /// Opens the data directory `data` to copy it to `url`: `s3://BUCKET/PREFIX` or `file:///DIRECTORY`. Fails with
    /// [`ReplicationError::Running`] if another process copies it there.
    pub fn open(data: &Path, url: &str, options: ReplicatorOptions) -> CopyResult<Self> {
        let own = std::path::absolute(data).map_err(StoreError::io("inspect", data))?;
        if target::directory_of(url).is_some_and(|directory| directory.starts_with(own)) {
            let what = "it is in the data directory, and would be lost with it".to_owned();
            return Err(ReplicationError::Address { url: url.to_owned(), what });
        }
        Self::to(data, CopyTarget::open(url)?, options)
    }

    pub(super) fn to(data: &Path, target: CopyTarget, options: ReplicatorOptions) -> CopyResult<Self> {
        let clock = SystemClock::default();
        let (lock, writer) = claim::enter(data, &target.url, &clock)?;
        let (journal, take_over) = (data.join("journal"), options.take_over);
        let (borrowed, progress) = (BorrowedContents::of(data), Arc::default());
        Ok(Self { journal, borrowed, target, writer, take_over, epoch: 0, open: None, progress, clock, _lock: lock })
    }

    /// Checks that the storage answers and allows access.
    pub(super) async fn reach(&self) -> CopyResult<()> {
        self.target.reach().await
    }

    /// Returns the progress, for other threads.
    pub fn progress(&self) -> Arc<ReplicationProgress> {
        Arc::clone(&self.progress)
    }

    /// Copies the whole journal, and deletes unused objects.
    pub async fn copy_all(&mut self) -> CopyResult<()> {
        // The second pass distinguishes an unfinished end from damage.
        for _ in 0..TRIES {
            if !self.pass().await? {
                break;
            }
        }
        let Some(open) = &mut self.open else { return Ok(()) };
        while open.delete_due(&self.target, self.clock.monotonic_micros()).await? {}
        Ok(())
    }

    /// Copies new data, then replaces the manifest. Returns true if there was new data.
    pub async fn pass(&mut self) -> CopyResult<bool> {
        let since = self.clock.now();
        if JournalFile::find(&self.journal, FIRST)?.is_none() {
            return Ok(false);
        }
        let mut open = match self.open.take() {
            Some(open) => open,
            None => self.claim().await?,
        };
        let copied = self.pass_on(&mut open, since).await;
        if !matches!(copied, Err(ReplicationError::Conflict { .. })) {
            self.open = Some(open);
        }
        copied
    }

    async fn claim(&mut self) -> CopyResult<OpenCopy> {
        let journal = JournalFile::identity(&self.journal)?;
        let (writer, take_over, now) = (&self.writer, self.take_over, self.clock.now());
        let claimant = Claimant { writer, journal, take_over, epoch: self.epoch, now };
        let Claim { manifest, version, segments, orphans } = claimant.claim(&self.target).await?;
        (self.epoch, self.take_over) = (manifest.epoch, false);
        let due = self.clock.monotonic_micros();
        Ok(OpenCopy {
            manifest,
            version,
            segments,
            tail: None,
            object: 0,
            is_changed: false,
            is_list_changed: false,
            replaced: Vec::new(),
            dropped: orphans.into_iter().map(|name| (due, name)).collect(),
        })
    }

    async fn pass_on(&self, open: &mut OpenCopy, since: Timestamp) -> CopyResult<bool> {
        let mut tries = 1;
        let last = loop {
            self.progress.begin();
            match self.copy_segments(open).await {
                Ok(last) if self.is_as_copied(open)? => break last,
                Ok(_) | Err(ReplicationError::Rewritten) if tries < TRIES => tries += 1,
                copied => return copied.and(Err(ReplicationError::Rewritten)),
            }
        };
        open.end_at(last, &self.target)?;
        open.leave_to_git(&self.borrowed);
        let is_changed = open.is_changed;
        if is_changed {
            open.publish(&self.target, self.clock.now()).await?;
            let due = self.clock.monotonic_micros() + GRACE_MICROS;
            open.dropped.extend(open.replaced.drain(..).map(|name| (due, name)));
        }
        if let Some(last) = open.segments.get(&last) {
            self.progress.copied(last, &open.manifest.git_repositories, since);
        }
        if let Err(error) = open.delete_due(&self.target, self.clock.monotonic_micros()).await {
            tracing::debug!(%error, "failed to delete an unused object; retrying later");
        }
        Ok(is_changed)
    }

    /// Copies the segments in order; returns the number of the last one.
    async fn copy_segments(&self, open: &mut OpenCopy) -> CopyResult<u32> {
        let mut number = FIRST;
        loop {
            if !open.is_copied(&self.journal, number)? && !self.copy_segment(open, number).await? {
                return Ok(number);
            }
            number += 1;
        }
    }

    /// Copies the new part of a segment. Returns true if another segment follows.
    async fn copy_segment(&self, open: &mut OpenCopy, number: u32) -> CopyResult<bool> {
        let is_followed = journal_file::is_begun(&self.journal, number + 1);
        let Some(file) = JournalFile::find(&self.journal, number)? else {
            let own = number.saturating_sub(1);
            return Err(ReplicationError::Behind { url: self.target.url.clone(), own });
        };
        let before = match open.tail.take_if(|tail| tail.number == number) {
            Some(tail) if file.has(&tail)? => Some(tail),
            _ => None,
        };
        let known = open.segments.get(&number).filter(|known| known.packed == file.packed);
        let pieces = match (known, &before) {
            (None, _) => Vec::new(),
            (Some(known), Some(_)) => known.pieces.clone(),
            (Some(known), None) => file.matching(&known.pieces)?,
        };
        let (tail, fresh) = file.scan(&self.journal, before, is_followed)?;
        let end = if file.packed { file.stamp.bytes } else { tail.end };
        let is_shorter = |known: &&CopiedSegment| !file.packed && known.bytes() > end;
        // A file from a collection or a repair may be shorter, and has another inode.
        let cut = known.filter(is_shorter).filter(|known| known.file.inode == file.stamp.inode).cloned();
        if let Some(known) = cut {
            self.check_end(&file, &known, &pieces, end).await?;
        }
        let copied: u64 = pieces.iter().map(|piece| piece.bytes).sum();
        self.progress.found(end.saturating_sub(copied));
        let mut segment = CopiedSegment {
            number,
            packed: file.packed,
            sealed: false,
            file: FileStamp::default(),
            pieces: pieces.into_iter().scan(0, |at, piece| within(at, piece, end)).collect(),
        };
        open.upload(&self.target, &file, &mut segment, end, fresh).await?;
        (segment.sealed, segment.file) = (tail.sealed, file.stamp);
        open.put(segment);
        if !tail.sealed {
            open.tail = Some(tail);
        }
        Ok(tail.sealed)
    }

    /// Fails if the file is a prefix of its copy: a store that lost its end must not shorten the copy.
    async fn check_end(
        &self,
        file: &JournalFile,
        known: &CopiedSegment,
        same: &[CopiedPiece],
        end: u64,
    ) -> CopyResult<()> {
        let from: u64 = same.iter().map(|piece| piece.bytes).sum();
        let is_beginning = match known.pieces.get(same.len()) {
            Some(next) if from + next.bytes > end => {
                let ours = file.read(from, end.saturating_sub(from))?;
                self.target.get(next).await?.starts_with(&ours)
            }
            _ => false,
        };
        let url = self.target.url.clone();
        if is_beginning { Err(ReplicationError::Behind { url, own: file.number }) } else { Ok(()) }
    }

    /// Returns true if the files of sealed segments are still the copied ones.
    fn is_as_copied(&self, open: &OpenCopy) -> CopyResult<bool> {
        for (number, segment) in &open.segments {
            if segment.sealed && !open.is_copied(&self.journal, *number)? {
                return Ok(false);
            }
        }
        Ok(true)
    }
}

/// Returns the piece if it lies before the end.
fn within(at: &mut u64, piece: CopiedPiece, end: u64) -> Option<CopiedPiece> {
    *at += piece.bytes;
    (*at <= end).then_some(piece)
}

impl OpenCopy {
    /// Returns true if a segment is sealed and its file is the copied one.
    fn is_copied(&self, journal: &Path, number: u32) -> CopyResult<bool> {
        let Some(known) = self.segments.get(&number).filter(|known| known.sealed) else { return Ok(false) };
        let file = JournalFile::find(journal, number)?;
        Ok(file.is_some_and(|file| file.packed == known.packed && file.stamp == known.file))
    }

    /// Writes the bytes up to `end` that the segment's pieces lack; `fresh` contains the last of them. Merges small
    /// pieces, to limit their number.
    async fn upload(
        &mut self,
        target: &CopyTarget,
        file: &JournalFile,
        segment: &mut CopiedSegment,
        end: u64,
        mut fresh: Option<Vec<u8>>,
    ) -> CopyResult<()> {
        let mut at = segment.bytes();
        while at < end
            && let Some(last) = segment.pieces.last()
            && last.bytes + (end - at) <= MERGED
            && last.bytes < 2 * (end - at)
        {
            at -= last.bytes;
            segment.pieces.pop();
        }
        while at < end {
            // Already read, unless older bytes are merged with them.
            let bytes = match fresh.take().filter(|fresh| fresh.len() as u64 == end - at) {
                Some(fresh) => fresh,
                None => file.read(at, (end - at).min(PIECE))?,
            };
            at += bytes.len() as u64;
            let name = self.next_name();
            segment.pieces.push(target.put(name, bytes).await?);
            // Recorded at once, so that a retry after a failure continues here.
            self.put(segment.clone());
        }
        Ok(())
    }

    fn next_name(&mut self) -> String {
        self.object += 1;
        format!("{:08x}-{:08x}", self.manifest.epoch, self.object)
    }

    fn put(&mut self, segment: CopiedSegment) {
        let before = self.segments.get(&segment.number);
        if before == Some(&segment) {
            return;
        }
        self.is_list_changed |= segment.sealed || before.is_some_and(|before| before.sealed);
        // The file of the last segment can change without new frames.
        let is_new = |before: &CopiedSegment| {
            before.pieces != segment.pieces || before.sealed != segment.sealed || segment.sealed
        };
        self.is_changed |= before.is_none_or(is_new);
        if let Some(before) = self.segments.insert(segment.number, segment.clone()) {
            let is_gone = |piece: &CopiedPiece| segment.pieces.iter().all(|kept| kept.name != piece.name);
            self.replaced.extend(before.pieces.into_iter().filter(is_gone).map(|piece| piece.name));
        }
    }

    /// Drops segments after the last one. Fails if they contain frames.
    fn end_at(&mut self, last: u32, target: &CopyTarget) -> CopyResult<()> {
        let after = self.segments.split_off(&(last + 1));
        if after.values().any(|segment| segment.sealed || segment.bytes() > HEADER) {
            self.segments.extend(after);
            return Err(ReplicationError::Behind { url: target.url.clone(), own: last });
        }
        self.is_changed |= !after.is_empty();
        self.replaced.extend(after.into_values().flat_map(|segment| segment.pieces).map(|piece| piece.name));
        Ok(())
    }

    /// Records the repositories with contents that are not copied.
    fn leave_to_git(&mut self, borrowed: &BorrowedContents) {
        let listed = borrowed.repositories().iter().map(|place| place.display().to_string()).collect();
        self.is_changed |= self.manifest.git_repositories != listed;
        self.manifest.git_repositories = listed;
    }

    /// Publishes a new manifest that names the copied segments.
    async fn publish(&mut self, target: &CopyTarget, now: Timestamp) -> CopyResult<()> {
        let list = match self.is_list_changed {
            false => self.manifest.sealed.clone(),
            true => self.put_list(target).await?,
        };
        let last = self.segments.values().next_back().filter(|last| !last.sealed).cloned();
        let next = CopyManifest { written: now, sealed: list, last, ..self.manifest.clone() };
        self.version = target.swap(&next, Some(self.version.clone())).await?;
        if next.sealed != self.manifest.sealed {
            self.replaced.extend(self.manifest.sealed.take().map(|list| list.name));
        }
        self.manifest = next;
        (self.is_changed, self.is_list_changed) = (false, false);
        Ok(())
    }

    /// Writes the list of sealed segments. `None` without sealed segments.
    async fn put_list(&mut self, target: &CopyTarget) -> CopyResult<Option<CopiedPiece>> {
        let sealed: Vec<_> = self.segments.values().filter(|segment| segment.sealed).collect();
        if sealed.is_empty() {
            return Ok(None);
        }
        let list = manifest::encode(&sealed);
        let name = self.next_name();
        Ok(Some(target.put(name, list).await?))
    }

    /// Deletes some objects after their grace period. Returns true if more may be due.
    async fn delete_due(&mut self, target: &CopyTarget, now: u64) -> CopyResult<bool> {
        for _ in 0..DELETED_AT_ONCE {
            let Some(at) = self.dropped.iter().position(|(due, _)| *due <= now) else { return Ok(false) };
            target.delete(&self.dropped[at].1).await?;
            self.dropped.swap_remove(at);
        }
        Ok(true)
    }
}
