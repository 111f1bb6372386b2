//! Children of sessions: their creation, and its record in the parent.

use serde_json::Value;

use super::Session;
use super::error::{SessionError, SessionResult};
use super::name_index::check_name;
use super::sessions::Sessions;
use crate::engine::event::{ChildLimits, ChildStarted, Isolation, Origin, SessionStarted, ToolPolicySet};
use crate::engine::store::Pending;
use crate::engine::{Commit, Expected, ForkPoint, Seq, SessionId, lock};

/// Options of a new child.
#[derive(Debug, Clone, PartialEq)]
pub struct ForkOptions {
    /// Isolation of the child.
    pub isolation: Isolation,
    /// Last position of the parent's history that a fork has; the parent's head by default. A position inside a commit
    /// stands for the commit's end.
    pub at: Option<Seq>,
    /// Name of the child; `parent-1`, `parent-2`, ... by default. A shared child has the parent's name.
    pub name: Option<String>,
    /// Agent that acts in it; empty for none.
    pub agent: String,
    /// Limits of the child, which are never wider than the parent's.
    pub limits: ChildLimits,
    /// Policy for tools that binds the child, in addition to its parent's. `tools::Forker` adds the parent's present
    /// policies to it. A shared child takes none: it has the session's.
    pub policy: Option<ToolPolicySet>,
    /// Backend of its workspace with its options; the parent's by default. Two sessions must not have the same
    /// directory: `tools::Forker` ensures that.
    pub workspace: Option<(String, Value)>,
    /// Id of the child, which no session may have had; a fresh one by default. A shared child has the parent's id.
    pub id: Option<SessionId>,
}

impl ForkOptions {
    /// Creates the default options of a child with that isolation.
    pub fn new(isolation: Isolation) -> Self {
        let (limits, agent) = (ChildLimits::default(), String::new());
        Self { isolation, at: None, name: None, agent, limits, policy: None, workspace: None, id: None }
    }

    /// Creates the options of a fork at a position.
    pub fn fork_at(seq: Seq) -> Self {
        Self { at: Some(seq), ..Self::new(Isolation::Fork) }
    }
}

impl Sessions {
    /// Creates a child of `parent` and records it in both histories.
    ///
    /// A fork has the parent's events up to its position as its own past, even after the parent is removed; a child
    /// with full isolation has none. A shared child *is* the parent, under another agent's name. The cost does not
    /// depend on the length of the history.
    ///
    /// ```
    /// # use foldspace_engine as foldspace;
    /// use foldspace::{ForkOptions, NewSession, Registry, Sessions, event::Isolation};
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
    /// Fails with [`SessionError::NoPosition`] if the position is beyond the parent's head,
    /// [`SessionError::NameTaken`], [`SessionError::TooDeep`] if the parent may have no children, and
    /// [`SessionError::NoAgent`] if a shared child has limits and no agent.
    pub fn child_of(&self, parent: &Session, new: ForkOptions) -> SessionResult<Session> {
        let id = new.id.unwrap_or_else(|| self.fresh_id());
        self.child_with_id(parent, new, id)
    }

    #[doc(hidden)]
    pub fn fresh_id(&self) -> SessionId {
        SessionId::from_bytes(self.clock().fresh_id())
    }

    /// Creates a child as [`child_of`](Self::child_of) with a chosen id. Its files may exist already.
    #[doc(hidden)]
    pub fn child_with_id(&self, parent: &Session, new: ForkOptions, id: SessionId) -> SessionResult<Session> {
        let head = parent.head()?;
        let at = new.at.unwrap_or(head);
        if at == 0 || at > head {
            return Err(SessionError::NoPosition { seq: at, head });
        }
        let at = parent.commit_end(at)?;
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
        let name = match new.name {
            Some(name) => {
                check_name(&name)?;
                self.names().take(self.store().as_ref(), &name)?;
                name
            }
            None => self.names().take_for_child(self.store().as_ref(), parent.name())?,
        };
        let origin =
            Origin { parent: parent.id(), parent_name: parent.name().to_owned(), at, isolation: new.isolation };
        let inherited = parent.started().map(|started| (started.backend.clone(), started.options.clone()));
        let (backend, options) = new.workspace.or(inherited).unwrap_or_default();
        let program = env!("CARGO_PKG_VERSION").to_owned();
        let started = SessionStarted { name: name.clone(), backend, program, options, origin: Some(origin), limits };
        let begun = self
            .begin_child(parent, id, (&started, new.policy.as_ref()), &new.agent)
            .and_then(|begun| Ok(begun.wait()?));
        self.names().settle(&name);
        begun?;
        let child = self.session(id)?;
        if new.isolation == Isolation::Fork {
            child.learn_from(parent, at);
        }
        Ok(if new.agent.is_empty() { child } else { child.as_agent(new.agent) })
    }

    fn begin_child(
        &self,
        parent: &Session,
        id: SessionId,
        (started, policy): (&SessionStarted, Option<&ToolPolicySet>),
        agent: &str,
    ) -> SessionResult<Pending> {
        let origin = started.origin.as_ref();
        let (at, isolation) = origin.map_or((0, Isolation::Full), |origin| (origin.at, origin.isolation));
        let expected = match isolation {
            Isolation::Fork => Expected::ForkOf(ForkPoint { session: parent.id(), seq: at }),
            _ => Expected::NoSession,
        };
        let mut commit = Commit::new(id, self.clock().now()).as_agent(parent.agent()).expecting(expected);
        commit.push(started)?;
        policy.map_or(Ok(()), |policy| commit.push(policy))?;
        let begun = self.shared.submit(commit)?;
        if begun.known().is_none() {
            // Another process may still refuse it.
            self.store().sync()?;
        }
        let (name, limits) = (started.name.clone(), started.limits.clone());
        let mut note = parent.commit();
        note.push(&ChildStarted { child: id, name, at, isolation, agent: agent.to_owned(), limits })?;
        match parent.submit(note) {
            // It becomes durable together with the child's commit, which precedes it.
            Ok(noted) => Ok(noted),
            // The child's own history names its parent.
            Err(error) => {
                tracing::warn!(%error, "failed to record a child in its parent");
                Ok(begun)
            }
        }
    }
}

fn shared(parent: &Session, agent: String, limits: ChildLimits, head: Seq) -> SessionResult<Session> {
    let (child, name) = (parent.id(), parent.name().to_owned());
    let mut note = parent.commit();
    let isolation = Isolation::Shared;
    note.push(&ChildStarted { child, name, at: head, isolation, agent: agent.clone(), limits: limits.clone() })?;
    parent.record(note)?;
    Ok(parent.as_agent(agent).limited_to(limits))
}

impl Session {
    /// Starts from a state of the parent, if that is from the common past.
    fn learn_from(&self, parent: &Self, at: Seq) {
        let mut known = lock(&parent.core.live).clone();
        if known.seq() <= at {
            known.session = self.id();
            *lock(&self.core.live) = known;
        }
    }
}
