//! The directory, and the places of other programs' files. Files are only read.
#![expect(clippy::disallowed_methods, reason = "a rescue reads the files of other programs")]

use std::env;
use std::ffi::OsStr;
use std::fs::File;
use std::io::{self, Read};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::time::{SystemTime, UNIX_EPOCH};

use bytes::Bytes;
use rustix::fs::OFlags;

use super::CONTENT_MAX;
use crate::backends::disk::beneath::{open_beneath, open_in};
use crate::engine::clock::Timestamp;
use crate::engine::path::EntryPath;

/// The directory of the lost files, and the directories of other programs.
#[derive(Debug, Clone)]
pub struct RescuePlaces {
    /// The directory, without links.
    pub directory: PathBuf,
    /// The names of the directory in the records of agents: without links, and as given. None if they are not UTF-8.
    pub(super) names: Vec<String>,
    pub(super) claude: Option<PathBuf>,
    pub(super) codex: Option<PathBuf>,
    pub(super) gemini: Option<PathBuf>,
    /// The settings of programs, such as editors.
    pub(super) config: Option<PathBuf>,
    /// The state of programs, such as swap files of Neovim.
    pub(super) state: Option<PathBuf>,
    pub(super) home: Option<PathBuf>,
}

impl RescuePlaces {
    /// Finds them for a directory by `HOME`, `CLAUDE_CONFIG_DIR`, `CODEX_HOME`, `XDG_CONFIG_HOME` and `XDG_STATE_HOME`.
    ///
    /// # Errors
    /// The directory can't be found.
    pub fn of(directory: &Path) -> io::Result<Self> {
        let variable = |name: &str| env::var_os(name).filter(|value| !value.is_empty()).map(PathBuf::from);
        let home = variable("HOME");
        let place = |name: &str, below: &str| variable(name).or_else(|| Some(home.as_ref()?.join(below)));
        let given = std::path::absolute(directory)?;
        let directory = directory.canonicalize()?;
        let mut names: Vec<String> =
            [&directory, &given].iter().filter_map(|name| Some(name.to_str()?.to_owned())).collect();
        names.dedup();
        Ok(Self {
            directory,
            names,
            claude: place("CLAUDE_CONFIG_DIR", ".claude"),
            codex: place("CODEX_HOME", ".codex"),
            gemini: home.as_ref().map(|home| home.join(".gemini")),
            config: place("XDG_CONFIG_HOME", ".config"),
            state: place("XDG_STATE_HOME", ".local/state"),
            home,
        })
    }

    /// Returns the path below the directory; `None` for a path elsewhere.
    pub fn below(&self, path: &Path) -> Option<EntryPath> {
        let mut names = self.names.iter().map(Path::new).chain([self.directory.as_path()]);
        let below = names.find_map(|name| path.strip_prefix(name).ok())?;
        EntryPath::from_bytes(below.as_os_str().as_bytes()).ok().filter(|path| !path.is_root())
    }

    /// Lists the directories that exist but can't be read.
    pub(super) fn unreadable(&self) -> Vec<(PathBuf, io::Error)> {
        let programs = [(&self.claude, "projects"), (&self.codex, "sessions"), (&self.gemini, "tmp")];
        let places = programs.into_iter().filter_map(|(place, below)| Some(place.as_ref()?.join(below)));
        let failed = places
            .chain([self.directory.clone()])
            .filter_map(|place| std::fs::read_dir(&place).err().map(|error| (place, error)));
        failed.filter(|(_, error)| error.kind() != io::ErrorKind::NotFound).collect()
    }

    pub(super) fn place(&self, path: &EntryPath) -> PathBuf {
        self.directory.join(OsStr::from_bytes(path.as_bytes()))
    }

    /// Returns true if the directory has no entry at a path.
    pub(super) fn is_missing(&self, path: &EntryPath) -> bool {
        let missing = [io::ErrorKind::NotFound, io::ErrorKind::NotADirectory];
        self.place(path).symlink_metadata().is_err_and(|error| missing.contains(&error.kind()))
    }

    /// Reads a file of the directory. Links are not followed.
    ///
    /// # Errors
    /// The file can't be read, or is not a plain file of at most 64 MiB.
    pub fn read(&self, path: &EntryPath) -> io::Result<Bytes> {
        let top = open_in(rustix::fs::CWD, self.directory.as_path(), OFlags::DIRECTORY)?;
        let path = Path::new(OsStr::from_bytes(path.as_bytes()));
        Ok(contents(&File::from(open_beneath(&top, path, OFlags::empty())?))?.0)
    }
}

/// Reads a plain file with its modification time.
///
/// # Errors
/// The file can't be read, or is not a plain file of at most 64 MiB.
pub(super) fn read(path: &Path) -> io::Result<(Bytes, Option<Timestamp>)> {
    let metadata = path.metadata()?;
    if !metadata.is_file() {
        return Err(io::Error::other("not a plain file"));
    }
    contents(&File::open(path)?)
}

fn contents(file: &File) -> io::Result<(Bytes, Option<Timestamp>)> {
    let metadata = file.metadata()?;
    let max = CONTENT_MAX;
    if !metadata.is_file() || metadata.len() > max {
        let reason = if metadata.is_file() { "more than 64 MiB" } else { "not a plain file" };
        return Err(io::Error::other(reason));
    }
    let mut bytes = Vec::new();
    file.take(max).read_to_end(&mut bytes)?;
    Ok((bytes.into(), metadata.modified().ok().and_then(moment)))
}

pub(super) fn moment(time: SystemTime) -> Option<Timestamp> {
    let since = time.duration_since(UNIX_EPOCH).ok()?;
    i64::try_from(since.as_millis()).ok().map(Timestamp)
}

/// Lists a directory, sorted; nothing if it can't be read.
pub(super) fn listed(directory: &Path) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(directory).into_iter().flatten();
    let mut found: Vec<PathBuf> = entries.filter_map(|entry| Some(entry.ok()?.path())).collect();
    found.sort();
    found
}

/// Lists the files below a directory to a depth, sorted; links to directories are not followed.
pub(super) fn files_below(directory: &Path, depth: usize) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for path in listed(directory) {
        match path.symlink_metadata() {
            Ok(metadata) if metadata.is_dir() && depth > 1 => found.extend(files_below(&path, depth - 1)),
            Ok(metadata) if metadata.is_file() => found.push(path),
            _ => {}
        }
    }
    found
}

pub(super) fn name(path: &Path) -> String {
    path.file_name().unwrap_or_default().to_string_lossy().into_owned()
}
