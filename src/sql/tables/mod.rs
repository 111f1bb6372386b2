//! The tables, one file each.

mod calls;
mod changes;
mod commands;
mod content;
mod events;
mod files;
mod session_list;
mod slices;

use std::sync::Arc;

use super::error::SqlError;
use super::walk::Rows;
use super::wanted::{Column, Pushed, Wanted};
use super::world::World;

/// A table: its columns, and its rows for a query.
pub(super) struct Table {
    pub(super) name: &'static str,
    pub(super) columns: &'static [Column],
    /// A constraint without which the table has no rows.
    pub(super) needs: Option<Pushed>,
    pub(super) open: fn(&Arc<World>, Wanted) -> Result<Box<dyn Rows>, SqlError>,
}

pub(super) static TABLES: [&Table; 8] = [
    &session_list::SESSIONS,
    &events::EVENTS,
    &calls::CALLS,
    &commands::COMMANDS,
    &changes::CHANGES,
    &files::FILES,
    &content::CONTENT,
    &slices::SLICES,
];
