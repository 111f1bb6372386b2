//! A check of every byte of a journal, and repairs.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use super::disk::JournalDisk;
use super::frame::{self, FrameBody, FrameKind};
use super::last::{Last, last};
use super::scan::{self, Frame, ScanEnd};
use super::segment::{self, FIRST, FramePosition, Segment, SegmentHead};
use super::segments::Segments;
use crate::engine::store::{Loss, Result, StoreError, content};
use crate::engine::{CommitView, ForkPoint, Seq, SessionId};

/// Findings of a check.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct FsckReport {
    /// Segments read.
    pub segments: u64,
    /// Commits that are whole.
    pub commits: u64,
    /// Events in them.
    pub events: u64,
    /// Contents and chunks that fit their digests.
    pub contents: u64,
    /// Sessions that are there.
    pub sessions: u64,
    /// Problems, in the journal's order.
    pub problems: Vec<JournalProblem>,
    /// Repairs that were made, a line each.
    pub repaired: Vec<String>,
    /// Acknowledged events that are not there any more, where something proves it.
    pub loss: Option<Loss>,
}

/// Something wrong in a journal.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct JournalProblem {
    /// The segment.
    pub segment: u32,
    /// Byte in it.
    pub offset: u64,
    /// Count of bytes that are no frames; 0 when a frame is whole and its meaning is wrong.
    pub bytes: u64,
    /// Description of it.
    pub what: String,
    /// The session that it concerns, where that is known.
    pub session: Option<SessionId>,
}

/// A journal that was checked, and what a repair of it needs.
#[derive(Default)]
pub(crate) struct CheckedJournal {
    pub(crate) report: FsckReport,
    /// Position after the last whole frame of the last segment.
    pub(crate) end: FramePosition,
    /// Set if the last segment says that another one follows.
    pub(crate) is_followed: bool,
    /// Set if a whole segment is in the wrong place.
    pub(crate) is_strange: bool,
    journal: [u8; 16],
    bad: BTreeSet<u32>,
    missing: Vec<SegmentHead>,
    /// Files with the name of a segment that follow none and have no head.
    strays: Vec<u32>,
    heads: BTreeMap<SessionId, Seq>,
    /// Last positions of removed sessions.
    removed: BTreeMap<SessionId, Seq>,
    /// Sessions with a gap; what follows it is useless.
    broken: BTreeSet<SessionId>,
    /// Whole frames that must go, by segment and offset.
    useless: BTreeSet<(u32, u64)>,
}

/// Missing segments in a row that a repair replaces by empty ones.
const MISSING_MAX: u32 = 4096;

pub(crate) fn check(segments: &Segments) -> Result<CheckedJournal> {
    let mut numbers = segments.numbers()?;
    if last(segments, &numbers)? != Last::Used {
        numbers.pop();
    }
    let journal = identity(segments, &numbers).unwrap_or_default();
    let mut check = CheckedJournal { end: FramePosition::first_in(FIRST), journal, ..CheckedJournal::default() };
    let mut expected = FIRST;
    for number in numbers.iter().copied() {
        check.gap(expected..number);
        expected = number + 1;
        let before = check.report.problems.len();
        let Some(segment) = check.find(segments, number)? else {
            check.is_strange = true;
            continue;
        };
        check.report.segments += 1;
        check.end = FramePosition::first_in(number);
        let end = walk(&segment, &mut |item| {
            check.item(&segment, item);
            Ok(())
        })?;
        check.is_followed = end.map_or(Ok(false), |end| scan::is_sealed(&segment, end))?;
        if let Some(end) = end.filter(|_| Some(&number) != numbers.last() && !check.is_followed) {
            check.problem(number, end, 0, "the rest of the segment is missing".to_owned(), None);
        }
        if check.report.problems.len() > before {
            check.bad.insert(number);
        }
    }
    check.strays = segments.strays()?;
    for number in check.strays.clone() {
        let name = segment::raw_path(segments.directory(), number);
        let what = format!("{} is no segment of this journal", name.display());
        check.problem(number, 0, 0, what, None);
    }
    check.report.sessions = check.heads.len() as u64;
    Ok(check)
}

impl CheckedJournal {
    /// Moves damage into files under `directory`. Repairs nothing while a whole segment is in the wrong place: a user
    /// has to decide what it is.
    pub(crate) fn repair(&mut self, segments: &Segments, directory: &Path) -> Result<()> {
        if self.is_strange {
            return Ok(());
        }
        for number in std::mem::take(&mut self.strays) {
            let aside = set_aside(segments, number, directory)?;
            self.report.repaired.push(format!("segment {number}: it was moved to {}", aside.display()));
        }
        for number in std::mem::take(&mut self.bad) {
            let saved = repair_segment(segments, number, directory, &self.useless)?;
            let line = format!("segment {number}: what could not be kept was moved to {}", saved.display());
            self.report.repaired.push(line);
        }
        for head in std::mem::take(&mut self.missing) {
            let mut bytes = head.encode().to_vec();
            seal(&mut bytes, 0);
            put_segment(segments, head.number, &bytes)?;
            self.report.repaired.push(format!("segment {}: an empty one stands in its place", head.number));
        }
        Ok(())
    }

    pub(crate) fn is_repairable(&self) -> bool {
        let is_fine = self.strays.is_empty() && self.bad.is_empty() && self.missing.is_empty();
        !self.is_strange && !is_fine
    }

    /// Checks if a repair rewrites segments, which moves the frames in them.
    pub(crate) fn is_rewritten(&self) -> bool {
        !(self.bad.is_empty() && self.missing.is_empty())
    }

    /// Adds the empty segment that the last one says follows.
    pub(crate) fn follow(&self, segments: &Segments) -> Result<()> {
        let head = SegmentHead { number: self.end.segment + 1, journal: self.journal };
        put_segment(segments, head.number, &head.encode())
    }
}

/// Returns the identity of the journal: that of the last segment with a whole head.
pub(crate) fn identity(segments: &Segments, numbers: &[u32]) -> Option<[u8; 16]> {
    let whole = numbers.iter().rev().find_map(|number| segments.get(*number).ok());
    whole.map(|segment| segment.head.journal)
}

pub(crate) enum Item<'a> {
    Frame(Frame<'a>),
    /// Bytes that are no frames: from, to, reason.
    Hole(u64, u64, &'static str),
}

/// Visits all frames of a segment and the holes between them. Returns its end; none within a hole.
pub(crate) fn walk(segment: &Segment, visit: &mut dyn FnMut(Item<'_>) -> Result<()>) -> Result<Option<u64>> {
    let mut from = segment::HEADER;
    loop {
        let end = scan::frames(segment, from, &mut |frame| visit(Item::Frame(frame)))?;
        let (at, what) = match end {
            ScanEnd::Clean(end) => return Ok(Some(end)),
            ScanEnd::Bad(at, what) => (at, what),
        };
        let next = scan::resume_after(segment, at)?;
        visit(Item::Hole(at, next.unwrap_or(segment.len()?), what))?;
        match next {
            Some(next) => from = next,
            None => return Ok(None),
        }
    }
}

impl CheckedJournal {
    /// Adds missing segments; too many can't be replaced.
    fn gap(&mut self, gap: Range<u32>) {
        let what = match gap.len() {
            0 => return,
            1 => "this segment is missing".to_owned(),
            _ => format!("segments {} to {} are missing", gap.start, gap.end - 1),
        };
        self.problem(gap.start, 0, 0, what, None);
        if gap.len() > MISSING_MAX as usize {
            self.is_strange = true;
        } else {
            let journal = self.journal;
            self.missing.extend(gap.map(|number| SegmentHead { number, journal }));
        }
    }

    /// Opens a segment, also if its head or table is damaged. None if it is whole and not what its name says.
    fn find(&mut self, segments: &Segments, number: u32) -> Result<Option<Arc<Segment>>> {
        let head = SegmentHead { number, journal: self.journal };
        let what = match segments.get(number) {
            Ok(segment) if segment.head == head => return Ok(Some(segment)),
            Ok(_) => "it belongs to another journal".to_owned(),
            Err(error) => error.to_string(),
        };
        self.problem(number, 0, 0, what, None);
        segments.forget(number);
        let segment = Segment::salvage(segments.disk(), segments.directory(), head)?.map(Arc::new);
        segment.iter().for_each(|segment| segments.add(Arc::clone(segment)));
        Ok(segment)
    }

    fn problem(&mut self, segment: u32, offset: u64, bytes: u64, what: String, session: Option<SessionId>) {
        self.report.problems.push(JournalProblem { segment, offset, bytes, what, session });
    }

    fn item(&mut self, segment: &Segment, item: Item<'_>) {
        let number = segment.head.number;
        match item {
            Item::Hole(from, to, what) => self.problem(number, from, to - from, what.to_owned(), None),
            Item::Frame(frame) => {
                self.end = FramePosition::new(number, frame.offset + frame.header.frame_len() as u64);
                if let Err((what, session)) = self.frame(&frame) {
                    self.useless.insert((number, frame.offset));
                    self.problem(number, frame.offset, 0, what, session);
                }
            }
        }
    }

    fn frame(&mut self, frame: &Frame<'_>) -> Result<(), (String, Option<SessionId>)> {
        match frame.body().map_err(|what| (what.to_owned(), None))? {
            FrameBody::Commit(fork, commit) => {
                self.commit(&commit, fork).map_err(|what| (what, Some(commit.session)))?;
            }
            FrameBody::Content(..) if frame.header.kind == FrameKind::Content => {
                if content::piece_bytes(frame.payload).is_none() {
                    return Err(("a content does not fit its digest".to_owned(), None));
                }
                self.report.contents += 1;
            }
            FrameBody::Content(..) if content::manifest_chunks(frame.payload).is_none() => {
                return Err(("a list of chunks makes no sense".to_owned(), None));
            }
            FrameBody::LateStart(session, seq) => {
                if self.heads.contains_key(&session) {
                    return Err((format!("session {session} starts again after event {seq}"), Some(session)));
                }
                self.heads.insert(session, seq);
            }
            FrameBody::Removal(session) => {
                self.removed.extend(self.heads.remove(&session).map(|head| (session, head)));
            }
            FrameBody::Content(..) | FrameBody::Mark => {}
        }
        Ok(())
    }

    fn commit(&mut self, commit: &CommitView<'_>, fork: Option<ForkPoint>) -> Result<(), String> {
        let session = commit.session;
        let known = self.heads.get(&session).copied();
        if let Some(point) = fork {
            // A removed parent's history stays for its children.
            let past = self.heads.get(&point.session).or_else(|| self.removed.get(&point.session));
            if known.is_some() || past.is_none_or(|past| *past < point.seq) {
                self.broken.insert(session);
                let (parent, seq) = (point.session, point.seq);
                return Err(format!("session {session}: its past, session {parent} up to event {seq}, is missing"));
            }
        }
        let head = known.or(fork.map(|point| point.seq)).unwrap_or(0);
        if commit.first != head + 1 {
            let again = self.broken.replace(session).is_some();
            let what = if again { "follows the gap" } else { "is missing before it" };
            return Err(format!("session {session}: event {} {what}", commit.first.min(head + 1)));
        }
        if commit.events().any(|event| event.is_err()) {
            self.broken.insert(session);
            return Err(format!("session {session}: events {} ff. end early", commit.first));
        }
        self.heads.insert(session, commit.last());
        self.report.commits += 1;
        self.report.events += u64::from(commit.count);
        Ok(())
    }
}

fn repair_segment(
    segments: &Segments,
    number: u32,
    directory: &Path,
    useless: &BTreeSet<(u32, u64)>,
) -> Result<PathBuf> {
    let segment = segments.get(number)?;
    let disk = segments.disk();
    let saved = saved_path(disk, directory, number)?;
    let mut lost = Vec::new();
    let kept = without(segments, number, &mut |item| match item {
        Item::Frame(frame) if !useless.contains(&(number, frame.offset)) => Ok(true),
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

/// Rewrites a segment with the frames for which `keep` is true. Other frames move: an index of the journal is then
/// useless.
pub(crate) fn rewrite(segments: &Segments, number: u32, keep: &mut dyn FnMut(&Item<'_>) -> Result<bool>) -> Result<()> {
    let kept = without(segments, number, keep)?;
    put_segment(segments, number, &kept)
}

fn without(segments: &Segments, number: u32, keep: &mut dyn FnMut(&Item<'_>) -> Result<bool>) -> Result<Vec<u8>> {
    let old = segments.get(number)?;
    let mut bytes = old.head.encode().to_vec();
    let (mut group, mut sealed) = (None, false);
    walk(&old, &mut |item| {
        if keep(&item)?
            && let Item::Frame(frame) = item
        {
            let first = group.replace(frame.header.group) != Some(frame.header.group);
            let crc = crc32c::crc32c(frame.payload);
            frame::put(&mut bytes, frame.header.kind, first, frame.header.group, frame.payload, crc);
            sealed = frame.header.kind == FrameKind::Seal;
        }
        Ok(())
    })?;
    if !sealed && segments.numbers()?.last() != Some(&number) {
        seal(&mut bytes, group.unwrap_or(0));
    }
    Ok(bytes)
}

fn seal(bytes: &mut Vec<u8>, group: u64) {
    frame::put(bytes, FrameKind::Seal, false, group, b"", crc32c::crc32c(b""));
}

fn put_segment(segments: &Segments, number: u32, bytes: &[u8]) -> Result<()> {
    let disk = segments.disk();
    let raw = segment::raw_path(segments.directory(), number);
    let packed = segment::packed_path(segments.directory(), number);
    // Durable before the other goes: a power cut may keep one of two changes, and either one.
    segment::put_file(disk, &raw, bytes)?;
    if disk.exists(&packed) {
        disk.remove(&packed).map_err(StoreError::io("remove", &packed))?;
        segment::sync_directory(disk, segments.directory())?;
    }
    segments.forget(number);
    Ok(())
}
