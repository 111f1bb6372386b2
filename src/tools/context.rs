//! What a tool's handler works with.

use std::time::Duration;

use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::error::ToolError;
use super::filesystem::Filesystem;
use crate::engine::commit::{Commit, Content};
use crate::engine::event::Event;
use crate::engine::recorded::Seq;
use crate::engine::session::Session;

/// What a tool's handler works with: the session, the workspace's files, and how long it may take.
///
/// ```
/// # use foldspace::{ToolContext, ToolError, EntryPath};
/// fn note(context: &mut ToolContext) -> Result<(), ToolError> {
///     context.check()?;
///     context.filesystem().create(&EntryPath::for_creation("note.txt")?, "seen")
/// }
/// ```
pub struct ToolContext {
    session: Session,
    call: Seq,
    files: Filesystem,
    deadline: Instant,
    limit: Duration,
    cancel: CancellationToken,
    pub(super) extra: Commit,
}

impl ToolContext {
    pub(super) fn new(
        session: Session,
        call: Seq,
        files: Filesystem,
        limit: Duration,
        cancel: CancellationToken,
    ) -> Self {
        let extra = session.commit();
        let deadline = Instant::now() + limit;
        Self { session, call, files, deadline, limit, cancel, extra }
    }

    /// The session, as the agent that called.
    pub fn session(&self) -> &Session {
        &self.session
    }

    /// The position of the call's intent, which is its name.
    pub fn call(&self) -> Seq {
        self.call
    }

    /// The workspace's files. What is changed here is seen here at once, by others after the call.
    pub fn filesystem(&mut self) -> &mut Filesystem {
        &mut self.files
    }

    /// Adds an event of any registered type to what the call records.
    ///
    /// # Errors
    /// When the event can't be encoded, or the call would record too much.
    pub fn record<E: Event>(&mut self, event: &E) -> Result<(), ToolError> {
        self.extra.push(event).map_err(|e| ToolError::new(e.to_string()))
    }

    /// Keeps a content that an event of [`record`](ToolContext::record) refers to by its digest.
    pub fn keep(&mut self, content: Content) {
        self.extra.keep(content);
    }

    /// How long the call may still take.
    pub fn remaining(&self) -> Duration {
        self.deadline.saturating_duration_since(Instant::now())
    }

    /// Is cancelled when the caller takes the call back.
    pub fn cancellation(&self) -> &CancellationToken {
        &self.cancel
    }

    /// For long work without awaiting: fails when the call is cancelled or out of time.
    ///
    /// # Errors
    /// [`ToolError::Cancelled`] and [`ToolError::TimedOut`].
    pub fn check(&self) -> Result<(), ToolError> {
        if self.cancel.is_cancelled() {
            return Err(ToolError::Cancelled);
        }
        if self.remaining().is_zero() { Err(ToolError::TimedOut(self.limit)) } else { Ok(()) }
    }

    pub(super) fn into_parts(self) -> (Filesystem, Commit) {
        (self.files, self.extra)
    }
}
