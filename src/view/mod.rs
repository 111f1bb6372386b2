//! The values that several verbs and faces share: positions, events, calls, entries, patches, texts for people.

mod call;
mod entry;
mod event;
mod patch;
mod position;
mod question;
mod slice;
mod text;

pub use call::{Call, CallDocument, CallOutcome, CallPathChange, CallViews, call_at, path_of, whole};
pub use entry::{EntryDocument, EntryShape, entry};
pub use event::{EventDocument, event};
pub use patch::{
    ChangeDocument, ChangeShape, Patch, change, change_between, changes_between, patches, patches_between,
};
pub use position::{Position, first_read};
pub use question::{allowed_by_session, question};
pub use slice::{slice, slice_named};
pub use text::{misleads, visible, visible_lines};
