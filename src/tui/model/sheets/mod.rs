//! The contents of the panes.

mod diff;
mod event;
mod file;
mod files;
mod output;
mod slices;

pub(crate) use diff::diff;
pub(crate) use event::{call, event};
pub(crate) use file::file;
pub(crate) use files::files;
pub(crate) use output::output;
pub(crate) use slices::{changed_slices, changes_of, slices};
