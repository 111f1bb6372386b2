//! Segment files: created preallocated, read by position, sealed, packed.

use std::path::{Path, PathBuf};

use super::disk::{DiskFile, JournalDisk, read_fully};
use super::packed::Packed;
use crate::engine::store::StoreError;

/// Bytes of a segment's header; frames follow.
pub(crate) const HEADER: u64 = 64;
/// The first segment's number.
pub(crate) const FIRST: u32 = 1;
const MAGIC: &[u8; 8] = b"FOLDSEG\n";
const VERSION: u32 = 1;

/// Offset of a segment's first frame.
pub(crate) fn header() -> u32 {
    u32::try_from(HEADER).unwrap_or(u32::MAX)
}

/// A frame's position in the journal.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub(crate) struct FramePosition {
    pub(crate) segment: u32,
    pub(crate) offset: u32,
}

/// The head of a segment file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct SegmentHead {
    pub(crate) number: u32,
    /// Identity of the journal: a segment of another store is refused.
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

/// An open segment.
pub(crate) struct Segment {
    pub(crate) path: PathBuf,
    pub(crate) head: SegmentHead,
    bytes: Bytes,
}

enum Bytes {
    Raw(Box<dyn DiskFile>),
    Packed(Packed),
}

/// Returns the file name of a segment that has not been packed.
pub(crate) fn raw_path(directory: &Path, number: u32) -> PathBuf {
    directory.join(format!("{number:08}.seg"))
}

/// Returns the file name of a segment that has been packed.
pub(crate) fn packed_path(directory: &Path, number: u32) -> PathBuf {
    directory.join(format!("{number:08}.pak"))
}

impl Segment {
    /// Creates a segment with `capacity` bytes set aside on the disk, durable with its name.
    pub(crate) fn create(
        disk: &dyn JournalDisk,
        directory: &Path,
        head: SegmentHead,
        capacity: u64,
    ) -> Result<Self, StoreError> {
        let path = raw_path(directory, head.number);
        let file = disk.create(&path).map_err(StoreError::io("create", &path))?;
        preallocate(&*file, capacity);
        file.write_all_at(&head.encode(), 0).map_err(StoreError::io("write", &path))?;
        file.sync_all().map_err(StoreError::io("sync", &path))?;
        sync_directory(disk, directory)?;
        Ok(Self { path, head, bytes: Bytes::Raw(file) })
    }

    /// Opens the segment of that number, raw or packed.
    pub(crate) fn open(
        disk: &dyn JournalDisk,
        directory: &Path,
        number: u32,
        writable: bool,
    ) -> Result<Self, StoreError> {
        let packed = packed_path(directory, number);
        if disk.exists(&packed) {
            let opened = Packed::open(disk, &packed)?;
            return Self::checked(packed, number, Bytes::Packed(opened));
        }
        let path = raw_path(directory, number);
        let file = if writable { disk.open_to_write(&path) } else { disk.open(&path) };
        Self::checked(path.clone(), number, Bytes::Raw(file.map_err(StoreError::io("open", &path))?))
    }

    /// Opens a segment whose head or table is damaged, as one with that head; none when it is whole and not
    /// what its name says, or of a newer format.
    pub(crate) fn salvage(
        disk: &dyn JournalDisk,
        directory: &Path,
        head: SegmentHead,
    ) -> Result<Option<Self>, StoreError> {
        let (mut path, packed) = (raw_path(directory, head.number), packed_path(directory, head.number));
        let bytes = if disk.exists(&packed) {
            path = packed;
            Bytes::Packed(Packed::open(disk, &path).or_else(|_| Packed::salvage(disk, &path))?)
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

    fn checked(path: PathBuf, number: u32, bytes: Bytes) -> Result<Self, StoreError> {
        let unnamed = SegmentHead { number, journal: [0; 16] };
        let mut segment = Self { path, head: unnamed, bytes };
        let mut head = [0; HEADER as usize];
        let wrong = |what: String| StoreError::Format { path: segment.path.clone(), what };
        if segment.read_at(0, &mut head)? < head.len() {
            return Err(wrong("the segment ends within its head".to_owned()));
        }
        let parsed = SegmentHead::parse(&head).map_err(wrong)?;
        if parsed.number != number {
            return Err(wrong(format!("holds segment {}; was it renamed?", parsed.number)));
        }
        segment.head = parsed;
        Ok(segment)
    }

    /// Fills `buffer` from `offset`, as far as the segment goes; gives how much there was.
    pub(crate) fn read_at(&self, offset: u64, buffer: &mut [u8]) -> Result<usize, StoreError> {
        match &self.bytes {
            Bytes::Packed(packed) => packed.read_at(offset, buffer),
            Bytes::Raw(file) => read_fully(&**file, offset, buffer).map_err(StoreError::io("read", &self.path)),
        }
    }

    /// Returns the bytes from `offset` on, about `count` of them, as far as the segment goes.
    pub(crate) fn read_up_to(&self, offset: u64, count: usize) -> Result<Vec<u8>, StoreError> {
        let mut buffer = Vec::with_capacity(count);
        match &self.bytes {
            Bytes::Packed(packed) => {
                buffer.resize(count, 0);
                let filled = packed.read_at(offset, &mut buffer)?;
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

    /// Returns how many bytes can be read, preallocated ones included.
    pub(crate) fn len(&self) -> Result<u64, StoreError> {
        match &self.bytes {
            Bytes::Packed(packed) => Ok(packed.raw_len()),
            Bytes::Raw(file) => file.len().map_err(StoreError::io("inspect", &self.path)),
        }
    }

    pub(crate) fn is_packed(&self) -> bool {
        matches!(self.bytes, Bytes::Packed(_))
    }

    /// Writes and syncs; the segment must be raw.
    pub(crate) fn write(&self, offset: u64, bytes: &[u8]) -> Result<(), StoreError> {
        self.raw()?.write_all_at(bytes, offset).map_err(StoreError::io("write", &self.path))
    }

    pub(crate) fn sync(&self) -> Result<(), StoreError> {
        self.raw()?.sync_data().map_err(StoreError::io("sync", &self.path))
    }

    /// Makes the head durable and what is between two positions. It is written again: where a sync has failed before,
    /// what it left unwritten can be read, counts as written, and another sync does nothing about it.
    pub(crate) fn make_durable(&self, from: u64, end: u64) -> Result<(), StoreError> {
        const AT_ONCE: u64 = 1 << 20;
        self.write(0, &self.read_up_to(0, HEADER as usize)?)?;
        for at in (from..end).step_by(AT_ONCE as usize) {
            let count = usize::try_from((end - at).min(AT_ONCE)).unwrap_or(0);
            self.write(at, &self.read_up_to(at, count)?)?;
        }
        self.sync()
    }

    /// Cuts everything from `end` on, and sets `capacity` bytes aside again.
    pub(crate) fn truncate(&self, end: u64, capacity: u64) -> Result<(), StoreError> {
        let file = self.raw()?;
        file.set_len(end).map_err(StoreError::io("cut", &self.path))?;
        if capacity > end {
            preallocate(file, capacity);
        }
        file.sync_all().map_err(StoreError::io("sync", &self.path))
    }

    fn raw(&self) -> Result<&dyn DiskFile, StoreError> {
        match &self.bytes {
            Bytes::Raw(file) => Ok(&**file),
            Bytes::Packed(_) => {
                let what = "a packed segment is never written".to_owned();
                Err(StoreError::Format { path: self.path.clone(), what })
            }
        }
    }
}

/// Sets space aside where the file system can; where it can't, appends are slower and still right.
fn preallocate(file: &dyn DiskFile, capacity: u64) {
    for capacity in [capacity, capacity / 16] {
        if file.allocate(capacity).is_ok() {
            return;
        }
    }
}

/// Makes the names in a directory durable.
pub(crate) fn sync_directory(disk: &dyn JournalDisk, directory: &Path) -> Result<(), StoreError> {
    disk.sync_dir(directory).map_err(StoreError::io("sync", directory))
}

/// Puts a file of these bytes in the place of the one of that name, durable with its name.
pub(crate) fn put_file(disk: &dyn JournalDisk, path: &Path, bytes: &[u8]) -> Result<(), StoreError> {
    let unfinished = path.with_extension("tmp");
    let file = disk.create(&unfinished).map_err(StoreError::io("create", &unfinished))?;
    file.write_all_at(bytes, 0).map_err(StoreError::io("write", &unfinished))?;
    file.sync_all().map_err(StoreError::io("sync", &unfinished))?;
    disk.rename(&unfinished, path).map_err(StoreError::io("rename", &unfinished))?;
    sync_directory(disk, path.parent().unwrap_or(path))
}

/// Returns the store's directory for what is set aside, made and durable.
pub(crate) fn torn_directory(disk: &dyn JournalDisk, store: &Path) -> Result<PathBuf, StoreError> {
    let torn = store.join("torn");
    disk.create_dir(&torn).map_err(StoreError::io("create", &torn))?;
    sync_directory(disk, store)?;
    Ok(torn)
}

/// Lists the numbers of the segments in a journal's directory, in order.
pub(crate) fn list(disk: &dyn JournalDisk, directory: &Path) -> Result<Vec<u32>, StoreError> {
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

/// Removes what a cut-off packing left: unfinished files, and raw segments that are packed already.
pub(crate) fn clear_unfinished(disk: &dyn JournalDisk, directory: &Path) -> Result<(), StoreError> {
    for path in disk.list(directory).map_err(StoreError::io("list", directory))? {
        let is_packed = path.extension() == Some("seg".as_ref()) && disk.exists(&path.with_extension("pak"));
        if is_packed {
            // The packing may have been cut off before that name was durable.
            sync_directory(disk, directory)?;
        }
        if is_packed || path.extension() == Some("tmp".as_ref()) {
            disk.remove(&path).map_err(StoreError::io("remove", &path))?;
        }
    }
    Ok(())
}
