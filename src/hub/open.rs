//! One open workspace, and its users.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use tracing::Instrument;

use super::forward::Forward;
use super::in_flight::{Going, InFlight};
use super::span::CallSpan;
use super::{Hub, HubError, blocking};
use crate::engine::id::Seq;
use crate::engine::lock::lock;
use crate::engine::session::Session;
use crate::engine::store::LeaseHolder;
use crate::reducers::MergeChoices;
use crate::tools::{
    MergeReport, RewindOptions, Rewound, ShellRules, ToolCall, ToolOutcome, ToolRunner, Tools, merge_child,
};

/// A workspace. Each of its users has a clone of its `Arc`, and its slot has one.
pub(super) struct KeptWorkspace {
    tool_runner: ToolRunner,
    in_flight: Arc<InFlight>,
    since: Mutex<Instant>,
}

impl KeptWorkspace {
    pub(super) fn new(tool_runner: ToolRunner, in_flight: &Arc<InFlight>) -> Arc<Self> {
        Arc::new(Self { tool_runner, in_flight: Arc::clone(in_flight), since: Mutex::new(Instant::now()) })
    }

    /// The caller has the lock of the slot, so that no user comes meanwhile.
    pub(super) fn is_used(self: &Arc<Self>) -> bool {
        Arc::strong_count(self) > 1
    }

    pub(super) fn unused_for(&self) -> Duration {
        lock(&self.since).elapsed()
    }

    pub(super) fn close(&self) {
        if let Err(error) = self.tool_runner.close() {
            tracing::warn!(%error, "what became of a workspace could not be recorded");
        }
    }
}

/// Keeps a workspace in use until it is dropped.
#[derive(Clone)]
pub(super) struct User(Arc<KeptWorkspace>);

impl User {
    /// The caller has the lock of the slot, so that the workspace is not closed meanwhile.
    pub(super) fn of(kept: &Arc<KeptWorkspace>) -> Self {
        Self(Arc::clone(kept))
    }

    pub(super) fn tool_runner(&self) -> &ToolRunner {
        &self.0.tool_runner
    }
}

impl Drop for User {
    fn drop(&mut self) {
        *lock(&self.0.since) = Instant::now();
    }
}

/// A session whose workspace is open, here or in another process, until this is dropped.
///
/// Work is done where the workspace is. If that process ends, the workspace is opened here, and the process's work is
/// recorded as interrupted.
#[derive(Clone)]
pub struct OpenSession {
    place: WorkspaceOwner,
}

#[derive(Clone)]
enum WorkspaceOwner {
    /// The workspace, perhaps under another agent's name or other rules.
    Here {
        tool_runner: ToolRunner,
        user: User,
    },
    There(Box<There>),
}

#[derive(Clone)]
struct There {
    hub: Hub,
    session: Session,
    rules: ShellRules,
}

enum Doer<'a> {
    Here(ToolRunner, User),
    There(&'a There, LeaseHolder, Arc<dyn Forward>),
}

/// Time to wait for a process that is ending: it ends after its calls in flight.
const ENDING: Duration = Duration::from_secs(60);
/// Time to wait for one that does not answer: another may be about to take its place.
const GONE: Duration = Duration::from_secs(3);
/// Time between two looks.
const PAUSE: Duration = Duration::from_millis(50);

#[derive(Default)]
struct Patience(Option<Instant>);

impl Patience {
    /// Pauses before another try; false when that is no use.
    async fn wait(&mut self, error: &HubError) -> bool {
        let limit = match error {
            HubError::Gone(_) => GONE,
            HubError::OwnerEnding(_) => ENDING,
            _ => return false,
        };
        let since = *self.0.get_or_insert_with(Instant::now);
        tokio::time::sleep(PAUSE).await;
        since.elapsed() < limit
    }
}

/// Does work in this process or in the lock owner's, again while that one is ending or gone (an `Ok` error).
macro_rules! where_it_is {
    ($doer:expr, |$tool_runner:ident| $here:expr, |$there:ident, $holder:ident, $way:ident| $elsewhere:expr) => {{
        let mut patience = Patience::default();
        loop {
            let ($there, $holder, $way) = match $doer.await? {
                Doer::Here($tool_runner, _user) => return Ok($here),
                Doer::There(there, holder, way) => (there, holder, way),
            };
            match $elsewhere {
                Ok(done) => return Ok(done),
                Err(Ok(error)) if patience.wait(&error).await => {}
                Err(Ok(error) | Err(error)) => return Err(error),
            }
        }
    }};
}

impl OpenSession {
    pub(super) fn of(user: User) -> Self {
        Self { place: WorkspaceOwner::Here { tool_runner: user.tool_runner().clone(), user } }
    }

    pub(super) fn elsewhere(hub: &Hub, session: Session) -> Self {
        let rules = hub.options().rules.clone();
        Self { place: WorkspaceOwner::There(Box::new(There { hub: hub.clone(), session, rules })) }
    }

    pub(super) fn through(&self, tool_runner: ToolRunner) -> Self {
        let mut other = self.clone();
        if let WorkspaceOwner::Here { tool_runner: own, .. } = &mut other.place {
            *own = tool_runner;
        }
        other
    }

    /// The session.
    pub fn session(&self) -> &Session {
        match &self.place {
            WorkspaceOwner::Here { tool_runner, .. } => tool_runner.session(),
            WorkspaceOwner::There(there) => &there.session,
        }
    }

    /// Returns the tools of the session. Of a session elsewhere they are this process's; that one may refuse some.
    pub fn tools(&self) -> &Tools {
        match &self.place {
            WorkspaceOwner::Here { tool_runner, .. } => tool_runner.tools(),
            WorkspaceOwner::There(there) => &there.hub.options().tools,
        }
    }

    /// Returns the maker of the calls; none where another process makes them.
    pub fn tool_runner(&self) -> Option<&ToolRunner> {
        match &self.place {
            WorkspaceOwner::Here { tool_runner, .. } => Some(tool_runner),
            WorkspaceOwner::There(_) => None,
        }
    }

    /// Returns the session for another agent.
    #[must_use]
    pub fn as_agent(&self, agent: &str) -> Self {
        let mut other = self.clone();
        match &mut other.place {
            WorkspaceOwner::Here { tool_runner, .. } => *tool_runner = tool_runner.as_agent(agent),
            WorkspaceOwner::There(there) => there.session = there.session.as_agent(agent),
        }
        other
    }

    /// Returns the session under other rules for commands.
    pub fn with_shell_rules(&self, rules: ShellRules) -> Result<Self, HubError> {
        let mut other = self.clone();
        match &mut other.place {
            WorkspaceOwner::Here { tool_runner, .. } => *tool_runner = tool_runner.with_shell_rules(rules)?,
            WorkspaceOwner::There(there) => there.rules = rules,
        }
        Ok(other)
    }

    /// Makes a call, as [`ToolRunner::call`].
    pub async fn call(&self, call: ToolCall) -> Result<ToolOutcome, HubError> {
        self.call_telling(call, |_| ()).await
    }

    /// Makes a call; `begun` gets its position once it begins.
    pub async fn call_telling(
        &self,
        mut call: ToolCall,
        begun: impl FnOnce(Seq) + Send,
    ) -> Result<ToolOutcome, HubError> {
        let going = self.begin(call.cancel.clone())?;
        let noted = CallSpan::begin(self.session(), self.tools(), going, &mut call);
        let begun = |seq| {
            noted.begun(seq);
            begun(seq);
        };
        let outcome = self.make(call, begun).instrument(noted.span()).await?;
        noted.end(&outcome);
        Ok(outcome)
    }

    async fn make(&self, call: ToolCall, begun: impl FnOnce(Seq) + Send) -> Result<ToolOutcome, HubError> {
        // The process that takes the call on says that it has begun.
        let begun = Mutex::new(Some(begun));
        let tell = |seq| {
            let begun = lock(&begun).take();
            if let Some(begun) = begun {
                begun(seq);
            }
        };
        where_it_is!(self.doer(), |tool_runner| tool_runner.call_telling(call, tell).await?, |there, holder, way| {
            let made = way.call(&holder, &there.session, call.clone(), &there.rules, &tell).await;
            // A cancelled call is not tried again.
            made.map_err(|error| if call.cancel.is_cancelled() { Err(error) } else { Ok(error) })
        })
    }

    /// Takes the session back to an earlier position, files and state.
    pub async fn rewind(&self, to: Seq, options: RewindOptions) -> Result<Rewound, HubError> {
        let _going = self.begin(CancellationToken::new())?;
        where_it_is!(self.doer(), |tool_runner| tool_runner.rewind(to, options).await?, |there, holder, way| {
            way.rewind(&holder, &there.session, to, options).await.map_err(Ok)
        })
    }

    pub(super) async fn merge(&self, child: &Session, choices: &MergeChoices) -> Result<MergeReport, HubError> {
        let _going = self.begin(CancellationToken::new())?;
        where_it_is!(
            self.doer(),
            |tool_runner| merge_child(&tool_runner, child, choices).await?,
            |there, holder, way| { way.merge(&holder, &there.session, child, choices).await.map_err(Ok) }
        )
    }

    /// The text about the session's workspace for a model: what it is, its tools, its limits, what was copied into it.
    pub async fn section(&self) -> Result<String, HubError> {
        where_it_is!(
            self.doer(),
            |tool_runner| blocking(move || tool_runner.section()).await??.text,
            |there, holder, way| way.section(&holder, &there.session).await.map_err(Ok)
        )
    }

    fn begin(&self, cancel: CancellationToken) -> Result<Going, HubError> {
        match &self.place {
            WorkspaceOwner::Here { user, .. } => user.0.in_flight.begin(cancel),
            WorkspaceOwner::There(there) => there.hub.shared.in_flight.begin(cancel),
        }
    }

    /// Finds the process that does the work now: the workspace may have changed hands.
    async fn doer(&self) -> Result<Doer<'_>, HubError> {
        let there = match &self.place {
            WorkspaceOwner::Here { tool_runner, user } => return Ok(Doer::Here(tool_runner.clone(), user.clone())),
            WorkspaceOwner::There(there) => there,
        };
        there.hub.still_going()?;
        let elsewhere = |holder: LeaseHolder| {
            let way = there.hub.options().forward.clone().filter(|_| holder.address.is_some())?;
            Some(Doer::There(there, holder, way))
        };
        // As long as it is the other one's, a look costs less than to try to take it.
        let holder = there.session.lease_holder().filter(|holder| *holder != there.session.own_holder());
        if let Some(doer) = holder.and_then(elsewhere) {
            return Ok(doer);
        }
        let user = match there.hub.user(there.session.id()).await {
            Ok(user) => user,
            Err(error) => return error.holder().cloned().and_then(elsewhere).ok_or(error),
        };
        let agent = there.session.agent();
        let tool_runner = user.tool_runner().with_shell_rules(there.rules.clone())?;
        let tool_runner = if agent.is_empty() { tool_runner } else { tool_runner.as_agent(Arc::clone(agent)) };
        Ok(Doer::Here(tool_runner, user))
    }
}

impl std::fmt::Debug for OpenSession {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let is_here = self.tool_runner().is_some();
        f.debug_struct("OpenSession").field("session", self.session()).field("is_here", &is_here).finish()
    }
}
