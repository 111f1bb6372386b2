//! The disk under a journal: the file system operations that it needs, as traits that tests can simulate.

use std::fs::{DirBuilder, File, OpenOptions};
use std::io;
use std::os::unix::fs::{DirBuilderExt, FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

/// Opens, names and removes files. A sync of the file makes its bytes durable; a sync of the directory makes its name
/// durable.
#[doc(hidden)]
pub trait JournalDisk: Send + Sync {
    fn open(&self, path: &Path) -> io::Result<Box<dyn DiskFile>>;

    fn open_to_write(&self, path: &Path) -> io::Result<Box<dyn DiskFile>>;

    /// Creates an empty file that only its owner can access, or truncates the existing file.
    fn create(&self, path: &Path) -> io::Result<Box<dyn DiskFile>>;

    /// Creates missing directories that only their owner can access; their names are durable.
    fn create_dir(&self, path: &Path) -> io::Result<()>;

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()>;

    fn remove(&self, path: &Path) -> io::Result<()>;

    fn exists(&self, path: &Path) -> bool;

    fn list(&self, directory: &Path) -> io::Result<Vec<PathBuf>>;

    fn sync_dir(&self, directory: &Path) -> io::Result<()>;
}

#[doc(hidden)]
#[expect(clippy::len_without_is_empty, reason = "a file is no collection")]
pub trait DiskFile: Send + Sync {
    /// Reads some bytes; 0 only at the end of the file.
    fn read_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<usize>;

    /// Appends at most as many bytes as the buffer has spare capacity; 0 only at the end of the file.
    fn read_more(&self, buffer: &mut Vec<u8>, offset: u64) -> io::Result<usize>;

    fn write_all_at(&self, bytes: &[u8], offset: u64) -> io::Result<()>;

    /// Allocates space up to `length`, and extends a shorter file.
    fn allocate(&self, length: u64) -> io::Result<()>;

    fn set_len(&self, length: u64) -> io::Result<()>;

    fn len(&self) -> io::Result<u64>;

    fn sync_data(&self) -> io::Result<()>;

    fn sync_all(&self) -> io::Result<()>;
}

/// Fills the buffer, or reads up to the end of the file; returns the number of bytes.
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

pub(super) fn read_exactly(file: &dyn DiskFile, offset: u64, buffer: &mut [u8]) -> io::Result<()> {
    let filled = read_fully(file, offset, buffer)?;
    if filled == buffer.len() { Ok(()) } else { Err(io::ErrorKind::UnexpectedEof.into()) }
}

pub(crate) fn read_whole(disk: &dyn JournalDisk, path: &Path) -> io::Result<Vec<u8>> {
    let file = disk.open(path)?;
    let length = usize::try_from(file.len()?).map_err(|_| io::ErrorKind::FileTooLarge)?;
    let mut bytes = vec![0; length];
    let filled = read_fully(&*file, 0, &mut bytes)?;
    bytes.truncate(filled);
    Ok(bytes)
}

pub(crate) struct OsDisk;

#[expect(clippy::disallowed_methods, reason = "the store accesses files directly")]
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
            // A directory that can't be listed can't be synced.
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

    /// Reads into uninitialized memory, because a replay reads hundreds of megabytes.
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
