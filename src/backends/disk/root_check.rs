//! Checks that a path still leads to the directory that was opened.

use std::io;
use std::os::fd::AsFd;
use std::path::{Path, PathBuf};

use rustix::fs::CWD;
use rustix::io::Errno;

use super::beneath::context;
use super::file_stat::FileStat;
use super::listing::{look, look_at};

/// A directory and its path: commands use the path, which may lead to another directory by now.
#[derive(Debug, Clone)]
pub(crate) struct Anchor {
    path: PathBuf,
    stamp: FileStat,
}

impl Anchor {
    pub(super) fn of(path: &Path, handle: impl AsFd) -> Result<Self, Errno> {
        Ok(Self { path: path.to_owned(), stamp: FileStat::of(&look_at(handle)?) })
    }

    pub(crate) fn check(&self) -> io::Result<()> {
        let shown = self.path.display();
        let words = match look(CWD, &self.path) {
            Ok(stat) if FileStat::of(&stat).is_same_entry(&self.stamp) => return Ok(()),
            Ok(_) => format!("{shown} is not the directory that was opened; put that one back, or attach this one"),
            Err(Errno::NOENT) => {
                format!("{shown} is gone; put it back, or create an empty one for an undo to restore files")
            }
            Err(error) => return Err(context("read", &shown.to_string())(error)),
        };
        Err(io::Error::new(io::ErrorKind::NotFound, words))
    }
}
