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
/// # use foldspace_tools as foldspace;
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
    /// Answers a question. The call waits for the answer, within its time limit.
    fn ask(&self, question: CommandQuestion) -> Asking;
}

/// A pending answer.
pub type Asking = Pin<Box<dyn Future<Output = ApprovalAnswer> + Send>>;

/// Request for approval of a command.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CommandQuestion {
    /// The session's name.
    pub session: String,
    /// Call that would run the command; 0 outside of calls.
    pub call: Seq,
    /// Agent that makes the call.
    pub agent: String,
    /// The command; for an evaluation, the interpreter with the whole code.
    pub command: CommandLine,
    /// The variables that the call sets.
    pub env: BTreeMap<String, String>,
    /// Standard input of the command.
    pub stdin: Bytes,
    /// Programs to allow.
    pub programs: Vec<String>,
    /// Maximum number of temporary copies of the session to run it in; the answer then holds only for these runs.
    pub copies: Option<usize>,
}

/// Answer to a [`CommandQuestion`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ApprovalAnswer {
    /// Allows the command once.
    Once,
    /// Allows its programs for the rest of the session.
    Session,
    /// Allows every command for the rest of the session, except denied commands.
    Everything,
    /// Refuses the command, with a reason.
    Refuse(String),
}
