//! Events of commands and evaluations: the command, the decision and the result.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::engine::{Digest, EntryPath};

/// Event of a command that ended or was stopped. Its changes are in the same commit.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct CommandResult {
    /// Backend that ran it.
    pub backend: String,
    /// Command as given.
    pub command: CommandLine,
    /// Working directory.
    pub cwd: EntryPath,
    /// Exit code; 127 for a missing program, 128 + signal for a command that a signal ended.
    pub exit_code: i32,
    /// Signal that ended it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub signal: Option<i32>,
    /// True if it ran longer than its limit.
    pub timed_out: bool,
    /// True if it was cancelled.
    pub cancelled: bool,
    /// True if the container, or the process that runs commands, ended while it ran.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub lost: bool,
    /// Duration in microseconds.
    pub micros: u64,
    /// Standard output.
    pub stdout: RecordedOutput,
    /// Standard error.
    pub stderr: RecordedOutput,
}

/// Command in one of the forms that can be run.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(untagged)]
pub enum CommandLine {
    /// Text for `/bin/sh -c`.
    Shell(String),
    /// Program and arguments, without a shell.
    Args(Vec<String>),
    /// Text that an interpreter runs from a file.
    Script {
        /// Path or name of the interpreter, with its options: words without quotes.
        interpreter: String,
        /// Text of the script.
        script: String,
    },
}

impl CommandLine {
    /// Returns the number of characters, over all arguments; of a script without its interpreter.
    pub fn chars(&self) -> usize {
        match self {
            Self::Shell(text) => text.chars().count(),
            Self::Args(args) => args.iter().map(|arg| arg.chars().count()).sum(),
            Self::Script { script, .. } => script.chars().count(),
        }
    }
}

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

fn quoted(word: &str) -> std::borrow::Cow<'_, str> {
    let plain = |c: char| c.is_ascii_alphanumeric() || "_-./=:,@%+".contains(c);
    match !word.is_empty() && word.chars().all(plain) {
        true => word.into(),
        false => format!("'{}'", word.replace('\'', "'\\''")).into(),
    }
}

/// Output of a command on one stream.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct RecordedOutput {
    /// Digest of the stored output.
    pub content: Digest,
    /// Bytes stored: the beginning and end of a longer output.
    pub kept: u64,
    /// Bytes written.
    pub bytes: u64,
}

/// Event of a command's terminal output, in addition to its [`CommandResult`]. Its input is not recorded.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct TerminalRecorded {
    /// Initial height of the terminal, in lines.
    pub rows: u16,
    /// Initial width of the terminal, in characters.
    pub columns: u16,
    /// Digest of the stored recording, in asciicast version 2 format.
    pub cast: Digest,
    /// Bytes of the recording.
    pub bytes: u64,
    /// True if more was shown than is stored.
    pub truncated: bool,
}

/// Event of code that was evaluated. Its changes are in the same commit.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct EvalResult {
    /// Language: `python`.
    pub language: String,
    /// Place where it ran: `in-process`, or the backend that ran it in a shell.
    pub place: String,
    /// Digest of the stored code.
    pub code: Digest,
    /// Exit code; 0 if it ran to its end.
    pub exit_code: i32,
    /// True if it ran longer than its limit.
    pub timed_out: bool,
    /// True if it was cancelled.
    pub cancelled: bool,
    /// Duration in microseconds.
    pub micros: u64,
    /// Standard output.
    pub stdout: RecordedOutput,
    /// Standard error.
    pub stderr: RecordedOutput,
}

/// Event of a policy's decision about a command, before it runs.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct CommandDecided {
    /// Command; of longer code only the beginning.
    pub command: CommandLine,
    /// Environment variables set by the call.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub env: BTreeMap<String, String>,
    /// Digest of the stored standard input; `None` if that was empty.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stdin: Option<Digest>,
    /// Digest of the stored code, for an evaluation.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub code: Option<Digest>,
    /// Digest of the stored environment that a command on the host inherits: a JSON object of variable names and the
    /// digests of their values, which are not stored.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub environment: Option<Digest>,
    /// Decision about the command.
    pub decision: PolicyDecision,
    /// Source of the decision.
    pub by: DecidedBy,
    /// Reason for the decision.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub reason: String,
}

/// Decision about a command.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum PolicyDecision {
    /// The command may run.
    Allow,
    /// The command may not run.
    Deny,
}

/// Source of a decision about a command.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum DecidedBy {
    /// Lists of the policy.
    Policy,
    /// Policy with automatic confirmation: it allows where it would ask.
    AutoConfirm,
    /// Earlier approval for the session.
    Session,
    /// Answer of the approver.
    Answer,
    /// No approver was available.
    Nobody,
}

/// Event of programs that may run for the rest of the session without approval.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SessionAllow {
    /// Programs, as the policy's allow list names them.
    pub programs: Vec<String>,
    /// True if every command that is not denied may run.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub everything: bool,
}
