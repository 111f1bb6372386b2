//! Errors of a store.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::loss::Loss;
use super::owner::StoreOwner;
use crate::engine::commit::CommitError;
use crate::engine::{Diagnostic, Digest, ErrorKind, Seq, SessionId};

/// Result of work on a store.
pub(crate) type Result<T, E = StoreError> = std::result::Result<T, E>;

/// Error of a store.
#[derive(Debug, Clone, thiserror::Error)]
pub enum StoreError {
    /// The history does not end where the commit expects.
    #[error("session {session} ends at {actual}, the commit expects {expected}")]
    Conflict {
        /// The session.
        session: SessionId,
        /// Position at which the commit expects it to end; 0 for no session.
        expected: Seq,
        /// Position at which it ends.
        actual: Seq,
    },
    /// The session does not exist.
    #[error("there is no session {0}")]
    NoSession(SessionId),
    /// The session was removed and has children: its id can't be used again.
    #[error("session {0} was removed and has children: its id can't be used again")]
    Buried(SessionId),
    /// The events are not in this copy of the session, which was begun at a later one.
    #[error("events of session {session} up to {until} are not in this copy of it; its cluster has them")]
    NotHere {
        /// The session.
        session: SessionId,
        /// Position of the last of them.
        until: Seq,
    },
    /// The content does not exist.
    #[error("{}", no_content(.0))]
    NoContent(Digest),
    /// The commit is over a limit or can't be encoded.
    #[error(transparent)]
    Commit(#[from] CommitError),
    /// The operating system failed.
    #[error("can't {action} {}: {source}", path.display())]
    Io {
        /// Attempted action.
        action: &'static str,
        /// Path of the file.
        path: PathBuf,
        /// Error of the system.
        source: Arc<std::io::Error>,
    },
    /// The journal is damaged where nothing may be lost.
    #[error("journal segment {segment} is damaged at byte {offset}: {what}")]
    Damaged {
        /// The segment's number.
        segment: u32,
        /// Byte at which the damage begins.
        offset: u64,
        /// Problem.
        what: String,
    },
    /// Acknowledged events are not in the journal any more. It can be read; nothing is added before the loss is
    /// [accepted](crate::LocalStore::accept_loss).
    #[error("{0}")]
    Lost(Arc<Loss>),
    /// The file is not what its name says, or of a newer version.
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
        /// Error of the system.
        message: String,
        /// Its advice.
        hint: Option<String>,
    },
    /// The cluster that has the store can't do it.
    #[error("the cluster {address} {what}")]
    Cluster {
        /// The cluster's address.
        address: String,
        /// Problem.
        what: String,
    },
    /// Another host works in the session.
    #[error("host {host} works in session {session}")]
    OtherHost {
        /// The session.
        session: SessionId,
        /// Name of the host.
        host: String,
        /// URL at which it is reached, if it can be.
        at: Option<String>,
    },
    /// The process that owned the store is gone, and did not tell whether the commit is recorded.
    #[error("the owner of the store is gone, and the outcome of the last changes is unknown")]
    Unsettled,
    /// Another user or another version of the program serves the store's socket.
    #[error("can't use the store through {}: {what}", path.display())]
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
        /// Process that has it.
        owner: Box<StoreOwner>,
    },
    /// The store was opened for reading only.
    #[error("the store is open for reading only")]
    ReadOnly,
    /// An earlier write failed; the store takes no commits until it is opened again.
    #[error("the store stopped after a failed write ({0}); what was acknowledged is safe; open it again")]
    Poisoned(String),
    /// The index could not be used; it can be rebuilt from the journal.
    #[error("the index failed ({0}); it will be rebuilt from the journal when the store is next opened")]
    Index(String),
}

fn no_content(digest: &Digest) -> String {
    match digest.git_blob() {
        None => {
            format!("no content has the digest {digest}, unless it is a secret: only undo and rewind read those")
        }
        Some(_) => {
            let id = &digest.to_string()[..40];
            format!("git blob {id} was not kept, and is in none of the repositories that contents are borrowed from")
        }
    }
}

impl Diagnostic for StoreError {
    fn kind(&self) -> ErrorKind {
        match self {
            Self::NoSession(_) | Self::NoContent(_) | Self::NotHere { .. } => ErrorKind::NotFound,
            Self::Conflict { .. } => ErrorKind::Conflict,
            Self::Buried(_) => ErrorKind::Refused,
            Self::Commit(error) => error.kind(),
            Self::Foreign { .. } | Self::Locked { .. } | Self::OtherHost { .. } | Self::ReadOnly => ErrorKind::Busy,
            Self::Damaged { .. } | Self::Lost(_) | Self::Format { .. } | Self::Index(_) => ErrorKind::Damaged,
            Self::Io { .. } | Self::Cluster { .. } | Self::Elsewhere { .. } | Self::Unsettled | Self::Poisoned(_) => {
                ErrorKind::Io
            }
        }
    }

    fn hint(&self) -> Option<String> {
        Some(match self {
            Self::Conflict { .. } => "read the session and try again".to_owned(),
            Self::Io { source, .. } if source.kind() == std::io::ErrorKind::StorageFull => {
                "make room on the disk and try again; nothing acknowledged is lost".to_owned()
            }
            Self::Io { source, .. } if source.kind() == std::io::ErrorKind::PermissionDenied => {
                "choose a directory that you may write with --data or FOLDSPACE_DATA".to_owned()
            }
            Self::Damaged { .. } => {
                "`foldspace fsck` shows all damage, and with --repair keeps everything that is whole".to_owned()
            }
            Self::Lost(_) => "`foldspace verify` names them; put the journal back, or go on without: `foldspace fsck --repair --accept-loss`".to_owned(),
            Self::Format { .. } => "`foldspace fsck` shows all damage".to_owned(),
            Self::Buried(_) => "remove its children first, or use another store".to_owned(),
            Self::Elsewhere { hint, .. } => return hint.clone(),
            Self::OtherHost { host, at: None, .. } => {
                format!("use it on {host}, or end foldspace there: this host then takes the session")
            }
            Self::OtherHost { host, at: Some(at), .. } => {
                format!("use it on {host} at {at}, or move it: `foldspace move SESSION HOST`")
            }
            Self::Unsettled => "look with `foldspace log` before you do it again".to_owned(),
            Self::Foreign { .. } => "end that process, or use another --data directory".to_owned(),
            Self::Locked { .. } => {
                "wait for it to end (`foldspace stop` ends an owner), or use another --data directory".to_owned()
            }
            Self::Poisoned(_) => "make room if the disk is full; then run the command again, which opens the store again".to_owned(),
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

    /// Checks for a missing permission to write, or a read-only file system.
    pub fn is_write_protected(&self) -> bool {
        use std::io::ErrorKind::{PermissionDenied, ReadOnlyFilesystem};
        matches!(self, Self::Io { source, .. } if matches!(source.kind(), PermissionDenied | ReadOnlyFilesystem))
    }
}
