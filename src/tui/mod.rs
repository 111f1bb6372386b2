//! The terminal debugger: [`model`] without a terminal, [`draw`](mod@draw) and [`keys`] for one, [`screen`] as the
//! loop.

mod clean;
mod draw;
#[cfg(test)]
mod fixture;
mod keys;
pub(crate) mod model;
mod picker;
mod screen;
mod worker;

pub(crate) use clean::clean;
pub(crate) use picker::Picker;
pub(crate) use screen::{DebuggerHost, pick, run};
