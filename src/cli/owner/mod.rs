//! The owner of the store, through which this program acts: a process that is started on demand, or this process.

mod client;
mod reach;
mod start;

pub(super) use client::OwnerClient;
#[cfg(feature = "mcp")]
pub(super) use client::{all_tools, end_calls};
pub(super) use reach::{SOCKET, running, start};
#[cfg(feature = "mcp")]
pub(super) use start::Starter;
pub(super) use start::owner_command;
