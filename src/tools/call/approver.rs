//! Approvers of commands.

use std::collections::BTreeMap;
use std::future::Future;
use std::pin::Pin;

use bytes::Bytes;

use crate::engine::event::CommandLine;
use crate::engine::id::Seq;

/// Approver of commands: a person at a terminal, an orchestrator, another program.
///
/// ```
/// use foldspace::{tools::{ApprovalAnswer, Asker, Asking, CommandQuestion}};
///
/// /// Allows what begins with `git`.
/// struct GitOnly;
///
/// impl Asker for GitOnly {
///     fn ask(&self, question: CommandQuestion) -> Asking {
///         let git = question.programs.iter().all(|program| program == "git");
///         let refusal = ApprovalAnswer::Refuse("only git".to_owned());
///         Box::pin(async move { if git { ApprovalAnswer::Session } else { refusal } })
///     }
/// }
/// ```
pub trait Asker: Send + Sync + 'static {
    /// Answers a question. Meanwhile the call waits, within its time limit.
    fn ask(&self, question: CommandQuestion) -> Asking;
}

/// An answer to come.
pub type Asking = Pin<Box<dyn Future<Output = ApprovalAnswer> + Send>>;

/// Request for approval of a command.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CommandQuestion {
    /// The session's name.
    pub session: String,
    /// Call that would run it; 0 outside of calls.
    pub call: Seq,
    /// Agent that makes the call.
    pub agent: String,
    /// The command; of an evaluation the interpreter with all of the code.
    pub command: CommandLine,
    /// The variables that the call gives it.
    pub env: BTreeMap<String, String>,
    /// Standard input of the command.
    pub stdin: Bytes,
    /// Programs to allow.
    pub programs: Vec<String>,
    /// Maximum of temporary copies of the session in which it would run; the answer then holds for these runs alone.
    pub copies: Option<usize>,
}

/// Answer to a [`CommandQuestion`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ApprovalAnswer {
    /// This once.
    Once,
    /// Its programs may run for the rest of the session.
    Session,
    /// Every command may run for the rest of the session, but for those that are denied.
    Everything,
    /// No, and why.
    Refuse(String),
}
