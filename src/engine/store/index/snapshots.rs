//! Snapshots in the index. Occasionally one is stored whole, as a base; the others are patches of their session's last
//! base, so that each is read in two steps.

use std::collections::BTreeSet;
use std::sync::Arc;

use bytes::{Buf, Bytes};

use super::{SledIndex, guarded, key, part_key, patch};
use crate::engine::slice::EncodedSlice;
use crate::engine::store::decompress::decompressed;
use crate::engine::store::{Result, Snapshot, StoreError};
use crate::engine::{Seq, SessionId, Timestamp, lock};

const LEVEL: i32 = 1;
/// Rows of snapshots, by session and position.
const ROOT: u8 = b's';
/// Rows of bases, by number.
const BASE: u8 = b'b';
/// Ratio of base to patch size: a patch larger than this fraction of its base is stored as a new base instead.
const PATCH_PART: usize = 3;
/// Bytes before the value in a row's first part: the number of parts, and the CRC.
const PART_HEAD: usize = 8;

/// The number of the next base, and the most recently used base.
pub(super) struct Bases {
    next: u64,
    last: Option<Base>,
}

struct Base {
    session: SessionId,
    number: u64,
    /// Compressed bytes.
    size: usize,
    bytes: Bytes,
}

impl Bases {
    pub(super) fn read(db: &sled::Db) -> Result<Self> {
        let last = guarded(|| db.scan_prefix([BASE]).keys().next_back().transpose())?;
        let last = last.and_then(|key| number_of(key.get(1..)?));
        Ok(Self { next: last.map_or(0, |last| last.saturating_add(1)), last: None })
    }
}

impl SledIndex {
    pub(in crate::engine::store) fn put_snapshot(&self, snapshot: &Snapshot) -> Result<u64> {
        let bytes = Bytes::from(encoded(snapshot));
        let mut bases = lock(&self.bases);
        if bases.last.as_ref().is_none_or(|base| base.session != snapshot.session) {
            bases.last = self.last_base(snapshot.session)?;
        }
        if let Some(base) = &bases.last {
            let patch = patch::diff(&base.bytes, &bytes)?;
            if patch.len() <= base.size / PATCH_PART {
                return self.put_root(snapshot, base.number, &bytes, &patch);
            }
        }
        let (number, packed) = (bases.next, packed(&bytes)?);
        bases.next += 1;
        let base = Base { session: snapshot.session, number, size: packed.len(), bytes: bytes.clone() };
        let added = self.put_large(BASE, &number.to_be_bytes(), &packed)?;
        bases.last = Some(base);
        Ok(added + self.put_root(snapshot, number, &bytes, &[])?)
    }

    fn put_root(&self, snapshot: &Snapshot, base: u64, bytes: &[u8], patch: &[u8]) -> Result<u64> {
        let mut root = base.to_be_bytes().to_vec();
        root.extend_from_slice(&(bytes.len() as u64).to_le_bytes());
        // Also detects a wrong base, in case a crash left one row without the other.
        root.extend_from_slice(&crc32c::crc32c(bytes).to_le_bytes());
        root.extend_from_slice(patch);
        self.put_large(ROOT, &root_name(snapshot.session, snapshot.seq), &root)
    }

    fn last_base(&self, session: SessionId) -> Result<Option<Base>> {
        let Some(seq) = self.snapshots(session)?.last().copied() else { return Ok(None) };
        let Some(number) = self.base_number(session, seq)? else { return Ok(None) };
        let Some(packed) = self.get_large(BASE, &number.to_be_bytes())? else { return Ok(None) };
        Ok(unpacked(&packed).map(|bytes| Base { session, number, size: packed.len(), bytes }))
    }

    fn base_number(&self, session: SessionId, seq: Seq) -> Result<Option<u64>> {
        let row = guarded(|| self.db.get(part_key(ROOT, &root_name(session, seq), 0)))?;
        Ok(row.and_then(|row| number_of(row.get(PART_HEAD..)?)))
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
        let Some((number, length, crc, patch)) = root_of(&root) else { return Ok(None) };
        let base = self.get_large(BASE, &number.to_be_bytes())?.and_then(|packed| unpacked(&packed));
        let patched = |base: Bytes| match patch {
            [] => Some(base),
            patch => patch::apply(&base, patch, length).map(Bytes::from),
        };
        let bytes = base.and_then(patched);
        let whole = bytes.filter(|bytes| bytes.len() == length && crc32c::crc32c(bytes) == crc);
        Ok(whole.and_then(|bytes| decoded(session, seq, bytes)))
    }

    pub(in crate::engine::store) fn snapshots(&self, session: SessionId) -> Result<Vec<Seq>> {
        let prefix = key(ROOT, session.as_bytes());
        let keys = guarded(|| self.db.scan_prefix(&prefix).keys().collect::<Result<Vec<_>, _>>())?;
        // A snapshot's first row has part number 0.
        Ok(keys.iter().filter(|key| key.ends_with(&[0; 4])).filter_map(|key| number_of(key.get(17..)?)).collect())
    }

    /// Removes a snapshot. Its base remains for other patches; see [`sweep_bases`](Self::sweep_bases).
    pub(in crate::engine::store) fn drop_snapshot(&self, session: SessionId, seq: Seq) -> Result<()> {
        let name = root_name(session, seq);
        guarded(|| {
            for row in self.db.scan_prefix(key(ROOT, &name)).keys() {
                self.db.remove(row?)?;
            }
            Ok(())
        })
    }

    /// Removes bases without snapshots; returns the number of removed rows.
    pub(in crate::engine::store) fn sweep_bases(&self) -> Result<u64> {
        let mut bases = lock(&self.bases);
        let mut used = BTreeSet::new();
        for row in self.rows()? {
            for seq in self.snapshots(row.entry.id)? {
                used.extend(self.base_number(row.entry.id, seq)?);
            }
        }
        bases.last = None;
        guarded(|| {
            let mut swept = 0;
            for name in self.db.scan_prefix([BASE]).keys() {
                let name = name?;
                if name.get(1..).and_then(number_of).is_none_or(|number| !used.contains(&number)) {
                    self.db.remove(name)?;
                    swept += 1;
                }
            }
            Ok(swept)
        })
    }
}

/// Encodes a snapshot without its session and position.
#[cfg(feature = "nats")]
pub(in crate::engine::store) fn packed_snapshot(snapshot: &Snapshot) -> Result<Vec<u8>> {
    packed(&encoded(snapshot))
}

/// Decodes the output of [`packed_snapshot`]. `None` for other bytes.
#[cfg(feature = "nats")]
pub(in crate::engine::store) fn unpacked_snapshot(session: SessionId, seq: Seq, bytes: &[u8]) -> Option<Snapshot> {
    decoded(session, seq, unpacked(bytes)?)
}

/// Compresses bytes; their length precedes them.
fn packed(bytes: &[u8]) -> Result<Vec<u8>> {
    let failed = |error: std::io::Error| StoreError::Index(error.to_string());
    let mut packed = (bytes.len() as u64).to_le_bytes().to_vec();
    packed.extend_from_slice(&zstd::bulk::compress(bytes, LEVEL).map_err(failed)?);
    Ok(packed)
}

fn unpacked(packed: &[u8]) -> Option<Bytes> {
    let (length, frame) = packed.split_first_chunk()?;
    decompressed(frame, usize::try_from(u64::from_le_bytes(*length)).ok()?).map(Bytes::from)
}

fn root_name(session: SessionId, seq: Seq) -> Vec<u8> {
    [&session.as_bytes()[..], &seq.to_be_bytes()].concat()
}

fn number_of(bytes: &[u8]) -> Option<u64> {
    bytes.first_chunk().map(|number| u64::from_be_bytes(*number))
}

/// Returns the base number, the length and the CRC of the snapshot's bytes, and the patch.
fn root_of(mut root: &[u8]) -> Option<(u64, usize, u32, &[u8])> {
    let (number, length) = (root.try_get_u64().ok()?, root.try_get_u64_le().ok()?);
    let crc = root.try_get_u32_le().ok()?;
    Some((number, usize::try_from(length).ok()?, crc, root))
}

fn encoded(snapshot: &Snapshot) -> Vec<u8> {
    let mut bytes = Vec::new();
    bytes.extend_from_slice(&snapshot.time.0.to_le_bytes());
    bytes.extend_from_slice(&snapshot.unreadable.to_le_bytes());
    for slice in &snapshot.slices {
        bytes.push(u8::try_from(slice.name.len()).unwrap_or(u8::MAX));
        bytes.extend_from_slice(slice.name.as_bytes());
        bytes.extend_from_slice(&slice.version.to_le_bytes());
        bytes.extend_from_slice(&u32::try_from(slice.blocks.len()).unwrap_or(u32::MAX).to_le_bytes());
        for block in &slice.blocks {
            bytes.extend_from_slice(&(block.len() as u64).to_le_bytes());
            bytes.extend_from_slice(block);
        }
    }
    bytes
}

fn decoded(session: SessionId, seq: Seq, mut bytes: Bytes) -> Option<Snapshot> {
    let (time, unreadable) = (Timestamp(bytes.try_get_i64_le().ok()?), bytes.try_get_u64_le().ok()?);
    let mut slices = Vec::new();
    while !bytes.is_empty() {
        let name_len = u64::from(bytes.try_get_u8().ok()?);
        let name = Arc::from(std::str::from_utf8(&taken(&mut bytes, name_len)?).ok()?);
        let (version, count) = (bytes.try_get_u32_le().ok()?, bytes.try_get_u32_le().ok()?);
        let mut blocks = Vec::new();
        for _ in 0..count {
            let length = bytes.try_get_u64_le().ok()?;
            blocks.push(taken(&mut bytes, length)?);
        }
        slices.push(EncodedSlice { name, version, blocks });
    }
    Some(Snapshot { session, seq, time, unreadable, slices })
}

fn taken(bytes: &mut Bytes, length: u64) -> Option<Bytes> {
    let length = usize::try_from(length).ok().filter(|length| *length <= bytes.len())?;
    Some(bytes.split_to(length))
}

#[cfg(test)]
mod tests {
    use super::*;

    const RECORDS: usize = 4_000;
    const SESSION: SessionId = SessionId::from_bytes([3; 16]);

    /// Incompressible bytes.
    fn record(number: usize, version: u64) -> Vec<u8> {
        crate::engine::Digest::of(&[&number.to_le_bytes()[..], &version.to_le_bytes()].concat()).as_bytes().to_vec()
    }

    /// Snapshots of a growing history; each one changes a twentieth of the records.
    fn snapshots(count: u64) -> Vec<Snapshot> {
        let mut versions = vec![0; RECORDS];
        let mut taken = Vec::new();
        for seq in 1..=count {
            for step in 0..RECORDS as u64 / 20 {
                versions[(seq * 7_919 + step * 31) as usize % RECORDS] = seq;
            }
            let records = versions.iter().enumerate().map(|(number, version)| record(number, *version));
            let blocks: Vec<_> =
                records.collect::<Vec<_>>().chunks(64).map(|part| Bytes::from(part.concat())).collect();
            let slices = ["Records", "Others"].map(|name| (Arc::from(name), blocks_of(name, &blocks)));
            let slices = slices.map(|(name, blocks)| EncodedSlice { name, version: 2, blocks });
            taken.push(Snapshot { session: SESSION, seq, time: Timestamp(5), unreadable: 1, slices: slices.into() });
        }
        taken
    }

    fn blocks_of(name: &str, blocks: &[Bytes]) -> Vec<Bytes> {
        if name == "Records" { blocks.to_vec() } else { vec![Bytes::new(), Bytes::from_static(b"other")] }
    }

    fn stored(count: u64) -> (tempfile::TempDir, SledIndex, Vec<Snapshot>, Vec<u64>) {
        let directory = tempfile::tempdir().unwrap();
        let index = SledIndex::open(directory.path()).unwrap();
        let all = snapshots(count);
        let added = all.iter().map(|snapshot| index.put_snapshot(snapshot).unwrap()).collect();
        (directory, index, all, added)
    }

    fn base_of(index: &SledIndex, seq: Seq) -> u64 {
        index.base_number(SESSION, seq).unwrap().unwrap()
    }

    /// Changes a byte in the middle of each row below a key.
    fn damage(index: &SledIndex, prefix: u8, name: &[u8]) {
        for row in index.db.scan_prefix(key(prefix, name)) {
            let (key, value) = row.unwrap();
            let mut value = value.to_vec();
            let middle = value.len() / 2;
            value[middle] ^= 1;
            index.db.insert(key, value).unwrap();
        }
    }

    #[test]
    fn snapshots_come_back_after_the_next_opening() {
        let (directory, index, all, _) = stored(20);
        let check = |index: &SledIndex, all: &[Snapshot]| {
            all.iter().for_each(|snapshot| {
                assert_eq!(index.snapshot(SESSION, snapshot.seq).unwrap().as_ref(), Some(snapshot));
            });
        };
        check(&index, &all);
        drop(index);
        let index = SledIndex::open(directory.path()).unwrap();
        check(&index, &all);
        let same = Snapshot { seq: 21, ..all[19].clone() };
        let added = index.put_snapshot(&same).unwrap();
        assert!(added < 50_000, "{added} bytes: the base was not reused");
        assert_eq!(base_of(&index, 21), base_of(&index, 20));
        check(&index, &[same]);
    }

    #[test]
    fn patches_take_less_than_half_of_whole_snapshots() {
        let (_directory, index, _, added) = stored(40);
        let whole = added[0];
        let (total, bases) = (added.iter().sum::<u64>(), base_of(&index, 40) + 1);
        assert!(total * 5 < whole * 40 * 2, "{total} bytes, {whole} of one");
        assert!((3..20).contains(&bases), "{bases}");
        let rows = index.usage().unwrap();
        let stored = rows[&ROOT].1 + rows[&BASE].1;
        assert!(stored > total && stored < total * 11 / 10, "{stored} {total}");
    }

    #[test]
    fn patch_without_its_base_is_skipped() {
        let (_directory, index, all, _) = stored(20);
        let last = base_of(&index, 20);
        let before = all.iter().rev().find(|snapshot| base_of(&index, snapshot.seq) < last).unwrap();
        for row in index.db.scan_prefix(key(BASE, &last.to_be_bytes())).keys() {
            index.db.remove(row.unwrap()).unwrap();
        }
        assert_eq!(index.snapshot(SESSION, 20).unwrap().as_ref(), Some(before));
        // A different base under the same number is rejected.
        let other = packed(&Bytes::from(encoded(&all[0]))).unwrap();
        index.put_large(BASE, &last.to_be_bytes(), &other).unwrap();
        assert_eq!(index.snapshot(SESSION, 20).unwrap().as_ref(), Some(before));
    }

    #[test]
    fn damaged_patch_or_base_is_skipped() {
        let (directory, index, all, _) = stored(20);
        damage(&index, ROOT, &root_name(SESSION, 20));
        assert_eq!(index.snapshot(SESSION, 20).unwrap().as_ref(), Some(&all[18]));
        (0..=base_of(&index, 19)).for_each(|number| damage(&index, BASE, &number.to_be_bytes()));
        assert_eq!(index.snapshot(SESSION, 20).unwrap(), None);
        // The next snapshot is stored whole and is found.
        drop(index);
        let index = SledIndex::open(directory.path()).unwrap();
        index.put_snapshot(&snapshots(21)[20]).unwrap();
        assert!(index.snapshot(SESSION, 21).unwrap().is_some_and(|found| found.seq == 21));
    }
}
