//! Events, stores, the fold, sessions, the bus. Imports no sibling.

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
pub(crate) mod path;
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
