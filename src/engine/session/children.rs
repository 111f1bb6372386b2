//! Children of sessions: their creation, and its record in the parent.

use serde_json::Value;

use super::Session;
use super::error::{SessionError, SessionResult};
use super::name_index::check_name;
use super::sessions::Sessions;
use crate::engine::event::{ChildLimits, ChildStarted, Isolation, Origin, SessionStarted, ToolPolicySet};
use crate::engine::store::{Pending, StoreError};
use crate::engine::{Commit, Expected, ForkPoint, Seq, SessionId};

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
    pub fn child_with_id(&self, parent: &Session, mut new: ForkOptions, id: SessionId) -> SessionResult<Session> {
        if new.isolation == Isolation::Shared {
            return self.shared_child(parent, new);
        }
        let named = vec![(id, new.name.take())];
        // One child for each id.
        self.children_with_ids(parent, &new, named)?.pop().ok_or(SessionError::Store(StoreError::NoSession(id)))
    }

    fn shared_child(&self, parent: &Session, new: ForkOptions) -> SessionResult<Session> {
        let (head, limits) = (parent.head()?, new.limits.within(parent.limits()));
        check_depth(parent)?;
        let is_narrower = ChildLimits { depth: parent.limits().depth, ..limits.clone() } != *parent.limits();
        if new.agent.is_empty() && is_narrower {
            return Err(SessionError::NoAgent { name: parent.name().to_owned() });
        }
        shared(parent, new.agent, limits, head)
    }

    /// Creates several children with the same options but their own ids and names, and records them in both histories.
    /// If one fails, removes the others.
    #[doc(hidden)]
    pub fn children_with_ids(
        &self,
        parent: &Session,
        new: &ForkOptions,
        children: Vec<(SessionId, Option<String>)>,
    ) -> SessionResult<Vec<Session>> {
        let head = parent.head()?;
        let at = new.at.unwrap_or(head);
        if at == 0 || at > head {
            return Err(SessionError::NoPosition { seq: at, head });
        }
        let at = parent.commit_end(at)?;
        check_depth(parent)?;
        if parent.started().is_none() && new.workspace.is_none() {
            return Err(SessionError::Unreadable { name: parent.name().to_owned() });
        }
        let origin =
            Origin { parent: parent.id(), parent_name: parent.name().to_owned(), at, isolation: new.isolation };
        let inherited = parent.started().map(|started| (started.backend.clone(), started.options.clone()));
        let (backend, options) = new.workspace.clone().or(inherited).unwrap_or_default();
        let (program, limits) = (env!("CARGO_PKG_VERSION").to_owned(), new.limits.within(parent.limits()));
        let started = SessionStarted { name: String::new(), backend, program, options, origin: Some(origin), limits };
        let named = self.take_names(parent, children)?;
        let begun = self.begin_children(parent, &named, (started, new)).and_then(|begun| Ok(begun.wait()?));
        named.iter().for_each(|(_, name)| self.names().settle(name));
        begun?;
        if new.isolation == Isolation::Fork {
            parent.core.keep_fork_point(at);
        }
        let child = |id| Ok::<_, SessionError>(self.session(id)?.as_agent(new.agent.as_str()));
        named.into_iter().map(|(id, _)| child(id)).collect()
    }

    /// Reserves a name for each child. If one is taken, reserves no name.
    fn take_names(
        &self,
        parent: &Session,
        children: Vec<(SessionId, Option<String>)>,
    ) -> SessionResult<Vec<(SessionId, String)>> {
        let (mut names, mut named) = (self.names(), Vec::with_capacity(children.len()));
        for (id, name) in children {
            let store = self.store().as_ref();
            let taken = match name {
                Some(name) => check_name(&name).and_then(|()| names.take(store, &name)).map(|()| name),
                None => names.take_for_child(store, parent.name()),
            };
            match taken {
                Ok(name) => named.push((id, name)),
                Err(error) => {
                    named.iter().for_each(|(_, name): &(SessionId, String)| names.settle(name));
                    return Err(error);
                }
            }
        }
        Ok(named)
    }

    /// Submits the children's first commits, then the record in the parent. Returns the last commit, which becomes
    /// durable after the others.
    fn begin_children(
        &self,
        parent: &Session,
        named: &[(SessionId, String)],
        (mut started, new): (SessionStarted, &ForkOptions),
    ) -> SessionResult<Pending> {
        let at = started.origin.as_ref().map_or(0, |origin| origin.at);
        let expected = match new.isolation {
            Isolation::Fork => Expected::ForkOf(ForkPoint { session: parent.id(), seq: at }),
            _ => Expected::NoSession,
        };
        let mut begun = Vec::with_capacity(named.len());
        let mut begin = |(id, name): &(SessionId, String)| {
            let mut commit = Commit::new(*id, self.clock().now()).as_agent(parent.agent()).expecting(expected);
            started.name.clone_from(name);
            commit.push(&started)?;
            new.policy.as_ref().map_or(Ok(()), |policy| commit.push(policy))?;
            begun.push(self.shared.submit(commit)?);
            Ok(())
        };
        let mut tried = named.iter().try_for_each(&mut begin);
        if tried.is_ok() && begun.iter().any(|begun| begun.known().is_none()) {
            // Another process may still refuse one.
            tried = self.store().sync().map_err(SessionError::from);
        }
        if let Err(error) = tried {
            self.take_back(named, begun);
            return Err(error);
        }
        let limits = started.limits;
        for named in named.chunks(NOTED_TOGETHER) {
            let mut note = parent.commit();
            for (id, name) in named {
                let (name, agent, limits) = (name.clone(), new.agent.clone(), limits.clone());
                note.push(&ChildStarted { child: *id, name, at, isolation: new.isolation, agent, limits })?;
            }
            match parent.submit(note) {
                Ok(noted) => begun.push(noted),
                // The child's own history names its parent.
                Err(error) => tracing::warn!(%error, "failed to record children in their parent"),
            }
        }
        begun.pop().ok_or(SessionError::NoPosition { seq: at, head: at })
    }

    /// Removes children after another one failed to begin.
    fn take_back(&self, named: &[(SessionId, String)], begun: Vec<Pending>) {
        for ((id, _), begun) in named.iter().zip(begun) {
            if begun.wait().is_ok()
                && let Err(error) = self.remove(*id)
            {
                tracing::warn!(%error, "failed to remove a child after another one failed to begin");
            }
        }
    }
}

/// Maximum number of children that one commit of the parent records, because of the stores' size limits.
const NOTED_TOGETHER: usize = 256;

fn check_depth(parent: &Session) -> SessionResult<()> {
    match parent.limits().depth {
        Some(0) => Err(SessionError::TooDeep { name: parent.name().to_owned() }),
        _ => Ok(()),
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
