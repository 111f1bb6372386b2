//! The engine: events, stores, folds, sessions, the bus. Imports no sibling module.

/// Implements `Debug` for a type with its one distinguishing part.
#[doc(hidden)]
#[macro_export]
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
pub use debug_by;

#[doc(hidden)]
pub mod advice;
pub mod backward;
pub mod bus;
pub mod chain;
pub mod clock;
pub(crate) mod collections;
pub mod commit;
pub mod content_ref;
pub mod counted;
#[doc(hidden)]
pub mod durations;
pub mod error;
pub mod event;
pub(crate) mod fold;
pub mod history;
pub mod id;
pub mod lock;
pub mod nearest;
#[doc(hidden)]
pub mod path;
#[cfg(feature = "tools")]
pub mod path_glob;
pub mod peer;
pub mod portable;
#[doc(hidden)]
pub mod recorded;
pub(crate) mod reducer;
#[doc(hidden)]
pub mod registry;
#[doc(hidden)]
pub mod replay;
#[doc(hidden)]
pub mod session;
#[doc(hidden)]
pub mod slice;
#[doc(hidden)]
pub mod state;
pub mod store;
pub mod subscription;
pub mod verify;

pub(crate) use clock::{Clock, SystemClock, Timestamp};
pub(crate) use commit::{Commit, CommitView, Content, Expected, ForkPoint};
pub(crate) use error::{Advice, Diagnostic, ErrorKind, ValueError};
pub use id::{CommitId, Digest, Seq, SessionId};
pub(crate) use lock::{lock, read_lock, write_lock};
pub(crate) use path::EntryPath;
pub(crate) use recorded::{EventRef, Recorded};
pub(crate) use registry::Registry;
pub(crate) use session::Session;
pub(crate) use session::error::{SessionError, SessionResult};
pub(crate) use session::sessions::Sessions;
pub(crate) use slice::{OnRewind, Slice, SliceError};
pub(crate) use state::State;
