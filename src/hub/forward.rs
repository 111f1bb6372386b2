//! Calls for sessions whose workspace another process has.

use std::future::Future;
use std::pin::Pin;

use crate::engine::error::{Diagnostic, ErrorKind};
use crate::engine::id::Seq;
use crate::engine::session::Session;
use crate::engine::store::LeaseHolder;
use crate::reducers::MergeChoices;
use crate::tools::{MergeReport, RewindOptions, Rewound, ShellRules, ToolCall, ToolOutcome};

/// What another process could not do, or does not want to.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ForwardError {
    /// Nobody is there any more. Nothing was done.
    #[error("{0} has the workspace, and does not answer")]
    Gone(String),
    /// It takes nothing on any more. Nothing was done.
    #[error("{0} has the workspace, and is ending")]
    Ending(String),
    /// It ended while it was at work: what was to be done is interrupted, or done and not told.
    #[error("{holder} ended, or let go, before it answered ({reason}); what became of it is in the session's log")]
    Lost {
        /// Who it was.
        holder: String,
        /// What happened to the connection.
        reason: String,
    },
    /// It says no.
    #[error("{message}")]
    Refused {
        /// Its kind.
        kind: ErrorKind,
        /// The problem in a word, as the API has it: `not_found`, `conflict`, ...
        problem: String,
        /// Its words.
        message: String,
        /// What it says a person can do about it.
        hint: Option<String>,
    },
}

impl Diagnostic for ForwardError {
    fn kind(&self) -> ErrorKind {
        match self {
            Self::Gone(_) | Self::Ending(_) => ErrorKind::Busy,
            Self::Lost { .. } => ErrorKind::Io,
            Self::Refused { kind, .. } => *kind,
        }
    }

    fn hint(&self) -> Option<String> {
        match self {
            Self::Gone(_) | Self::Ending(_) => Some("nothing was done; try again".to_owned()),
            Self::Lost { .. } => Some("look into the session's log before you do it again".to_owned()),
            Self::Refused { hint, .. } => hint.clone(),
        }
    }
}

/// A future of one who forwards.
pub type Forwarding<'a, T> = Pin<Box<dyn Future<Output = Result<T, ForwardError>> + Send + 'a>>;

/// Has work done by the process that has a session's workspace.
///
/// What a call's command prints is shown to those who watch the session in this process, as if it ran here; its
/// questions are asked of the asker of `rules`.
pub trait Forward: Send + Sync + 'static {
    /// Makes a call; `begun` is told its name once it has one. Dropping the future takes the call back.
    fn call<'a>(
        &'a self,
        holder: &'a LeaseHolder,
        session: &'a Session,
        call: ToolCall,
        rules: &'a ShellRules,
        begun: Box<dyn FnOnce(Seq) + Send + 'a>,
    ) -> Forwarding<'a, ToolOutcome>;

    /// Takes the session back to an earlier position.
    fn rewind<'a>(
        &'a self,
        holder: &'a LeaseHolder,
        session: &'a Session,
        to: Seq,
        options: RewindOptions,
    ) -> Forwarding<'a, Rewound>;

    /// Merges a child of the session into it.
    fn merge<'a>(
        &'a self,
        holder: &'a LeaseHolder,
        session: &'a Session,
        child: &'a Session,
        choices: &'a MergeChoices,
    ) -> Forwarding<'a, MergeReport>;

    /// The text about the session's workspace for a model.
    fn section<'a>(&'a self, holder: &'a LeaseHolder, session: &'a Session) -> Forwarding<'a, String>;
}
