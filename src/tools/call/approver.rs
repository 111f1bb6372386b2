//! Who is asked whether a command may run.

use std::collections::BTreeMap;
use std::future::Future;
use std::pin::Pin;

use bytes::Bytes;

use crate::engine::event::CommandLine;
use crate::engine::id::Seq;

/// Answers where a policy does not know: a person at a terminal, an orchestrator, another program.
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
///         Box::pin(async move { if git { ApprovalAnswer::Session } else { ApprovalAnswer::Refuse("only git".to_owned()) } })
///     }
/// }
/// ```
pub trait Asker: Send + Sync + 'static {
    /// Answers a question. Meanwhile the call waits, within its time limit.
    fn ask(&self, question: CommandQuestion) -> Asking;
}

/// An answer to come.
pub type Asking = Pin<Box<dyn Future<Output = ApprovalAnswer> + Send>>;

/// Whether a command may run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CommandQuestion {
    /// The session's name.
    pub session: String,
    /// The call that wants to run it; 0 where no call does.
    pub call: Seq,
    /// Who makes the call.
    pub agent: String,
    /// The command; of an evaluation the interpreter with all of the code.
    pub command: CommandLine,
    /// The variables that the call gives it.
    pub env: BTreeMap<String, String>,
    /// What it reads on its standard input.
    pub stdin: Bytes,
    /// What would have to be allowed for it.
    pub programs: Vec<String>,
    /// At how many positions of the session at most it would run, where that is in throw-away copies of it; the answer
    /// then holds for these runs alone.
    pub copies: Option<usize>,
}

/// What somebody says to a [`CommandQuestion`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ApprovalAnswer {
    /// This once.
    Once,
    /// Its programs may run for the rest of the session.
    Session,
    /// No, and why.
    Refuse(String),
}
