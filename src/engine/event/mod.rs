//! Typed events and their encodings.

mod annotation;
mod call;
mod codec;
mod command;
mod declared;
mod effect;
mod file;
mod file_mode;
mod http;
mod merge;
mod own;
mod references;
mod rewind;
mod run;
mod service;
mod session;
mod tool_policy;
mod workspace;

pub use annotation::{Annotated, PositionTagged};
pub use call::{CallFinished, CallReason, CallStarted, CallStatus};
pub use call::{
    FinishedView, REVERT_TOOL, UNDO_TOOL, finished_result, finished_view, started_params, started_tool, takes_back,
};
pub use command::{
    CommandDecided, CommandLine, CommandResult, DecidedBy, EvalResult, PolicyDecision, RecordedOutput, SessionAllow,
    TerminalRecorded,
};
pub use declared::SliceDeclared;
pub use effect::{EffectOutcome, EffectSource, ExternalEffect};
pub(crate) use file::{ArchivedWriteFileV1, delete_path, node_code, write_view};
pub use file::{DeleteEntry, LinkFile, Node, Special, WriteFile, WriteMode};
pub use file_mode::FileMode;
pub use http::{HttpExchange, HttpPart};
pub use merge::{ChildMerged, ConflictKind, MergeConflict, MergeConflicted, MergeSide, MergedEntry};
pub(crate) use own::unknown_data;
pub use own::{MAX_OWN_BYTES, check_own_kind};
pub(crate) use references::{digests_in, references_of};
pub use rewind::{SessionRewound, SliceRestored};
pub use run::{
    CallNoted, CallObserved, ChangesShared, ChangesUnknown, GitMoved, ObservedAccess, ReportLate, RunBegan, RunEnded,
    RunNoted, RunPrompted, TaskObserved, TranscriptRecord,
};
pub use service::{ServiceStarted, ServiceStopped};
pub use session::{
    ChildLimits, ChildStarted, EventsLost, Isolation, LostBytes, MountHydrated, MountPreview, Origin, SessionStarted,
    SessionTaken,
};
pub use tool_policy::ToolPolicySet;
pub use workspace::{
    ContainerStarted, ContainerStopped, DriftFound, NetworkConnection, VariableValue, WorkspaceTouched,
};

use serde::Serialize;
use serde::de::DeserializeOwned;

use super::id::Digest;

/// Frequent kinds, distinguished once so that folds over millions of events compare no texts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[doc(hidden)]
pub enum Common {
    WriteFile,
    DeleteEntry,
    CallStarted,
    CallFinished,
    Other,
}

impl Common {
    pub(crate) const COUNT: usize = 5;

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

/// Fact of one type, as it is written to and read from a journal.
///
/// The kind and the version name a frozen encoding: once a journal holds `(KIND, VERSION)`, those bytes must stay
/// readable forever. To change the type, raise `VERSION` and let [`decode`](Event::decode) upgrade older versions.
///
/// The default encoding is JSON: a new field with a serde default needs no new version.
///
/// ```
/// # use foldspace_engine as foldspace;
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
    /// Name in the journal: 1 to 100 bytes, unique in a registry.
    const KIND: &'static str;

    /// Version that [`encode`](Event::encode) writes; at most 32,767.
    const VERSION: u16 = 1;

    /// Appends the encoded event to `out`. Fails with [`CodecError`].
    fn encode(&self, out: &mut Vec<u8>) -> Result<(), CodecError> {
        serde_json::to_writer(out, self).map_err(|e| CodecError::new(Self::KIND, Self::VERSION, e))
    }

    /// Returns the digests of the contents that the event refers to. They are recorded with it: an export includes
    /// these contents, and a collection keeps them, even in a program that does not know the event.
    ///
    /// `None`, the default, declares nothing. The payload is then searched for every stored content, as 32 bytes and as
    /// 64 hexadecimal digits. That is slow, and finds contents that a text merely names. Built-in events need not
    /// declare theirs.
    fn references(&self) -> Option<Vec<Digest>> {
        None
    }

    /// Reads an event of any version ever written. The bytes come from a disk: never trust them. Fails with
    /// [`CodecError`] if the version is unknown or the bytes are not such an event.
    fn decode(version: u16, bytes: &[u8]) -> Result<Self, CodecError> {
        if version > Self::VERSION {
            return Err(CodecError::newer(Self::KIND, version));
        }
        serde_json::from_slice(bytes).map_err(|e| CodecError::new(Self::KIND, version, e))
    }
}

macro_rules! events_in_json {
    (with contents: $($with:ident),*; without: $($without:ident),*) => {
        $(impl Event for $with {
            const KIND: &'static str = stringify!($with);
        })*
        $(impl Event for $without {
            const KIND: &'static str = stringify!($without);
        })*

        /// Kinds of events that refer to no contents.
        const WITHOUT_CONTENTS: &[&str] = &[DeleteEntry::KIND, $($without::KIND),*];
    };
}

events_in_json! {
    with contents: CallNoted, ChildMerged, CommandDecided, CommandResult, EvalResult, EventsLost, HttpExchange, MergeConflicted, RunPrompted, TerminalRecorded, TranscriptRecord;
    without: Annotated, CallObserved, ChangesShared, ChangesUnknown, ChildStarted, ContainerStarted, ContainerStopped, DriftFound, ExternalEffect, GitMoved, LinkFile, MountHydrated, NetworkConnection, PositionTagged, ReportLate, RunBegan, RunEnded, RunNoted, ServiceStarted, ServiceStopped, SessionAllow, SessionRewound, SessionStarted, SessionTaken, TaskObserved, ToolPolicySet, WorkspaceTouched
}

/// Error of encoding or decoding an event.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{kind} (version {version}): {reason}")]
pub struct CodecError {
    kind: String,
    version: u16,
    reason: String,
}

impl CodecError {
    /// Creates an error of `kind` with `source` as the reason.
    pub fn new(kind: &str, version: u16, source: impl std::fmt::Display) -> Self {
        Self { kind: kind.to_owned(), version, reason: source.to_string() }
    }

    /// Creates the error for a version that this program does not know.
    pub fn newer(kind: &str, version: u16) -> Self {
        Self::new(kind, version, "written by a newer program; this one can't read it")
    }
}
