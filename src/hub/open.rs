//! An open workspace and its users.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex, Weak};
use std::time::Duration;

use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use tracing::Instrument;

use super::in_flight::{Going, InFlight};
use super::span::CallSpan;
use super::{Hub, HubError, blocking, hosts};
use crate::backends::Workspace;
use crate::engine::id::{CommitId, Seq, SessionId};
use crate::engine::lock::lock;
use crate::engine::session::Session;
use crate::reducers::MergeChoices;
use crate::tools::processes::{ProcessKeeper, ProcessTable};
use crate::tools::{
    FileWork, MergeReport, RewindOptions, Rewound, ShellRules, ToolCall, ToolOutcome, ToolRunner, Tools,
    merge_child_once,
};

/// Time limit for a workspace to open for a reader.
const OPENING_TIME_LIMIT: Duration = Duration::from_secs(5);

/// An open workspace. Its slot and each of its users hold a clone of its `Arc`.
pub(super) struct KeptWorkspace {
    tool_runner: ToolRunner,
    in_flight: Arc<InFlight>,
    since: Mutex<Instant>,
}

impl KeptWorkspace {
    pub(super) fn new(tool_runner: ToolRunner, in_flight: &Arc<InFlight>, processes: Arc<ProcessTable>) -> Arc<Self> {
        let session = tool_runner.session().id();
        Arc::new_cyclic(|kept: &Weak<Self>| {
            let kept = kept.clone();
            let keeper: ProcessKeeper = Arc::new(move |call, cancel| {
                let kept = kept.upgrade()?;
                let going = kept.in_flight.begin_process(cancel.clone(), (session, call)).ok()?;
                Some(Box::new((User::of(&kept), going)))
            });
            let tool_runner = tool_runner.with_processes(processes, keeper);
            Self { tool_runner, in_flight: Arc::clone(in_flight), since: Mutex::new(Instant::now()) }
        })
    }

    /// Returns true if it has users. The caller holds the slot's lock, so that no user can join.
    pub(super) fn is_used(self: &Arc<Self>) -> bool {
        Arc::strong_count(self) > 1
    }

    pub(super) fn workspace(&self) -> &dyn Workspace {
        self.tool_runner.workspace().as_ref()
    }

    pub(super) fn unused_for(&self) -> Duration {
        lock(&self.since).elapsed()
    }

    pub(super) fn close(&self) {
        if let Err(error) = self.tool_runner.close() {
            tracing::warn!(%error, "failed to record workspace shutdown");
        }
        hosts::release(self.tool_runner.session());
    }
}

/// Keeps a workspace in use until it is dropped.
#[derive(Clone)]
pub(super) struct User(Arc<KeptWorkspace>);

impl User {
    /// Registers a user. The caller holds the slot's lock, so that the workspace can't be closed concurrently.
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

/// A session with an open workspace, which stays open until this is dropped. May have its own agent name and rules.
#[derive(Clone)]
pub struct OpenSession {
    tool_runner: ToolRunner,
    user: User,
}

impl OpenSession {
    pub(super) fn of(user: User) -> Self {
        Self { tool_runner: user.tool_runner().clone(), user }
    }

    pub(super) fn through(&self, tool_runner: ToolRunner) -> Self {
        Self { tool_runner, user: self.user.clone() }
    }

    /// The session.
    pub fn session(&self) -> &Session {
        self.tool_runner.session()
    }

    /// The tools of the session.
    pub fn tools(&self) -> &Tools {
        self.tool_runner.tools()
    }

    /// The tool runner, which makes the calls.
    pub fn tool_runner(&self) -> &ToolRunner {
        &self.tool_runner
    }

    /// Returns the session for another agent.
    #[must_use]
    pub fn as_agent(&self, agent: &str) -> Self {
        self.through(self.tool_runner.as_agent(agent))
    }

    /// Returns the session under other rules for commands.
    #[must_use]
    pub fn with_shell_rules(&self, rules: ShellRules) -> Self {
        self.through(self.tool_runner.with_shell_rules(rules))
    }

    /// Makes a call, like [`ToolRunner::call`].
    pub async fn call(&self, call: ToolCall) -> Result<ToolOutcome, HubError> {
        self.call_telling(call, |_| ()).await
    }

    /// Makes a call; `begun` receives its position once it has started.
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
        let outcome = self.tool_runner.call_telling(call, begun).instrument(noted.span()).await?;
        noted.end(&outcome);
        Ok(outcome)
    }

    /// Changes files as a separate call, like [`ToolRunner::change_files`].
    pub async fn change_files(&self, work: FileWork) -> Result<ToolOutcome, HubError> {
        let (runner, call) = self.tool_runner.for_change(work);
        self.through(runner).call(call).await
    }

    /// Rewinds the session's files and state to an earlier position.
    pub async fn rewind(&self, to: Seq, options: RewindOptions) -> Result<Rewound, HubError> {
        let _going = self.begin(CancellationToken::new())?;
        Ok(self.tool_runner.rewind(to, options).await?)
    }

    pub(super) async fn merge(
        &self,
        child: &Session,
        choices: &MergeChoices,
        id: Option<CommitId>,
    ) -> Result<MergeReport, HubError> {
        let _going = self.begin(CancellationToken::new())?;
        Ok(merge_child_once(&self.tool_runner, child, choices, id).await?)
    }

    /// Returns the prompt section about the workspace for a model: its kind, tools, limits and mounts. Names only the
    /// tools in `offered`; `None` for all that work.
    pub async fn section(&self, offered: Option<BTreeSet<String>>) -> Result<String, HubError> {
        let tool_runner = self.tool_runner.clone();
        let is_offered = move |name: &str| offered.as_ref().is_none_or(|names| names.contains(name));
        Ok(blocking(move || tool_runner.section_with(is_offered)).await??.text)
    }

    fn begin(&self, cancel: CancellationToken) -> Result<Going, HubError> {
        self.user.0.in_flight.begin(cancel)
    }
}

crate::engine::debug_by!(OpenSession, |session| session: session.session());

impl Hub {
    /// Returns a session's workspace if it is open. Waits only while it is being opened or closed.
    #[doc(hidden)]
    pub async fn opened(&self, id: SessionId) -> Option<OpenSession> {
        let place = lock(&self.shared.places).get(&id).cloned()?;
        let slot = tokio::time::timeout(OPENING_TIME_LIMIT, place.lock()).await.ok()?;
        slot.as_ref().map(User::of).map(OpenSession::of)
    }

    /// Records external changes in an open workspace, unless a call is in flight.
    #[doc(hidden)]
    pub async fn refresh(&self, id: SessionId) -> Result<(), HubError> {
        self.take_in(id).await?;
        let place = lock(&self.shared.places).get(&id).cloned();
        let user = place.and_then(|place| place.try_lock().ok().and_then(|slot| slot.as_ref().map(User::of)));
        match user {
            Some(user) if user.0.workspace().is_in_place() => Ok(user.tool_runner().refresh().await?),
            _ => Ok(()),
        }
    }
}
