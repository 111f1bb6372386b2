//! Children of sessions: their beginning, and its note in the parent.

use serde_json::Value;

use super::Session;
use super::error::SessionError;
use super::inner::{Core, lock};
use super::name_index::check_name;
use super::sessions::Sessions;
use crate::engine::commit::{Commit, Expected, ForkPoint};
use crate::engine::event::{ChildLimits, ChildStarted, Isolation, Origin, SessionStarted};
use crate::engine::id::{Seq, SessionId};
use crate::engine::store::Pending;

/// How a child of a session begins.
#[derive(Debug, Clone, PartialEq)]
pub struct ForkOptions {
    /// How much of the parent it has.
    pub isolation: Isolation,
    /// Up to where a fork has the parent's history; to its end when nothing is said. Inside a commit the fork begins
    /// before that commit.
    pub at: Option<Seq>,
    /// Its name; `parent-1`, `parent-2`, ... when nothing is said. A shared child has the parent's.
    pub name: Option<String>,
    /// The agent that acts in it; nobody when empty.
    pub agent: String,
    /// What it may do. It never may more than its parent.
    pub limits: ChildLimits,
    /// The backend of its workspace and what that is told; the parent's when nothing is said. Two sessions
    /// must not be told the same directory: [`Forker`](crate::Forker) sees to that.
    pub workspace: Option<(String, Value)>,
}

impl ForkOptions {
    /// A child of that isolation, with nothing else said.
    pub fn new(isolation: Isolation) -> Self {
        let (limits, agent) = (ChildLimits::default(), String::new());
        Self { isolation, at: None, name: None, agent, limits, workspace: None }
    }

    /// A fork at a position.
    pub fn fork_at(seq: Seq) -> Self {
        Self { at: Some(seq), ..Self::new(Isolation::Fork) }
    }
}

impl Sessions {
    /// Begins a child of `parent`. That it did stands in both histories.
    ///
    /// A fork has the parent's events up to its position as its own past, for as long as it lives; one with
    /// full isolation has none of them; a shared child *is* the parent, under another agent's name. It costs
    /// the same whatever the length of the history.
    ///
    /// ```
    /// use foldspace::{Isolation, ForkOptions, NewSession, Registry, Sessions};
    /// # let directory = tempfile::tempdir()?;
    /// let sessions = Sessions::open(directory.path(), Registry::standard())?;
    /// let parent = sessions.create(NewSession::named("demo"))?;
    /// let child = sessions.child_of(&parent, ForkOptions::new(Isolation::Fork))?;
    /// assert_eq!((child.name(), child.origin().map(|origin| origin.at)), ("demo-1", Some(1)));
    ///
    /// sessions.remove(parent.id())?;
    /// assert_eq!(child.events(1, 10)?.len(), 2);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// [`SessionError::NoPosition`] where the parent has no such event, [`SessionError::NameTaken`],
    /// [`SessionError::TooDeep`] when the parent may have no children, [`SessionError::NoAgent`] for a shared child with
    /// limits and no name, and what the store says.
    pub fn child_of(&self, parent: &Session, new: ForkOptions) -> Result<Session, SessionError> {
        self.child_with_id(parent, new, self.fresh_id())
    }

    /// An id that no session has.
    pub(crate) fn fresh_id(&self) -> SessionId {
        SessionId::from_bytes(self.clock().fresh_id())
    }

    /// The same with an id that was chosen before, for a child for which files are there already.
    pub(crate) fn child_with_id(
        &self,
        parent: &Session,
        new: ForkOptions,
        id: SessionId,
    ) -> Result<Session, SessionError> {
        let head = parent.head()?;
        let at = new.at.unwrap_or(head);
        if at == 0 || at > head {
            return Err(SessionError::NoPosition { seq: at, head });
        }
        let at = parent.commit_end_before(at)?;
        if parent.limits().depth == Some(0) {
            return Err(SessionError::TooDeep { name: parent.name().to_owned() });
        }
        let limits = new.limits.within(parent.limits());
        if new.isolation == Isolation::Shared {
            let is_narrower = ChildLimits { depth: parent.limits().depth, ..limits.clone() } != *parent.limits();
            if new.agent.is_empty() && is_narrower {
                return Err(SessionError::NoAgent { name: parent.name().to_owned() });
            }
            return shared(parent, new.agent, limits, head);
        }
        if parent.started().is_none() && new.workspace.is_none() {
            return Err(SessionError::Unreadable { name: parent.name().to_owned() });
        }
        let _turn = self.naming()?;
        let name = match new.name {
            Some(name) => {
                check_name(&name)?;
                self.take_name(&name)?;
                name
            }
            None => self.take_child_name(parent.name())?,
        };
        let origin =
            Origin { parent: parent.id(), parent_name: parent.name().to_owned(), at, isolation: new.isolation };
        let inherited = parent.started().map(|started| (started.backend.clone(), started.options.clone()));
        let (backend, options) = new.workspace.or(inherited).unwrap_or_default();
        let program = env!("CARGO_PKG_VERSION").to_owned();
        let started = SessionStarted { name: name.clone(), backend, program, options, origin: Some(origin), limits };
        let begun = self.begin_child(parent, id, &started, &new.agent).and_then(|begun| Ok(begun.wait()?));
        self.settle_name(&name, id, begun.is_ok());
        begun?;
        let child = self.session(id)?;
        if new.isolation == Isolation::Fork {
            child.learn_from(parent, at);
        }
        Ok(if new.agent.is_empty() { child } else { child.as_agent(new.agent) })
    }

    /// Submits the child's first commit and the parent's note of it, in this order.
    fn begin_child(
        &self,
        parent: &Session,
        id: SessionId,
        started: &SessionStarted,
        agent: &str,
    ) -> Result<Pending, SessionError> {
        let origin = started.origin.as_ref();
        let (at, isolation) = origin.map_or((0, Isolation::Full), |origin| (origin.at, origin.isolation));
        let expected = match isolation {
            Isolation::Fork => Expected::ForkOf(ForkPoint { session: parent.id(), seq: at }),
            _ => Expected::NoSession,
        };
        let mut commit = Commit::new(id, self.clock().now()).by(parent.agent()).expecting(expected);
        commit.push(started)?;
        let begun = self.store().submit(commit)?;
        let (name, limits) = (started.name.clone(), started.limits.clone());
        let mut note = parent.commit();
        note.push(&ChildStarted { child: id, name, at, isolation, agent: agent.to_owned(), limits })?;
        match parent.submit(note) {
            // It is durable together with what stands before it.
            Ok(noted) => Ok(noted),
            // The child tells of its parent itself.
            Err(error) => {
                tracing::warn!(%error, "a child could not be noted in its parent");
                Ok(begun)
            }
        }
    }
}

fn shared(parent: &Session, agent: String, limits: ChildLimits, head: Seq) -> Result<Session, SessionError> {
    let (child, name) = (parent.id(), parent.name().to_owned());
    let mut note = parent.commit();
    let isolation = Isolation::Shared;
    note.push(&ChildStarted { child, name, at: head, isolation, agent: agent.clone(), limits: limits.clone() })?;
    parent.record(note)?;
    Ok(parent.as_agent(agent).limited_to(limits))
}

impl Core {
    /// Begins with a state of the parent's, where that is of the common past.
    pub(crate) fn learn_from(&self, parent: &Self, at: Seq) {
        let mut known = lock(&parent.live).clone();
        if known.seq() <= at {
            known.session = self.id;
            *lock(&self.live) = known;
        }
    }
}
