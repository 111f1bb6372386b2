//! Commands and evaluations: what ran, who allowed it, and what came of it.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::Event;
use crate::engine::id::Digest;
use crate::engine::path::EntryPath;

/// A command ended, or was ended. What it changed stands beside it, in the same commit.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct CommandResult {
    /// The backend that ran it.
    pub backend: String,
    /// As it was given.
    pub command: CommandLine,
    /// Where it ran.
    pub cwd: EntryPath,
    /// Its exit code; 127 for a program that is not there, 128 + signal when a signal ended it.
    pub exit_code: i32,
    /// The signal that ended it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub signal: Option<i32>,
    /// Whether it took longer than it may.
    #[serde(default)]
    pub timed_out: bool,
    /// Whether it was taken back.
    #[serde(default)]
    pub cancelled: bool,
    /// How long it ran, in microseconds.
    pub micros: u64,
    /// What it printed.
    pub stdout: RecordedOutput,
    /// What it complained of.
    pub stderr: RecordedOutput,
}

impl Event for CommandResult {
    const KIND: &'static str = "CommandResult";
}

/// A command as it is given to a shell protocol.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(untagged)]
pub enum CommandLine {
    /// A text for `/bin/sh -c`.
    Shell(String),
    /// A program and its arguments; no shell sees them.
    Args(Vec<String>),
    /// A text that an interpreter runs from a file.
    Script {
        /// The interpreter's path or name.
        interpreter: String,
        /// The text.
        script: String,
    },
}

impl CommandLine {
    /// How many characters it has, all arguments together.
    pub fn chars(&self) -> usize {
        match self {
            Self::Shell(text) => text.chars().count(),
            Self::Args(args) => args.iter().map(|arg| arg.chars().count()).sum(),
            Self::Script { interpreter, script } => interpreter.chars().count() + script.chars().count(),
        }
    }
}

/// As a person would type it.
impl std::fmt::Display for CommandLine {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Shell(text) => f.write_str(text),
            Self::Args(args) => {
                for (at, arg) in args.iter().enumerate() {
                    let space = if at == 0 { "" } else { " " };
                    write!(f, "{space}{}", quoted(arg))?;
                }
                Ok(())
            }
            Self::Script { interpreter, script } => write!(f, "{interpreter} <<'EOF'\n{script}\nEOF"),
        }
    }
}

/// A word as a shell reads it back.
fn quoted(word: &str) -> std::borrow::Cow<'_, str> {
    let plain = |c: char| c.is_ascii_alphanumeric() || "_-./=:,@%+".contains(c);
    match !word.is_empty() && word.chars().all(plain) {
        true => word.into(),
        false => format!("'{}'", word.replace('\'', "'\\''")).into(),
    }
}

/// What a command wrote to one stream.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct RecordedOutput {
    /// Under this digest the store keeps what was kept.
    pub content: Digest,
    /// Bytes kept. Of a longer output the beginning and the end are kept.
    pub kept: u64,
    /// Bytes that were written.
    pub bytes: u64,
}

/// Code was evaluated.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct EvalResult {
    /// `python`.
    pub language: String,
    /// Under this digest the store keeps the code.
    pub code: Digest,
    /// 0 when it ran to its end.
    pub exit_code: i32,
    /// Whether it took longer than it may.
    #[serde(default)]
    pub timed_out: bool,
    /// Whether it was taken back.
    #[serde(default)]
    pub cancelled: bool,
    /// How long it took, in microseconds.
    pub micros: u64,
    /// What it printed.
    pub stdout: RecordedOutput,
    /// What it complained of.
    pub stderr: RecordedOutput,
}

impl Event for EvalResult {
    const KIND: &'static str = "EvalResult";
}

/// A policy decided about a command, before it ran.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct CommandDecided {
    /// The command; of longer code the beginning.
    pub command: CommandLine,
    /// The variables that the call gave it.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub env: BTreeMap<String, String>,
    /// Under this digest the store keeps what it was to read on its standard input, where that was not empty.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stdin: Option<Digest>,
    /// Under this digest the store keeps the code, where it was one to be evaluated.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub code: Option<Digest>,
    /// What was decided.
    pub decision: PolicyDecision,
    /// Who decided.
    pub by: DecidedBy,
    /// Why.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub reason: String,
}

impl Event for CommandDecided {
    const KIND: &'static str = "CommandDecided";
}

/// Whether a command may run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum PolicyDecision {
    /// It may.
    Allow,
    /// It may not.
    Deny,
}

/// Who decided about a command.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum DecidedBy {
    /// The policy's lists.
    Policy,
    /// The policy, which says yes where it would ask.
    AutoConfirm,
    /// What was allowed for the session before.
    Session,
    /// Whoever was asked.
    Answer,
    /// Nobody: there was nobody to ask.
    Nobody,
}

/// Programs may run for the rest of the session without a question.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SessionAllow {
    /// Which, as the policy's allow list names them.
    pub programs: Vec<String>,
}

impl Event for SessionAllow {
    const KIND: &'static str = "SessionAllow";
}
