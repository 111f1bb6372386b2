//! The errors of mounts.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use crate::backends::BackendError;
use crate::engine::advice::Advice;
use crate::engine::commit::CommitError;
use crate::engine::error::{Diagnostic, ErrorKind};
use crate::engine::path::EntryPath;
use crate::engine::session::error::SessionError;
use crate::engine::store::StoreError;

/// A failure to copy host directories into a workspace. Nothing was recorded.
#[derive(Debug, Clone, thiserror::Error)]
pub enum MountError {
    /// The text is not a valid mount.
    #[error("mount {text:?}: {why}; write DIRECTORY or DIRECTORY:PATH")]
    Spec {
        /// The given text.
        text: String,
        /// The reason.
        why: String,
    },
    /// The directory is outside of the allowed roots.
    #[error("{} is outside of the directories that may be mounted: {}", path.display(), listed(roots))]
    Outside {
        /// The given path.
        path: PathBuf,
        /// The allowed roots.
        roots: Vec<PathBuf>,
    },
    /// The path does not exist.
    #[error("{} does not exist and can't be mounted", path.display())]
    Missing {
        /// The given path.
        path: PathBuf,
    },
    /// The path is neither a directory nor a regular file.
    #[error("{} is neither a directory nor a regular file, and can't be mounted", path.display())]
    NotADirectory {
        /// The given path.
        path: PathBuf,
    },
    /// The directory is part of a store.
    #[error("can't mount {}: a data directory is there; mount another directory", path.display())]
    DataDirectory {
        /// The given path.
        path: PathBuf,
    },
    /// The directory of a new session has files.
    #[error("the workspace has files, so the mounts can't be copied; use an empty directory, or leave them out")]
    NotEmpty,
    /// A glob is invalid.
    #[error("glob {glob:?} of the mount {}: {why}", path.display())]
    Glob {
        /// The mounted directory.
        path: PathBuf,
        /// The given glob.
        glob: String,
        /// The reason.
        why: String,
    },
    /// The files exceed the mount's byte budget.
    #[error(
        "{} holds at least {at_least} bytes, max_bytes is {limit}; raise it or leave files out with exclude_glob",
        path.display()
    )]
    TooLarge {
        /// The mounted directory.
        path: PathBuf,
        /// The budget.
        limit: u64,
        /// A lower bound of the bytes.
        at_least: u64,
    },
    /// The mounts exceed the limits of a commit.
    #[error(
        "{} is too large to mount at once: {actual} {what}; the limit is {limit}; leave files out with exclude_glob",
        path.display()
    )]
    TooMany {
        /// The mounted directory.
        path: PathBuf,
        /// The measured quantity.
        what: &'static str,
        /// A lower bound of the amount.
        actual: u64,
        /// The limit of the amount.
        limit: u64,
    },
    /// A path is not UTF-8, or has invisible characters.
    #[error(
        "can't mount {path:?}: the name is not UTF-8 or has invisible characters; rename it or leave it out with \
         exclude_glob"
    )]
    OddName {
        /// The path, with odd bytes written `\xNN`.
        path: String,
    },
    /// A link to follow leads out of the mount.
    #[error("{} is a link that leads out of the mount, to {}; leave it out with exclude_glob", path.display(), target.display())]
    LinkLeaves {
        /// The link.
        path: PathBuf,
        /// The target of the link.
        target: PathBuf,
    },
    /// Directories are nested too deeply.
    #[error("{} is nested deeper than {limit} directories; leave it out with exclude_glob", path.display())]
    TooDeep {
        /// The directory.
        path: PathBuf,
        /// The limit of the depth.
        limit: usize,
    },
    /// Two mounts have an entry at the same place.
    #[error("two mounts contain {}; use different paths, or leave it out of one with exclude_glob", path.rooted())]
    Overlap {
        /// The place in the workspace.
        path: EntryPath,
    },
    /// The operating system reported an error.
    #[error("can't {action} {}: {source}", path.display())]
    Io {
        /// The attempted action.
        action: &'static str,
        /// The file.
        path: PathBuf,
        /// The operating system's error.
        source: Arc<std::io::Error>,
    },
    /// The copying thread was stopped or panicked.
    #[error("copying the mounts was interrupted")]
    Stopped,
    /// Writing the files to the workspace failed.
    #[error(transparent)]
    Backend(#[from] BackendError),
    /// The session or its store failed.
    #[error(transparent)]
    Session(#[from] SessionError),
}

impl Diagnostic for MountError {
    fn kind(&self) -> ErrorKind {
        match self {
            Self::Outside { .. } => ErrorKind::Forbidden,
            Self::Missing { .. } => ErrorKind::NotFound,
            Self::Stopped => ErrorKind::Broken,
            Self::Backend(error) => error.kind(),
            Self::Session(error) => error.kind(),
            _ => ErrorKind::Invalid,
        }
    }

    fn advice(&self) -> Option<Advice> {
        match self {
            Self::Outside { .. } => Some(Advice::AllowDirectory),
            _ => self.inner()?.advice(),
        }
    }

    fn inner(&self) -> Option<&dyn Diagnostic> {
        match self {
            Self::Backend(error) => Some(error),
            Self::Session(error) => Some(error),
            _ => None,
        }
    }
}

impl MountError {
    pub(super) fn io<E: Into<std::io::Error>>(action: &'static str, path: &Path) -> impl FnOnce(E) -> Self {
        move |source| Self::Io { action, path: path.to_owned(), source: Arc::new(source.into()) }
    }

    pub(super) fn commit(path: &Path) -> impl Fn(CommitError) -> Self {
        move |error| match error {
            CommitError::TooLarge { what, actual, limit } => {
                Self::TooMany { path: path.to_owned(), what, actual, limit }
            }
            other => Self::Session(other.into()),
        }
    }
}

impl From<StoreError> for MountError {
    fn from(error: StoreError) -> Self {
        Self::Session(error.into())
    }
}

fn listed(roots: &[PathBuf]) -> String {
    match roots {
        [] => "none are allowed".to_owned(),
        _ => roots.iter().map(|root| root.display().to_string()).collect::<Vec<_>>().join(", "),
    }
}
