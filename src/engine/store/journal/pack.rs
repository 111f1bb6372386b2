//! Packing of segments that are full.

use std::path::Path;

use zstd::bulk::Compressor;

use super::disk::JournalDisk;
use super::packed::{BLOCK, LEVEL, MAGIC};
use super::segment::{Segment, sync_directory};
use crate::engine::store::StoreError;

/// Packs the first `end` bytes of a sealed segment into `target`, durable before it has its name.
pub(crate) fn pack(disk: &dyn JournalDisk, segment: &Segment, end: u64, target: &Path) -> Result<(), StoreError> {
    pack_in(BLOCK, disk, segment, end, target)
}

pub(super) fn pack_in(
    block: usize,
    disk: &dyn JournalDisk,
    segment: &Segment,
    end: u64,
    target: &Path,
) -> Result<(), StoreError> {
    let unfinished = target.with_extension("tmp");
    let file = disk.create(&unfinished).map_err(StoreError::io("create", &unfinished))?;
    let mut compressor = Compressor::new(LEVEL).map_err(StoreError::io("compress", &unfinished))?;
    let mut written = 0;
    let mut table = Vec::new();
    let mut raw = vec![0; block];
    let mut offset = 0;
    while offset < end {
        let want = usize::try_from((end - offset).min(block as u64)).unwrap_or(block);
        if segment.read_at(offset, &mut raw[..want])? < want {
            let what = format!("ends before byte {end}");
            return Err(StoreError::Format { path: segment.path.clone(), what });
        }
        let packed = compressor.compress(&raw[..want]).map_err(StoreError::io("compress", &unfinished))?;
        file.write_all_at(&packed, written).map_err(StoreError::io("write", &unfinished))?;
        written += packed.len() as u64;
        table.extend_from_slice(&u32::try_from(packed.len()).unwrap_or(u32::MAX).to_le_bytes());
        offset += want as u64;
    }
    let blocks = u32::try_from(table.len() / 4).unwrap_or(u32::MAX);
    let mut tail = table.clone();
    let trailer_at = tail.len();
    tail.extend_from_slice(&end.to_le_bytes());
    tail.extend_from_slice(&blocks.to_le_bytes());
    tail.extend_from_slice(&crc32c::crc32c(&table).to_le_bytes());
    tail.extend_from_slice(&u32::try_from(block).unwrap_or(u32::MAX).to_le_bytes());
    let crc = crc32c::crc32c(&tail[trailer_at..]);
    tail.extend_from_slice(&crc.to_le_bytes());
    tail.extend_from_slice(MAGIC);
    file.write_all_at(&tail, written).map_err(StoreError::io("write", &unfinished))?;
    file.sync_all().map_err(StoreError::io("sync", &unfinished))?;
    disk.rename(&unfinished, target).map_err(StoreError::io("rename", &unfinished))?;
    target.parent().map_or(Ok(()), |directory| sync_directory(disk, directory))
}
