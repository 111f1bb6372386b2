//! A check of every byte of a journal, and what to do when it fails.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use super::disk::Disk;
use super::frame::{self, Kind};
use super::scan::{self, End, Frame};
use super::segment::{self, FIRST, Segment, SegmentHead};
use super::segments::Segments;
use crate::engine::commit::{CommitView, ForkPoint};
use crate::engine::id::SessionId;
use crate::engine::recorded::Seq;
use crate::engine::store::StoreError;
use crate::engine::store::content;

/// What a check found.
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
    /// What is wrong, in the journal's order.
    pub problems: Vec<Problem>,
    /// What was repaired, a line each.
    pub repaired: Vec<String>,
}

/// Something wrong in a journal.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Problem {
    /// The segment.
    pub segment: u32,
    /// Where in it.
    pub offset: u64,
    /// How many bytes are no frames; 0 when a frame is whole and its meaning is wrong.
    pub bytes: u64,
    /// What is wrong.
    pub what: String,
    /// The session that it concerns, where that is known.
    pub session: Option<SessionId>,
}

/// Reads the whole journal; with `repair` it takes out what is damaged, into files under that directory.
///
/// Nothing is repaired while a segment is there that is whole and in the wrong place: a person has to
/// say what it is.
pub(crate) fn fsck(segments: &Segments, repair: Option<&Path>) -> Result<FsckReport, StoreError> {
    let mut check = Check::default();
    let numbers = segments.numbers()?;
    let (mut bad, mut missing, mut strange) = (BTreeSet::new(), Vec::new(), false);
    let journal = identity(segments, &numbers);
    for number in FIRST..=numbers.last().copied().unwrap_or(0) {
        let head = SegmentHead { number, journal };
        let segment = match find(segments, head, &mut check)? {
            Found::Whole(segment) => segment,
            Found::Salvaged(segment) => {
                bad.insert(number);
                segment
            }
            Found::Missing => {
                missing.push(head);
                continue;
            }
            Found::Strange => {
                strange = true;
                continue;
            }
        };
        check.report.segments += 1;
        let before = check.report.problems.len();
        let end = walk(&segment, &mut |item| {
            check.item(&segment, item);
            Ok(())
        })?;
        if let Some(end) = end.filter(|_| Some(&number) != numbers.last())
            && !scan::is_sealed(&segment, end)?
        {
            check.problem(number, end, 0, "the rest of the segment is missing".to_owned(), None);
        }
        if check.report.problems.len() > before {
            bad.insert(number);
        }
    }
    check.report.sessions = check.heads.len() as u64;
    if let Some(directory) = repair.filter(|_| !strange) {
        for number in bad {
            repair_segment(segments, number, directory, &mut check)?;
        }
        for head in missing {
            let mut bytes = head.encode().to_vec();
            seal(&mut bytes, 0);
            put_segment(segments, head.number, &bytes)?;
            check.report.repaired.push(format!("segment {}: an empty one stands in its place", head.number));
        }
    }
    Ok(check.report)
}

/// The identity of the journal: that of the last segment with a whole head.
fn identity(segments: &Segments, numbers: &[u32]) -> [u8; 16] {
    let whole = numbers.iter().rev().find_map(|number| segments.get(*number).ok());
    whole.map_or([0; 16], |segment| segment.head.journal)
}

/// What there is under a segment's name.
enum Found {
    Whole(Arc<Segment>),
    /// Its head or its table is damaged, its frames can be looked at.
    Salvaged(Arc<Segment>),
    Missing,
    /// It is whole, and not what its name says.
    Strange,
}

fn find(segments: &Segments, head: SegmentHead, check: &mut Check) -> Result<Found, StoreError> {
    let number = head.number;
    if !segments.numbers()?.contains(&number) {
        check.problem(number, 0, 0, "this segment is missing".to_owned(), None);
        return Ok(Found::Missing);
    }
    match segments.get(number) {
        Ok(segment) if segment.head == head => return Ok(Found::Whole(segment)),
        Ok(_) => check.problem(number, 0, 0, "it belongs to another journal".to_owned(), None),
        Err(error) => check.problem(number, 0, 0, error.to_string(), None),
    }
    segments.forget(number);
    let Some(segment) = Segment::salvage(segments.disk(), segments.directory(), head)? else {
        return Ok(Found::Strange);
    };
    let segment = Arc::new(segment);
    segments.add(Arc::clone(&segment));
    Ok(Found::Salvaged(segment))
}

/// What a walk over a segment meets.
pub(crate) enum Item<'a> {
    Frame(Frame<'a>),
    /// Bytes that are no frames: from, to, why.
    Hole(u64, u64, &'static str),
}

/// Shows all frames of a segment and the holes between them. Gives where it ends; none within a hole.
pub(crate) fn walk(
    segment: &Segment,
    visit: &mut dyn FnMut(Item<'_>) -> Result<(), StoreError>,
) -> Result<Option<u64>, StoreError> {
    let mut from = segment::HEADER;
    loop {
        let end = scan::frames(segment, from, &mut |frame| visit(Item::Frame(frame)))?;
        let (at, what) = match end {
            End::Clean(end) => return Ok(Some(end)),
            End::Bad(at, what) => (at, what),
        };
        let next = scan::resume_after(segment, at)?;
        visit(Item::Hole(at, next.unwrap_or(segment.len()?), what))?;
        match next {
            Some(next) => from = next,
            None => return Ok(None),
        }
    }
}

#[derive(Default)]
struct Check {
    report: FsckReport,
    heads: BTreeMap<SessionId, Seq>,
    /// Where sessions ended that were removed.
    removed: BTreeMap<SessionId, Seq>,
    /// Sessions with a gap: what follows it is of no use.
    broken: BTreeSet<SessionId>,
    /// Frames that are whole and must go, by segment and offset.
    useless: BTreeSet<(u32, u64)>,
}

impl Check {
    fn problem(&mut self, segment: u32, offset: u64, bytes: u64, what: String, session: Option<SessionId>) {
        self.report.problems.push(Problem { segment, offset, bytes, what, session });
    }

    fn item(&mut self, segment: &Segment, item: Item<'_>) {
        let number = segment.head.number;
        match item {
            Item::Hole(from, to, what) => self.problem(number, from, to - from, what.to_owned(), None),
            Item::Frame(frame) => {
                if let Err((what, session)) = self.frame(&frame) {
                    self.useless.insert((number, frame.offset));
                    self.problem(number, frame.offset, 0, what, session);
                }
            }
        }
    }

    fn frame(&mut self, frame: &Frame<'_>) -> Result<(), (String, Option<SessionId>)> {
        match frame.header.kind {
            Kind::Commit => self.commit(frame.payload, None),
            Kind::Fork => {
                let point = frame::fork_point(frame.payload);
                let point = point.ok_or_else(|| ("a fork makes no sense".to_owned(), None))?;
                self.commit(Kind::Fork.commit_in(frame.payload).unwrap_or_default(), Some(point))
            }
            Kind::Content => {
                let fits = content::piece_fits(frame.payload);
                self.report.contents += u64::from(fits);
                if fits { Ok(()) } else { Err(("a content does not fit its digest".to_owned(), None)) }
            }
            Kind::Manifest => match content::manifest_chunks(frame.payload) {
                Some(_) => Ok(()),
                None => Err(("a list of chunks makes no sense".to_owned(), None)),
            },
            Kind::Removal => {
                if let Some(session) = frame.payload.first_chunk().map(|session| SessionId::from_bytes(*session))
                    && let Some(head) = self.heads.remove(&session)
                {
                    self.removed.insert(session, head);
                }
                Ok(())
            }
            Kind::Close | Kind::Seal => Ok(()),
        }
    }

    fn commit(&mut self, payload: &[u8], fork: Option<ForkPoint>) -> Result<(), (String, Option<SessionId>)> {
        let commit = CommitView::parse(payload).map_err(|_| ("a commit makes no sense".to_owned(), None))?;
        let session = commit.session;
        let known = self.heads.get(&session).copied();
        if let Some(point) = fork {
            // A removed parent's history stays for its children.
            let past = self.heads.get(&point.session).or_else(|| self.removed.get(&point.session));
            if known.is_some() || past.is_none_or(|past| *past < point.seq) {
                self.broken.insert(session);
                let (parent, seq) = (point.session, point.seq);
                let lost = format!("session {session}: its past, session {parent} up to event {seq}, is missing");
                return Err((lost, Some(session)));
            }
        }
        let head = known.or(fork.map(|point| point.seq)).unwrap_or(0);
        if commit.first != head + 1 {
            let again = self.broken.replace(session).is_some();
            let what = if again { "follows the gap" } else { "is missing before it" };
            let lost = format!("session {session}: event {} {what}", commit.first.min(head + 1));
            return Err((lost, Some(session)));
        }
        if commit.events().any(|event| event.is_err()) {
            self.broken.insert(session);
            return Err((format!("session {session}: events {} ff. end early", commit.first), Some(session)));
        }
        self.heads.insert(session, commit.last());
        self.report.commits += 1;
        self.report.events += u64::from(commit.count);
        Ok(())
    }
}

/// Writes a segment anew without its holes and useless frames, which go to a file of their own.
fn repair_segment(segments: &Segments, number: u32, directory: &Path, check: &mut Check) -> Result<(), StoreError> {
    let segment = segments.get(number)?;
    let disk = segments.disk();
    let saved = saved_path(disk, directory, number)?;
    let mut lost = Vec::new();
    rewrite(segments, number, &mut |item| match item {
        Item::Frame(frame) if !check.useless.contains(&(number, frame.offset)) => Ok(true),
        Item::Frame(frame) => {
            frame::put(&mut lost, frame.header.kind, false, 0, frame.payload, crc32c::crc32c(frame.payload));
            Ok(false)
        }
        Item::Hole(from, to, _) => {
            let mut bytes = vec![0; usize::try_from(to - from).unwrap_or(0)];
            let read = segment.read_at(*from, &mut bytes)?;
            lost.extend_from_slice(&bytes[..read]);
            Ok(false)
        }
    })?;
    let file = disk.create(&saved).map_err(StoreError::io("create", &saved))?;
    file.write_all_at(&lost, 0).map_err(StoreError::io("write", &saved))?;
    let line = format!("segment {number}: what could not be kept was moved to {}", saved.display());
    check.report.repaired.push(line);
    Ok(())
}

fn saved_path(disk: &dyn Disk, directory: &Path, number: u32) -> Result<PathBuf, StoreError> {
    let torn = directory.join("torn");
    disk.create_dir(&torn).map_err(StoreError::io("create", &torn))?;
    let free = (1..).map(|n| torn.join(format!("{number:08}-fsck-{n}.bin"))).find(|path| !disk.exists(path));
    free.ok_or(StoreError::Format { path: torn, what: "no free name".to_owned() })
}

/// Writes a segment anew with the frames for which `keep` is true, and puts it in the old one's place.
///
/// Every other position in it changes: an index of the journal is of no use afterwards.
pub(crate) fn rewrite(
    segments: &Segments,
    number: u32,
    keep: &mut dyn FnMut(&Item<'_>) -> Result<bool, StoreError>,
) -> Result<u64, StoreError> {
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
            sealed = frame.header.kind == Kind::Seal;
        }
        Ok(())
    })?;
    if !sealed && segments.numbers()?.last() != Some(&number) {
        seal(&mut bytes, group.unwrap_or(0));
    }
    put_segment(segments, number, &bytes)?;
    Ok(bytes.len() as u64)
}

fn seal(bytes: &mut Vec<u8>, group: u64) {
    frame::put(bytes, Kind::Seal, false, group, b"", crc32c::crc32c(b""));
}

/// Puts a segment of these bytes in the place of the one that is there, raw or packed.
fn put_segment(segments: &Segments, number: u32, bytes: &[u8]) -> Result<(), StoreError> {
    let disk = segments.disk();
    let raw = segment::raw_path(segments.directory(), number);
    let unfinished = raw.with_extension("tmp");
    let file = disk.create(&unfinished).map_err(StoreError::io("create", &unfinished))?;
    file.write_all_at(bytes, 0).map_err(StoreError::io("write", &unfinished))?;
    file.sync_all().map_err(StoreError::io("sync", &unfinished))?;
    disk.rename(&unfinished, &raw).map_err(StoreError::io("rename", &unfinished))?;
    let packed = segment::packed_path(segments.directory(), number);
    if disk.exists(&packed) {
        disk.remove(&packed).map_err(StoreError::io("remove", &packed))?;
    }
    segment::sync_directory(disk, segments.directory())?;
    segments.forget(number);
    Ok(())
}
