//! The disk under a journal: what the journal asks of a file system, so that tests can simulate one.

use std::fs::{DirBuilder, File, OpenOptions};
use std::io;
use std::os::unix::fs::{DirBuilderExt, FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

/// Opens, names and removes files.
///
/// Written bytes are durable after a sync of the file, and under its name after a sync of the directory.
pub(crate) trait JournalDisk: Send + Sync {
    /// Opens a file for reading.
    fn open(&self, path: &Path) -> io::Result<Box<dyn DiskFile>>;

    /// Opens a file for reading and writing.
    fn open_to_write(&self, path: &Path) -> io::Result<Box<dyn DiskFile>>;

    /// Creates an empty file for its owner only, or empties the one that is there.
    fn create(&self, path: &Path) -> io::Result<Box<dyn DiskFile>>;

    /// Creates a directory and those above it, where there are none, for their owner only and durable with their names.
    fn create_dir(&self, path: &Path) -> io::Result<()>;

    /// Gives a file another name, in the place of the one that has it.
    fn rename(&self, from: &Path, to: &Path) -> io::Result<()>;

    /// Removes a file.
    fn remove(&self, path: &Path) -> io::Result<()>;

    /// Says whether there is something of that name.
    fn exists(&self, path: &Path) -> bool;

    /// Lists what is in a directory, in no order.
    fn list(&self, directory: &Path) -> io::Result<Vec<PathBuf>>;

    /// Makes the names in a directory durable.
    fn sync_dir(&self, directory: &Path) -> io::Result<()>;
}

/// A file of a [`JournalDisk`], read and written by position.
pub(crate) trait DiskFile: Send + Sync {
    /// Reads some bytes; 0 only where the file ends.
    fn read_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<usize>;

    /// Appends some bytes to a buffer, not more than it has room for; 0 only where the file ends.
    fn read_more(&self, buffer: &mut Vec<u8>, offset: u64) -> io::Result<usize>;

    /// Writes all bytes.
    fn write_all_at(&self, bytes: &[u8], offset: u64) -> io::Result<()>;

    /// Sets aside the space up to `length`, and makes the file that long where it is shorter.
    fn allocate(&self, length: u64) -> io::Result<()>;

    /// Cuts the file, or makes it longer by zeros.
    fn set_len(&self, length: u64) -> io::Result<()>;

    /// Returns the file's length.
    fn len(&self) -> io::Result<u64>;

    /// Makes durable what was written, and the length where it grew.
    fn sync_data(&self) -> io::Result<()>;

    /// Makes everything about the file durable but its name.
    fn sync_all(&self) -> io::Result<()>;
}

/// Fills the buffer, as far as the file goes; gives how much there was.
pub(super) fn read_fully(file: &dyn DiskFile, offset: u64, buffer: &mut [u8]) -> io::Result<usize> {
    let mut filled = 0;
    while filled < buffer.len() {
        match file.read_at(&mut buffer[filled..], offset + filled as u64) {
            Ok(0) => break,
            Ok(count) => filled += count,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(filled)
}

/// Fills the buffer, or fails.
pub(super) fn read_exactly(file: &dyn DiskFile, offset: u64, buffer: &mut [u8]) -> io::Result<()> {
    let filled = read_fully(file, offset, buffer)?;
    if filled == buffer.len() { Ok(()) } else { Err(io::ErrorKind::UnexpectedEof.into()) }
}

/// Reads a whole file.
pub(crate) fn read_whole(disk: &dyn JournalDisk, path: &Path) -> io::Result<Vec<u8>> {
    let file = disk.open(path)?;
    let length = usize::try_from(file.len()?).map_err(|_| io::ErrorKind::FileTooLarge)?;
    let mut bytes = vec![0; length];
    let filled = read_fully(&*file, 0, &mut bytes)?;
    bytes.truncate(filled);
    Ok(bytes)
}

/// The file system of the machine.
pub(crate) struct OsDisk;

#[expect(clippy::disallowed_methods, reason = "the store is where files are")]
impl JournalDisk for OsDisk {
    fn open(&self, path: &Path) -> io::Result<Box<dyn DiskFile>> {
        Ok(Box::new(File::open(path)?))
    }

    fn open_to_write(&self, path: &Path) -> io::Result<Box<dyn DiskFile>> {
        Ok(Box::new(OpenOptions::new().read(true).write(true).open(path)?))
    }

    fn create(&self, path: &Path) -> io::Result<Box<dyn DiskFile>> {
        let mut options = OpenOptions::new();
        options.read(true).write(true).create(true).truncate(true).mode(0o600);
        Ok(Box::new(options.open(path)?))
    }

    fn create_dir(&self, path: &Path) -> io::Result<()> {
        if path.is_dir() {
            return Ok(());
        }
        let above = path.parent().filter(|above| !above.as_os_str().is_empty()).unwrap_or(Path::new("."));
        self.create_dir(above)?;
        match DirBuilder::new().mode(0o700).create(path) {
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists && path.is_dir() => {}
            made => made?,
        }
        match self.sync_dir(above) {
            // Where nobody may list what is there, there is no syncing it either.
            Err(error) if error.kind() == io::ErrorKind::PermissionDenied => Ok(()),
            synced => synced,
        }
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        std::fs::rename(from, to)
    }

    fn remove(&self, path: &Path) -> io::Result<()> {
        std::fs::remove_file(path)
    }

    fn exists(&self, path: &Path) -> bool {
        path.exists()
    }

    fn list(&self, directory: &Path) -> io::Result<Vec<PathBuf>> {
        std::fs::read_dir(directory)?.map(|entry| Ok(entry?.path())).collect()
    }

    fn sync_dir(&self, directory: &Path) -> io::Result<()> {
        File::open(directory)?.sync_all()
    }
}

impl DiskFile for File {
    fn read_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<usize> {
        FileExt::read_at(self, buffer, offset)
    }

    /// Reads into memory that was never cleared: a replay reads hundreds of megabytes.
    fn read_more(&self, buffer: &mut Vec<u8>, offset: u64) -> io::Result<usize> {
        Ok(rustix::io::pread(self, rustix::buffer::spare_capacity(buffer), offset)?)
    }

    fn write_all_at(&self, bytes: &[u8], offset: u64) -> io::Result<()> {
        FileExt::write_all_at(self, bytes, offset)
    }

    fn allocate(&self, length: u64) -> io::Result<()> {
        Ok(rustix::fs::fallocate(self, rustix::fs::FallocateFlags::empty(), 0, length)?)
    }

    fn set_len(&self, length: u64) -> io::Result<()> {
        File::set_len(self, length)
    }

    fn len(&self) -> io::Result<u64> {
        Ok(self.metadata()?.len())
    }

    fn sync_data(&self) -> io::Result<()> {
        File::sync_data(self)
    }

    fn sync_all(&self) -> io::Result<()> {
        File::sync_all(self)
    }
}
