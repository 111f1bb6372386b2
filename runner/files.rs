//! Directories below the root. Links are followed as long as they stay inside.

use std::ffi::CString;
use std::fs::OpenOptions;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::OpenOptionsExt;
use std::path::PathBuf;

use crate::sys::{EXDEV, O_DIRECTORY, O_PATH, open_beneath};
use crate::wire::RunFailure;

/// The maximum size of a path in bytes, including its NUL.
const PATH_MAX: usize = 4096;

pub(crate) struct Refused {
    pub(crate) kind: RunFailure,
    pub(crate) errno: i32,
    pub(crate) message: String,
}

impl Refused {
    pub(crate) fn new(kind: RunFailure, message: impl Into<String>) -> Self {
        Self { kind, errno: 0, message: message.into() }
    }

    pub(crate) fn io(doing: &str, path: &[u8], error: &io::Error) -> Self {
        let errno = error.raw_os_error().unwrap_or(0);
        let shown = String::from_utf8_lossy(path);
        match errno {
            EXDEV => Self { kind: RunFailure::Outside, errno, message: format!("{shown:?} leads out of the root") },
            _ => Self { kind: RunFailure::Io, errno, message: format!("cannot {doing} {shown:?}: {error}") },
        }
    }
}

/// The directory that operations stay in. It is reopened each time, because a mount may have covered it.
pub(crate) struct CommandRoot {
    pub(crate) path: PathBuf,
}

impl CommandRoot {
    pub(crate) fn directory(&self, path: &[u8]) -> Result<OwnedFd, Refused> {
        let root = OpenOptions::new().read(true).custom_flags(O_PATH | O_DIRECTORY).open(&self.path);
        let root = root.map_err(|error| Refused::io("open", self.path.as_os_str().as_bytes(), &error))?;
        let relative = if path.is_empty() { b"." } else { path };
        let opened = open_beneath(root.as_fd(), &c_path(relative)?, O_PATH | O_DIRECTORY);
        opened.map_err(|error| Refused::io("open", path, &error))
    }
}

pub(crate) fn c_path(path: &[u8]) -> Result<CString, Refused> {
    if path.len() >= PATH_MAX {
        return Err(Refused::new(RunFailure::Invalid, format!("a path has {PATH_MAX} bytes or more")));
    }
    CString::new(path).map_err(|_| Refused::new(RunFailure::Invalid, "a path holds a NUL byte"))
}
