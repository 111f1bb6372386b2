//! Frames and segments of arbitrary bytes: no panic, no memory beyond the limits, and only intact frames are visited.

use std::path::Path;

use super::frame::{self, FrameKind, HEADER, Header, MAX_PAYLOAD};
use super::scan::{self, ScanEnd};
use super::segment::{self, Segment, SegmentHead, packed_path, raw_path};
use super::{Item, NO_SESSION, pack, walk};
use crate::disk::SimulatedDisk;
use crate::random::Random;

const CASES: u64 = 500;
const HEAD: SegmentHead = SegmentHead { number: 1, journal: [7; 16] };

fn place() -> &'static Path {
    Path::new("/fuzz")
}

fn opened(bytes: Vec<u8>) -> Segment {
    let disk = SimulatedDisk::new(1, place());
    disk.put(&raw_path(place(), 1), Some([&HEAD.encode()[..], &bytes].concat()));
    Segment::open(&disk, place(), 1, false).unwrap()
}

const KINDS: [FrameKind; 6] =
    [FrameKind::Commit, FrameKind::Content, FrameKind::Manifest, FrameKind::Removal, FrameKind::Close, FrameKind::Fork];

fn intact(random: &mut Random) -> Vec<u8> {
    let mut bytes = Vec::new();
    for group in 1..2 + random.index(12) as u64 {
        let length = random.index(400);
        let payload = random.bytes(length);
        let crc = crc32c::crc32c(&payload);
        frame::put(&mut bytes, *random.pick(&KINDS), random.once_in(2), group, &payload, crc);
    }
    bytes
}

/// Generates intact frames, false headers with a valid checksum, noise and zeros.
fn anything(random: &mut Random) -> Vec<u8> {
    let mut bytes = Vec::new();
    for group in 1..2 + random.index(12) as u64 {
        let length = random.index(400);
        let payload = random.bytes(length);
        let crc = crc32c::crc32c(&payload);
        let kind = *random.pick(&KINDS);
        match random.index(7) {
            0..4 => frame::put(&mut bytes, kind, random.once_in(2), group, &payload, crc),
            4 => {
                let mut head = random.bytes(HEADER);
                // Lengths near the limits, and others.
                let length = *random.pick(&[0, 1, payload.len(), 4_096, MAX_PAYLOAD, MAX_PAYLOAD + 1, usize::MAX]);
                head[..4].copy_from_slice(&u32::try_from(length).unwrap_or(u32::MAX).to_le_bytes());
                head[4] &= 7;
                let crc = crc32c::crc32c(&head[..20]);
                head[20..].copy_from_slice(&crc.to_le_bytes());
                bytes.extend(head);
            }
            5 => bytes.extend(payload),
            _ => bytes.resize(bytes.len() + length, 0),
        }
    }
    bytes.truncate(bytes.len() - random.index(40).min(bytes.len()));
    bytes
}

#[test]
fn segment_of_any_bytes_is_read_to_its_end() {
    let (mut whole, mut bad) = (0, 0);
    for seed in 0..CASES {
        let mut random = Random(seed);
        let segment = opened(anything(&mut random));
        let length = segment.len().unwrap();
        let mut next = segment::HEADER;
        let end = scan::frames(&segment, 0, &mut |frame| {
            assert_eq!(frame.offset, next, "seed {seed}");
            assert!(frame.header.fits(frame.payload), "seed {seed}");
            next += frame.header.frame_len() as u64;
            whole += 1;
            Ok(())
        });
        match end.unwrap() {
            ScanEnd::Clean(at) => assert_eq!(at, next, "seed {seed}"),
            ScanEnd::Bad(at, _) => {
                assert_eq!(at, next, "seed {seed}");
                bad += 1;
            }
        }
        let mut reached = segment::HEADER;
        walk(&segment, &mut |item| {
            let (from, to) = match item {
                Item::Frame(frame) | Item::Flipped(frame, _) => {
                    (frame.offset, frame.offset + frame.header.frame_len() as u64)
                }
                Item::Hole(from, to, _) => (from, to),
            };
            assert!(from >= reached && to > from, "seed {seed}");
            reached = to;
            Ok(())
        })
        .unwrap();
        let at = segment::HEADER + random.index(usize::try_from(length).unwrap()) as u64;
        if let Some(found) = scan::durable_after(&segment, at, random.index(5) as u64).unwrap() {
            scan::frame_at(&segment, NO_SESSION, found).unwrap();
        }
        scan::is_sealed(&segment, at).unwrap();
        drop(scan::frame_at(&segment, NO_SESSION, at));
    }
    assert!(whole > CASES && bad > CASES / 4, "{whole} frames, {bad} bad ends");
}

/// A frame's head alone must not make the reader allocate the length that it claims.
#[test]
fn segment_lying_head_takes_no_memory() {
    let mut bytes = Vec::new();
    frame::put(&mut bytes, FrameKind::Content, true, 1, &[0; 64], 0);
    let length = u32::try_from(MAX_PAYLOAD).unwrap();
    bytes[..4].copy_from_slice(&length.to_le_bytes());
    let crc = crc32c::crc32c(&bytes[..20]);
    bytes[20..24].copy_from_slice(&crc.to_le_bytes());
    let segment = opened(bytes);
    let mut window = scan::SegmentWindow::new(&segment, 1 << 20);
    let count = window.bytes(segment::HEADER, HEADER + MAX_PAYLOAD).unwrap().len();
    assert_eq!(count as u64, segment.len().unwrap() - segment::HEADER);
    assert!(window.held() < 4_096, "{} bytes", window.held());
}

#[test]
fn frame_header_of_any_bytes_is_within_limits() {
    let mut random = Random(5);
    for _ in 0..400 * CASES {
        let bytes = random.bytes(HEADER);
        let bytes: &[u8; HEADER] = bytes[..].try_into().unwrap();
        for header in Header::parse(bytes).into_iter().chain(Header::parse_known(bytes)) {
            assert!(header.length <= MAX_PAYLOAD && header.frame_len() >= HEADER + header.length);
        }
    }
}

/// Packed segments with arbitrary blocks, tables and trailers, under valid and invalid checksums.
#[test]
fn packed_segment_of_any_bytes_is_refused_or_bounded() {
    const TRAILER: usize = 32;
    let (mut read, mut refused) = (0, 0);
    for seed in 0..CASES {
        let mut random = Random(seed);
        let raw = opened(intact(&mut random));
        let disk = SimulatedDisk::new(seed, place());
        let target = packed_path(place(), 1);
        assert!(pack(&disk, &raw, raw.len().unwrap(), &target).unwrap(), "seed {seed}");
        let mut bytes = super::disk::read_whole(&disk, &target).unwrap();
        let trailer = bytes.len() - TRAILER;
        for _ in 0..random.index(3) {
            let at = if random.once_in(2) { trailer + random.index(20) } else { random.index(bytes.len()) };
            bytes[at] = random.next().to_le_bytes()[0];
        }
        if random.once_in(2) {
            let (blocks, parts) = (usize::from(bytes[trailer + 8]), usize::from(bytes[trailer + 16]));
            let table = trailer.saturating_sub(64 + 16 * blocks + 8 * parts)..trailer;
            let crc = crc32c::crc32c(&bytes[table]);
            bytes[trailer + 12..trailer + 16].copy_from_slice(&crc.to_le_bytes());
            let crc = crc32c::crc32c(&bytes[trailer..trailer + 20]);
            bytes[trailer + 20..trailer + 24].copy_from_slice(&crc.to_le_bytes());
        }
        disk.put(&target, Some(bytes));
        let opened = match Segment::open(&disk, place(), 1, false) {
            Ok(segment) => Some(segment),
            Err(_) => {
                refused += 1;
                Segment::salvage(&disk, place(), HEAD).unwrap()
            }
        };
        let Some(segment) = opened else { continue };
        read += 1;
        let length = segment.len().unwrap();
        assert!(length <= raw.len().unwrap().max(1 << 20) * 2, "seed {seed}: {length} bytes");
        drop(scan::frames(&segment, 0, &mut |_| Ok(())));
        assert!(segment.read_up_to(length, 100).unwrap_or_default().is_empty(), "seed {seed}");
    }
    assert!(read > CASES / 2 && refused > CASES / 8, "{read} were read, {refused} refused");
}
