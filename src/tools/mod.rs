//! Tools: the only place where an effect and an event meet.

mod context;
mod dispatch;
mod error;
mod files;
mod filesystem;
mod lift;
mod mounts;
mod tool;
mod toolset;

pub use context::ToolContext;
pub use dispatch::{Dispatcher, ToolCall, ToolOutcome};
pub use error::ToolError;
pub use files::{EditTool, GlobTool, GrepTool, ListTool, ReadTool, RemoveTool, WriteTool};
pub use filesystem::Filesystem;
pub use lift::{lift, lower};
pub use mounts::{AllowedRoots, MountError, MountSpec, hydrate, previews};
pub use tool::{Effect, Tool, ToolDescription};
pub use toolset::{Tools, ToolsError};
