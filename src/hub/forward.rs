//! Calls for sessions whose workspace another process has.

use std::future::Future;
use std::pin::Pin;

use super::error::HubError;
use crate::engine::id::Seq;
use crate::engine::session::Session;
use crate::engine::store::LeaseHolder;
use crate::reducers::MergeChoices;
use crate::tools::{MergeReport, RewindOptions, Rewound, ShellRules, ToolCall, ToolOutcome};

/// A future of one who forwards.
pub type Forwarding<'a, T> = Pin<Box<dyn Future<Output = Result<T, HubError>> + Send + 'a>>;

/// Has work done by the process that has a session's workspace.
///
/// The output of a call's command is shown to those who watch the session in this process, as if it ran here; its
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
