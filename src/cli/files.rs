//! Files that the program reads and writes outside its data.

use std::fs::File;
use std::io::{self, BufReader, Read, Seek, Write};
use std::path::{Path, PathBuf};

use super::Failure;

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
    let file = File::open(path).map_err(|error| refused("read", path, &error))?;
    // A directory can be opened, and read only in vain.
    if path.is_dir() {
        return Err(Failure::missing(format!("{} is a directory, not a file", path.display())));
    }
    Ok(file)
}

fn refused(action: &str, path: &Path, error: &io::Error) -> Failure {
    match error.kind() {
        io::ErrorKind::NotFound => Failure::missing(format!("there is no file {}", path.display())),
        _ => Failure::io(action, path.display(), error),
    }
}

/// A file written under another name and renamed when it is complete.
pub(super) struct AtomicFile {
    file: File,
    unfinished: Option<PathBuf>,
    path: PathBuf,
}

impl AtomicFile {
    /// Creates the file; a special file, such as a pipe, is written in place.
    #[expect(clippy::disallowed_methods, reason = "a face writes the files that it is told to")]
    pub(super) fn begin(path: &Path) -> Result<Self, Failure> {
        let special = path.exists() && !path.is_file();
        let mut name = path.file_name().unwrap_or_default().to_os_string();
        name.push(format!(".{}.unfinished", std::process::id()));
        let unfinished = if special { None } else { Some(path.with_file_name(name)) };
        let place = unfinished.as_deref().unwrap_or(path);
        let file = match special {
            true => std::fs::OpenOptions::new().write(true).open(place),
            false => File::create(place),
        };
        let file = file.map_err(|error| Failure::io("write", path.display(), &error))?;
        Ok(Self { file, unfinished, path: path.to_owned() })
    }

    #[expect(clippy::disallowed_methods, reason = "a face writes the files that it is told to")]
    pub(super) fn finish(mut self) -> Result<(), Failure> {
        let Some(unfinished) = self.unfinished.take() else { return Ok(()) };
        let placed = self.file.sync_all().and_then(|()| std::fs::rename(&unfinished, &self.path));
        if placed.is_err() {
            drop(std::fs::remove_file(&unfinished));
        }
        placed.map_err(|error| Failure::io("write", self.path.display(), &error))
    }
}

impl Write for AtomicFile {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.file.write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.file.flush()
    }
}

impl Drop for AtomicFile {
    #[expect(clippy::disallowed_methods, reason = "what was not finished is taken away again")]
    fn drop(&mut self) {
        if let Some(unfinished) = self.unfinished.take() {
            drop(std::fs::remove_file(unfinished));
        }
    }
}

#[expect(clippy::disallowed_methods, reason = "a face writes where it is told to")]
pub(super) fn make_directory(path: &Path) -> Result<(), Failure> {
    std::fs::create_dir_all(path).map_err(|error| Failure::io("create", path.display(), &error))
}
