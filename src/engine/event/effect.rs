//! Events of effects outside of the workspace, which no rewind takes back.

use serde::{Deserialize, Serialize};

use crate::engine::Seq;

/// Event of an effect outside of the workspace. The first event of a command's effect precedes the command, with the
/// outcome `unknown`; a second one of the same call has the outcome.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ExternalEffect {
    /// Action, in the words of its program, such as `git push`. At most 200 characters.
    pub what: String,
    /// Place, such as a remote or a URL, without its password; may be empty. At most 1,000 characters.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub target: String,
    /// Outcome.
    pub outcome: EffectOutcome,
    /// Advice about undoing it, if that is possible. At most 1,000 characters.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub undo: String,
    /// Source of the event.
    pub by: EffectSource,
    /// Call that it began in, if another one recorded its outcome.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub of: Option<Seq>,
}

/// Outcome of an effect.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum EffectOutcome {
    /// It took place.
    Done,
    /// It did not take place.
    Failed,
    /// It may have taken place.
    Unknown,
}

/// Source of an effect's event.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum EffectSource {
    /// A rule for known commands.
    Command,
    /// A tool or a program.
    Report,
    /// A recorded request.
    Network,
}

impl EffectOutcome {
    /// Returns its name.
    pub fn word(self) -> &'static str {
        match self {
            Self::Done => "done",
            Self::Failed => "failed",
            Self::Unknown => "unknown",
        }
    }
}
