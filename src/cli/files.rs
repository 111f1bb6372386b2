//! Files that the program reads and writes outside its data directory.

use std::fs::{DirBuilder, File};
use std::io::{self, BufReader, Read, Seek};
use std::os::unix::fs::DirBuilderExt;
use std::path::Path;

use super::{Failure, text};

const STANDARD: &str = "-";

pub(super) fn is_standard(path: &Path) -> bool {
    path.as_os_str() == STANDARD
}

pub(super) fn reader(path: &Path) -> Result<Box<dyn Read>, Failure> {
    if is_standard(path) {
        return Ok(Box::new(io::stdin().lock()));
    }
    Ok(Box::new(BufReader::with_capacity(64 << 10, regular(path)?)))
}

pub(super) struct Rereadable<'a> {
    path: &'a Path,
    file: Option<File>,
}

impl<'a> Rereadable<'a> {
    pub(super) fn open(path: &'a Path) -> Result<Self, Failure> {
        let file = if is_standard(path) { None } else { Some(regular(path)?) };
        Ok(Self { path, file })
    }

    /// Returns the file. Input that can be read only once is copied to an unnamed file in `directory`.
    pub(super) fn file(self, directory: &Path) -> Result<File, Failure> {
        let mut once: Box<dyn Read> = match self.file {
            Some(file) if (&file).stream_position().is_ok() => return Ok(file),
            Some(file) => Box::new(file),
            None => Box::new(io::stdin().lock()),
        };
        let failed = |error| Failure::io("copy", self.path.display(), &error);
        let mut copy = tempfile::tempfile_in(directory).map_err(failed)?;
        io::copy(&mut once, &mut copy).and_then(|_| copy.rewind()).map_err(failed)?;
        Ok(copy)
    }
}

#[expect(clippy::disallowed_methods, reason = "a face reads the files that it is given")]
fn regular(path: &Path) -> Result<File, Failure> {
    let file = File::open(path).map_err(|error| match error.kind() {
        io::ErrorKind::NotFound => Failure::missing(format!("no such file: {}", path.display())),
        _ => Failure::io("read", path.display(), &error),
    })?;
    // A directory can be opened, but not read.
    if path.is_dir() {
        return Err(Failure::missing(format!("{} is a directory, not a file", path.display())));
    }
    Ok(file)
}

/// Refuses to replace a file without `--force`.
pub(super) fn check_absent(path: &Path, force: bool) -> Result<(), Failure> {
    if force || is_standard(path) || !path.is_file() {
        return Ok(());
    }
    let shown = text::one_line(&path.display().to_string(), 300);
    Err(Failure::usage(format!("{shown} exists")).with_hint("--force replaces it"))
}

/// Writes a file atomically, by a rename, and a special file, such as a pipe, in place. Only the owner can read a new
/// file, since it may contain a history; an existing file keeps its permissions.
#[expect(clippy::disallowed_methods, reason = "a face writes requested files")]
pub(super) fn write<T>(path: &Path, write: impl FnOnce(&mut File) -> Result<T, Failure>) -> Result<T, Failure> {
    let failed = |error| Failure::io("write", path.display(), &error);
    if path.exists() && !path.is_file() {
        return write(&mut File::options().write(true).open(path).map_err(failed)?);
    }
    let directory = path.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."));
    // Otherwise the error would name a temporary file.
    directory.metadata().map_err(failed)?;
    let mut file = tempfile::NamedTempFile::new_in(directory).map_err(failed)?;
    if let Ok(known) = path.metadata() {
        file.as_file().set_permissions(known.permissions()).map_err(failed)?;
    }
    let written = write(file.as_file_mut())?;
    file.as_file().sync_all().map_err(failed)?;
    file.persist(path).map_err(|error| failed(error.error))?;
    Ok(written)
}

#[expect(clippy::disallowed_methods, reason = "a face creates requested directories")]
pub(super) fn make_directory(path: &Path) -> Result<(), Failure> {
    std::fs::create_dir_all(path).map_err(|error| Failure::io("create", path.display(), &error))
}

/// Creates a directory and its missing parents, for the owner only.
#[expect(clippy::disallowed_methods, reason = "a face writes files of the data directory")]
pub(super) fn make_private(directory: &Path) -> io::Result<()> {
    DirBuilder::new().recursive(true).mode(0o700).create(directory)
}
