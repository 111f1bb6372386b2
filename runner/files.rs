//! File operations below the root, without a process. Links are followed as long as they stay inside.

use std::ffi::CString;
use std::fs::{self, File, Metadata, OpenOptions, Permissions};
use std::io::{self, Read, Write};
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{FileExt, MetadataExt, OpenOptionsExt, PermissionsExt, fchown};
use std::path::{Path, PathBuf};

use crate::sys::{
    EXDEV, O_APPEND, O_CREAT, O_DIRECTORY, O_NOFOLLOW, O_NONBLOCK, O_PATH, O_WRONLY, exchange, open_beneath,
};
use crate::wire::{Entry, EntryKind, Failure, MAX_FRAME, MAX_PIECE, Reply, WriteMode};

/// Bytes of a path.
const PATH_MAX: usize = 4096;
/// Bytes that a frame needs around an entry's name.
const ENTRY_BYTES: usize = 32;

/// Why a file operation was not done.
pub(crate) struct Refused {
    pub(crate) kind: Failure,
    pub(crate) errno: i32,
    pub(crate) message: String,
}

impl Refused {
    pub(crate) fn new(kind: Failure, message: impl Into<String>) -> Self {
        Self { kind, errno: 0, message: message.into() }
    }

    pub(crate) fn io(doing: &str, path: &[u8], error: &io::Error) -> Self {
        let errno = error.raw_os_error().unwrap_or(0);
        let shown = String::from_utf8_lossy(path);
        match errno {
            EXDEV => Self { kind: Failure::Outside, errno, message: format!("{shown:?} leads out of the root") },
            _ => Self { kind: Failure::Io, errno, message: format!("cannot {doing} {shown:?}: {error}") },
        }
    }
}

/// The directory that operations stay in. It is opened anew each time, because a mount may have covered it.
pub(crate) struct Root {
    path: PathBuf,
}

impl Root {
    pub(crate) fn new(path: PathBuf) -> Self {
        Self { path }
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// Opens a directory below the root, to be entered.
    pub(crate) fn directory(&self, path: &[u8]) -> Result<OwnedFd, Refused> {
        self.open(path, O_PATH | O_DIRECTORY, 0, "open")
    }

    /// Appends the answer with a piece of a file.
    pub(crate) fn read(&self, path: &[u8], offset: u64, limit: u32, out: &mut Vec<u8>) -> Result<(), Refused> {
        let limit = limit as usize;
        if limit > MAX_PIECE {
            let message = format!("{limit} bytes are more than the {MAX_PIECE} that one answer may have");
            return Err(Refused::new(Failure::TooLarge, message));
        }
        let file = self.regular(path, 0, 0, "open")?;
        let metadata = file.metadata().map_err(|error| Refused::io("look at", path, &error))?;
        let left = metadata.len().saturating_sub(offset);
        let mut bytes = vec![0; limit.min(usize::try_from(left).unwrap_or(limit))];
        let mut filled = 0;
        while let Some(space) = bytes.get_mut(filled..).filter(|space| !space.is_empty()) {
            match file.read_at(space, offset.saturating_add(filled as u64)) {
                Ok(0) => break,
                Ok(read) => filled += read,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(Refused::io("read", path, &error)),
            }
        }
        bytes.truncate(filled);
        Reply::Piece { size: metadata.len(), bytes: &bytes }.encode(out);
        Ok(())
    }

    /// Puts a file's contents, and makes the directories above it.
    pub(crate) fn write(&self, path: &[u8], mode: WriteMode, executable: bool, content: &[u8]) -> Result<(), Refused> {
        let (above, name) = split(path)?;
        let parent = self.make_directories(above)?;
        let failed = |error: io::Error| Refused::io("write", path, &error);
        let fresh = if executable { 0o777 } else { 0o666 };
        match (mode, fs::symlink_metadata(entry(&parent, name))) {
            (WriteMode::New, _) => put(&parent, name, content, &Target::New(fresh)).map_err(failed),
            (WriteMode::Append, _) => self.append(path, fresh, content),
            (WriteMode::Replace, Err(_)) => put(&parent, name, content, &Target::Any(fresh)).map_err(failed),
            (WriteMode::Replace, Ok(old)) if old.is_file() => {
                put(&parent, name, content, &Target::Old(old, executable)).map_err(failed)
            }
            (WriteMode::Replace, Ok(old)) if old.is_symlink() => {
                let mut file = self.regular(path, O_WRONLY | O_CREAT, fresh, "write")?;
                file.set_len(0).and_then(|()| file.write_all(content)).map_err(failed)
            }
            (WriteMode::Replace, Ok(_)) => Err(not_a_file(path)),
        }
    }

    fn append(&self, path: &[u8], permissions: u32, content: &[u8]) -> Result<(), Refused> {
        let mut file = self.regular(path, O_WRONLY | O_CREAT | O_APPEND, permissions, "write")?;
        let failed = |error: io::Error| Refused::io("write", path, &error);
        let before = file.metadata().map_err(failed)?.len();
        file.write_all(content).map_err(|error| {
            // What was written of it is taken back, if that is possible.
            let _ = file.set_len(before);
            failed(error)
        })
    }

    /// Opens a regular file; a link may lead to it.
    fn regular(&self, path: &[u8], flags: i32, mode: u32, doing: &str) -> Result<File, Refused> {
        // Without O_NONBLOCK, opening a pipe that nobody has open would hang the runner.
        let file = File::from(self.open(path, flags | O_NONBLOCK, mode, doing)?);
        match file.metadata().map_err(|error| Refused::io("look at", path, &error))?.is_file() {
            true => Ok(file),
            false => Err(not_a_file(path)),
        }
    }

    /// Appends the answer with a directory's entries, sorted by name.
    pub(crate) fn list(&self, path: &[u8], out: &mut Vec<u8>) -> Result<(), Refused> {
        let directory = self.directory(path)?;
        let failed = |error: io::Error| Refused::io("list", path, &error);
        let mut found = Vec::new();
        let mut bytes = 0;
        for item in fs::read_dir(at(&directory)).map_err(failed)? {
            let name = item.map_err(failed)?.file_name();
            bytes += name.len() + ENTRY_BYTES;
            if bytes > MAX_FRAME {
                let message = format!("{:?} has more entries than one answer holds", String::from_utf8_lossy(path));
                return Err(Refused::new(Failure::TooLarge, message));
            }
            // It may be gone by now.
            if let Ok(metadata) = fs::symlink_metadata(at(&directory).join(&name)) {
                found.push((name, metadata));
            }
        }
        found.sort_unstable_by(|(one, _), (other, _)| one.cmp(other));
        let entries = found.iter().map(|(name, metadata)| described(name.as_bytes(), metadata)).collect();
        Reply::Entries(entries).encode(out);
        Ok(())
    }

    /// Removes a file or link, or a directory; one that is not empty only if asked.
    pub(crate) fn remove(&self, path: &[u8], recursive: bool) -> Result<(), Refused> {
        let (above, name) = split(path)?;
        let parent = self.directory(above)?;
        let entry = entry(&parent, name);
        let failed = |error: io::Error| Refused::io("remove", path, &error);
        let done = match fs::symlink_metadata(&entry).map_err(failed)?.is_dir() {
            true if recursive => fs::remove_dir_all(&entry),
            true => fs::remove_dir(&entry),
            false => fs::remove_file(&entry),
        };
        done.map_err(failed)
    }

    /// Appends the answer with one entry; a link is not followed.
    pub(crate) fn stat(&self, path: &[u8], out: &mut Vec<u8>) -> Result<(), Refused> {
        let file = File::from(self.open(path, O_PATH | O_NOFOLLOW, 0, "look at")?);
        let metadata = file.metadata().map_err(|error| Refused::io("look at", path, &error))?;
        Reply::Entries(vec![described(b"", &metadata)]).encode(out);
        Ok(())
    }

    fn open(&self, path: &[u8], flags: i32, mode: u32, doing: &str) -> Result<OwnedFd, Refused> {
        let root = open_directory(&self.path)?;
        let relative = if path.is_empty() { b"." } else { path };
        let c_path = c_path(relative)?;
        open_beneath(root.as_fd(), &c_path, flags, mode).map_err(|error| Refused::io(doing, path, &error))
    }

    fn make_directories(&self, path: &[u8]) -> Result<OwnedFd, Refused> {
        match self.directory(path) {
            Err(refused) if refused.errno == 2 && !path.is_empty() => {}
            other => return other,
        }
        let (above, name) = split(path)?;
        let parent = self.make_directories(above)?;
        match fs::create_dir(entry(&parent, name)) {
            Err(error) if error.kind() != io::ErrorKind::AlreadyExists => {
                Err(Refused::io("make the directory", path, &error))
            }
            _ => self.directory(path),
        }
    }
}

/// Opens a directory by any path, to be entered or looked up in.
pub(crate) fn open_directory(path: &Path) -> Result<OwnedFd, Refused> {
    let opened = OpenOptions::new().read(true).custom_flags(O_PATH | O_DIRECTORY).open(path);
    opened.map(OwnedFd::from).map_err(|error| Refused::io("open", path.as_os_str().as_bytes(), &error))
}

/// What is where a file is to be put.
enum Target {
    /// Nothing may be; these are the file's permissions.
    New(u32),
    /// Nothing is, or what came there meanwhile.
    Any(u32),
    /// A file, which keeps its owner and permissions, but may become executable.
    Old(Metadata, bool),
}

/// Writes beside the file and renames, so that no reader sees half and a full disk leaves the file as it was.
fn put(parent: &OwnedFd, name: &[u8], content: &[u8], target: &Target) -> io::Result<()> {
    let temporary_name = format!(".foldspace-{}-{}", std::process::id(), next_number());
    let temporary = at(parent).join(&temporary_name);
    let path = entry(parent, name);
    let permissions = match target {
        Target::New(fresh) | Target::Any(fresh) => *fresh,
        Target::Old(..) => 0o600,
    };
    let mut file = OpenOptions::new().write(true).create_new(true).mode(permissions).open(&temporary)?;
    let write = || {
        file.write_all(content)?;
        if let Target::Old(old, executable) = target {
            // Only root may give a file away; others write what is theirs.
            let _ = fchown(&file, Some(old.uid()), Some(old.gid()));
            let mode = old.mode() & 0o7777;
            let executes = if *executable { (mode & 0o444) >> 2 } else { 0 };
            file.set_permissions(Permissions::from_mode(mode | executes))?;
            // ext4 begins to write out what is renamed over another file, which takes thirty times as long.
            let exchanged = exchange(parent.as_fd(), &CString::new(temporary_name)?, &CString::new(name)?);
            if exchanged.is_ok() {
                return fs::remove_file(&temporary);
            }
        }
        match target {
            // Unlike a rename, a link replaces nothing.
            Target::New(_) => fs::hard_link(&temporary, &path),
            _ => fs::rename(&temporary, &path),
        }
    };
    let written = write();
    if written.is_err() || matches!(target, Target::New(_)) {
        let _ = fs::remove_file(&temporary);
    }
    written
}

fn next_number() -> u64 {
    static NUMBER: std::sync::atomic::AtomicU64 = std::sync::atomic::AtomicU64::new(0);
    NUMBER.fetch_add(1, std::sync::atomic::Ordering::Relaxed)
}

/// A directory by its descriptor, so that nothing above it is looked up again.
fn at(directory: &OwnedFd) -> PathBuf {
    PathBuf::from(format!("/proc/self/fd/{}", directory.as_raw_fd()))
}

fn entry(directory: &OwnedFd, name: &[u8]) -> PathBuf {
    at(directory).join(std::ffi::OsStr::from_bytes(name))
}

/// What is above a path, and its last name.
fn split(path: &[u8]) -> Result<(&[u8], &[u8]), Refused> {
    let (above, name) = match path.iter().rposition(|&byte| byte == b'/') {
        Some(slash) => (&path[..slash], &path[slash + 1..]),
        None => (&b""[..], path),
    };
    // With these the last name would be somewhere else than below what is above it.
    let no_name = name.is_empty() || name == b"." || name == b".." || name.contains(&0) || path.first() == Some(&b'/');
    match no_name {
        true => Err(Refused::new(Failure::Invalid, format!("{:?} names no entry", String::from_utf8_lossy(path)))),
        false => Ok((above, name)),
    }
}

pub(crate) fn c_path(path: &[u8]) -> Result<CString, Refused> {
    if path.len() >= PATH_MAX {
        return Err(Refused::new(Failure::Invalid, format!("a path has more than {PATH_MAX} bytes")));
    }
    CString::new(path).map_err(|_| Refused::new(Failure::Invalid, "a path holds a NUL byte"))
}

fn not_a_file(path: &[u8]) -> Refused {
    Refused::new(Failure::Invalid, format!("{:?} is not a regular file", String::from_utf8_lossy(path)))
}

fn described<'a>(name: &'a [u8], metadata: &Metadata) -> Entry<'a> {
    let kind = match metadata.file_type() {
        kind if kind.is_file() => EntryKind::File,
        kind if kind.is_dir() => EntryKind::Directory,
        kind if kind.is_symlink() => EntryKind::Symlink,
        _ => EntryKind::Other,
    };
    let modified_ns = metadata.mtime().saturating_mul(1_000_000_000).saturating_add(metadata.mtime_nsec());
    Entry { name, kind, mode: metadata.mode() & 0o7777, size: metadata.len(), modified_ns }
}

/// The start of a small file, as of `/proc` and `/sys`.
pub(crate) fn small_file(path: &str) -> Option<String> {
    let mut text = String::new();
    File::open(path).ok()?.take(4096).read_to_string(&mut text).ok()?;
    Some(text)
}
