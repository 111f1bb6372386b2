//! Owners of stores.

use serde::{Deserialize, Serialize};

use crate::engine::clock::Timestamp;

/// Maximum characters of the recorded command line.
const COMMAND_CHARS: usize = 200;

/// The process that has a store open for writing.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct StoreOwner {
    /// Process id; 0 if unknown.
    pub process: u32,
    /// Command line.
    pub command: String,
    /// Time at which it took the store; `None` if unknown.
    #[serde(skip)]
    pub since: Option<Timestamp>,
}

impl StoreOwner {
    /// Describes this process.
    pub fn this_process() -> Self {
        let words: Vec<_> = std::env::args_os().map(|word| word.to_string_lossy().into_owned()).collect();
        let command = words.join(" ").chars().take(COMMAND_CHARS).collect();
        Self { process: std::process::id(), command, since: None }
    }
}

impl std::fmt::Display for StoreOwner {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self.process {
            0 => f.write_str("another process"),
            process => write!(f, "process {process} ({})", self.command),
        }
    }
}
