//! Tools of other programs: a program registers them on the unix socket, and the server calls them back.

mod asks;
mod context;
mod link;
mod program;
mod register;
mod tool;
mod wire;

pub use context::{RemoteCommand, RemoteContext};
pub use program::RegisteredTools;
pub(super) use register::register_route;
pub use tool::RemoteTools;
pub use wire::{RemoteEntry, RemoteRun};
