//! Events of a call: one commit, or several when a command's changes exceed one.

use std::sync::Arc;

use super::borrowed::{borrows, replaced};
use super::plan::{NewContents, PlannedChange};
use crate::engine::commit::{CallLink, Commit, CommitError, Content, MAX_COMMIT_BYTES};
use crate::engine::event::Event;
use crate::engine::id::Seq;
use crate::engine::session::Session;
use crate::engine::session::error::SessionError;
use crate::engine::state::State;
use crate::engine::store::Pending;
use crate::reducers::VirtualFileSystem;

/// Half of a commit's limit, so that two parts always fit into one or two commits.
const HALF: usize = MAX_COMMIT_BYTES / 2;

pub(crate) struct EventBuffer {
    session: Session,
    link: CallLink,
    full: Vec<Commit>,
    commit: Commit,
    /// The files before, if replaced contents may have to be stored.
    before: Option<VirtualFileSystem>,
    /// True if several commits are allowed, for changes that have happened and must be recorded.
    pub(crate) may_split: bool,
}

impl EventBuffer {
    /// Creates a buffer for a call. Exceeding one commit is an error.
    pub(crate) fn of_call(session: &Session, call: Seq) -> Self {
        Self::new(session, CallLink::Of(call), false)
    }

    /// Creates a buffer for the changes of another program's call.
    pub(crate) fn of_observed(session: &Session, call: Seq, agent: &Arc<str>) -> Self {
        Self::new(&session.as_agent(Arc::clone(agent)), CallLink::Of(call), true)
    }

    pub(crate) fn without_agent(session: &Session) -> Self {
        Self::new(&session.as_agent(""), CallLink::None, true)
    }

    fn new(session: &Session, link: CallLink, may_split: bool) -> Self {
        let commit = session.commit().of_call(link);
        Self { session: session.clone(), link, full: Vec::new(), commit, before: None, may_split }
    }

    /// Sets the state that the recorded changes follow. Replaced contents that only git has are stored.
    pub(crate) fn over(mut self, state: &State) -> Self {
        self.before = borrows(&self.session).then(|| VirtualFileSystem::of(state));
        self
    }

    pub(crate) fn push<E: Event>(&mut self, event: &E) -> Result<(), CommitError> {
        match self.commit.push(event) {
            Err(CommitError::TooLarge { .. }) if self.may_split && !self.commit.is_empty() => {
                self.split();
                self.commit.push(event)
            }
            other => other,
        }
    }

    /// Adds a change's event, with its contents in the same commit.
    pub(crate) fn push_change(&mut self, change: &PlannedChange, fresh: &NewContents) -> Result<(), CommitError> {
        let lost = self.before.as_ref().map(|before| replaced(&self.session, before, change));
        match change {
            PlannedChange::Write(event) => self.push(event)?,
            PlannedChange::Delete(event) => self.push(event)?,
            PlannedChange::Link(event) => self.push(event)?,
        }
        lost.into_iter().flatten().chain(change.new_content(fresh)).for_each(|content| self.keep(content));
        Ok(())
    }

    pub(crate) fn append(&mut self, other: Commit) -> Result<(), CommitError> {
        self.split_before(&other);
        self.commit.append(other)
    }

    /// Adds a commit like [`append`](Self::append). The caller keeps it, to record it again after a failure.
    pub(crate) fn append_retained(&mut self, other: &Commit) -> Result<(), CommitError> {
        self.split_before(other);
        self.commit.append_retained(other)
    }

    fn split_before(&mut self, other: &Commit) {
        if self.may_split && !self.commit.is_empty() && self.commit.encoded_len() + other.encoded_len() > HALF {
            self.split();
        }
    }

    pub(crate) fn keep(&mut self, content: Content) {
        self.commit.keep(content);
    }

    fn split(&mut self) {
        let next = self.session.commit().of_call(self.link);
        self.full.push(std::mem::replace(&mut self.commit, next));
    }

    pub(crate) fn submit(self) -> Result<Pending, SessionError> {
        for commit in self.full {
            // Waiting for the last commit waits for all.
            drop(self.session.submit(commit)?);
        }
        self.session.submit(self.commit)
    }
}
