//! Errors of mounts.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use crate::backends::BackendError;
use crate::engine::commit::CommitError;
use crate::engine::error::{Diagnostic, ErrorKind};
use crate::engine::path::EntryPath;
use crate::engine::session::error::SessionError;
use crate::engine::store::StoreError;

/// Failure to copy host directories into a workspace. Nothing was recorded.
#[derive(Debug, Clone, thiserror::Error)]
pub enum MountError {
    /// The text is no mount.
    #[error("mount {text:?}: {why}; write DIRECTORY or DIRECTORY:PATH")]
    Spec {
        /// The text as given.
        text: String,
        /// Reason.
        why: String,
    },
    /// The directory is outside of those that may be mounted.
    #[error("{} is outside of the directories that may be mounted: {}", path.display(), listed(roots))]
    Outside {
        /// The path as given.
        path: PathBuf,
        /// The directories below which it would have to be.
        roots: Vec<PathBuf>,
    },
    /// There is nothing at that path.
    #[error("{} does not exist and can't be mounted", path.display())]
    Missing {
        /// The path as given.
        path: PathBuf,
    },
    /// The path leads to something else.
    #[error("{} is not a directory; only directories can be mounted", path.display())]
    NotADirectory {
        /// The path as given.
        path: PathBuf,
    },
    /// A glob can't be used.
    #[error("glob {glob:?} of the mount {}: {why}", path.display())]
    Glob {
        /// The mounted directory.
        path: PathBuf,
        /// The glob as given.
        glob: String,
        /// Reason.
        why: String,
    },
    /// The files are more than the mount's byte budget.
    #[error(
        "{} holds at least {at_least} bytes, max_bytes is {limit}; raise it or leave files out with exclude_glob",
        path.display()
    )]
    TooLarge {
        /// The mounted directory.
        path: PathBuf,
        /// The budget.
        limit: u64,
        /// Lower bound of the bytes.
        at_least: u64,
    },
    /// The mounts are more than can be recorded at once.
    #[error(
        "{} holds too much to be mounted at once: {what} come to {actual}, the limit is {limit}; leave files out with \
         exclude_glob",
        path.display()
    )]
    TooMany {
        /// The mounted directory.
        path: PathBuf,
        /// Measured quantity.
        what: &'static str,
        /// Lower bound of the amount.
        actual: u64,
        /// Limit of the amount.
        limit: u64,
    },
    /// A path is not UTF-8, or has characters that can't be seen.
    #[error(
        "{path:?} is not UTF-8, or has characters that can't be seen, and can't be mounted; rename it or leave it out \
         with exclude_glob"
    )]
    OddName {
        /// The path, with odd bytes written `\xNN`.
        path: String,
    },
    /// A link that was to be followed leads out of the mount.
    #[error("{} is a link that leads out of the mount, to {}; leave it out with exclude_glob", path.display(), target.display())]
    LinkLeaves {
        /// The link.
        path: PathBuf,
        /// Target of the link.
        target: PathBuf,
    },
    /// Directories are nested too deep.
    #[error("{} is nested deeper than {limit} directories; leave it out with exclude_glob", path.display())]
    TooDeep {
        /// The directory.
        path: PathBuf,
        /// Limit of the depth.
        limit: usize,
    },
    /// Two mounts want the same place.
    #[error("two mounts hold {}; give them different paths or leave it out of one with exclude_glob", path.rooted())]
    Overlap {
        /// The place in the workspace.
        path: EntryPath,
    },
    /// The operating system refused.
    #[error("can't {action} {}: {source}", path.display())]
    Io {
        /// Attempted action.
        action: &'static str,
        /// On which file.
        path: PathBuf,
        /// Error of the operating system.
        source: Arc<std::io::Error>,
    },
    /// The copying thread was stopped or panicked.
    #[error("the copying of the mounts was stopped before its end")]
    Stopped,
    /// The workspace could not take the files.
    #[error(transparent)]
    Backend(#[from] BackendError),
    /// The session or its store failed.
    #[error(transparent)]
    Session(#[from] SessionError),
}

impl Diagnostic for MountError {
    fn kind(&self) -> ErrorKind {
        match self {
            Self::Spec { .. } | Self::Glob { .. } => ErrorKind::Invalid,
            Self::Missing { .. } | Self::NotADirectory { .. } => ErrorKind::NotFound,
            Self::Io { .. } => ErrorKind::Io,
            Self::Stopped => ErrorKind::Unavailable,
            Self::Backend(error) => error.kind(),
            Self::Session(error) => error.kind(),
            _ => ErrorKind::Refused,
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
