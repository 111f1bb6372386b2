//! Errors of a store.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::loss::Loss;
use super::owner::StoreOwner;
use crate::engine::commit::CommitError;
use crate::engine::{Advice, Diagnostic, Digest, ErrorKind, Seq, SessionId};

/// The result of a store operation.
pub(crate) type Result<T, E = StoreError> = std::result::Result<T, E>;

/// An error of a store.
#[derive(Debug, Clone, thiserror::Error)]
pub enum StoreError {
    /// The history does not end where the commit expects.
    #[error("conflict in session {session}: it ends at {actual}, the commit expects {expected}")]
    Conflict {
        /// The session.
        session: SessionId,
        /// End that the commit expects; 0 for no session.
        expected: Seq,
        /// Actual end.
        actual: Seq,
    },
    /// The session does not exist.
    #[error("session {0} not found")]
    NoSession(SessionId),
    /// The session was removed and has children: its id can't be used again.
    #[error("session {0} was removed and has children: its id can't be used again")]
    Buried(SessionId),
    /// The events are missing from this copy of the session, which starts after them.
    #[error("events up to {until} of session {session} are on the cluster and not in this local copy")]
    NotHere {
        /// The session.
        session: SessionId,
        /// Position of the last missing event.
        until: Seq,
    },
    /// The content does not exist.
    #[error("{}", no_content(.0))]
    NoContent(Digest),
    /// The commit exceeds a limit or can't be encoded.
    #[error(transparent)]
    Commit(#[from] CommitError),
    /// The operating system failed.
    #[error("can't {action} {}: {source}", path.display())]
    Io {
        /// The attempted action.
        action: &'static str,
        /// Path of the file.
        path: PathBuf,
        /// The system's error.
        source: Arc<std::io::Error>,
    },
    /// An acknowledged part of the journal is damaged.
    #[error("journal segment {segment} is damaged at byte {offset}: {what}")]
    Damaged {
        /// The segment's number.
        segment: u32,
        /// Byte offset of the damage.
        offset: u64,
        /// Problem.
        what: String,
    },
    /// Acknowledged events are missing from the journal. It is read-only until the loss is
    /// [accepted](crate::LocalStore::accept_loss).
    #[error("{0}")]
    Lost(Arc<Loss>),
    /// The file is not what its name says, or has a newer format.
    #[error("{}: {what}", path.display())]
    Format {
        /// Path of the file.
        path: PathBuf,
        /// Problem.
        what: String,
    },
    /// The process that owns the store failed.
    #[error("the owner of the store failed: {message}")]
    Elsewhere {
        /// The owner's message.
        message: String,
        /// The owner's advice.
        advice: Option<Advice>,
    },
    /// A request to the cluster that holds the store failed.
    #[error("the cluster {address} {what}")]
    Cluster {
        /// The cluster's address.
        address: String,
        /// Problem.
        what: String,
    },
    /// Another host has claimed the session.
    #[error("session {session} is in use on host {host}")]
    OtherHost {
        /// The session.
        session: SessionId,
        /// Name of the host.
        host: String,
        /// URL of the host's API, if other hosts can reach it.
        at: Option<String>,
    },
    /// The process that owned the store ended without reporting the commit's outcome.
    #[error("the owner of the store ended; the outcome of the last changes is unknown")]
    Unsettled,
    /// Another user or another version of the program serves the store's socket.
    #[error("can't use the store's socket {}: {what}", path.display())]
    Foreign {
        /// Path of the socket.
        path: PathBuf,
        /// Problem.
        what: String,
    },
    /// Another process owns the store.
    #[error("the store {} is in use by {owner}", path.display())]
    Locked {
        /// Directory of the store.
        path: PathBuf,
        /// Process that owns it.
        owner: Box<StoreOwner>,
    },
    /// The store was opened read-only.
    #[error("the store is open read-only")]
    ReadOnly,
    /// An earlier write failed; the store accepts no commits until it is reopened.
    #[error("{0}; the store has stopped, and nothing acknowledged is lost")]
    Poisoned(String),
    /// The index failed; it can be rebuilt from the journal.
    #[error("the index failed: {0}; the next opening rebuilds it from the journal")]
    Index(String),
}

fn no_content(digest: &Digest) -> String {
    match digest.git_blob() {
        None => {
            format!("no content has the digest {digest}; if it is a secret, only undo and rewind can read it")
        }
        Some(_) => {
            let id = &digest.to_string()[..40];
            format!("git blob {id} is neither stored nor in any repository that contents are borrowed from")
        }
    }
}

impl Diagnostic for StoreError {
    fn kind(&self) -> ErrorKind {
        match self {
            Self::NoSession(_) | Self::NotHere { .. } => ErrorKind::NotFound,
            Self::NoContent(_) => ErrorKind::ContentMissing,
            Self::Conflict { .. } => ErrorKind::Conflict,
            Self::Buried(_) => ErrorKind::Refused,
            Self::Commit(error) => error.kind(),
            Self::Foreign { .. } | Self::Locked { .. } | Self::ReadOnly => ErrorKind::Busy,
            Self::OtherHost { .. } => ErrorKind::OtherHost,
            Self::Io { source, .. } if source.kind() == std::io::ErrorKind::StorageFull => ErrorKind::Full,
            Self::Damaged { .. } | Self::Lost(_) | Self::Format { .. } | Self::Index(_) => ErrorKind::Damaged,
            Self::Io { .. } | Self::Cluster { .. } | Self::Elsewhere { .. } | Self::Unsettled | Self::Poisoned(_) => {
                ErrorKind::Io
            }
        }
    }

    fn advice(&self) -> Option<Advice> {
        Some(match self {
            Self::Conflict { .. } => Advice::text("read the session again and retry"),
            Self::Io { source, .. } if source.kind() == std::io::ErrorKind::StorageFull => {
                Advice::text("make room on the disk and retry; nothing acknowledged is lost")
            }
            Self::Io { source, .. } if source.kind() == std::io::ErrorKind::PermissionDenied => {
                Advice::UseWritableStore
            }
            Self::Damaged { .. } => Advice::RepairStore,
            Self::Lost(_) => Advice::AcceptLoss,
            Self::Format { .. } => Advice::CheckStore,
            Self::Buried(_) => Advice::text("remove its children first, or use another store"),
            Self::Elsewhere { advice, .. } => return advice.clone(),
            Self::OtherHost { host, at, .. } => Advice::UseHost { host: host.clone(), at: at.clone() },
            Self::Unsettled => Advice::ReadLog,
            Self::Foreign { .. } => Advice::StopOwner,
            Self::Locked { .. } => Advice::WaitForOwner,
            Self::Poisoned(_) => Advice::text("make room if the disk is full, then retry: that opens the store again"),
            _ => return None,
        })
    }

    fn inner(&self) -> Option<&dyn Diagnostic> {
        match self {
            Self::Commit(error) => Some(error),
            _ => None,
        }
    }
}

impl StoreError {
    /// Wraps an I/O error for `map_err`.
    pub(crate) fn io(action: &'static str, path: &Path) -> impl FnOnce(std::io::Error) -> Self + use<> {
        let path = path.to_owned();
        move |source| Self::Io { action, path, source: Arc::new(source) }
    }

    /// Returns true if the cause is a missing write permission or a read-only file system.
    pub fn is_write_protected(&self) -> bool {
        use std::io::ErrorKind::{PermissionDenied, ReadOnlyFilesystem};
        matches!(self, Self::Io { source, .. } if matches!(source.kind(), PermissionDenied | ReadOnlyFilesystem))
    }
}
