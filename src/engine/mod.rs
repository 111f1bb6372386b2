//! The engine: events, stores, folds, sessions, the bus. Imports no sibling module.

/// Implements `Debug` for a type with its one distinguishing part.
macro_rules! debug_by {
    ($type:ident, |$this:ident| $part:ident: $value:expr) => {
        impl std::fmt::Debug for $type {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                let $this = self;
                f.debug_struct(stringify!($type)).field(stringify!($part), &$value).finish_non_exhaustive()
            }
        }
    };
}
pub(crate) use debug_by;

pub(crate) mod advice;
pub(crate) mod bus;
pub(crate) mod clock;
pub(crate) mod collections;
pub(crate) mod commit;
pub(crate) mod content_ref;
pub(crate) mod error;
pub(crate) mod event;
pub(crate) mod fold;
pub(crate) mod history;
pub(crate) mod id;
pub(crate) mod lock;
pub(crate) mod nearest;
pub(crate) mod path;
#[cfg(feature = "tools")]
pub(crate) mod path_glob;
pub(crate) mod peer;
pub(crate) mod portable;
pub(crate) mod recorded;
pub(crate) mod reducer;
pub(crate) mod registry;
pub(crate) mod replay;
pub(crate) mod session;
pub(crate) mod slice;
pub(crate) mod state;
pub(crate) mod store;
pub(crate) mod subscription;
pub(crate) mod verify;

pub(crate) use clock::{Clock, SystemClock, Timestamp};
pub(crate) use commit::{Commit, CommitView, Content, Expected, ForkPoint};
pub(crate) use error::{Advice, Diagnostic, ErrorKind, ValueError};
pub(crate) use id::{CommitId, Digest, Seq, SessionId};
pub(crate) use lock::{lock, read_lock, write_lock};
pub(crate) use path::EntryPath;
pub(crate) use recorded::{EventRef, Recorded};
pub(crate) use registry::Registry;
pub(crate) use session::Session;
pub(crate) use session::error::{SessionError, SessionResult};
pub(crate) use session::sessions::Sessions;
pub(crate) use slice::{OnRewind, Slice, SliceError};
pub(crate) use state::State;
