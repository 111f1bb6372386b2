//! What can go wrong in a store.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::lease::LeaseHolder;
use super::loss::Loss;
use crate::engine::commit::CommitError;
use crate::engine::error::{Diagnostic, ErrorKind};
use crate::engine::id::{Digest, Seq, SessionId};

/// What went wrong in a store.
#[derive(Debug, Clone, thiserror::Error)]
pub enum StoreError {
    /// The history does not end where the commit expects.
    #[error("session {session} ends at {actual}, the commit expects {expected}")]
    Conflict {
        /// The session.
        session: SessionId,
        /// Where the commit expects it to end; 0 stands for no session.
        expected: Seq,
        /// Where it ends.
        actual: Seq,
    },
    /// There is no such session.
    #[error("there is no session {0}")]
    NoSession(SessionId),
    /// The session was removed and children of it have its past, so none can begin under its id.
    #[error("session {0} was removed, and children of it still have its past: no other can begin under its id")]
    Buried(SessionId),
    /// There is no such content.
    #[error("no content has the digest {0}")]
    NoContent(Digest),
    /// The commit is over a limit or can't be encoded.
    #[error(transparent)]
    Commit(#[from] CommitError),
    /// The operating system refused.
    #[error("can't {action} {}: {source}", path.display())]
    Io {
        /// What was tried.
        action: &'static str,
        /// On which file.
        path: PathBuf,
        /// What it said.
        source: Arc<std::io::Error>,
    },
    /// The journal is damaged where nothing may be lost.
    #[error("journal segment {segment} is damaged at byte {offset}: {what}")]
    Damaged {
        /// The segment's number.
        segment: u32,
        /// Where the damage begins.
        offset: u64,
        /// What is wrong there.
        what: String,
    },
    /// Acknowledged events are not in the journal any more. It can be read; nothing is added before the loss is
    /// [accepted](crate::LocalStore::accept_loss).
    #[error("{0}")]
    Lost(Arc<Loss>),
    /// The file is not what its name says, or of a newer version.
    #[error("{}: {what}", path.display())]
    Format {
        /// Which file.
        path: PathBuf,
        /// What is wrong with it.
        what: String,
    },
    /// The process that holds the store failed.
    #[error("the process that holds the store failed: {message}")]
    Elsewhere {
        /// What it said.
        message: String,
        /// What it said a person can do about it.
        hint: Option<String>,
    },
    /// The process that held the store is gone, and nobody could be found who holds it now.
    #[error("whether the last changes were recorded is not known: the process that held the store is gone, and {0}")]
    Unsettled(String),
    /// Another user, or another version of the program, is at the other end of the store's socket.
    #[error("can't work through {}: {what}", path.display())]
    Foreign {
        /// The socket.
        path: PathBuf,
        /// Who is there.
        what: String,
    },
    /// Another process has the session's workspace open.
    #[error("session {session} is in use by {holder}")]
    InUse {
        /// The session.
        session: SessionId,
        /// Who has it.
        holder: Arc<LeaseHolder>,
    },
    /// Another process has the store.
    #[error("the store {} is in use by {holder}", path.display())]
    Locked {
        /// The store's directory.
        path: PathBuf,
        /// What the holder says of itself.
        holder: String,
    },
    /// The store was opened for reading only.
    #[error("the store is open for reading only")]
    ReadOnly,
    /// An earlier write failed; nothing more is taken until the store is opened again.
    #[error("the store stopped after a failed write ({0}); what was acknowledged is safe; open it again")]
    Poisoned(String),
    /// The index could not be used; it can be rebuilt from the journal.
    #[error("the index failed ({0}); it will be rebuilt from the journal when the store is next opened")]
    Index(String),
}

impl Diagnostic for StoreError {
    fn kind(&self) -> ErrorKind {
        match self {
            Self::NoSession(_) | Self::NoContent(_) => ErrorKind::NotFound,
            Self::Conflict { .. } => ErrorKind::Conflict,
            Self::Buried(_) => ErrorKind::Refused,
            Self::Commit(error) => error.kind(),
            Self::Foreign { .. } | Self::InUse { .. } | Self::Locked { .. } | Self::ReadOnly => ErrorKind::Busy,
            Self::Damaged { .. } | Self::Lost(_) | Self::Format { .. } | Self::Index(_) => ErrorKind::Damaged,
            Self::Io { .. } | Self::Elsewhere { .. } | Self::Unsettled(_) | Self::Poisoned(_) => ErrorKind::Io,
        }
    }

    fn hint(&self) -> Option<String> {
        Some(match self {
            Self::Conflict { .. } => "read the session again and decide anew".to_owned(),
            Self::Io { source, .. } if source.kind() == std::io::ErrorKind::StorageFull => {
                "make room on the disk and try again; nothing acknowledged is lost".to_owned()
            }
            Self::Io { source, .. } if source.kind() == std::io::ErrorKind::PermissionDenied => {
                "choose a directory that you may write with --data or FOLDSPACE_DATA".to_owned()
            }
            Self::Damaged { .. } => "`foldspace fsck` shows all damage and can go on after it".to_owned(),
            Self::Lost(_) => "`foldspace verify` names them; put the journal back, or go on without: `foldspace fsck --repair --accept-loss`".to_owned(),
            Self::Format { .. } => "`foldspace fsck` shows all damage".to_owned(),
            Self::Buried(_) => "remove its children first, or use another store".to_owned(),
            Self::Elsewhere { hint, .. } => return hint.clone(),
            Self::Unsettled(_) => "look with `foldspace log` before you do it again".to_owned(),
            Self::Foreign { .. } => "end that process, or use another --data directory".to_owned(),
            Self::InUse { .. } => "wait for it to end; what it does is in `foldspace log`".to_owned(),
            Self::Locked { .. } => "wait for it to end, or use another --data directory".to_owned(),
            Self::Poisoned(_) => "see the first error; then run the command again".to_owned(),
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
    /// Wraps an I/O error with what was tried, for `map_err`.
    pub(crate) fn io(action: &'static str, path: &Path) -> impl FnOnce(std::io::Error) -> Self + use<> {
        let path = path.to_owned();
        move |source| Self::Io { action, path, source: Arc::new(source) }
    }

    /// Tells whether it is for want of the right to write, or for a file system that nobody may write to.
    pub fn is_write_protected(&self) -> bool {
        use std::io::ErrorKind::{PermissionDenied, ReadOnlyFilesystem};
        matches!(self, Self::Io { source, .. } if matches!(source.kind(), PermissionDenied | ReadOnlyFilesystem))
    }
}
