//! Claiming a copy for a data directory, so that only one process writes it.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::OpenOptions;
use std::io::{Read, Write};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::Path;

use object_store::UpdateVersion;

use super::error::{CopyResult, ReplicationError};
use super::journal_file::identity_of;
use super::manifest::{self, CopiedPiece, CopiedSegment, CopyManifest, CopyWriter, FORMAT, FileStamp};
use super::target::CopyTarget;
use crate::engine::store::StoreError;
use crate::engine::store::journal::disk::{JournalDisk, OsDisk};
use crate::engine::store::lock::StoreLock;
use crate::engine::{Clock, Digest, Timestamp};

/// A manifest written by this process, and the segments that it names.
pub(super) struct Claim {
    pub(super) manifest: CopyManifest,
    pub(super) version: UpdateVersion,
    pub(super) segments: BTreeMap<u32, CopiedSegment>,
    /// Objects that the manifest does not name.
    pub(super) orphans: Vec<String>,
}

/// A process that wants to write a copy.
pub(super) struct Claimant<'a> {
    pub(super) writer: &'a CopyWriter,
    pub(super) journal: String,
    pub(super) take_over: bool,
    /// Epoch of this process's last claim; 0 for none.
    pub(super) epoch: u64,
    pub(super) now: Timestamp,
}

impl Claimant<'_> {
    /// Replaces the manifest by this process's manifest, with the same objects.
    pub(super) async fn claim(&self, target: &CopyTarget) -> CopyResult<Claim> {
        let found = target.manifest().await?;
        if let Some((found, _)) = &found {
            self.check(target, found)?;
        }
        let objects: BTreeMap<String, u64> = target.list().await?.into_iter().collect();
        let (before, version) = found.unzip();
        let mut segments = match &before {
            Some(found) => segments(target, found).await?,
            None => BTreeMap::new(),
        };
        let is_there = |piece: &CopiedPiece| objects.get(&piece.name) == Some(&piece.bytes);
        for segment in segments.values_mut() {
            // Stamps of another directory's files are useless here, and missing objects must be rewritten.
            let is_known = before.as_ref().is_some_and(|found| found.writer.id == self.writer.id);
            if !is_known || !segment.pieces.iter().all(is_there) {
                segment.file = FileStamp::default();
            }
            let missing = segment.pieces.iter().position(|piece| !is_there(piece));
            segment.pieces.truncate(missing.unwrap_or(segment.pieces.len()));
        }
        let manifest = CopyManifest {
            format: FORMAT,
            journal: self.journal.clone(),
            epoch: before.as_ref().map_or(0, |found| found.epoch).max(self.epoch) + 1,
            writer: self.writer.clone(),
            written: self.now,
            sealed: before.as_ref().and_then(|found| found.sealed.clone()),
            last: before.as_ref().and_then(|found| found.last.clone()),
            git_repositories: before.map(|found| found.git_repositories).unwrap_or_default(),
        };
        let version = target.swap(&manifest, version).await?;
        let pieces = segments.values().flat_map(|segment| &segment.pieces).map(|piece| piece.name.as_str());
        let used: BTreeSet<&str> = manifest.names().chain(pieces).collect();
        let orphans = objects.keys().filter(|name| !used.contains(name.as_str())).cloned().collect();
        Ok(Claim { manifest, version, segments, orphans })
    }

    fn check(&self, target: &CopyTarget, found: &CopyManifest) -> CopyResult<()> {
        let url = target.url.clone();
        if found.journal != self.journal {
            let (journal, own) = (found.journal.clone(), self.journal.clone());
            return Err(ReplicationError::OtherStore { url, journal, own });
        }
        // Another process with the same directory has claimed it since: the machine was cloned.
        let is_newer = self.epoch != 0 && found.epoch > self.epoch && found.writer != *self.writer;
        if is_newer || found.writer.id != self.writer.id && !self.take_over {
            return Err(ReplicationError::Refused { url, writer: found.writer.clone(), written: found.written });
        }
        Ok(())
    }
}

/// Returns the segments of a manifest.
pub(super) async fn segments(target: &CopyTarget, manifest: &CopyManifest) -> CopyResult<BTreeMap<u32, CopiedSegment>> {
    let sealed = match &manifest.sealed {
        None => Vec::new(),
        Some(list) => manifest::decode(&target.get(list).await?)
            .map_err(|what| target.damaged(format!("{} can't be read: {what}", list.name)))?,
    };
    manifest.segments(sealed).map_err(|what| target.damaged(what))
}

/// Locks a data directory for the one process that copies it to an address; returns its writer identity.
pub(super) fn enter(data: &Path, url: &str, clock: &impl Clock) -> CopyResult<(StoreLock, CopyWriter)> {
    let place = data.join("replication").join(&Digest::of(url.as_bytes()).to_string()[..16]);
    OsDisk.create_dir(&place).map_err(StoreError::io("create", &place))?;
    let lock = StoreLock::take(&place).map_err(|error| match error {
        StoreError::Locked { owner, .. } => ReplicationError::Running { url: url.to_owned(), owner },
        other => other.into(),
    })?;
    let id = identity(&place.join("id"), clock).map_err(StoreError::io("write", &place))?;
    let host = rustix::system::uname().nodename().to_string_lossy().into_owned();
    let directory = std::path::absolute(data).map_err(StoreError::io("inspect", data))?.display().to_string();
    let writer = CopyWriter { id, host, directory, process: std::process::id() };
    Ok((lock, writer))
}

#[expect(clippy::disallowed_methods, reason = "the store accesses files directly")]
fn identity(path: &Path, clock: &impl Clock) -> std::io::Result<String> {
    let mut options = OpenOptions::new();
    let mut file = options.read(true).write(true).create(true).truncate(false).mode(0o600).open(path)?;
    let mut secret = Vec::new();
    file.read_to_end(&mut secret)?;
    if secret.is_empty() {
        secret = clock.fresh_id().to_vec();
        file.write_all(&secret)?;
        file.sync_all()?;
    }
    Ok(identity_of(&secret, file.metadata()?.ino()))
}
