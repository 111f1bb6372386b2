//! A process that holds a store or a session's workspace.

use std::path::PathBuf;

use serde::{Deserialize, Serialize};

use super::lock::command_line;

/// The process that has a session's workspace open.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct LeaseHolder {
    /// Its number.
    pub process: u32,
    /// How it was called.
    pub command: String,
    /// The unix socket on which it takes calls for the session from other processes; none when it takes none.
    #[serde(default)]
    pub address: Option<PathBuf>,
}

impl LeaseHolder {
    /// This process.
    pub fn this_process(address: Option<PathBuf>) -> Self {
        Self { process: std::process::id(), command: command_line(), address }
    }
}

impl std::fmt::Display for LeaseHolder {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self.process {
            0 => f.write_str("another process"),
            process => write!(f, "process {process} ({})", self.command),
        }
    }
}
