//! Contents: each is stored once, compressed if that helps; large ones in content-defined chunks.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::io::{self, Read};
use std::sync::{Arc, Mutex};

use bytes::Bytes;

use super::decompress::decompressed;
use super::index::SledIndex;
use super::journal::frame::FrameKind;
use super::journal::{FramePosition, NO_SESSION, Segments, scan};
use super::weight::ByBytes;
use super::{Result, StoreError};
use crate::engine::commit::ChunkList;
use crate::engine::{Content, Digest, lock};

const WHOLE_MAX: usize = 128 << 10;
const CHUNK_MIN: usize = 16 << 10;
const CHUNK_AVG: usize = 32 << 10;
const CHUNK_MAX: usize = 64 << 10;
const COMPRESS_MIN: usize = 64;
const LEVEL: i32 = 1;
/// Size of the cache of decoded contents.
const CACHE_BYTES: u64 = 32 << 20;
const READ_MAX: u64 = 4 << 30;

pub(super) struct ContentFrame {
    pub(super) digest: Digest,
    pub(super) kind: FrameKind,
    pub(super) payload: Vec<u8>,
    pub(super) crc: u32,
    /// Serves reads until the frame is on the disk.
    held: DecodedFrame,
}

/// Cuts and compresses a content into frames, without pieces with a `known` digest.
pub(super) fn frames_of(content: &Content, known: &dyn Fn(&Digest) -> Result<bool>) -> Result<Vec<ContentFrame>> {
    if known(&content.digest)? {
        return Ok(Vec::new());
    }
    if content.bytes.len() <= WHOLE_MAX {
        return Ok(vec![piece(content.digest, content.bytes.clone())]);
    }
    let mut frames: Vec<ContentFrame> = Vec::new();
    let (digest, length) = (content.digest, content.bytes.len() as u64);
    let mut list = ChunkList { digest, length, chunks: Vec::new() };
    for cut in fastcdc::v2020::FastCDC::new(&content.bytes, CHUNK_MIN, CHUNK_AVG, CHUNK_MAX) {
        let chunk = content.bytes.slice(cut.offset..cut.offset + cut.length);
        let digest = Digest::of(&chunk);
        list.chunks.push(digest);
        if !known(&digest)? && !frames.iter().any(|frame| frame.digest == digest) {
            frames.push(piece(digest, chunk));
        }
    }
    frames.push(list_frame(&list));
    Ok(frames)
}

pub(super) fn list_frame(list: &ChunkList) -> ContentFrame {
    let mut manifest = list.digest.as_bytes().to_vec();
    manifest.extend_from_slice(&list.length.to_le_bytes());
    list.chunks.iter().for_each(|chunk| manifest.extend_from_slice(chunk.as_bytes()));
    let crc = crc32c::crc32c(&manifest);
    let held = DecodedFrame::Manifest(Bytes::from(manifest.clone()));
    ContentFrame { digest: list.digest, kind: FrameKind::Manifest, payload: manifest, crc, held }
}

/// Cuts a stream into the same chunks as a content in memory.
pub(crate) fn chunks_of(source: impl Read) -> impl Iterator<Item = io::Result<Vec<u8>>> {
    let cuts = fastcdc::v2020::StreamCDC::new(source, CHUNK_MIN, CHUNK_AVG, CHUNK_MAX);
    cuts.map(|cut| cut.map(|chunk| chunk.data).map_err(io::Error::from))
}

fn piece(digest: Digest, bytes: Bytes) -> ContentFrame {
    let mut payload = Vec::with_capacity(bytes.len() + 64);
    payload.extend_from_slice(digest.as_bytes());
    let small = compressed(&bytes);
    payload.push(u8::from(small.is_some()));
    payload.extend_from_slice(&u32::try_from(bytes.len()).unwrap_or(u32::MAX).to_le_bytes());
    payload.extend_from_slice(small.as_deref().unwrap_or(&bytes));
    let crc = crc32c::crc32c(&payload);
    ContentFrame { digest, kind: FrameKind::Content, payload, crc, held: DecodedFrame::Whole(bytes) }
}

fn compressed(bytes: &[u8]) -> Option<Vec<u8>> {
    thread_local! {
        static COMPRESSOR: RefCell<Option<zstd::bulk::Compressor<'static>>> =
            RefCell::new(zstd::bulk::Compressor::new(LEVEL).ok());
    }
    if bytes.len() < COMPRESS_MIN {
        return None;
    }
    let small = COMPRESSOR.with_borrow_mut(|compressor| compressor.as_mut()?.compress(bytes).ok())?;
    (small.len() < bytes.len() - bytes.len() / 16).then_some(small)
}

/// Returns the content of a frame. `None` if its bytes do not match its digest.
pub(super) fn piece_bytes(payload: &[u8]) -> Option<(Digest, Bytes)> {
    let (digest, rest) = payload.split_first_chunk::<32>()?;
    let (codec, rest) = rest.split_first()?;
    let (raw_len, stored) = rest.split_first_chunk::<4>()?;
    let raw_len = usize::try_from(u32::from_le_bytes(*raw_len)).ok()?;
    let bytes = match codec {
        0 => Bytes::copy_from_slice(stored),
        1 if raw_len <= WHOLE_MAX => Bytes::from(decompressed(stored, raw_len)?),
        _ => return None,
    };
    let digest = Digest::from_bytes(*digest);
    (bytes.len() == raw_len && digest.is_of(&bytes)).then_some((digest, bytes))
}

/// Returns the length of the whole content and its chunks.
pub(super) fn manifest_chunks(payload: &[u8]) -> Option<(u64, Vec<Digest>)> {
    let (total, rest) = payload.get(32..)?.split_first_chunk::<8>()?;
    let (chunks, odd) = rest.as_chunks::<32>();
    odd.is_empty().then(|| (u64::from_le_bytes(*total), chunks.iter().map(|c| Digest::from_bytes(*c)).collect()))
}

pub(super) struct Contents {
    segments: Arc<Segments>,
    /// Contents that the index does not have yet.
    fresh: Mutex<FreshContents>,
    cache: quick_cache::sync::Cache<Digest, Bytes, ByBytes>,
}

#[derive(Default)]
struct FreshContents {
    places: BTreeMap<Digest, FramePosition>,
    /// Staged contents that may not be on the disk yet.
    unwritten: Vec<(FramePosition, Digest)>,
    held: BTreeMap<Digest, DecodedFrame>,
}

#[derive(Clone)]
enum DecodedFrame {
    Whole(Bytes),
    Manifest(Bytes),
}

impl Contents {
    pub(super) fn new(segments: Arc<Segments>) -> Self {
        let cache = quick_cache::sync::Cache::with_weighter(4096, CACHE_BYTES, ByBytes);
        Self { segments, fresh: Mutex::default(), cache }
    }

    pub(super) fn known(&self, digest: &Digest, index: Option<&SledIndex>) -> Result<bool> {
        Ok(self.place(digest, index)?.is_some())
    }

    pub(super) fn is_fresh(&self, digest: &Digest) -> bool {
        lock(&self.fresh).places.contains_key(digest)
    }

    fn place(&self, digest: &Digest, index: Option<&SledIndex>) -> Result<Option<FramePosition>> {
        if let Some(place) = lock(&self.fresh).places.get(digest) {
            return Ok(Some(*place));
        }
        index.map_or(Ok(None), |index| index.content(digest))
    }

    pub(super) fn staged(&self, frame: ContentFrame, place: FramePosition) {
        let mut fresh = lock(&self.fresh);
        fresh.places.insert(frame.digest, place);
        fresh.unwritten.push((place, frame.digest));
        fresh.held.insert(frame.digest, frame.held);
    }

    pub(super) fn found(&self, digest: Digest, place: FramePosition) {
        lock(&self.fresh).places.insert(digest, place);
    }

    pub(super) fn written(&self, end: FramePosition) {
        let mut fresh = lock(&self.fresh);
        let FreshContents { unwritten, held, .. } = &mut *fresh;
        unwritten.retain(|(place, digest)| {
            let waits = *place >= end;
            if !waits && let Some(DecodedFrame::Whole(bytes)) = held.remove(digest) {
                self.cache.insert(*digest, bytes);
            }
            waits
        });
    }

    pub(super) fn unindexed(&self, end: FramePosition) -> Vec<(Digest, FramePosition)> {
        lock(&self.fresh).places.iter().filter(|(_, place)| **place < end).map(|(d, p)| (*d, *p)).collect()
    }

    pub(super) fn indexed(&self, contents: &[(Digest, FramePosition)]) {
        let mut fresh = lock(&self.fresh);
        contents.iter().for_each(|(digest, _)| {
            fresh.places.remove(digest);
        });
    }

    pub(super) fn read(&self, digest: &Digest, index: Option<&SledIndex>) -> Result<Bytes> {
        match self.held(digest, index)? {
            DecodedFrame::Whole(bytes) => Ok(bytes),
            DecodedFrame::Manifest(manifest) => self.assemble(digest, &manifest, index),
        }
    }

    fn held(&self, digest: &Digest, index: Option<&SledIndex>) -> Result<DecodedFrame> {
        if let Some(bytes) = self.cache.get(digest) {
            return Ok(DecodedFrame::Whole(bytes));
        }
        let staged = lock(&self.fresh).held.get(digest).cloned();
        if let Some(held) = staged {
            return Ok(held);
        }
        let place = self.place(digest, index)?.ok_or(StoreError::NoContent(*digest))?;
        let segment = self.segments.get(place.segment)?;
        let damaged = |what: &str| damaged(digest, place, what);
        let (kind, payload) = scan::frame_at(&segment, NO_SESSION, u64::from(place.offset))?;
        match kind {
            FrameKind::Content => {
                let (found, bytes) = piece_bytes(&payload).ok_or_else(|| damaged("its digest does not match"))?;
                if found != *digest {
                    return Err(damaged("another content is in its place"));
                }
                self.cache.insert(*digest, bytes.clone());
                Ok(DecodedFrame::Whole(bytes))
            }
            FrameKind::Manifest if payload.starts_with(digest.as_bytes()) => {
                Ok(DecodedFrame::Manifest(Bytes::from(payload)))
            }
            _ => Err(damaged("another frame is in its place")),
        }
    }

    fn assemble(&self, digest: &Digest, manifest: &[u8], index: Option<&SledIndex>) -> Result<Bytes> {
        let damaged = |what: &str| damaged(digest, FramePosition::default(), what);
        let (total, chunks) = manifest_chunks(manifest).ok_or_else(|| damaged("its chunk list is malformed"))?;
        if total > READ_MAX || total > (chunks.len() as u64).saturating_mul(CHUNK_MAX as u64) {
            return Err(damaged("its length is invalid"));
        }
        let mut whole = Vec::with_capacity(usize::try_from(total).unwrap_or(0));
        for chunk in &chunks {
            // Only one level: a chunk list can contain neither another list nor itself.
            let DecodedFrame::Whole(bytes) = self.held(chunk, index)? else {
                return Err(damaged("its chunk list contains another list"));
            };
            whole.extend_from_slice(&bytes);
            if whole.len() as u64 > total {
                return Err(damaged("its chunks exceed its length"));
            }
        }
        if !digest.is_of(&whole) {
            return Err(damaged("its chunks don't match its digest"));
        }
        Ok(Bytes::from(whole))
    }
}

fn damaged(digest: &Digest, place: FramePosition, what: &str) -> StoreError {
    let (segment, offset) = (place.segment, u64::from(place.offset));
    StoreError::Damaged { segment, offset, what: format!("content {digest}: {what}") }
}
