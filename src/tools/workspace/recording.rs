//! What a call records: one commit; several when what a command changed does not fit into one.

use crate::engine::commit::{CallLink, Commit, CommitError, Content, MAX_COMMIT_BYTES};
use crate::engine::event::Event;
use crate::engine::id::Seq;
use crate::engine::session::Session;
use crate::engine::session::error::SessionError;
use crate::engine::store::Pending;

/// Half of what a commit may hold: what comes in two parts fits into one commit, or into two.
const HALF: usize = MAX_COMMIT_BYTES / 2;

/// Events of one call, or of none, on their way into the journal.
pub(crate) struct EventBuffer {
    session: Session,
    link: CallLink,
    full: Vec<Commit>,
    commit: Commit,
    may_split: bool,
}

impl EventBuffer {
    /// For the call of that name. What does not fit into one commit is an error.
    pub(crate) fn of_call(session: &Session, call: Seq) -> Self {
        Self::new(session, CallLink::Of(call))
    }

    /// For no call, and by nobody.
    pub(crate) fn of_nobody(session: &Session) -> Self {
        Self::new(&session.as_agent(""), CallLink::None).splitting()
    }

    fn new(session: &Session, link: CallLink) -> Self {
        let commit = session.commit().of_call(link);
        Self { session: session.clone(), link, full: Vec::new(), commit, may_split: false }
    }

    /// What does not fit goes on in another commit: it has happened, so it has to be recorded.
    #[must_use]
    pub(crate) fn splitting(mut self) -> Self {
        self.may_split = true;
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

    /// Adds the events and contents of a commit of the same call.
    pub(crate) fn append(&mut self, other: Commit) -> Result<(), CommitError> {
        if self.may_split && !self.commit.is_empty() && self.commit.encoded_len() + other.encoded_len() > HALF {
            self.split();
        }
        self.commit.append(other)
    }

    /// Keeps a content that an event refers to.
    pub(crate) fn keep(&mut self, content: Content) {
        self.commit.keep(content);
    }

    fn split(&mut self) {
        let next = self.session.commit().of_call(self.link);
        self.full.push(std::mem::replace(&mut self.commit, next));
    }

    /// Gives all to the store, in order.
    pub(crate) fn submit(self) -> Result<Pending, SessionError> {
        for commit in self.full {
            // Waiting for the last is waiting for all.
            drop(self.session.submit(commit)?);
        }
        self.session.submit(self.commit)
    }
}
