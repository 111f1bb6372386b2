//! Restores a data directory from a copy.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use serde::{Deserialize, Serialize};

use super::claim;
use super::error::{CopyResult, ReplicationError};
use super::journal_file::JournalFile;
use super::manifest::{CopiedSegment, CopyManifest};
use super::target::CopyTarget;
use crate::engine::event::{digests_in, references_of};
use crate::engine::store::journal::disk::{JournalDisk, OsDisk};
use crate::engine::store::journal::frame::FrameBody;
use crate::engine::store::journal::segment::{self, sync_directory};
use crate::engine::store::journal::{self, FsckReport, Item, JournalProblem, Segments};
use crate::engine::store::local::borrowed::BorrowedContents;
use crate::engine::store::lock::StoreLock;
use crate::engine::store::{EventStore, LocalStore, LocalStoreOptions, StoreError, index};
use crate::engine::{CommitView, Digest, EventRef, Timestamp};

/// Maximum number of reported problems before the restoration stops reading.
const PROBLEMS_MAX: usize = 20;
/// Attempts to read a copy while it is being replaced, which deletes objects.
const TRIES: usize = 5;

/// The result of a restoration.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct RestoreReport {
    /// Restored segments.
    pub segments: u64,
    /// Restored sessions.
    pub sessions: u64,
    /// Restored commits.
    pub commits: u64,
    /// Restored events.
    pub events: u64,
    /// Time of the last commit. `None` without commits.
    pub last: Option<Timestamp>,
    /// Commits of the copy that were left out, because they are later than the requested time.
    pub later: u64,
    /// Contents that are not in the copy, because only git repositories have them.
    pub only_in_git: u64,
    /// Contents of `only_in_git` that none of `git_repositories` has on this machine.
    pub missing: u64,
    /// The git directories that contents are borrowed from.
    pub git_repositories: Vec<String>,
}

/// Restores a store in `data` from the copy at `url`, up to the last commit not later than `at`. Checks every byte.
/// Fails with [`ReplicationError::Occupied`] if the directory has a store, and with [`ReplicationError::Damaged`] if
/// any part of the copy is missing or damaged.
pub async fn restore(data: &Path, url: &str, at: Option<Timestamp>) -> CopyResult<RestoreReport> {
    restore_from(data, &CopyTarget::open_existing(url)?, at).await
}

pub(super) async fn restore_from(data: &Path, target: &CopyTarget, at: Option<Timestamp>) -> CopyResult<RestoreReport> {
    OsDisk.create_dir(data).map_err(StoreError::io("create", data))?;
    let lock = StoreLock::take(data)?;
    let journal = data.join("journal");
    if OsDisk.exists(&journal) {
        return Err(ReplicationError::Occupied(data.to_owned()));
    }
    // Renamed when it is complete: a part of a journal may look like a shorter journal.
    let unfinished = data.join("journal.restoring");
    let made = async {
        let manifest = fetch(target, &unfinished).await?;
        let (report, only_in_git) = finish(target, &unfinished, at)?;
        if JournalFile::identity(&unfinished)? != manifest.journal {
            return Err(target.damaged("its segments belong to another journal than its manifest".to_owned()));
        }
        Ok((manifest, report, only_in_git))
    };
    let made = made.await.inspect_err(|_| drop(index::remove_all(&unfinished)));
    let (manifest, mut report, only_in_git) = made?;
    let borrowed = BorrowedContents::of(data);
    manifest.git_repositories.iter().try_for_each(|place| borrowed.add(Path::new(place)))?;
    OsDisk.rename(&unfinished, &journal).map_err(StoreError::io("rename", &unfinished))?;
    sync_directory(&OsDisk, data)?;
    drop(lock);
    // Builds the index now, so that the first command does not wait for it.
    let store = LocalStore::open(data, LocalStoreOptions::default())?;
    for digest in only_in_git {
        if !store.has_content(&digest)? {
            report.only_in_git += 1;
            report.missing += u64::from(store.content(&digest).is_err());
        }
    }
    report.git_repositories = manifest.git_repositories;
    Ok(report)
}

/// Writes the files of the copy into an empty directory.
async fn fetch(target: &CopyTarget, directory: &Path) -> CopyResult<CopyManifest> {
    let no_copy = || ReplicationError::NoCopy(target.url.clone());
    let whole = async || {
        let found = target.manifest().await?.map(|(manifest, _)| manifest);
        found.filter(|manifest| manifest.last.is_some()).ok_or_else(no_copy)
    };
    let mut tries = 0;
    loop {
        let manifest = whole().await?;
        if OsDisk.exists(directory) {
            index::remove_all(directory)?;
        }
        OsDisk.create_dir(directory).map_err(StoreError::io("create", directory))?;
        let problems = fetch_segments(target, &manifest, directory).await?;
        tries += 1;
        if problems.is_empty() {
            return Ok(manifest);
        }
        if tries == TRIES || whole().await? == manifest {
            return Err(ReplicationError::Damaged { url: target.url.clone(), problems });
        }
    }
}

/// Writes the files of all segments; returns the problems of missing or damaged parts.
async fn fetch_segments(target: &CopyTarget, manifest: &CopyManifest, directory: &Path) -> CopyResult<Vec<String>> {
    let segments = match claim::segments(target, manifest).await {
        Ok(segments) => segments,
        Err(error) if error.is_missing() => return Ok(vec![error.to_string()]),
        Err(error) => return Err(error),
    };
    let mut problems = Vec::new();
    for segment in segments.values() {
        fetch_segment(target, segment, directory, &mut problems).await?;
    }
    sync_directory(&OsDisk, directory)?;
    Ok(problems)
}

async fn fetch_segment(
    target: &CopyTarget,
    segment: &CopiedSegment,
    directory: &Path,
    problems: &mut Vec<String>,
) -> CopyResult<()> {
    let number = segment.number;
    let path = match segment.packed {
        true => segment::packed_path(directory, number),
        false => segment::raw_path(directory, number),
    };
    let file = OsDisk.create(&path).map_err(StoreError::io("create", &path))?;
    let mut at = 0;
    for piece in &segment.pieces {
        if problems.len() >= PROBLEMS_MAX {
            break;
        }
        match target.get(piece).await {
            Ok(bytes) => file.write_all_at(&bytes, at).map_err(StoreError::io("write", &path))?,
            Err(error) if error.is_missing() => {
                problems.push(format!("segment {number}: {} is missing, from byte {at} on", piece.name));
            }
            Err(ReplicationError::Damaged { problems: found, .. }) => {
                problems.extend(found.into_iter().map(|found| format!("segment {number}: {found}")));
            }
            Err(error) => return Err(error),
        }
        at += piece.bytes;
    }
    file.sync_all().map_err(StoreError::io("sync", &path))?;
    Ok(())
}

/// Cuts the journal at the time, and checks every remaining frame. Also returns the contents that git may have.
fn finish(
    target: &CopyTarget,
    directory: &Path,
    at: Option<Timestamp>,
) -> CopyResult<(RestoreReport, BTreeSet<Digest>)> {
    let segments = Segments::new(directory, true);
    let found = CommitTimes::find(&segments, at)?;
    if let Some(at) = at.filter(|_| found.later > 0) {
        let too_early = || ReplicationError::TooEarly { url: target.url.clone(), at };
        found.cut(found.end.as_ref().ok_or_else(too_early)?, &segments, at)?;
    }
    let mut checked = journal::check(&segments, BTreeMap::new())?;
    checked.conclude(true);
    let FsckReport { segments, commits, events, sessions, problems, .. } = checked.report;
    if !problems.is_empty() {
        let line = |problem: &JournalProblem| {
            format!("segment {} at byte {}: {}", problem.segment, problem.offset, problem.what)
        };
        let problems = problems.iter().map(line).collect();
        return Err(ReplicationError::Damaged { url: target.url.clone(), problems });
    }
    let last = found.end.map(|end| end.time);
    let later = found.later;
    let report = RestoreReport { segments, sessions, commits, events, last, later, ..RestoreReport::default() };
    Ok((report, found.blobs))
}

/// The commits of a journal, compared with the requested end time.
#[derive(Default)]
struct CommitTimes {
    /// Last commit that is not later.
    end: Option<CommitEnd>,
    /// Number of later commits, and the segments that contain any.
    later: u64,
    late: BTreeSet<u32>,
    /// Git blobs that the other commits refer to.
    blobs: BTreeSet<Digest>,
}

fn blobs_of(commit: &CommitView<'_>) -> Vec<Digest> {
    let named = |event: EventRef<'_>| references_of(&event).unwrap_or_else(|| digests_in(event.payload).collect());
    let all = commit.events().map_while(Result::ok).flat_map(named);
    all.filter(|digest| digest.git_blob().is_some()).collect()
}

struct CommitEnd {
    segment: u32,
    offset: u64,
    time: Timestamp,
}

impl CommitTimes {
    fn find(segments: &Segments, at: Option<Timestamp>) -> CopyResult<Self> {
        let mut found = Self::default();
        for number in segments.numbers()? {
            journal::walk(&*segments.get(number)?, &mut |item| {
                if let Item::Frame(frame) = item
                    && let Ok(FrameBody::Commit(_, commit)) = frame.body()
                {
                    if at.is_some_and(|at| commit.time > at) {
                        found.later += 1;
                        found.late.insert(number);
                    } else {
                        let offset = frame.offset + frame.header.frame_len() as u64;
                        found.end = Some(CommitEnd { segment: number, offset, time: commit.time });
                        found.blobs.extend(blobs_of(&commit));
                    }
                }
                Ok(())
            })?;
        }
        Ok(found)
    }

    /// Removes later commits, and everything after the last remaining commit.
    fn cut(&self, end: &CommitEnd, segments: &Segments, at: Timestamp) -> CopyResult<()> {
        let directory = segments.directory();
        for number in segments.numbers()?.into_iter().rev().filter(|number| *number > end.segment) {
            for path in [segment::raw_path(directory, number), segment::packed_path(directory, number)] {
                if segments.disk().exists(&path) {
                    segments.disk().remove(&path).map_err(StoreError::io("remove", &path))?;
                }
            }
            segments.forget(number);
        }
        // The clocks of sessions may differ, so that a later commit may precede an earlier one.
        let rewritten = self.late.iter().copied().filter(|number| *number < end.segment).chain([end.segment]);
        for number in rewritten {
            journal::rewrite(segments, number, |frame| {
                let is_before = number < end.segment || frame.offset < end.offset;
                let is_late = matches!(frame.body(), Ok(FrameBody::Commit(_, commit)) if commit.time > at);
                is_before && !is_late
            })?;
        }
        Ok(())
    }
}
