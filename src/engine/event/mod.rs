//! Events: facts that happened, typed.

mod call;
mod codec;
mod command;
mod file;
mod merge;
mod references;
mod rewind;
mod session;
mod workspace;

pub use call::{CallFinished, CallReason, CallStarted, CallStatus};
pub(crate) use call::{finished_view, started_tool};
pub use command::{
    CommandDecided, CommandLine, CommandResult, DecidedBy, EvalResult, PolicyDecision, RecordedOutput, SessionAllow,
};
pub use file::{DeleteEntry, Node, Special, WriteFile, WriteMode};
pub(crate) use file::{delete_path, node_code, write_view};
pub use merge::{ChildMerged, ConflictKind, MergeConflict, MergeConflicted, MergeSide, MergedEntry};
pub(crate) use references::references_of;
pub use rewind::{SessionRewound, SliceRestored};
pub use session::{
    ChildLimits, ChildStarted, EventsLost, Isolation, MountHydrated, MountPreview, Origin, SessionStarted,
};
pub use workspace::{ContainerStarted, ContainerStopped, DriftFound, WorkspaceTouched};

use serde::Serialize;
use serde::de::DeserializeOwned;

use super::id::Digest;

/// The kinds that folds read by the million, told apart once.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum Common {
    WriteFile,
    DeleteEntry,
    CallStarted,
    CallFinished,
    /// Any other kind.
    Other,
}

impl Common {
    /// Which of them these bytes spell.
    #[inline]
    pub(crate) fn of(kind: &[u8]) -> Self {
        match kind {
            b"WriteFile" => Self::WriteFile,
            b"CallStarted" => Self::CallStarted,
            b"CallFinished" => Self::CallFinished,
            b"DeleteEntry" => Self::DeleteEntry,
            _ => Self::Other,
        }
    }

    /// A bit of its own.
    #[inline]
    pub(crate) fn bit(self) -> u8 {
        1 << self as u8
    }

    /// Its name; none for any other kind.
    #[inline]
    pub(crate) fn name(self) -> Option<&'static str> {
        match self {
            Self::WriteFile => Some(WriteFile::KIND),
            Self::DeleteEntry => Some(DeleteEntry::KIND),
            Self::CallStarted => Some(CallStarted::KIND),
            Self::CallFinished => Some(CallFinished::KIND),
            Self::Other => None,
        }
    }
}

/// A fact of one type, as it is written to and read from a journal.
///
/// The kind and the version name a frozen encoding: once a journal holds `(KIND, VERSION)`, those
/// bytes must stay readable for good. To change the type, raise `VERSION` and let
/// [`decode`](Event::decode) bring the older versions up to date.
///
/// The provided encoding is JSON, in which an added field with a serde default needs no new version.
///
/// ```
/// use foldspace::Event;
///
/// #[derive(Debug, Clone, serde::Serialize, serde::Deserialize)]
/// struct TicketFiled { title: String }
///
/// impl Event for TicketFiled {
///     const KIND: &'static str = "TicketFiled";
/// }
/// ```
pub trait Event: std::fmt::Debug + Clone + Serialize + DeserializeOwned + Send + Sync + 'static {
    /// The name in the journal: 1 to 100 bytes, unique in a registry.
    const KIND: &'static str;

    /// The version that [`encode`](Event::encode) writes; at most 32,767.
    const VERSION: u16 = 1;

    /// Appends the encoded event to `out`.
    ///
    /// # Errors
    /// [`CodecError`] when the value has no encoding; nothing may then be recorded.
    fn encode(&self, out: &mut Vec<u8>) -> Result<(), CodecError> {
        serde_json::to_writer(out, self).map_err(|e| CodecError::new(Self::KIND, Self::VERSION, e))
    }

    /// Returns the digests of the contents that the event refers to. They are recorded with it: an export takes
    /// these contents along, and a collection keeps them, also in a program that does not know the event.
    ///
    /// None, as provided, says nothing: every kept content is then looked for in the payload, as 32 bytes and as 64
    /// hexadecimal digits, which takes long and finds those that a text merely names. Built-in events need not say
    /// it.
    fn references(&self) -> Option<Vec<Digest>> {
        None
    }

    /// Reads an event of any version ever written. The bytes come from a disk: never trust them.
    ///
    /// # Errors
    /// [`CodecError`] when the version is unknown or the bytes are no such event.
    fn decode(version: u16, bytes: &[u8]) -> Result<Self, CodecError> {
        if version > Self::VERSION {
            return Err(CodecError::newer(Self::KIND, version));
        }
        serde_json::from_slice(bytes).map_err(|e| CodecError::new(Self::KIND, version, e))
    }
}

/// An event that could not be encoded or decoded.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{kind} (version {version}): {reason}")]
pub struct CodecError {
    kind: String,
    version: u16,
    reason: String,
}

impl CodecError {
    /// An error of `kind` with the reason that `source` gives.
    pub fn new(kind: &str, version: u16, source: impl std::fmt::Display) -> Self {
        Self { kind: kind.to_owned(), version, reason: source.to_string() }
    }

    /// The error for a version that this program does not know.
    pub fn newer(kind: &str, version: u16) -> Self {
        Self::new(kind, version, "written by a newer program; this one can't read it")
    }
}
