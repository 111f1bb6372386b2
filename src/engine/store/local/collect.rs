//! Garbage collection of a whole store, while no other process uses it.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use super::open::Opening;
use super::withheld;
use super::{LocalStore, LocalStoreOptions};
use crate::engine::event::{digests_in, references_of};
use crate::engine::store::journal::disk::{JournalDisk, OsDisk};
use crate::engine::store::journal::frame::{self, FrameBody, FrameKind};
use crate::engine::store::journal::scan::{self, Frame, ScanEnd};
use crate::engine::store::journal::{self, FramePosition};
use crate::engine::store::lock::StoreLock;
use crate::engine::store::{Result, StoreError, content, index};
use crate::engine::{CommitView, Digest, SessionId, write_lock};

/// The garbage that a collection removed, or found in a rehearsal.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct GcReport {
    /// Commits of removed sessions.
    pub commits: u64,
    /// Contents and chunks without references.
    pub contents: u64,
    /// Bytes of both in the journal.
    pub bytes: u64,
    /// Segments rewritten.
    pub segments: u64,
    /// Blocks of base snapshots that no snapshot needs.
    pub snapshot_blocks: u64,
    /// Indexes that were set aside, and files of interrupted writes.
    pub leftovers: u64,
}

impl LocalStore {
    /// Removes the data of removed sessions, contents without references, and unusable indexes; with `rehearse`, only
    /// counts them. After an interruption at any moment, the store reads as before or as after.
    ///
    /// A content is retained if a remaining event [refers to it](crate::Event::references). An event that declares no
    /// references retains every content with its digest in the event's commit, as 32 bytes or 64 hexadecimal digits.
    /// Fails with [`StoreError::Locked`] if another process owns the store.
    pub fn collect(directory: impl AsRef<Path>, rehearse: bool) -> Result<GcReport> {
        // A rehearsal changes nothing, so packing is off.
        let options = LocalStoreOptions { pack: false, ..LocalStoreOptions::default() };
        Self::collect_with(directory.as_ref(), Opening::new(options, Arc::default()), rehearse)
    }

    /// Removes the files with bytes that recoveries and repairs cut off the journal in `directory`; with `rehearse`,
    /// only counts them. Returns their number. Fails with [`StoreError::Locked`] if another process owns the store.
    #[expect(clippy::disallowed_methods, reason = "the store accesses files directly")]
    pub fn discard_torn(directory: impl AsRef<Path>, rehearse: bool) -> Result<u64> {
        let _lock = StoreLock::take(directory.as_ref())?;
        let torn = directory.as_ref().join("torn");
        if !torn.exists() {
            return Ok(0);
        }
        let count = std::fs::read_dir(&torn).map_err(StoreError::io("list", &torn))?.count() as u64;
        if !rehearse {
            index::remove_all(&torn)?;
        }
        Ok(count)
    }

    pub(super) fn collect_with(directory: &Path, opening: Opening, rehearse: bool) -> Result<GcReport> {
        let mut store = Self::open_with(directory, opening.clone())?;
        let mut report = GcReport::default();
        let (withheld, unfinished) = withheld::all(directory)?;
        let live = LiveData::find(&store, &withheld)?;
        let garbage = live.garbage(&store, &mut report)?;
        report.segments = garbage.rewritten.union(&garbage.removals).count() as u64;
        report.leftovers = leftovers(directory, &unfinished, rehearse)?;
        for digest in withheld.difference(&live.contents) {
            report.contents += 1;
            if !rehearse {
                withheld::remove(directory, digest)?;
            }
        }
        if rehearse {
            return Ok(report);
        }
        report.snapshot_blocks = store.shared.with_index(0, |index| index.sweep_bases())?;
        if report.segments == 0 {
            return Ok(report);
        }
        if let Some(maintenance) = store.maintenance.take() {
            maintenance.stop(&store.shared);
        }
        *write_lock(&store.shared.index) = None;
        // Durably: an index that is ahead of the journal would prove a loss.
        index::remove(&*opening.disk, directory)?;
        // Backwards, and removals last: after an interruption, a partly removed session still has its beginning and its
        // removal, and no chunk list lacks a chunk.
        let removals = garbage.removals.into_iter().map(|number| (number, true));
        for (number, removes) in garbage.rewritten.into_iter().rev().map(|number| (number, false)).chain(removals) {
            journal::rewrite(&store.shared.segments, number, |frame| {
                let is_removal = frame.header.kind == FrameKind::Removal;
                is_removal != removes || live.keeps(frame.position(number), frame)
            })?;
        }
        drop(store);
        // Rebuilds the index, so that the next open neither reads the journal nor reports a missing index.
        drop(Self::open_with(directory, opening)?);
        Ok(report)
    }
}

#[derive(Default)]
struct Garbage {
    rewritten: BTreeSet<u32>,
    removals: BTreeSet<u32>,
}

struct LiveData {
    /// Sessions, including removed sessions that are retained for their children.
    sessions: BTreeMap<SessionId, LiveSession>,
    contents: BTreeSet<Digest>,
}

struct LiveSession {
    /// Its first own commit. Older commits are garbage of an earlier session with the same id.
    begun: FramePosition,
    is_buried: bool,
}

impl LiveData {
    fn find(store: &LocalStore, withheld: &BTreeSet<Digest>) -> Result<Self> {
        let mut known = KnownDigests::default();
        let mut chunks = BTreeMap::new();
        let mut begun = BTreeMap::new();
        store.each_frame(&mut |place, frame| match frame.body() {
            Ok(FrameBody::Commit(fork, commit)) if fork.is_some() || commit.first == 1 => {
                begun.insert(commit.session, place);
            }
            Ok(FrameBody::LateStart(session, _)) => {
                begun.insert(session, place);
            }
            Ok(FrameBody::Content(digest, _)) => {
                known.add(digest);
                if frame.header.kind == FrameKind::Manifest
                    && let Some((_, parts)) = content::manifest_chunks(frame.payload)
                {
                    chunks.insert(digest, parts);
                }
            }
            _ => {}
        })?;
        let sessions = begun.into_iter().filter_map(|(id, begun)| {
            let slot = store.shared.slots.get(id).filter(|slot| slot.visible() > 0)?;
            Some((id, LiveSession { begun, is_buried: slot.is_buried() }))
        });
        withheld.iter().for_each(|digest| known.add(*digest));
        let mut live = Self { sessions: sessions.collect(), contents: BTreeSet::new() };
        let mut named = BTreeSet::new();
        store.each_frame(&mut |place, frame| {
            if frame.header.kind.commit_at().is_some() && live.keeps(place, frame) {
                known.named_in_commit(frame, &mut named);
            }
        })?;
        live.contents = named;
        let parts: Vec<Digest> = live.contents.iter().filter_map(|d| chunks.get(d)).flatten().copied().collect();
        live.contents.extend(parts);
        Ok(live)
    }

    fn keeps(&self, place: FramePosition, frame: &Frame<'_>) -> bool {
        let session = |id| self.sessions.get(&id);
        match frame.body() {
            Ok(FrameBody::Commit(_, commit)) => session(commit.session).is_some_and(|live| place >= live.begun),
            Ok(FrameBody::LateStart(id, _)) => session(id).is_some_and(|live| place >= live.begun),
            Ok(FrameBody::Content(digest, _)) => self.contents.contains(&digest),
            // Without it the buried session would reappear. An older removal of the id is harmless.
            Ok(FrameBody::Removal(id)) => session(id).is_some_and(|live| live.is_buried),
            Ok(FrameBody::Mark) => true,
            Err(_) => false,
        }
    }

    fn garbage(&self, store: &LocalStore, report: &mut GcReport) -> Result<Garbage> {
        let mut garbage = Garbage::default();
        store.each_frame(&mut |place, frame| {
            if self.keeps(place, frame) {
                return;
            }
            let removal = frame.header.kind == FrameKind::Removal;
            if removal { &mut garbage.removals } else { &mut garbage.rewritten }.insert(place.segment);
            report.bytes += frame::frame_len(frame.header.length) as u64;
            match frame.header.kind {
                FrameKind::Commit | FrameKind::Fork => report.commits += 1,
                FrameKind::Content | FrameKind::Manifest => report.contents += 1,
                FrameKind::Removal | FrameKind::LateStart | FrameKind::Close | FrameKind::Seal => {}
            }
        })?;
        Ok(garbage)
    }
}

impl LocalStore {
    /// Visits all frames. Damage is an error, because the bytes behind it may refer to any content.
    fn each_frame(&self, visit: &mut dyn FnMut(FramePosition, &Frame<'_>)) -> Result<()> {
        for number in self.shared.segments.numbers()? {
            let segment = self.shared.segments.get(number)?;
            let end = scan::frames(&segment, journal::segment::HEADER, &mut |frame| {
                visit(frame.position(number), &frame);
                Ok(())
            })?;
            if let ScanEnd::Bad(offset, what) = end {
                return Err(StoreError::Damaged { segment: number, offset, what: what.to_owned() });
            }
        }
        Ok(())
    }
}

/// Digests to find in bytes, with a filter that excludes most positions.
#[derive(Default)]
struct KnownDigests {
    digests: BTreeSet<Digest>,
    beginnings: Vec<u64>,
}

const FILTER_BITS: usize = 1 << 24;

impl KnownDigests {
    fn add(&mut self, digest: Digest) {
        self.beginnings.resize(FILTER_BITS / 64, 0);
        let at = beginning(digest.as_bytes());
        self.beginnings[at / 64] |= 1 << (at % 64);
        self.digests.insert(digest);
    }

    /// Adds the references of a commit's events. If one declares none, any digest in the commit counts.
    fn named_in_commit(&self, frame: &Frame<'_>, found: &mut BTreeSet<Digest>) {
        match references_in(frame) {
            Some(references) => found.extend(references.into_iter().filter(|digest| self.contains(digest))),
            None => found.extend(digests_in(frame.payload).filter(|digest| self.contains(digest))),
        }
    }

    fn contains(&self, digest: &Digest) -> bool {
        let at = beginning(digest.as_bytes());
        let may_be = self.beginnings.get(at / 64).is_some_and(|bits| bits >> (at % 64) & 1 == 1);
        may_be && self.digests.contains(digest)
    }
}

fn references_in(frame: &Frame<'_>) -> Option<Vec<Digest>> {
    let commit = CommitView::parse(frame.header.kind.commit_in(frame.payload)?).ok()?;
    let mut all = Vec::new();
    for event in commit.events() {
        all.extend(references_of(&event.ok()?)?);
    }
    Some(all)
}

fn beginning(bytes: &[u8; 32]) -> usize {
    usize::from(bytes[0]) | usize::from(bytes[1]) << 8 | usize::from(bytes[2]) << 16
}

/// Removes indexes that were set aside, and the files; with `rehearse`, only counts them.
fn leftovers(directory: &Path, files: &[PathBuf], rehearse: bool) -> Result<u64> {
    let mut indexes = OsDisk.list(directory).map_err(StoreError::io("list", directory))?;
    indexes.retain(|path| path.file_name().unwrap_or_default().to_string_lossy().starts_with("index.bad-"));
    if !rehearse {
        indexes.iter().try_for_each(|path| index::remove_all(path))?;
        files.iter().try_for_each(|path| OsDisk.remove(path).map_err(StoreError::io("remove", path)))?;
    }
    Ok((indexes.len() + files.len()) as u64)
}
