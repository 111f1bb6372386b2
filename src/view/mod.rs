//! The JSON documents of `docs/JSON.md`, which all faces give: one shape for each thing, whoever asks for it.

mod bisect;
mod call;
mod child;
mod entry;
mod event;
mod patch;
mod position;
mod question;
mod rewound;
mod session;
mod state;
mod text;

pub use bisect::{BadChange, BisectDocument, BisectEnds, ProbeDocument, SliceLook, bisected, bisected_by_slice};
pub use call::{Call, CallDocument, CallOutcome, CallPathChange, CallViews, call_at, path_of, whole};
pub use child::{ChildDocument, MergeDocument, child, merged};
pub use entry::{EntryDocument, EntryShape, entry};
pub use event::{EventDocument, event};
pub use patch::{
    ChangeDocument, ChangeShape, Patch, change, change_between, changes_between, patches, patches_between,
};
pub use position::Position;
pub use question::{allowed_by_session, question};
pub use rewound::{RewoundDocument, RewoundRange, rewound};
pub use session::{SessionDocument, listed, session, sessions};
pub use state::{SliceDocument, StateDocument, slice, slice_named, state, state_with};
pub use text::{misleads, visible, visible_lines};
