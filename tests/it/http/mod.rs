//! The HTTP API, through real sockets.

mod annotations;
mod attacks;
mod bad_input;
mod calls;
mod compare;
mod description;
mod dispatch;
mod e2b;
mod file_changes;
mod follow;
mod guard;
mod limits;
mod lists;
mod materialise;
mod output;
mod own_slices;
mod processes;
mod recorded;
mod rerun;
mod search;
mod slow_store;
mod states;
mod terminal;
mod ui;
