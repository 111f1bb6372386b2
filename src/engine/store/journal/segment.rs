//! Segment files: preallocated, read by position, sealed, packed.

use std::path::{Path, PathBuf};

use super::disk::{DiskFile, JournalDisk, read_fully, read_whole};
use super::grouped::Grouped;
pub(crate) use super::trailer::HEADER;
use super::trailer::Trailer;
use crate::engine::store::{Result, StoreError};

pub(crate) const FIRST: u32 = 1;
const MAGIC: &[u8; 8] = b"FOLDSEG\n";
const VERSION: u32 = 1;

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub(crate) struct FramePosition {
    pub(crate) segment: u32,
    pub(crate) offset: u32,
}

impl FramePosition {
    pub(crate) fn new(segment: u32, offset: u64) -> Self {
        Self { segment, offset: u32::try_from(offset).unwrap_or(u32::MAX) }
    }

    pub(crate) fn first_in(segment: u32) -> Self {
        Self::new(segment, HEADER)
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct SegmentHead {
    pub(crate) number: u32,
    /// Identity of the journal; a segment of another store is rejected.
    pub(crate) journal: [u8; 16],
}

impl SegmentHead {
    pub(crate) fn encode(&self) -> [u8; HEADER as usize] {
        let mut bytes = [0; HEADER as usize];
        bytes[..8].copy_from_slice(MAGIC);
        bytes[8..12].copy_from_slice(&VERSION.to_le_bytes());
        bytes[12..16].copy_from_slice(&self.number.to_le_bytes());
        bytes[16..32].copy_from_slice(&self.journal);
        let crc = crc32c::crc32c(&bytes[..60]);
        bytes[60..].copy_from_slice(&crc.to_le_bytes());
        bytes
    }

    fn parse(bytes: &[u8; HEADER as usize]) -> Result<Self, String> {
        if &bytes[..8] != MAGIC {
            return Err("not a foldspace journal segment".to_owned());
        }
        let word = |at: usize| u32::from_le_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]]);
        if word(8) != VERSION {
            return Err(format!("written in format {}; this program reads format {VERSION}", word(8)));
        }
        if word(60) != crc32c::crc32c(&bytes[..60]) {
            return Err("the segment's head is damaged".to_owned());
        }
        let mut journal = [0; 16];
        journal.copy_from_slice(&bytes[16..32]);
        Ok(Self { number: word(12), journal })
    }
}

pub(crate) struct Segment {
    pub(crate) path: PathBuf,
    pub(crate) head: SegmentHead,
    bytes: Bytes,
}

enum Bytes {
    Raw(Box<dyn DiskFile>),
    Packed(Grouped),
}

pub(crate) fn raw_path(directory: &Path, number: u32) -> PathBuf {
    directory.join(format!("{number:08}.seg"))
}

pub(crate) fn packed_path(directory: &Path, number: u32) -> PathBuf {
    directory.join(format!("{number:08}.pak"))
}

impl Segment {
    /// Creates a segment with `capacity` preallocated bytes. The file and its name are durable.
    pub(crate) fn create(disk: &dyn JournalDisk, directory: &Path, head: SegmentHead, capacity: u64) -> Result<Self> {
        let path = raw_path(directory, head.number);
        let file = disk.create(&path).map_err(StoreError::io("create", &path))?;
        preallocate(&*file, capacity);
        file.write_all_at(&head.encode(), 0).map_err(StoreError::io("write", &path))?;
        file.sync_all().map_err(StoreError::io("sync", &path))?;
        sync_directory(disk, directory)?;
        Ok(Self { path, head, bytes: Bytes::Raw(file) })
    }

    pub(crate) fn open(disk: &dyn JournalDisk, directory: &Path, number: u32, writable: bool) -> Result<Self> {
        let packed = packed_path(directory, number);
        if disk.exists(&packed) {
            let opened = open_packed(disk, &packed)?;
            return Self::checked(packed, number, opened);
        }
        let path = raw_path(directory, number);
        let file = if writable { disk.open_to_write(&path) } else { disk.open(&path) };
        Self::checked(path.clone(), number, Bytes::Raw(file.map_err(StoreError::io("open", &path))?))
    }

    /// Opens a segment with a damaged head or table, using `head` instead. `None` if the file's own head is intact and
    /// differs, or has a newer format.
    pub(crate) fn salvage(disk: &dyn JournalDisk, directory: &Path, head: SegmentHead) -> Result<Option<Self>> {
        let (mut path, packed) = (raw_path(directory, head.number), packed_path(directory, head.number));
        let bytes = if disk.exists(&packed) {
            path = packed;
            open_packed(disk, &path).or_else(|_| salvage_packed(disk, &path))?
        } else {
            Bytes::Raw(disk.open(&path).map_err(StoreError::io("open", &path))?)
        };
        let segment = Self { path, head, bytes };
        let mut found = [0; HEADER as usize];
        let whole = segment.read_at(0, &mut found)? == found.len() && SegmentHead::parse(&found).is_ok();
        let newer = found.starts_with(MAGIC) && found[8..12] != VERSION.to_le_bytes();
        let ours = !newer && (!whole || found == head.encode());
        Ok(ours.then_some(segment))
    }

    fn checked(path: PathBuf, number: u32, bytes: Bytes) -> Result<Self> {
        let unnamed = SegmentHead { number, journal: [0; 16] };
        let mut segment = Self { path, head: unnamed, bytes };
        let mut head = [0; HEADER as usize];
        let wrong = |what: String| StoreError::Format { path: segment.path.clone(), what };
        if segment.read_at(0, &mut head)? < head.len() {
            return Err(wrong("the segment ends inside its head".to_owned()));
        }
        let parsed = SegmentHead::parse(&head).map_err(wrong)?;
        if parsed.number != number {
            return Err(wrong(format!("contains segment {}; was it renamed?", parsed.number)));
        }
        segment.head = parsed;
        Ok(segment)
    }

    pub(crate) fn read_at(&self, offset: u64, buffer: &mut [u8]) -> Result<usize> {
        match &self.bytes {
            Bytes::Packed(packed) => packed.read_at(offset, buffer),
            Bytes::Raw(file) => read_fully(&**file, offset, buffer).map_err(StoreError::io("read", &self.path)),
        }
    }

    /// Reads about `count` bytes from `offset` on, up to the end of the segment.
    pub(crate) fn read_up_to(&self, offset: u64, count: usize) -> Result<Vec<u8>> {
        let mut buffer = Vec::with_capacity(count);
        match &self.bytes {
            Bytes::Packed(_) => {
                buffer.resize(count, 0);
                let filled = self.read_at(offset, &mut buffer)?;
                buffer.truncate(filled);
            }
            Bytes::Raw(file) => {
                while buffer.len() < count {
                    let at = offset + buffer.len() as u64;
                    match file.read_more(&mut buffer, at) {
                        Ok(0) => break,
                        Ok(_) => {}
                        Err(error) if error.kind() == std::io::ErrorKind::Interrupted => {}
                        Err(error) => return Err(StoreError::io("read", &self.path)(error)),
                    }
                }
            }
        }
        Ok(buffer)
    }

    pub(crate) fn len(&self) -> Result<u64> {
        match &self.bytes {
            Bytes::Packed(packed) => Ok(packed.raw_len()),
            Bytes::Raw(file) => file.len().map_err(StoreError::io("inspect", &self.path)),
        }
    }

    pub(crate) fn is_packed(&self) -> bool {
        !matches!(self.bytes, Bytes::Raw(_))
    }

    /// Returns the bytes of a packed segment, whose frames are grouped by session.
    pub(crate) fn grouped(&self) -> Option<&Grouped> {
        match &self.bytes {
            Bytes::Packed(grouped) => Some(grouped),
            Bytes::Raw(_) => None,
        }
    }

    pub(crate) fn write(&self, offset: u64, bytes: &[u8]) -> Result<()> {
        self.raw()?.write_all_at(bytes, offset).map_err(StoreError::io("write", &self.path))
    }

    pub(crate) fn sync(&self) -> Result<()> {
        self.raw()?.sync_data().map_err(StoreError::io("sync", &self.path))
    }

    /// Makes the head and the bytes between two offsets durable by rewriting them: after a failed sync the kernel
    /// treats unwritten pages as clean, so another sync would not write them.
    pub(crate) fn make_durable(&self, from: u64, end: u64) -> Result<()> {
        const AT_ONCE: u64 = 1 << 20;
        self.write(0, &self.read_up_to(0, HEADER as usize)?)?;
        for at in (from..end).step_by(AT_ONCE as usize) {
            let count = usize::try_from((end - at).min(AT_ONCE)).unwrap_or(0);
            self.write(at, &self.read_up_to(at, count)?)?;
        }
        self.sync()
    }

    /// Truncates the file at `end` and preallocates up to `capacity` again.
    pub(crate) fn truncate(&self, end: u64, capacity: u64) -> Result<()> {
        let file = self.raw()?;
        file.set_len(end).map_err(StoreError::io("cut", &self.path))?;
        if capacity > end {
            preallocate(file, capacity);
        }
        file.sync_all().map_err(StoreError::io("sync", &self.path))
    }

    fn raw(&self) -> Result<&dyn DiskFile> {
        match &self.bytes {
            Bytes::Raw(file) => Ok(&**file),
            Bytes::Packed(_) => {
                let what = "a packed segment is never written".to_owned();
                Err(StoreError::Format { path: self.path.clone(), what })
            }
        }
    }
}

fn open_packed(disk: &dyn JournalDisk, path: &Path) -> Result<Bytes> {
    let file = disk.open(path).map_err(StoreError::io("open", path))?;
    let trailer = Trailer::read(&*file, path)?;
    Grouped::open(path, file, &trailer).map(Bytes::Packed)
}

fn salvage_packed(disk: &dyn JournalDisk, path: &Path) -> Result<Bytes> {
    let bytes = read_whole(disk, path).map_err(StoreError::io("read", path))?;
    let file = disk.open(path).map_err(StoreError::io("open", path))?;
    Ok(Bytes::Packed(Grouped::salvage(path, file, &bytes)))
}

/// Preallocates space if the file system supports it; without it, appends are only slower.
fn preallocate(file: &dyn DiskFile, capacity: u64) {
    for capacity in [capacity, capacity / 16] {
        if file.allocate(capacity).is_ok() {
            return;
        }
    }
}

pub(crate) fn sync_directory(disk: &dyn JournalDisk, directory: &Path) -> Result<()> {
    disk.sync_dir(directory).map_err(StoreError::io("sync", directory))
}

/// Replaces a file atomically and durably.
pub(crate) fn put_file(disk: &dyn JournalDisk, path: &Path, bytes: &[u8]) -> Result<()> {
    let unfinished = path.with_extension("tmp");
    let file = disk.create(&unfinished).map_err(StoreError::io("create", &unfinished))?;
    file.write_all_at(bytes, 0).map_err(StoreError::io("write", &unfinished))?;
    file.sync_all().map_err(StoreError::io("sync", &unfinished))?;
    disk.rename(&unfinished, path).map_err(StoreError::io("rename", &unfinished))?;
    sync_directory(disk, path.parent().unwrap_or(path))
}

pub(crate) fn torn_directory(disk: &dyn JournalDisk, store: &Path) -> Result<PathBuf> {
    let torn = store.join("torn");
    disk.create_dir(&torn).map_err(StoreError::io("create", &torn))?;
    sync_directory(disk, store)?;
    Ok(torn)
}

pub(crate) fn list(disk: &dyn JournalDisk, directory: &Path) -> Result<Vec<u32>> {
    let mut numbers = Vec::new();
    for path in disk.list(directory).map_err(StoreError::io("list", directory))? {
        let name = path.file_name().and_then(|name| name.to_str());
        let digits = name.and_then(|name| name.strip_suffix(".seg").or(name.strip_suffix(".pak")));
        let number = digits.and_then(|digits| digits.parse::<u32>().ok().filter(|n| format!("{n:08}") == digits));
        numbers.extend(number.filter(|number| *number >= FIRST));
    }
    numbers.sort_unstable();
    numbers.dedup();
    Ok(numbers)
}

/// Removes the leftovers of interrupted packing: unfinished files, and raw segments that are already packed.
pub(crate) fn clear_unfinished(disk: &dyn JournalDisk, directory: &Path) -> Result<()> {
    for path in disk.list(directory).map_err(StoreError::io("list", directory))? {
        let is_packed = path.extension() == Some("seg".as_ref()) && disk.exists(&path.with_extension("pak"));
        if is_packed {
            // The packing may have been interrupted before the packed file's name was durable.
            sync_directory(disk, directory)?;
        }
        if is_packed || path.extension() == Some("tmp".as_ref()) {
            disk.remove(&path).map_err(StoreError::io("remove", &path))?;
        }
    }
    Ok(())
}
