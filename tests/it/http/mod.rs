//! The HTTP API, through real sockets.

mod attacks;
mod bad_input;
mod calls;
mod description;
mod follow;
mod guard;
mod limits;
mod lists;
mod materialise;
mod output;
mod states;
mod terminal;
