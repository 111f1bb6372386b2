//! Events, stores, the fold, sessions, the bus. Imports no sibling.

pub(crate) mod bus;
pub(crate) mod children;
pub(crate) mod clock;
pub(crate) mod collections;
pub(crate) mod commit;
mod core;
pub(crate) mod event;
mod feed;
pub(crate) mod fold;
pub(crate) mod id;
pub(crate) mod live;
mod names;
pub(crate) mod path;
pub(crate) mod portable;
pub(crate) mod recorded;
pub(crate) mod reducer;
pub(crate) mod registry;
pub(crate) mod replay;
pub(crate) mod run;
pub(crate) mod session;
pub(crate) mod sessions;
pub(crate) mod slice;
pub(crate) mod snapshot;
pub(crate) mod state;
pub(crate) mod store;
pub(crate) mod verify;
