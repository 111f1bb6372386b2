//! The identity of a data directory among the directories of a store.
//!
//! The processes that open a directory one after the other form a line. Each start and each clean end writes a new mark
//! to the directory and, by compare-and-swap, to the line's record on the cluster. A copy of the directory has an old
//! mark or loses the race for the next one. It then starts a new line, like a new directory.

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};

use async_nats::jetstream::kv;
use bytes::Bytes;
use serde::{Deserialize, Serialize};

use super::cluster::Cluster;
use super::waiting::Waiting;
use crate::engine::store::hosts::COPY_FILE;
use crate::engine::store::journal::disk::{JournalDisk, OsDisk};
use crate::engine::store::{Result, StoreError};
use crate::engine::{Clock, CommitId};

/// A directory's note of its line.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct DirectoryNote {
    pub(super) line: String,
    pub(super) mark: String,
    /// The mark that `mark` replaces. A process may end before it has changed the record.
    pub(super) before: String,
    /// The boot of the machine, and the directory's device and inode. Empty if unknown.
    pub(super) place: String,
}

/// The cluster's record of a line.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct LineRecord {
    pub(super) mark: String,
    /// True after a clean end. The directory has not changed since.
    pub(super) is_ended: bool,
}

impl DirectoryNote {
    /// Returns the note of a new process: it continues this line if that is safe, and starts the line of `new`
    /// otherwise.
    ///
    /// Continuing is safe after a clean end with the mark of this note. After a crash it is safe only in the same
    /// place, where the kernel still has all writes of the last process, and the lock proves that this process has
    /// ended.
    pub(super) fn next(&self, record: Option<&LineRecord>, new: &Self) -> Self {
        let is_there = !new.place.is_empty() && self.place == new.place;
        match record.filter(|record| [&self.mark, &self.before].contains(&&record.mark)) {
            Some(record) if record.is_ended || is_there => {
                Self { line: self.line.clone(), before: record.mark.clone(), ..new.clone() }
            }
            _ => new.clone(),
        }
    }

    /// Returns the note with the next mark.
    pub(super) fn marked(&self, mark: String) -> Self {
        Self { mark, before: self.mark.clone(), ..self.clone() }
    }
}

/// The line of this process's directory.
pub(super) struct DirectoryLine {
    directory: PathBuf,
    note: DirectoryNote,
    revision: u64,
    is_cloned: AtomicBool,
}

impl DirectoryLine {
    /// Continues the line of a directory that this process has locked, or starts a new one.
    pub(super) async fn begin(cluster: &Cluster, waiting: &Waiting, bucket: &kv::Store, at: &Path) -> Result<Self> {
        let new = DirectoryNote { line: fresh(), mark: fresh(), before: String::new(), place: place_of(at) };
        let attempt = || async {
            let there = read(at).unwrap_or_else(|| new.clone());
            let record = match cluster.value_of::<LineRecord>(bucket, &key(&there.line)).await {
                // An earlier attempt was accepted, but not answered.
                Ok((revision, Some(record))) if record.mark == new.mark => return Ok(Some((there, revision))),
                Ok(record) => record,
                Err(error) => {
                    tracing::debug!(%error, "retrying to read the line of the data directory");
                    return Ok(None);
                }
            };
            let note = there.next(record.1.as_ref(), &new);
            let is_other = note.line != there.line;
            if is_other {
                tracing::warn!(
                    "the data directory is a copy, or was in use when its machine stopped: \
                     this host writes the files of its sessions anew"
                );
            }
            write(at, &note)?;
            let value = LineRecord { mark: note.mark.clone(), is_ended: false }.encode();
            let updated = bucket.update(key(&note.line), value, if is_other { 0 } else { record.0 }).await;
            Ok(updated.ok().map(|revision| (note, revision)))
        };
        let (note, revision) = waiting.until_settled("accept a data directory", attempt).await?;
        Ok(Self { directory: at.to_owned(), note, revision, is_cloned: AtomicBool::new(false) })
    }

    /// Returns the name of this process: unique, and with the line as its prefix.
    pub(super) fn run(&self) -> String {
        format!("{}.{}", self.note.line, self.note.mark)
    }

    /// Returns true if the process with that name belongs to this line.
    pub(super) fn has(&self, run: &str) -> bool {
        run.split_once('.').is_some_and(|(line, _)| line == self.note.line)
    }

    /// Makes the next process start a new line, because another machine runs a clone of this process.
    pub(super) fn set_cloned(&self) {
        self.is_cloned.store(true, Ordering::Release);
        if let Err(error) = OsDisk.create(&self.directory.join(COPY_FILE)) {
            tracing::error!(%error, "can't mark the data directory as a clone: delete its file {COPY_FILE}");
        }
    }

    /// Records a clean end: the files of the sessions no longer change.
    pub(super) async fn end(&self, bucket: &kv::Store) {
        let note = self.note.marked(fresh());
        if self.is_cloned.load(Ordering::Acquire) || write(&self.directory, &note).is_err() {
            return;
        }
        let value = LineRecord { mark: note.mark, is_ended: true }.encode();
        if let Err(error) = bucket.update(key(&note.line), value, self.revision).await {
            tracing::debug!(%error, "failed to record the end of this process");
        }
    }
}

impl LineRecord {
    fn encode(&self) -> Bytes {
        serde_json::to_vec(self).unwrap_or_default().into()
    }
}

fn key(line: &str) -> String {
    // No host's name has a slash.
    format!("line/{line}")
}

pub(super) fn fresh() -> String {
    CommitId::from_bytes(crate::engine::SystemClock::default().fresh_id()).to_string()
}

/// Reads the note in a directory. `None` if it is missing or from an earlier version.
#[expect(clippy::disallowed_methods, reason = "the store accesses files directly")]
fn read(directory: &Path) -> Option<DirectoryNote> {
    serde_json::from_slice(&std::fs::read(directory.join(COPY_FILE)).ok()?).ok()
}

fn write(directory: &Path, note: &DirectoryNote) -> Result<()> {
    let path = directory.join(COPY_FILE);
    let bytes = serde_json::to_vec(note).unwrap_or_default();
    super::replace(directory, COPY_FILE, &bytes).map_err(StoreError::io("write", &path))
}

/// Returns the place of a directory; empty if it is unknown.
#[expect(clippy::disallowed_methods, reason = "the kernel reports its boot in a file")]
fn place_of(directory: &Path) -> String {
    use std::os::unix::fs::MetadataExt;
    let boot = std::fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap_or_default();
    match directory.metadata() {
        Ok(known) if !boot.is_empty() => format!("{} {} {}", boot.trim(), known.dev(), known.ino()),
        _ => String::new(),
    }
}
