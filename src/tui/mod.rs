//! The terminal debugger: a face over a history, which it can only look at.
//!
//! [`model`] is the debugger without a terminal, [`draw`](mod@draw) makes screens of it, [`keys`] actions of keys, and
//! [`screen`] is the loop between them.

mod clean;
mod draw;
#[cfg(test)]
mod fixture;
mod keys;
pub(crate) mod model;
mod screen;
mod worker;

pub(crate) use clean::clean;
pub(crate) use screen::{DebuggerHost, ScreenEnd, run};
