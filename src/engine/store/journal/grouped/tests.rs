//! Segments packed by session, compared with their raw segments.

use std::collections::BTreeMap;

use super::super::disk::OsDisk;
use super::super::pack::{pack, pack_in_parts};
use super::super::scan;
use super::super::segment::{Segment, SegmentHead, packed_path, raw_path};
use super::super::{Item, walk};
use super::*;
use crate::random::Random;

const HEAD: SegmentHead = SegmentHead { number: 1, journal: [7; 16] };
const TRAILER: usize = 32;

/// A raw segment's bytes, and the group, offset and length of each frame in it.
struct Raw {
    directory: tempfile::TempDir,
    bytes: Vec<u8>,
    frames: Vec<(u32, u32, usize)>,
}

/// Creates a segment with commits of alternating sessions, and forks, contents, removals and marks between them.
fn raw(seed: u64) -> Raw {
    let mut random = Random(seed);
    let (mut bytes, mut frames) = (HEAD.encode().to_vec(), Vec::new());
    for number in 0..1_500_u64 {
        let session = SessionId::from_bytes([(number % 20) as u8; 16]);
        let (kind, head) = match random.index(30) {
            0 => (FrameKind::Fork, [session.as_bytes(), &[1; 8][..]].concat()),
            1..4 => (FrameKind::Content, Vec::new()),
            4 => (FrameKind::Removal, Vec::new()),
            5 => (FrameKind::Close, Vec::new()),
            _ => (FrameKind::Commit, Vec::new()),
        };
        let length = if random.once_in(200) { 50_000 } else { random.index(300) };
        let payload = [&head[..], session.as_bytes(), &random.bytes(length)].concat();
        let at = bytes.len();
        frame::put(&mut bytes, kind, random.once_in(2), number / 3, &payload, crc32c::crc32c(&payload));
        let group = if kind.commit_at().is_some() { session_group(session) } else { NO_SESSION };
        frames.push((group, at as u32, bytes.len() - at));
    }
    let directory = tempfile::tempdir().unwrap();
    std::fs::write(raw_path(directory.path(), 1), &bytes).unwrap();
    Raw { directory, bytes, frames }
}

impl Raw {
    fn path(&self) -> PathBuf {
        packed_path(self.directory.path(), 1)
    }

    fn pack(&self, part: u64) -> Segment {
        drop(std::fs::remove_file(self.path()));
        let raw = Segment::open(&OsDisk, self.directory.path(), 1, false).unwrap();
        assert!(pack_in_parts(part, &OsDisk, &raw, self.bytes.len() as u64, &self.path()).unwrap());
        self.open()
    }

    fn open(&self) -> Segment {
        Segment::open(&OsDisk, self.directory.path(), 1, false).unwrap()
    }

    fn change(&self, change: impl FnOnce(&mut Vec<u8>)) {
        let mut bytes = std::fs::read(self.path()).unwrap();
        change(&mut bytes);
        std::fs::write(self.path(), bytes).unwrap();
    }

    /// The frame as a block stores it.
    fn tagged(&self, (_, offset, length): (u32, u32, usize)) -> Vec<u8> {
        let mut bytes = Vec::new();
        put(&mut bytes, &self.bytes[offset as usize..][..length], offset);
        bytes
    }

    /// Offsets of the intact frames and ranges of the damage, as a walk reports them.
    fn walked(segment: &Segment) -> (Vec<u32>, Vec<Range<u64>>) {
        let (mut whole, mut holes) = (Vec::new(), Vec::new());
        walk(segment, &mut |item| {
            match item {
                Item::Frame(frame) => whole.push(frame.offset as u32),
                Item::Hole(from, to, _) => holes.push(from..to),
                Item::Flipped(frame, bytes) => holes.push(frame.offset..frame.offset + bytes.len() as u64),
            }
            Ok(())
        })
        .unwrap();
        (whole, holes)
    }
}

#[test]
fn grouped_segment_reads_as_its_raw_one() {
    for (seed, part) in [(1, PART), (2, 100_000), (3, 1)] {
        let raw = raw(seed);
        let segment = raw.pack(part);
        let grouped = segment.grouped().unwrap();
        assert!(grouped.parts.len() > if part < PART { 3 } else { 0 } && grouped.blocks.len() > 10);
        assert_eq!(segment.len().unwrap(), raw.bytes.len() as u64);
        assert!(segment.read_up_to(0, raw.bytes.len() + 9).unwrap() == raw.bytes, "seed {seed}");
        let mut random = Random(seed);
        for _ in 0..100 {
            let from = random.index(raw.bytes.len());
            let to = (from + random.index(70_000)).min(raw.bytes.len());
            let read = segment.read_up_to(from as u64, to - from).unwrap();
            assert!(read == raw.bytes[from..to], "seed {seed}: {from} to {to}");
        }
        let mut of_group = BTreeMap::<u32, Vec<(u32, u32, usize)>>::new();
        for frame in &raw.frames {
            assert!(grouped.frame(frame.0, frame.1).unwrap().unwrap() == raw.tagged(*frame), "{frame:?}");
            assert_eq!(grouped.frame(frame.0 ^ 1, frame.1 + 8).unwrap(), None);
            scan::frame_at(&segment, frame.0, u64::from(frame.1)).unwrap();
            scan::frame_at(&segment, frame.0 ^ 1, u64::from(frame.1)).unwrap();
            of_group.entry(frame.0).or_default().push(*frame);
        }
        for (group, frames) in of_group {
            let skip = random.index(frames.len());
            let (mut out, frames) = (b"before".to_vec(), &frames[skip..]);
            let offsets = frames.iter().map(|frame| frame.1);
            let starts = grouped.frames(group, offsets.clone(), usize::MAX, &mut out).unwrap();
            assert_eq!(starts.len(), frames.len());
            let all: Vec<u8> = frames.iter().flat_map(|frame| raw.tagged(*frame)).collect();
            assert!(out[6..] == all && starts[0] == 6, "seed {seed}");
            let some = grouped.frames(group, offsets.clone(), 600, &mut Vec::new()).unwrap().len();
            assert!(some >= 1 && (some == frames.len() || some < frames.len()));
            let gone = offsets.map(|offset| offset + 8);
            assert_eq!(grouped.frames(group, gone, 600, &mut Vec::new()).unwrap(), Vec::<usize>::new());
        }
    }
}

#[test]
fn grouped_block_damaged_loses_its_frames_only() {
    let raw = raw(4);
    let segment = raw.pack(200_000);
    for number in [0, 7, segment.grouped().unwrap().blocks.len() - 1] {
        raw.pack(200_000);
        let block = &segment.grouped().unwrap().blocks[number];
        let inside = segment.grouped().unwrap().unpack(number).unwrap().unwrap();
        let lost: Vec<u32> = frames_in(&inside, 0).map(|(.., offset)| offset).collect();
        let at = block.start as usize + block.packed as usize / 2;
        raw.change(|bytes| bytes[at] ^= 0x10);
        let segment = raw.open();
        let (whole, holes) = Raw::walked(&segment);
        let is_in_hole = |offset: &u32| holes.iter().any(|hole| hole.contains(&u64::from(*offset)));
        assert!(!lost.is_empty() && lost.iter().all(is_in_hole), "block {number}");
        let left: Vec<u32> = raw.frames.iter().map(|frame| frame.1).filter(|offset| !lost.contains(offset)).collect();
        assert_eq!(whole, left, "block {number}");
        let grouped = segment.grouped().unwrap();
        for frame in raw.frames.iter().filter(|frame| lost.contains(&frame.1)) {
            assert_eq!(grouped.frame(frame.0, frame.1).unwrap(), None);
            scan::frame_at(&segment, frame.0, u64::from(frame.1)).unwrap_err();
        }
    }
}

#[test]
fn grouped_table_or_trailer_damaged_is_rebuilt_from_blocks() {
    let raw = raw(5);
    let packed = std::fs::metadata(raw.pack(150_000).path).unwrap().len() as usize;
    let table_at = {
        let segment = raw.open();
        let blocks = &segment.grouped().unwrap().blocks;
        blocks.last().map(|last| last.start as usize + last.packed as usize).unwrap()
    };
    for at in [table_at, table_at + 70, packed - TRAILER - 1, packed - 30, packed - 20, packed - 10, packed - 1] {
        raw.pack(150_000);
        raw.change(|bytes| bytes[at] ^= 0x21);
        assert!(Segment::open(&OsDisk, raw.directory.path(), 1, false).is_err(), "byte {at}");
        let segment = Segment::salvage(&OsDisk, raw.directory.path(), HEAD).unwrap().unwrap();
        let (whole, holes) = Raw::walked(&segment);
        assert!(whole.len() == raw.frames.len() && holes.is_empty(), "byte {at}");
        let rest = segment.read_up_to(HEADER, raw.bytes.len()).unwrap();
        assert!(rest == raw.bytes[HEADER as usize..], "byte {at}");
    }
    // Also with a damaged block head: the blocks behind it are found.
    raw.change(|bytes| bytes[0] ^= 0x21);
    let segment = Segment::salvage(&OsDisk, raw.directory.path(), HEAD).unwrap().unwrap();
    let (whole, holes) = Raw::walked(&segment);
    assert!(whole.len() > raw.frames.len() / 2 && !holes.is_empty());
}

#[test]
fn segment_with_damage_stays_unpacked() {
    let raw = raw(6);
    let path = raw_path(raw.directory.path(), 1);
    let mut bytes = raw.bytes.clone();
    bytes[raw.frames[700].1 as usize + 30] ^= 4;
    std::fs::write(&path, &bytes).unwrap();
    let segment = raw.open();
    assert!(!pack(&OsDisk, &segment, bytes.len() as u64, &raw.path()).unwrap());
    assert_eq!(std::fs::read_dir(raw.directory.path()).unwrap().count(), 1, "a copy was left");
    assert!(raw.open().read_up_to(0, bytes.len() + 1).unwrap() == bytes);
}
