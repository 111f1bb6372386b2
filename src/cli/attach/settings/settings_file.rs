//! A settings file, with a backup next to it.

use std::fs;
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use crate::cli::files;
use crate::terminal::exit::Failure;

pub(super) struct SettingsFile {
    /// The path that the agent uses; a link is followed.
    pub(super) path: PathBuf,
    /// The directory that stays when the file is removed.
    pub(super) base: PathBuf,
    /// The text; `None` if the file does not exist.
    pub(super) text: Option<String>,
    /// The text from before the hooks were added.
    pub(super) backup: Option<String>,
}

const BACKUP: &str = ".foldspace-backup";
/// Marks a directory that was there before the file, so that it stays when the file is removed.
const EARLIER: &str = ".foldspace-earlier";

impl SettingsFile {
    pub(super) fn at(path: PathBuf, base: PathBuf) -> Result<Self, Failure> {
        let (text, backup) = (read(&path)?, read(&beside(&path))?);
        if text.is_none() && path.is_symlink() {
            return Err(Failure::failed(format!("{} is a dangling link", path.display()))
                .with_hint("create the file, or remove the link"));
        }
        Ok(Self { path, base, text, backup })
    }

    /// Writes a text atomically. Retains links and permissions.
    pub(super) fn write(&self, text: &str) -> Result<(), Failure> {
        if let Some(directory) = self.path.parent() {
            files::make_directory(directory)?;
        }
        write(&self.target()?, text)
    }

    /// Makes a backup of the file, if it exists and has no backup yet. Marks the directory of a new file.
    pub(super) fn keep_backup(&self) -> Result<(), Failure> {
        match (&self.text, &self.backup) {
            (Some(text), None) => write(&beside(&self.path), text),
            (None, _) => match self.directories().find(|directory| directory.is_dir()) {
                Some(earlier) => write(&earlier.join(EARLIER), ""),
                None => Ok(()),
            },
            _ => Ok(()),
        }
    }

    fn directories(&self) -> impl Iterator<Item = &Path> {
        self.path.ancestors().skip(1).take_while(|directory| *directory != self.base)
    }

    #[expect(clippy::disallowed_methods, reason = "detach removes files that attach made")]
    pub(super) fn drop_backup(&self) -> Result<(), Failure> {
        let backup = beside(&self.path);
        match fs::remove_file(&backup) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => {
                Err(Failure::io("remove", backup.display(), &error))
            }
            _ => Ok(()),
        }
    }

    /// Removes the file, and parent directories that were made for it and become empty.
    #[expect(clippy::disallowed_methods, reason = "detach removes files that attach made")]
    pub(super) fn remove(&self) -> Result<(), Failure> {
        fs::remove_file(&self.path).map_err(|error| Failure::io("remove", self.path.display(), &error))?;
        for directory in self.directories() {
            if fs::remove_file(directory.join(EARLIER)).is_ok() {
                break;
            }
            // A directory with other entries can't be removed, nor can its parents.
            drop(fs::remove_dir(directory));
        }
        Ok(())
    }

    fn target(&self) -> Result<PathBuf, Failure> {
        match self.text {
            Some(_) => self.path.canonicalize().map_err(|error| Failure::io("find", self.path.display(), &error)),
            None => Ok(self.path.clone()),
        }
    }
}

fn beside(path: &Path) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(BACKUP);
    name.into()
}

fn write(path: &Path, text: &str) -> Result<(), Failure> {
    files::write(path, |file| {
        file.write_all(text.as_bytes()).map_err(|error| Failure::io("write", path.display(), &error))
    })
}

#[expect(clippy::disallowed_methods, reason = "a face reads the settings that it edits")]
fn read(path: &Path) -> Result<Option<String>, Failure> {
    match fs::read_to_string(path) {
        Ok(text) => Ok(Some(text)),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(Failure::io("read", path.display(), &error)),
    }
}
