//! Check of every byte of a journal, and its repair.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use super::disk::JournalDisk;
use super::flipped;
use super::frame::{self, FrameBody, FrameKind};
use super::gaps::{AddedFrame, Damage, Gap, Place, SeenSessions};
use super::last::{Last, last};
use super::scan::{self, Frame, ScanEnd};
use super::segment::{self, FIRST, FramePosition, Segment, SegmentHead};
use super::segments::Segments;
use crate::engine::store::index::CatalogueRow;
use crate::engine::store::{Loss, Result, StoreError, content};
use crate::engine::{Digest, SessionId};

/// The findings of a check.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct FsckReport {
    /// Segments read.
    pub segments: u64,
    /// Intact commits.
    pub commits: u64,
    /// Events in the intact commits.
    pub events: u64,
    /// Contents and chunks that match their digests.
    pub contents: u64,
    /// Existing sessions.
    pub sessions: u64,
    /// Problems, in journal order.
    pub problems: Vec<JournalProblem>,
    /// Completed repairs, one line each.
    pub repaired: Vec<String>,
    /// Acknowledged events that are provably lost from the journal's end.
    pub loss: Option<Loss>,
    /// Events that damage removed from sessions. A repair puts an [`EventsLost`](crate::event::EventsLost) at each of
    /// their positions.
    pub gaps: Vec<Gap>,
    /// Ids and names of sessions with intact events that contradict each other. A repair drops such events only for
    /// sessions that the caller names.
    pub contradictions: Vec<(SessionId, String)>,
}

/// A problem in a journal.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct JournalProblem {
    /// The segment.
    pub segment: u32,
    /// Byte offset in the segment.
    pub offset: u64,
    /// Number of damaged bytes; 0 for an intact frame with an invalid meaning.
    pub bytes: u64,
    /// Description of the problem.
    pub what: String,
    /// The affected session, if known.
    pub session: Option<SessionId>,
}

/// A checked journal, with the state that a repair needs.
#[derive(Default)]
pub(crate) struct CheckedJournal {
    pub(crate) report: FsckReport,
    /// Position after the last intact frame of the last segment.
    pub(crate) end: FramePosition,
    /// True if the last segment's seal says that another segment follows.
    pub(crate) is_followed: bool,
    /// True if an intact segment is in the wrong place, or too many segments are missing.
    pub(crate) is_strange: bool,
    journal: [u8; 16],
    bad: BTreeSet<u32>,
    missing: Vec<SegmentHead>,
    /// Files named like segments that follow no segment and have no valid head.
    strays: Vec<u32>,
    sessions: SeenSessions,
    /// Group of the last frame, and the contents after the last frame of another kind.
    group: u64,
    contents: Vec<Digest>,
    /// Number of the last segment, and true if it has a torn end.
    last: u32,
    is_torn: bool,
    /// Frames that a repair removes.
    useless: BTreeSet<Place>,
    /// Intact frames that contradict earlier frames of their session.
    contradictions: BTreeMap<SessionId, BTreeSet<Place>>,
}

/// Maximum number of consecutive missing segments that a repair replaces by empty ones.
const MISSING_MAX: u32 = 4096;

/// Checks a journal. `known` contains its sessions, from an index that matches it.
pub(crate) fn check(segments: &Segments, known: BTreeMap<SessionId, CatalogueRow>) -> Result<CheckedJournal> {
    let mut numbers = segments.numbers()?;
    if last(segments, &numbers)? != Last::Used {
        numbers.pop();
    }
    let journal = identity(segments, &numbers).unwrap_or_default();
    let sessions = SeenSessions::new(known);
    let end = FramePosition::first_in(FIRST);
    let last = numbers.last().copied().unwrap_or_default();
    let mut check = CheckedJournal { end, journal, sessions, last, ..CheckedJournal::default() };
    let mut expected = FIRST;
    for number in numbers {
        check.gap(expected..number);
        expected = number + 1;
        let Some(segment) = check.find(segments, number)? else {
            check.is_strange = true;
            continue;
        };
        check.report.segments += 1;
        check.end = FramePosition::first_in(number);
        let end = walk(&segment, &mut |item| check.item(&segment, item))?;
        check.is_followed = end.map_or(Ok(false), |end| scan::is_sealed(&segment, end))?;
        if let Some(end) = end.filter(|_| number != last && !check.is_followed) {
            check.problem(number, end, 0, "the rest of the segment is missing".to_owned(), None);
            check.damage((number, end), 0);
        }
    }
    check.strays = segments.strays()?;
    for number in check.strays.clone() {
        let name = segment::raw_path(segments.directory(), number);
        let what = format!("{} is not a segment of this journal", name.display());
        check.problem(number, 0, 0, what, None);
    }
    Ok(check)
}

impl CheckedJournal {
    /// Reports the events lost to damage, including events that only the index knows, unless the journal lost its end.
    pub(crate) fn conclude(&mut self, has_lost_end: bool) {
        if !has_lost_end {
            self.sessions.complete();
        }
        self.report.sessions = self.sessions.count() as u64;
        self.report.gaps = self.sessions.gaps();
        for gap in self.report.gaps.clone() {
            self.problem(gap.segment, gap.offset, 0, gap.line(), Some(gap.session));
        }
        self.bad.extend(self.sessions.changed_segments());
        for head in &self.missing {
            self.bad.remove(&head.number);
        }
        let named = |session: &SessionId| (*session, self.sessions.name(*session).to_owned());
        self.report.contradictions = self.contradictions.keys().map(named).collect();
    }

    /// Moves damage into files under `directory`, and fills gaps with events that record the loss. Drops intact events
    /// only if they contradict others and their session is in `drop`. Repairs nothing while an intact segment is in the
    /// wrong place, because only the user can decide what it is.
    pub(crate) fn repair(&mut self, segments: &Segments, directory: &Path, drop: &[SessionId]) -> Result<()> {
        if self.is_strange {
            return Ok(());
        }
        for number in std::mem::take(&mut self.strays) {
            let aside = set_aside(segments, number, directory)?;
            self.report.repaired.push(format!("segment {number}: moved to {}", aside.display()));
        }
        for places in drop.iter().filter_map(|session| self.contradictions.remove(session)) {
            self.bad.extend(places.iter().map(|(number, _)| *number));
            self.useless.extend(places);
        }
        let added = self.sessions.frames()?;
        for number in std::mem::take(&mut self.bad) {
            let saved = repair_segment(segments, number, directory, &self.useless, &added)?;
            let line = format!("segment {number}: damaged bytes moved to {}", saved.display());
            self.report.repaired.push(line);
        }
        for head in std::mem::take(&mut self.missing) {
            let mut bytes = head.encode().to_vec();
            let here = (head.number, segment::HEADER);
            let group = added.get(&here).map_or(0, |frames| put_added(&mut bytes, frames, None));
            seal(&mut bytes, group);
            put_segment(segments, head.number, &bytes)?;
            self.report.repaired.push(format!("segment {}: replaced by an empty segment", head.number));
        }
        Ok(())
    }

    pub(crate) fn is_repairable(&self, drop: &[SessionId]) -> bool {
        !self.is_strange && (!self.strays.is_empty() || self.is_rewritten(drop))
    }

    /// Returns true if a repair rewrites segments, which moves the frames in them.
    pub(crate) fn is_rewritten(&self, drop: &[SessionId]) -> bool {
        let drops = drop.iter().any(|session| self.contradictions.contains_key(session));
        drops || !(self.bad.is_empty() && self.missing.is_empty())
    }

    /// Adds an empty segment, which the last segment's seal announces.
    pub(crate) fn follow(&self, segments: &Segments) -> Result<()> {
        let head = SegmentHead { number: self.end.segment + 1, journal: self.journal };
        put_segment(segments, head.number, &head.encode())
    }
}

/// Returns the identity of the journal, from the last segment with an intact head.
pub(crate) fn identity(segments: &Segments, numbers: &[u32]) -> Option<[u8; 16]> {
    let whole = numbers.iter().rev().find_map(|number| segments.get(*number).ok());
    whole.map(|segment| segment.head.journal)
}

pub(crate) enum Item<'a> {
    Frame(Frame<'a>),
    /// A frame with one flipped bit: the original frame, and its current bytes.
    Flipped(Frame<'a>, &'a [u8]),
    /// Bytes that are not frames: from, to, reason.
    Hole(u64, u64, &'static str),
}

/// Visits all frames of a segment and the holes between them. Returns its end; `None` if that is in a hole.
pub(crate) fn walk(segment: &Segment, visit: &mut dyn FnMut(Item<'_>) -> Result<()>) -> Result<Option<u64>> {
    let mut from = segment::HEADER;
    loop {
        let end = scan::frames(segment, from, &mut |frame| visit(Item::Frame(frame)))?;
        let (at, what) = match end {
            ScanEnd::Clean(end) => return Ok(Some(end)),
            ScanEnd::Bad(at, what) => (at, what),
        };
        let next = scan::resume_after(segment, at)?;
        let until = next.unwrap_or(segment.len()?);
        let bytes = segment.read_up_to(at, usize::try_from(until - at).unwrap_or(0))?;
        if let Some((header, payload)) = flipped::mended(&bytes) {
            visit(Item::Flipped(Frame { offset: at, header, payload: &payload }, &bytes))?;
            from = at + header.frame_len() as u64;
            continue;
        }
        visit(Item::Hole(at, until, what))?;
        let Some(next) = next else { return Ok(None) };
        from = next;
    }
}

/// A problem with an intact frame.
enum WrongFrame {
    /// Its payload is invalid.
    Useless(&'static str),
    Contradicts(SessionId, String),
}

impl CheckedJournal {
    /// Notes missing segments; too many can't be replaced.
    fn gap(&mut self, gap: Range<u32>) {
        let what = match gap.len() {
            0 => return,
            1 => "this segment is missing".to_owned(),
            _ => format!("segments {} to {} are missing", gap.start, gap.end - 1),
        };
        self.problem(gap.start, 0, 0, what, None);
        if gap.len() > MISSING_MAX as usize {
            self.is_strange = true;
            return;
        }
        let journal = self.journal;
        for number in gap {
            self.missing.push(SegmentHead { number, journal });
            self.damage((number, segment::HEADER), 0);
        }
    }

    /// Opens a segment, even with a damaged head or table. `None` if its head is intact and not what its name says.
    fn find(&mut self, segments: &Segments, number: u32) -> Result<Option<Arc<Segment>>> {
        let head = SegmentHead { number, journal: self.journal };
        let what = match segments.get(number) {
            Ok(segment) if segment.head == head => return Ok(Some(segment)),
            Ok(_) => "it belongs to another journal".to_owned(),
            Err(error) => error.to_string(),
        };
        self.problem(number, 0, 0, what, None);
        self.bad.insert(number);
        segments.forget(number);
        let segment = Segment::salvage(segments.disk(), segments.directory(), head)?.map(Arc::new);
        segment.iter().for_each(|segment| segments.add(Arc::clone(segment)));
        Ok(segment)
    }

    fn problem(&mut self, segment: u32, offset: u64, bytes: u64, what: String, session: Option<SessionId>) {
        self.report.problems.push(JournalProblem { segment, offset, bytes, what, session });
    }

    fn damage(&mut self, at: Place, bytes: u64) {
        self.bad.insert(at.0);
        let contents = std::mem::take(&mut self.contents);
        self.sessions.damaged(Damage { at, bytes, group: self.group, contents });
    }

    /// Decides if bytes that are not a frame are a torn end, by the same rules as opening a store.
    fn tear(&mut self, segment: &Segment, from: u64) -> Result<()> {
        self.bad.insert(segment.head.number);
        let may_grow = segment.head.number == self.last && !segment.is_packed();
        self.is_torn |= may_grow && scan::durable_after(segment, from, self.group)?.is_none();
        Ok(())
    }

    fn item(&mut self, segment: &Segment, item: Item<'_>) -> Result<()> {
        let number = segment.head.number;
        match item {
            Item::Frame(frame) | Item::Flipped(frame, _) if self.is_torn => {
                self.useless.insert((number, frame.offset));
            }
            Item::Frame(frame) => self.whole(number, &frame),
            Item::Flipped(frame, bytes) => {
                self.problem(number, frame.offset, bytes.len() as u64, "one bit is flipped".to_owned(), None);
                self.tear(segment, frame.offset)?;
                self.item(segment, Item::Frame(frame))?;
            }
            Item::Hole(from, to, what) => {
                self.problem(number, from, to - from, what.to_owned(), None);
                self.tear(segment, from)?;
                if !self.is_torn {
                    self.damage((number, from), to - from);
                }
            }
        }
        Ok(())
    }

    fn whole(&mut self, number: u32, frame: &Frame<'_>) {
        let length = frame.header.frame_len() as u64;
        self.end = FramePosition::new(number, frame.offset + length);
        self.group = frame.header.group;
        let at = (number, frame.offset);
        match self.frame(frame, at) {
            Ok(()) => {}
            Err(WrongFrame::Useless(what)) => {
                self.useless.insert(at);
                self.problem(number, frame.offset, 0, what.to_owned(), None);
                self.damage(at, length);
            }
            Err(WrongFrame::Contradicts(session, what)) => {
                self.contradictions.entry(session).or_default().insert(at);
                self.problem(number, frame.offset, 0, what, Some(session));
            }
        }
        if !matches!(frame.header.kind, FrameKind::Content | FrameKind::Manifest) {
            self.contents.clear();
        }
    }

    fn frame(&mut self, frame: &Frame<'_>, at: Place) -> Result<(), WrongFrame> {
        match frame.body().map_err(WrongFrame::Useless)? {
            FrameBody::Commit(fork, commit) => {
                if commit.events().any(|event| event.is_err()) {
                    return Err(WrongFrame::Useless("the events of a commit end early"));
                }
                let here = Damage { at, group: self.group, ..Damage::default() };
                let added = self.sessions.commit(&commit, fork, &here);
                added.map_err(|what| WrongFrame::Contradicts(commit.session, what))?;
                self.report.commits += 1;
                self.report.events += u64::from(commit.count);
            }
            FrameBody::Content(digest, _) if frame.header.kind == FrameKind::Content => {
                content::piece_bytes(frame.payload).ok_or(WrongFrame::Useless("a content's digest does not match"))?;
                self.report.contents += 1;
                self.contents.push(digest);
            }
            FrameBody::Content(digest, _) => {
                let chunks = content::manifest_chunks(frame.payload);
                let (_, chunks) = chunks.ok_or(WrongFrame::Useless("a chunk list is invalid"))?;
                self.contents.retain(|chunk| !chunks.contains(chunk));
                self.contents.push(digest);
            }
            FrameBody::LateStart(session, seq) => {
                let begun = self.sessions.begin(session, seq, at);
                begun.map_err(|what| WrongFrame::Contradicts(session, what))?;
            }
            FrameBody::Removal(session) => self.sessions.removed(session),
            FrameBody::Mark => {}
        }
        Ok(())
    }
}

fn repair_segment(
    segments: &Segments,
    number: u32,
    directory: &Path,
    useless: &BTreeSet<Place>,
    added: &BTreeMap<Place, Vec<AddedFrame>>,
) -> Result<PathBuf> {
    let (segment, disk, mut lost) = (segments.get(number)?, segments.disk(), Vec::new());
    let saved = saved_path(disk, directory, number)?;
    let kept = without(segments, number, added, &mut |item| match item {
        Item::Frame(frame) if !useless.contains(&(number, frame.offset)) => Ok(true),
        Item::Flipped(frame, bytes) => {
            lost.extend_from_slice(bytes);
            Ok(!useless.contains(&(number, frame.offset)))
        }
        Item::Frame(frame) => {
            frame::put(&mut lost, frame.header.kind, false, 0, frame.payload, crc32c::crc32c(frame.payload));
            Ok(false)
        }
        Item::Hole(from, to, _) => {
            lost.extend(segment.read_up_to(*from, usize::try_from(to - from).unwrap_or(0))?);
            Ok(false)
        }
    })?;
    segment::put_file(disk, &saved, &lost)?;
    put_segment(segments, number, &kept)?;
    Ok(saved)
}

fn set_aside(segments: &Segments, number: u32, directory: &Path) -> Result<PathBuf> {
    let disk = segments.disk();
    let saved = saved_path(disk, directory, number)?;
    for path in [segment::raw_path(segments.directory(), number), segment::packed_path(segments.directory(), number)] {
        if disk.exists(&path) {
            disk.rename(&path, &saved).map_err(StoreError::io("set aside", &path))?;
        }
    }
    segment::sync_directory(disk, saved.parent().unwrap_or(directory))?;
    segment::sync_directory(disk, segments.directory())?;
    Ok(saved)
}

fn saved_path(disk: &dyn JournalDisk, directory: &Path, number: u32) -> Result<PathBuf> {
    let torn = segment::torn_directory(disk, directory)?;
    let free = (1..).map(|n| torn.join(format!("{number:08}-fsck-{n}.bin"))).find(|path| !disk.exists(path));
    free.ok_or(StoreError::Format { path: torn, what: "no free name".to_owned() })
}

/// Rewrites a segment with only the frames that `keep` accepts. Frames move, which invalidates any index of
/// the journal. Fails if anything is damaged.
pub(crate) fn rewrite(segments: &Segments, number: u32, keep: impl Fn(&Frame<'_>) -> bool) -> Result<()> {
    let kept = without(segments, number, &BTreeMap::new(), &mut |item| match item {
        Item::Frame(frame) => Ok(keep(frame)),
        Item::Flipped(Frame { offset, .. }, _) | Item::Hole(offset, ..) => {
            let what = "the bytes are not a frame".to_owned();
            Err(StoreError::Damaged { segment: number, offset: *offset, what })
        }
    })?;
    put_segment(segments, number, &kept)
}

fn without(
    segments: &Segments,
    number: u32,
    added: &BTreeMap<Place, Vec<AddedFrame>>,
    keep: &mut dyn FnMut(&Item<'_>) -> Result<bool>,
) -> Result<Vec<u8>> {
    let old = segments.get(number)?;
    let mut bytes = old.head.encode().to_vec();
    let (mut group, mut sealed) = (None, false);
    let mut added = added.range((number, 0)..(number + 1, 0)).peekable();
    walk(&old, &mut |item| {
        let (Item::Frame(Frame { offset, .. }) | Item::Flipped(Frame { offset, .. }, _) | Item::Hole(offset, ..)) =
            &item;
        while let Some((_, frames)) = added.next_if(|((_, at), _)| at <= offset) {
            group = Some(put_added(&mut bytes, frames, group));
        }
        if keep(&item)?
            && let Item::Frame(frame) | Item::Flipped(frame, _) = item
        {
            let first = group.replace(frame.header.group) != Some(frame.header.group);
            let crc = crc32c::crc32c(frame.payload);
            frame::put(&mut bytes, frame.header.kind, first, frame.header.group, frame.payload, crc);
            sealed = frame.header.kind == FrameKind::Seal;
        }
        Ok(())
    })?;
    for (_, frames) in added {
        group = Some(put_added(&mut bytes, frames, group));
        sealed = false;
    }
    if !sealed && segments.numbers()?.last() != Some(&number) {
        seal(&mut bytes, group.unwrap_or(0));
    }
    Ok(bytes)
}

/// Appends frames that a repair adds; returns the last frame's group.
fn put_added(bytes: &mut Vec<u8>, frames: &[AddedFrame], mut group: Option<u64>) -> u64 {
    for AddedFrame { kind, group: own, payload } in frames {
        let first = group.replace(*own) != Some(*own);
        frame::put(bytes, *kind, first, *own, payload, crc32c::crc32c(payload));
    }
    group.unwrap_or(0)
}

fn seal(bytes: &mut Vec<u8>, group: u64) {
    frame::put(bytes, FrameKind::Seal, false, group, b"", crc32c::crc32c(b""));
}

fn put_segment(segments: &Segments, number: u32, bytes: &[u8]) -> Result<()> {
    let disk = segments.disk();
    let raw = segment::raw_path(segments.directory(), number);
    let packed = segment::packed_path(segments.directory(), number);
    // Durable before the packed file is removed: a power cut may persist either of two changes alone.
    segment::put_file(disk, &raw, bytes)?;
    if disk.exists(&packed) {
        disk.remove(&packed).map_err(StoreError::io("remove", &packed))?;
        segment::sync_directory(disk, segments.directory())?;
    }
    segments.forget(number);
    Ok(())
}
