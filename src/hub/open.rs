//! One open workspace, and those who use it.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tokio::time::Instant;

use super::forward::{Forward, ForwardError};
use super::{Hub, HubError, blocking};
use crate::engine::recorded::Seq;
use crate::engine::session::Session;
use crate::engine::store::LeaseHolder;
use crate::reducers::MergeChoices;
use crate::tools::{
    Dispatcher, MergeReport, RewindOptions, Rewound, ShellRules, ToolCall, ToolOutcome, Tools, merge_child,
};

/// A workspace that is kept open.
pub(super) struct Kept {
    dispatcher: Dispatcher,
    users: AtomicUsize,
    /// When it was last used.
    since: Mutex<Instant>,
}

impl Kept {
    pub(super) fn new(dispatcher: Dispatcher) -> Self {
        Self { dispatcher, users: AtomicUsize::new(0), since: Mutex::new(Instant::now()) }
    }

    pub(super) fn is_used(&self) -> bool {
        self.users.load(Ordering::Acquire) > 0
    }

    pub(super) fn unused_for(&self) -> Duration {
        self.since.lock().unwrap_or_else(PoisonError::into_inner).elapsed()
    }

    /// Blocks until the container is gone and that is recorded.
    pub(super) fn close(&self) {
        if let Err(error) = self.dispatcher.close() {
            tracing::warn!(%error, "what became of a workspace could not be recorded");
        }
    }
}

/// One who uses a workspace, until this is dropped.
pub(super) struct User(Arc<Kept>);

impl User {
    /// The caller has the lock of the place, so that nobody closes it meanwhile.
    pub(super) fn of(kept: &Arc<Kept>) -> Self {
        kept.users.fetch_add(1, Ordering::AcqRel);
        Self(Arc::clone(kept))
    }

    pub(super) fn dispatcher(&self) -> &Dispatcher {
        &self.0.dispatcher
    }
}

impl Clone for User {
    fn clone(&self) -> Self {
        Self::of(&self.0)
    }
}

impl Drop for User {
    fn drop(&mut self) {
        *self.0.since.lock().unwrap_or_else(PoisonError::into_inner) = Instant::now();
        self.0.users.fetch_sub(1, Ordering::AcqRel);
    }
}

/// A session whose workspace is open, here or in another process, for as long as somebody has this.
///
/// Whatever it is asked is done where the workspace is. Where that is another process which ends, the workspace is
/// opened here; what that one was doing then is recorded as interrupted.
#[derive(Clone)]
pub struct OpenSession {
    place: Place,
}

#[derive(Clone)]
enum Place {
    /// The same as is kept, perhaps under another agent's name or other rules.
    Here {
        dispatcher: Dispatcher,
        user: User,
    },
    There(Box<There>),
}

/// A session whose workspace another process has, or had when it was opened.
#[derive(Clone)]
struct There {
    hub: Hub,
    session: Session,
    rules: ShellRules,
}

/// Who does what is asked.
enum Doer<'a> {
    Here(Dispatcher, User),
    There(&'a There, LeaseHolder, Arc<dyn Forward>),
}

impl OpenSession {
    pub(super) fn of(user: User) -> Self {
        Self { place: Place::Here { dispatcher: user.dispatcher().clone(), user } }
    }

    pub(super) fn elsewhere(hub: &Hub, session: Session) -> Self {
        let rules = hub.options().rules.clone();
        Self { place: Place::There(Box::new(There { hub: hub.clone(), session, rules })) }
    }

    /// The same workspace through another dispatcher of it.
    pub(super) fn through(&self, dispatcher: Dispatcher) -> Self {
        let mut other = self.clone();
        if let Place::Here { dispatcher: own, .. } = &mut other.place {
            *own = dispatcher;
        }
        other
    }

    /// The session.
    pub fn session(&self) -> &Session {
        match &self.place {
            Place::Here { dispatcher, .. } => dispatcher.session(),
            Place::There(there) => &there.session,
        }
    }

    /// The tools that the session offers. Of a session elsewhere they are those of this process, of which that one may
    /// refuse some.
    pub fn tools(&self) -> &Tools {
        match &self.place {
            Place::Here { dispatcher, .. } => dispatcher.tools(),
            Place::There(there) => &there.hub.options().tools,
        }
    }

    /// What makes the calls; none where another process does.
    pub fn dispatcher(&self) -> Option<&Dispatcher> {
        match &self.place {
            Place::Here { dispatcher, .. } => Some(dispatcher),
            Place::There(_) => None,
        }
    }

    /// The same for another agent.
    #[must_use]
    pub fn by(&self, agent: &str) -> Self {
        let mut other = self.clone();
        match &mut other.place {
            Place::Here { dispatcher, .. } => *dispatcher = dispatcher.as_agent(agent),
            Place::There(there) => there.session = there.session.as_agent(agent),
        }
        other
    }

    /// The same under other rules for commands.
    ///
    /// # Errors
    /// What the session says.
    pub fn ruled(&self, rules: ShellRules) -> Result<Self, HubError> {
        let mut other = self.clone();
        match &mut other.place {
            Place::Here { dispatcher, .. } => *dispatcher = dispatcher.ruled(rules)?,
            Place::There(there) => there.rules = rules,
        }
        Ok(other)
    }

    /// Makes a call, as [`Dispatcher::call`].
    ///
    /// # Errors
    /// [`HubError`].
    pub async fn call(&self, call: ToolCall) -> Result<ToolOutcome, HubError> {
        self.call_telling(call, |_| ()).await
    }

    /// The same; `begun` is told the call's name once it has one.
    ///
    /// # Errors
    /// [`HubError`].
    pub async fn call_telling(&self, call: ToolCall, begun: impl FnOnce(Seq) + Send) -> Result<ToolOutcome, HubError> {
        match self.doer().await? {
            Doer::Here(dispatcher, _user) => Ok(dispatcher.call_telling(call, begun).await?),
            Doer::There(there, holder, way) => {
                Ok(way.call(&holder, &there.session, call, &there.rules, Box::new(begun)).await?)
            }
        }
    }

    /// Takes the session back to an earlier position, files and state.
    ///
    /// # Errors
    /// [`HubError`].
    pub async fn rewind(&self, to: Seq, options: RewindOptions) -> Result<Rewound, HubError> {
        match self.doer().await? {
            Doer::Here(dispatcher, _user) => Ok(dispatcher.rewind(to, options).await?),
            Doer::There(there, holder, way) => Ok(way.rewind(&holder, &there.session, to, options).await?),
        }
    }

    /// Merges what a child changed into this session.
    pub(super) async fn merge(&self, child: &Session, choices: &MergeChoices) -> Result<MergeReport, HubError> {
        match self.doer().await? {
            Doer::Here(dispatcher, _user) => Ok(merge_child(&dispatcher, child, choices).await?),
            Doer::There(there, holder, way) => Ok(way.merge(&holder, &there.session, child, choices).await?),
        }
    }

    /// The text about the session's workspace for a model: what it is, its tools, its limits, what was copied into it.
    ///
    /// # Errors
    /// [`HubError`].
    pub async fn section(&self) -> Result<String, HubError> {
        match self.doer().await? {
            Doer::Here(dispatcher, _user) => Ok(blocking(move || dispatcher.section()).await??.text),
            Doer::There(there, holder, way) => Ok(way.section(&holder, &there.session).await?),
        }
    }

    /// Who does the work now: this process, also where another one has let go of the workspace, or that one.
    async fn doer(&self) -> Result<Doer<'_>, HubError> {
        let there = match &self.place {
            Place::Here { dispatcher, user } => return Ok(Doer::Here(dispatcher.clone(), user.clone())),
            Place::There(there) => there,
        };
        let user = match there.hub.user(there.session.id()).await {
            Ok(user) => user,
            Err(error) => {
                let holder = error.holder().filter(|holder| holder.address.is_some()).cloned();
                let Some((holder, way)) = holder.zip(there.hub.options().forward.clone()) else { return Err(error) };
                return Ok(Doer::There(there, holder, way));
            }
        };
        let agent = there.session.agent();
        let dispatcher = user.dispatcher().ruled(there.rules.clone())?;
        let dispatcher = if agent.is_empty() { dispatcher } else { dispatcher.as_agent(Arc::clone(agent)) };
        Ok(Doer::Here(dispatcher, user))
    }
}

impl From<ForwardError> for HubError {
    fn from(error: ForwardError) -> Self {
        Self::Forward(error)
    }
}

impl std::fmt::Debug for OpenSession {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let is_here = self.dispatcher().is_some();
        f.debug_struct("OpenSession").field("session", self.session()).field("is_here", &is_here).finish()
    }
}
