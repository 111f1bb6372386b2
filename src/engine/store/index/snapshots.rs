//! Snapshots in the index. Blocks are compressed, those that are the same are kept once, and the new ones of a snapshot
//! lie side by side: a snapshot is read from few pages.

use std::collections::BTreeSet;
use std::sync::Arc;

use bytes::{Buf, Bytes};

use super::{SledIndex, guarded, key, part_key};
use crate::engine::slice::EncodedSlice;
use crate::engine::store::decompress::decompressed;
use crate::engine::store::{Result, Snapshot, StoreError};
use crate::engine::{Digest, Seq, SessionId, Timestamp, lock};

const LEVEL: i32 = 1;
/// Rows of snapshots, by session and position.
const ROOT: u8 = b's';
/// Rows of blocks, by number.
const BLOCK: u8 = b'b';
/// Rows of block numbers, by digest.
const NUMBER: u8 = b'n';

pub(super) fn next_block(db: &sled::Db) -> Result<u64> {
    let last = guarded(|| db.scan_prefix([BLOCK]).keys().next_back().transpose())?;
    Ok(last.and_then(|key| number_of(key.get(1..)?)).map_or(0, |last| last.saturating_add(1)))
}

impl SledIndex {
    pub(in crate::engine::store) fn put_snapshot(&self, snapshot: &Snapshot) -> Result<u64> {
        let mut next = lock(&self.next_block);
        let mut root = Vec::new();
        root.extend_from_slice(&snapshot.time.0.to_le_bytes());
        root.extend_from_slice(&snapshot.unreadable.to_le_bytes());
        let mut added = 0;
        for slice in &snapshot.slices {
            root.push(u8::try_from(slice.name.len()).unwrap_or(u8::MAX));
            root.extend_from_slice(slice.name.as_bytes());
            root.extend_from_slice(&slice.version.to_le_bytes());
            root.extend_from_slice(&u32::try_from(slice.blocks.len()).unwrap_or(u32::MAX).to_le_bytes());
            for block in &slice.blocks {
                let (number, new) = self.put_block(block, &mut next)?;
                root.extend_from_slice(&number.to_be_bytes());
                added += new;
            }
        }
        Ok(added + self.put_large(ROOT, &root_name(snapshot.session, snapshot.seq), &root)?)
    }

    fn put_block(&self, block: &[u8], next: &mut u64) -> Result<(u64, u64)> {
        let name = key(NUMBER, Digest::of(block).as_bytes());
        if let Some(number) = guarded(|| self.db.get(&name))?.as_deref().and_then(number_of) {
            return Ok((number, 0));
        }
        let number = *next;
        *next += 1;
        let added = self.put_large(BLOCK, &number.to_be_bytes(), &packed(block)?)?;
        guarded(|| self.db.insert(name, &number.to_be_bytes()))?;
        Ok((number, added))
    }

    /// Returns the latest complete snapshot at or before `seq`.
    pub(in crate::engine::store) fn snapshot(&self, session: SessionId, seq: Seq) -> Result<Option<Snapshot>> {
        let (first, last) = (key(ROOT, &root_name(session, 0)), part_key(ROOT, &root_name(session, seq), 0));
        let mut keys = self.db.range(first..=last).keys();
        while let Some(name) = guarded(|| keys.next_back().transpose())? {
            let at = name.strip_suffix(&[0; 4]).and_then(|name| number_of(name.get(17..)?));
            if let Some(at) = at
                && let Some(snapshot) = self.snapshot_at(session, at)?
            {
                return Ok(Some(snapshot));
            }
        }
        Ok(None)
    }

    fn snapshot_at(&self, session: SessionId, seq: Seq) -> Result<Option<Snapshot>> {
        let Some(root) = self.get_large(ROOT, &root_name(session, seq))? else { return Ok(None) };
        let Some((time, unreadable, slices)) = root_of(&root) else { return Ok(None) };
        let mut snapshot = Snapshot { session, seq, time, unreadable, slices: Vec::new() };
        for (name, version, numbers) in slices {
            let mut blocks = Vec::with_capacity(numbers.len());
            for number in numbers {
                match self.get_large(BLOCK, &number.to_be_bytes())?.and_then(|packed| unpacked(&packed)) {
                    Some(block) => blocks.push(block),
                    None => return Ok(None),
                }
            }
            snapshot.slices.push(EncodedSlice { name, version, blocks });
        }
        Ok(Some(snapshot))
    }

    pub(in crate::engine::store) fn snapshots(&self, session: SessionId) -> Result<Vec<Seq>> {
        let prefix = key(ROOT, session.as_bytes());
        let keys = guarded(|| self.db.scan_prefix(&prefix).keys().collect::<Result<Vec<_>, _>>())?;
        // A snapshot's first row has part number 0.
        Ok(keys.iter().filter(|key| key.ends_with(&[0; 4])).filter_map(|key| number_of(key.get(17..)?)).collect())
    }

    pub(in crate::engine::store) fn drop_snapshot(&self, session: SessionId, seq: Seq) -> Result<()> {
        let name = root_name(session, seq);
        guarded(|| {
            for row in self.db.scan_prefix(key(ROOT, &name)).keys() {
                self.db.remove(row?)?;
            }
            Ok(())
        })
    }

    pub(in crate::engine::store) fn sweep_blocks(&self) -> Result<u64> {
        let _held = lock(&self.next_block);
        let mut used = BTreeSet::new();
        for row in self.rows()? {
            for seq in self.snapshots(row.entry.id)? {
                let root = self.get_large(ROOT, &root_name(row.entry.id, seq))?;
                let slices = root.as_ref().and_then(|root| root_of(root));
                used.extend(slices.into_iter().flat_map(|(_, _, slices)| slices).flat_map(|(_, _, numbers)| numbers));
            }
        }
        let unused = |number: Option<u64>| number.is_none_or(|number| !used.contains(&number));
        guarded(|| {
            // A number must not outlive its block.
            for row in self.db.scan_prefix([NUMBER]) {
                let (name, number) = row?;
                if unused(number_of(&number)) {
                    self.db.remove(name)?;
                }
            }
            let mut swept = 0;
            for name in self.db.scan_prefix([BLOCK]).keys() {
                let name = name?;
                if unused(name.get(1..).and_then(number_of)) {
                    self.db.remove(name)?;
                    swept += 1;
                }
            }
            Ok(swept)
        })
    }
}

/// Compresses a block; its length precedes it.
fn packed(block: &[u8]) -> Result<Vec<u8>> {
    let failed = |error: std::io::Error| StoreError::Index(error.to_string());
    let mut packed = u32::try_from(block.len()).unwrap_or(u32::MAX).to_le_bytes().to_vec();
    packed.extend_from_slice(&zstd::bulk::compress(block, LEVEL).map_err(failed)?);
    Ok(packed)
}

fn unpacked(packed: &[u8]) -> Option<Bytes> {
    let (length, frame) = packed.split_first_chunk()?;
    decompressed(frame, usize::try_from(u32::from_le_bytes(*length)).ok()?).map(Bytes::from)
}

fn root_name(session: SessionId, seq: Seq) -> Vec<u8> {
    [&session.as_bytes()[..], &seq.to_be_bytes()].concat()
}

fn number_of(bytes: &[u8]) -> Option<u64> {
    bytes.first_chunk().map(|number| u64::from_be_bytes(*number))
}

type SnapshotRoot = (Timestamp, u64, Vec<(Arc<str>, u32, Vec<u64>)>);

fn root_of(mut root: &[u8]) -> Option<SnapshotRoot> {
    let (time, unreadable) = (Timestamp(root.try_get_i64_le().ok()?), root.try_get_u64_le().ok()?);
    let mut slices = Vec::new();
    while let Some(name_len) = root.split_off_first() {
        let name = std::str::from_utf8(root.split_off(..usize::from(*name_len))?).ok()?;
        let (version, count) = (root.try_get_u32_le().ok()?, root.try_get_u32_le().ok()?);
        let numbers = root.split_off(..usize::try_from(count).ok()?.checked_mul(8)?)?.as_chunks().0;
        slices.push((Arc::from(name), version, numbers.iter().map(|number| u64::from_be_bytes(*number)).collect()));
    }
    Some((time, unreadable, slices))
}
