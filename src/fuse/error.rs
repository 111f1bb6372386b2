use std::io;
use std::path::PathBuf;

use crate::engine::advice::Advice;
use crate::engine::error::{Diagnostic, ErrorKind};
use crate::engine::session::error::SessionError;

/// Limit for the mounts of a store: each has a process.
pub(super) const MOUNTS_MAX: usize = 64;

/// A failed mount or unmount. It leaves no new mount.
#[derive(Debug, thiserror::Error)]
pub enum FuseError {
    /// The session or the store failed.
    #[error(transparent)]
    Session(#[from] SessionError),
    /// The machine has no FUSE, or this user can't use it.
    #[error("/dev/fuse can't be used: {0}")]
    NoDevice(io::Error),
    /// The program that mounts for users other than root is not installed.
    #[error("without root, a mount needs the program fusermount3, which is not installed")]
    NoFusermount,
    /// The directory can't be mounted on.
    #[error("can't mount on {}: {reason}", directory.display())]
    Unusable {
        /// The directory.
        directory: PathBuf,
        /// The reason.
        reason: String,
    },
    /// The store has the maximum number of mounts.
    #[error("this store already has {MOUNTS_MAX} mounts, which is the limit")]
    TooMany,
    /// The directory has no mount of foldspace.
    #[error("no mount of foldspace is at {}", .0.display())]
    NotMounted(PathBuf),
    /// Processes use the mount.
    #[error("{} is in use: a process has an open file or its working directory there", .0.display())]
    InUse(PathBuf),
    /// The operating system reported an error.
    #[error("failed to {what} {}: {source}", path.display())]
    Io {
        /// The attempted action.
        what: &'static str,
        /// The path.
        path: PathBuf,
        /// The reason.
        source: io::Error,
    },
    /// The process for the mount reported an error, or ended before it was ready.
    #[error("{0}")]
    Helper(String),
}

impl FuseError {
    pub(super) fn io(what: &'static str, path: impl Into<PathBuf>) -> impl FnOnce(io::Error) -> Self {
        let path = path.into();
        move |source| Self::Io { what, path, source }
    }

    pub(super) fn unusable(directory: impl Into<PathBuf>, reason: impl Into<String>) -> Self {
        Self::Unusable { directory: directory.into(), reason: reason.into() }
    }
}

impl Diagnostic for FuseError {
    fn kind(&self) -> ErrorKind {
        match self {
            Self::Session(error) => error.kind(),
            Self::NoDevice(_) | Self::NoFusermount | Self::Helper(_) => ErrorKind::Backend,
            Self::Unusable { .. } | Self::TooMany => ErrorKind::Refused,
            Self::NotMounted(_) => ErrorKind::NotFound,
            Self::InUse(_) => ErrorKind::Busy,
            Self::Io { .. } => ErrorKind::Io,
        }
    }

    fn advice(&self) -> Option<Advice> {
        match self {
            Self::Session(error) => error.advice(),
            Self::NoDevice(_) => {
                Some(Advice::text("load the kernel module `fuse`, or give this container or user access to /dev/fuse"))
            }
            Self::NoFusermount => Some(Advice::text("install the package fuse3")),
            Self::TooMany => Some(Advice::text("unmount one, or use one mount with all positions")),
            Self::Unusable { .. } => Some(Advice::text("use an empty or a new directory")),
            _ => None,
        }
    }
}
