//! Checks and collections: work on a whole store that nobody else uses meanwhile.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::sync::{Arc, PoisonError};

use serde::{Deserialize, Serialize};

use super::open::Opening;
use super::{LocalStore, LocalStoreOptions, SessionHead};
use crate::engine::commit::CommitView;
use crate::engine::event::references_of;
use crate::engine::id::{Digest, SessionId};
use crate::engine::store::journal::frame::{self, FrameKind};
use crate::engine::store::journal::scan::{self, Frame, ScanEnd};
use crate::engine::store::journal::{self, FramePosition};
use crate::engine::store::{StoreError, content, index};

/// Findings of a collection, taken away unless it was a rehearsal.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct GcReport {
    /// Commits of removed sessions.
    pub commits: u64,
    /// Contents and chunks that nothing refers to.
    pub contents: u64,
    /// Bytes that both take in the journal.
    pub bytes: u64,
    /// Segments written anew.
    pub segments: u64,
    /// Blocks of snapshots that no snapshot has any more.
    pub snapshot_blocks: u64,
    /// Indexes that had been set aside, and ends of the journal that had been cut off.
    pub leftovers: u64,
}

impl LocalStore {
    /// Takes away what removed sessions left, contents that nothing refers to, and leftovers of
    /// repairs. With `rehearse` it only counts.
    ///
    /// A content is kept when a remaining event [refers to it](crate::Event::references). Where an event of a commit
    /// does not say what it refers to, everything is kept whose digest stands in that commit, as 32 bytes or as 64
    /// hexadecimal digits: so the events of other programs are respected too.
    ///
    /// # Errors
    /// [`StoreError::Locked`] when another process has the store, and others. The store is as before
    /// or as after, whenever it stops.
    pub fn collect(directory: impl AsRef<Path>, rehearse: bool) -> Result<GcReport, StoreError> {
        // Nothing else may change the segments meanwhile: a rehearsal only looks.
        let options = LocalStoreOptions { pack: false, ..LocalStoreOptions::default() };
        Self::collect_with(directory.as_ref(), Opening::new(options, Arc::default()), rehearse)
    }

    pub(super) fn collect_with(directory: &Path, opening: Opening, rehearse: bool) -> Result<GcReport, StoreError> {
        let mut store = Self::open_with(directory, opening.clone())?;
        let mut report = GcReport::default();
        let live = LiveData::find(&store)?;
        let garbage = live.garbage(&store, &mut report)?;
        report.segments = garbage.rewritten.union(&garbage.removals).count() as u64;
        report.leftovers = leftovers(directory, rehearse)?;
        if rehearse {
            return Ok(report);
        }
        report.snapshot_blocks = store.shared.with_index(0, |index| index.sweep_blocks())?;
        if report.segments == 0 {
            return Ok(report);
        }
        if let Some(maintenance) = store.maintenance.take() {
            maintenance.stop(&store.shared);
        }
        *store.shared.index.write().unwrap_or_else(PoisonError::into_inner) = None;
        // Durably: an index that knows more than there is would prove a loss.
        index::remove(&*opening.disk, directory)?;
        // From the end back, and removals last: wherever this stops, what is left of a removed session is
        // its beginning, with the removal after it, and no list of chunks lacks a chunk.
        for number in garbage.rewritten.into_iter().rev() {
            rewrite(&store, number, &|place, frame| {
                frame.header.kind == FrameKind::Removal || live.keeps(place, frame.header.kind, frame.payload)
            })?;
        }
        for number in garbage.removals {
            rewrite(&store, number, &|place, frame| {
                frame.header.kind != FrameKind::Removal || live.keeps(place, frame.header.kind, frame.payload)
            })?;
        }
        drop(store);
        // What was read anew the next one need not read, nor be told that there was no index.
        drop(Self::open_with(directory, opening)?);
        Ok(report)
    }
}

/// Writes a segment anew with the frames that are to be kept.
fn rewrite(
    store: &LocalStore,
    number: u32,
    keeps: &dyn Fn(FramePosition, &Frame<'_>) -> bool,
) -> Result<(), StoreError> {
    journal::rewrite(&store.shared.segments, number, &mut |item| match item {
        journal::Item::Frame(frame) => Ok(keeps(place_of(number, frame), frame)),
        journal::Item::Hole(from, _, what) => {
            Err(StoreError::Damaged { segment: number, offset: *from, what: (*what).to_owned() })
        }
    })
}

fn place_of(segment: u32, frame: &Frame<'_>) -> FramePosition {
    FramePosition { segment, offset: u32::try_from(frame.offset).unwrap_or(u32::MAX) }
}

/// The segments in which there is something to take away.
#[derive(Default)]
struct Garbage {
    /// Those with commits or contents that go.
    rewritten: BTreeSet<u32>,
    /// Those with removals.
    removals: BTreeSet<u32>,
}

/// Sessions and contents that must stay.
struct LiveData {
    sessions: BTreeSet<SessionId>,
    /// Sessions whose past children have, removed or not: everything of them stays, removals as well.
    parents: BTreeSet<SessionId>,
    /// Places of sessions' last removals: what stands before is gone, also when one came again.
    removals: BTreeMap<SessionId, FramePosition>,
    contents: BTreeSet<Digest>,
}

impl LiveData {
    fn find(store: &LocalStore) -> Result<Self, StoreError> {
        let mut known = KnownDigests::default();
        let mut chunks = BTreeMap::new();
        let mut removals = BTreeMap::new();
        store.each_frame(&mut |place, frame| {
            if frame.header.kind == FrameKind::Removal
                && let Some(session) = frame.payload.first_chunk()
            {
                removals.insert(SessionId::from_bytes(*session), place);
            }
            if let Some(head) = content::head_of(frame.header.kind, frame.payload)
                && matches!(frame.header.kind, FrameKind::Content | FrameKind::Manifest)
            {
                known.add(head.digest);
                if frame.header.kind == FrameKind::Manifest
                    && let Some((_, parts)) = content::manifest_chunks(frame.payload)
                {
                    chunks.insert(head.digest, parts);
                }
            }
        })?;
        let slots = store.shared.slots.all();
        let (parents, there): (Vec<_>, Vec<_>) =
            slots.iter().filter(|slot| slot.visible() > 0).partition(|slot| slot.lock().children > 0);
        let ids = |slots: Vec<&Arc<SessionHead>>| slots.into_iter().map(|slot| slot.id).collect();
        let mut live = Self { sessions: ids(there), parents: ids(parents), removals, contents: BTreeSet::new() };
        let mut named = BTreeSet::new();
        store.each_frame(&mut |place, frame| {
            if frame.header.kind.commit_at().is_some() && live.keeps(place, frame.header.kind, frame.payload) {
                known.named_in_commit(frame, &mut named);
            }
        })?;
        live.contents = named;
        let parts: Vec<Digest> = live.contents.iter().filter_map(|d| chunks.get(d)).flatten().copied().collect();
        live.contents.extend(parts);
        Ok(live)
    }

    fn keeps(&self, place: FramePosition, kind: FrameKind, payload: &[u8]) -> bool {
        let lives = |commit: CommitView<'_>| {
            let removed = self.removals.get(&commit.session);
            self.parents.contains(&commit.session)
                || self.sessions.contains(&commit.session) && removed.is_none_or(|removed| place > *removed)
        };
        match kind {
            FrameKind::Commit | FrameKind::Fork => {
                CommitView::parse(kind.commit_in(payload).unwrap_or_default()).is_ok_and(lives)
            }
            FrameKind::Content | FrameKind::Manifest => {
                content::head_of(kind, payload).is_some_and(|head| self.contents.contains(&head.digest))
            }
            // Without it the session would be back.
            FrameKind::Removal => {
                let session = payload.first_chunk().map(|id| SessionId::from_bytes(*id));
                session.is_some_and(|session| self.parents.contains(&session))
            }
            FrameKind::Close | FrameKind::Seal => true,
        }
    }

    fn garbage(&self, store: &LocalStore, report: &mut GcReport) -> Result<Garbage, StoreError> {
        let mut garbage = Garbage::default();
        store.each_frame(&mut |place, frame| {
            if self.keeps(place, frame.header.kind, frame.payload) {
                return;
            }
            let removal = frame.header.kind == FrameKind::Removal;
            if removal { &mut garbage.removals } else { &mut garbage.rewritten }.insert(place.segment);
            report.bytes += frame::frame_len(frame.header.length) as u64;
            match frame.header.kind {
                FrameKind::Commit | FrameKind::Fork => report.commits += 1,
                FrameKind::Content | FrameKind::Manifest => report.contents += 1,
                FrameKind::Removal | FrameKind::Close | FrameKind::Seal => {}
            }
        })?;
        Ok(garbage)
    }
}

impl LocalStore {
    /// Shows all frames; damage is an error, because what stands behind it may refer to anything.
    fn each_frame(&self, visit: &mut dyn FnMut(FramePosition, &Frame<'_>)) -> Result<(), StoreError> {
        for number in self.shared.segments.numbers()? {
            let segment = self.shared.segments.get(number)?;
            let end = scan::frames(&segment, journal::segment::HEADER, &mut |frame| {
                visit(place_of(number, &frame), &frame);
                Ok(())
            })?;
            if let ScanEnd::Bad(offset, what) = end {
                return Err(StoreError::Damaged { segment: number, offset, what: what.to_owned() });
            }
        }
        Ok(())
    }
}

/// Digests to look for in bytes, with a filter that rules most places out.
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

    /// Adds to `found` what the events of a commit refer to. Where one does not say it, any digest in the commit is.
    fn named_in_commit(&self, frame: &Frame<'_>, found: &mut BTreeSet<Digest>) {
        match references_in(frame) {
            Some(references) => found.extend(references.into_iter().filter(|digest| self.digests.contains(digest))),
            None => self.named_in(frame.payload, found),
        }
    }

    /// Adds to `found` every digest that stands in `bytes`, raw or in hexadecimal digits.
    fn named_in(&self, bytes: &[u8], found: &mut BTreeSet<Digest>) {
        if self.digests.is_empty() {
            return;
        }
        for window in bytes.array_windows::<32>() {
            let at = beginning(window);
            if self.beginnings[at / 64] >> (at % 64) & 1 == 1 {
                let digest = Digest::from_bytes(*window);
                found.extend(self.digests.contains(&digest).then_some(digest));
            }
        }
        for run in bytes.split(|byte| !byte.is_ascii_hexdigit()).filter(|run| run.len() >= 64) {
            let text = std::str::from_utf8(run).unwrap_or_default();
            let digests = (0..=text.len() - 64).filter_map(|at| text[at..at + 64].parse::<Digest>().ok());
            found.extend(digests.filter(|digest| self.digests.contains(digest)));
        }
    }
}

/// Returns what the events of a commit refer to; none where one of them does not say it.
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

/// Counts, and unless it is a rehearsal removes, what repairs have put aside.
#[expect(clippy::disallowed_methods, reason = "the store is where files are")]
fn leftovers(directory: &Path, rehearse: bool) -> Result<u64, StoreError> {
    let mut count = 0;
    for entry in std::fs::read_dir(directory).map_err(StoreError::io("list", directory))? {
        let path = entry.map_err(StoreError::io("list", directory))?.path();
        let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
        if name == "torn" || name.starts_with("index.bad-") {
            count += 1;
            if !rehearse {
                remove(&path)?;
            }
        }
    }
    Ok(count)
}

#[expect(clippy::disallowed_methods, reason = "the store is where files are")]
fn remove(directory: &Path) -> Result<(), StoreError> {
    std::fs::remove_dir_all(directory).map_err(StoreError::io("remove", directory))
}
