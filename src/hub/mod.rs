//! The open workspaces of a store's sessions, shared by all callers of a server.

pub(crate) mod attached;
#[doc(hidden)]
pub mod begin_once;
mod closing;
mod directories;
mod dispatching;
mod error;
mod figures;
mod fork_group;
mod hook_message;
#[doc(hidden)]
pub mod hosts;
mod hub_options;
#[doc(hidden)]
pub mod in_flight;
mod left_out;
mod open;
#[doc(hidden)]
pub mod operations;
#[cfg(feature = "otel")]
mod otel;
mod own_copies;
mod ports;
mod processes;
mod registering;
mod release;
mod span;
mod spool;
mod spool_files;

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, OnceLock};

use tokio::sync::{Mutex as AsyncMutex, OwnedMutexGuard};
use tokio_util::sync::CancellationToken;

use crate::backends::{BackendError, ProgressWatch, Workspace, WorkspaceSpec};
use crate::engine::event::Isolation;
use crate::engine::id::{CommitId, Seq, SessionId};
use crate::engine::lock::lock;
use crate::engine::session::Session;
use crate::engine::session::children::ForkOptions;
use crate::engine::session::error::SessionError;
use crate::engine::session::sessions::NewSession;
use crate::engine::session::sessions::Sessions;
use crate::reducers::MergeChoices;
use crate::tools::{
    AllowedRoots, Forker, MergeReport, MountError, MountSpec, Registrations, RewindOptions, Rewound, ToolRunner,
    declare_defaults, hydrate, preview_merge, rewind,
};

#[cfg(feature = "mount")]
#[doc(hidden)]
pub use crate::fuse;
pub use attached::{AttachedDirectory, all_attached, attached_at, attached_file, worktree_at};
use begin_once::Beginning;
pub use error::HubError;
pub use figures::CallFigures;
use fork_group::finish_groups;
pub use hook_message::{HookMessage, ReportId, ReportOutcome};
pub use hub_options::HubOptions;
use in_flight::InFlight;
pub use left_out::IgnoredLeftOut;
pub use open::OpenSession;
use open::{KeptWorkspace, User};
pub use own_copies::own_copies_of;
pub use ports::PortError;
use processes::ProcessTables;
pub use spool::kept_reports;
pub use spool_files::{ATTACHED, UnrecordedReports, keep_report};

/// The sessions of a store with their workspaces, which open at the first call and are shared by all callers.
///
/// Concurrent callers share one open workspace. It stays open until it has been idle for a while
/// ([`close_unused`](Hub::close_unused)), the session is removed, or the hub is closed. Closing removes its container
/// and leaves its files.
///
/// ```
/// # use foldspace_hub as foldspace;
/// use foldspace::{Hub, NewSession, Registry, Sessions, ToolCall, WorkspaceSpec, hub::HubOptions};
/// # let directory = tempfile::tempdir()?;
/// # let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build()?;
/// # runtime.block_on(async {
/// let hub = Hub::new(Sessions::open(directory.path(), Registry::standard())?, HubOptions::new(directory.path()));
/// let session = hub.create(Some("demo".to_owned()), &WorkspaceSpec::Memory, &[]).await?;
/// let outcome = session.call(ToolCall::new("ls", serde_json::json!({}))).await?;
/// assert!(outcome.is_ok());
/// # drop(session);
/// hub.close().await;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// # })?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone)]
pub struct Hub {
    shared: Arc<HubInner>,
    options: Arc<HubOptions>,
}

struct HubInner {
    sessions: Sessions,
    places: Mutex<BTreeMap<SessionId, Arc<AsyncMutex<WorkspaceSlot>>>>,
    in_flight: Arc<InFlight>,
    registrations: Arc<Registrations>,
    beginning: Beginning,
    processes: ProcessTables,
    shared_with_hosts: OnceLock<String>,
    other_hosts: OnceLock<Box<dyn hosts::OtherHosts>>,
    reports: attached::ReportOrder,
    own_copies: own_copies::CopiesMade,
}

/// A session's open workspace. Only the holder of its lock opens or closes it.
type WorkspaceSlot = Option<Arc<KeptWorkspace>>;

impl Hub {
    /// Creates a hub with no open workspaces.
    pub fn new(sessions: Sessions, mut options: HubOptions) -> Self {
        let (places, in_flight, registrations) = (Mutex::default(), Arc::default(), Arc::<Registrations>::default());
        options.tools = Arc::new(options.tools.and_registered(Arc::clone(&registrations)));
        let (beginning, processes) = (Beginning::default(), ProcessTables::default());
        let shared = HubInner {
            sessions,
            places,
            in_flight,
            registrations,
            beginning,
            processes,
            shared_with_hosts: OnceLock::new(),
            other_hosts: OnceLock::new(),
            reports: Mutex::default(),
            own_copies: Mutex::default(),
        };
        let hub = Self { shared: Arc::new(shared), options: Arc::new(options) };
        finish_groups(&hub.forker());
        hub
    }

    /// The sessions.
    pub fn sessions(&self) -> &Sessions {
        &self.shared.sessions
    }

    /// Returns the options.
    pub fn options(&self) -> &HubOptions {
        &self.options
    }

    /// Returns the same hub, with the same open workspaces, for a client that allows mounts below `roots`.
    #[must_use]
    pub fn with_roots(&self, roots: AllowedRoots) -> Self {
        Self { options: Arc::new(HubOptions { roots, ..self.options().clone() }), ..self.clone() }
    }

    /// Returns the same hub for a client that receives the progress of preparations.
    #[must_use]
    pub fn with_progress(&self, progress: ProgressWatch) -> Self {
        Self { options: Arc::new(HubOptions { progress: Some(progress), ..self.options().clone() }), ..self.clone() }
    }

    /// Opens a session's workspace, or joins the users of an open one.
    pub async fn open(&self, id: SessionId) -> Result<OpenSession, HubError> {
        self.take_in(id).await?;
        self.open_now(id).await
    }

    async fn open_now(&self, id: SessionId) -> Result<OpenSession, HubError> {
        Ok(OpenSession::of(self.user(id).await?))
    }

    async fn session(&self, id: SessionId) -> Result<Session, HubError> {
        let sessions = self.sessions().clone();
        Ok(blocking(move || sessions.session(id)).await??)
    }

    async fn user(&self, id: SessionId) -> Result<User, HubError> {
        let mut place = self.slot_in_place(id).await;
        self.still_going()?;
        if let Some(kept) = &*place {
            let user = User::of(kept);
            if let Some(progress) = &self.options.progress {
                user.tool_runner().workspace().watch_progress(Arc::clone(progress));
            }
            return Ok(user);
        }
        self.make_room().await;
        let hub = self.clone();
        // If the caller stops waiting, the workspace still opens, for the next caller.
        blocking(move || {
            let tool_runner = hub.tool_runner_of(&hub.sessions().session(id)?)?;
            Ok(User::of(place.insert(hub.kept(tool_runner))))
        })
        .await?
    }

    /// Creates a session and copies the mounts into its workspace. On failure, removes the session again. A session
    /// with a copied directory is a fork of the directory's own session.
    pub async fn create(
        &self,
        name: Option<String>,
        spec: &WorkspaceSpec,
        mounts: &[MountSpec],
    ) -> Result<OpenSession, HubError> {
        self.create_as((name, None), spec, mounts).await
    }

    async fn create_as(
        &self,
        named: (Option<String>, Option<SessionId>),
        spec: &WorkspaceSpec,
        mounts: &[MountSpec],
    ) -> Result<OpenSession, HubError> {
        let (looked, home) = (spec.clone(), self.options().home.clone());
        blocking(move || looked.check_new_directory(&home)).await??;
        match spec.named_directory().filter(|_| spec.given_directory().is_none()) {
            Some(_) if !mounts.is_empty() => {
                let reason = "a session with a copied directory takes no mounts; leave out one of them".to_owned();
                Err(BackendError { backend: spec.backend_name(), reason }.into())
            }
            Some(directory) => self.create_copy(named, spec, directory).await,
            None => self.create_own(named, spec, mounts).await,
        }
    }

    async fn create_own(
        &self,
        (name, id): (Option<String>, Option<SessionId>),
        spec: &WorkspaceSpec,
        mounts: &[MountSpec],
    ) -> Result<OpenSession, HubError> {
        self.still_going()?;
        let new = NewSession { name, backend: Some(spec.backend_name().to_owned()), options: spec.options(), id };
        let (hub, mounts, spec) = (self.clone(), mounts.to_vec(), spec.clone());
        // Spawned, so that it completes even if the caller stops waiting.
        let created = tokio::spawn(async move {
            let sessions = hub.sessions().clone();
            let id = blocking(move || sessions.create(new)).await??.id();
            let ready = match spec.keep_values(id, &hub.options().home) {
                Ok(()) => hub.ready(id, &spec, &mounts).await,
                Err(error) => Err(error.into()),
            };
            let ready = match ready {
                Ok(open) => hub.begin_slices(open).await,
                failed => failed,
            };
            if ready.is_err()
                && let Err(error) = hub.remove(id).await
            {
                tracing::warn!(%error, "failed to remove a session that could not be prepared");
            }
            ready
        });
        joined(created.await)?
    }

    /// Declares the store's default slices in a new session.
    async fn begin_slices(&self, open: OpenSession) -> Result<OpenSession, HubError> {
        let (sessions, session) = (self.sessions().clone(), open.session().clone());
        blocking(move || declare_defaults(&sessions, &session)).await??;
        Ok(open)
    }

    async fn ready(&self, id: SessionId, spec: &WorkspaceSpec, mounts: &[MountSpec]) -> Result<OpenSession, HubError> {
        let user = self.user(id).await?;
        check_engine(spec).await?;
        let tool_runner = user.tool_runner();
        let (session, workspace) = (tool_runner.session(), tool_runner.workspace().as_ref());
        let copied = hydrate(session, workspace, mounts, &self.options().roots).await?;
        if copied.len() < mounts.len() {
            return Err(MountError::NotEmpty.into());
        }
        Ok(OpenSession::of(user))
    }

    /// Creates a child of a session, with its own open workspace. A shared child is the session itself, under the
    /// child's agent name.
    pub async fn start_child(&self, parent: SessionId, new: ForkOptions) -> Result<OpenSession, HubError> {
        let parent = self.open(parent).await?;
        let hub = self.clone();
        // Spawned, so that it completes even if the caller stops waiting.
        joined(tokio::spawn(async move { hub.start_child_of(parent, new).await }).await)?
    }

    /// Creates a child with the files of its parent's history, without opening a workspace.
    pub(crate) async fn begin_child(&self, parent: &Session, new: ForkOptions) -> Result<Session, HubError> {
        let (forker, parent) = (self.forker(), parent.clone());
        Ok(blocking(move || forker.begin(&parent, new)).await??)
    }

    fn forker(&self) -> Forker {
        let (home, roots) = (self.options.home.clone(), self.options.roots.clone());
        Forker { sessions: self.sessions().clone(), home, roots }
    }

    async fn start_child_of(&self, parent: OpenSession, new: ForkOptions) -> Result<OpenSession, HubError> {
        let is_shared = new.isolation == Isolation::Shared;
        let child = self.forker().start(parent.tool_runner(), new).await?;
        if is_shared {
            return Ok(parent.through(child));
        }
        let begun = child.session().clone();
        blocking(move || hosts::claim_bare(&begun)).await??;
        let mut place = self.place(child.session().id()).lock_owned().await;
        let kept = || self.kept(child);
        if let Err(error) = self.still_going() {
            close_now(kept(), place).await;
            return Err(error);
        }
        // Another caller may have opened it already.
        Ok(OpenSession::of(User::of(place.get_or_insert_with(kept))))
    }

    /// Merges a child's changes into an ancestor. A dry run only reports what would happen. A second merge with the same
    /// id returns the report of the first.
    pub async fn merge(
        &self,
        child: SessionId,
        into: &OpenSession,
        choices: &MergeChoices,
        (dry_run, id): (bool, Option<CommitId>),
    ) -> Result<MergeReport, HubError> {
        let session = self.session(child).await?;
        if dry_run {
            let (parent, choices) = (into.session().clone(), choices.clone());
            return Ok(blocking(move || preview_merge(&parent, &session, &choices)).await??);
        }
        // Opening it records external changes in its directory.
        let opened = self.open(child).await;
        if let Err(error) = &opened {
            tracing::warn!(%error, "external changes in a child's workspace are not merged, since it can't be opened");
        }
        into.merge(&session, choices, id).await
    }

    /// Rewinds a session's files and state to an earlier position. A closed workspace is opened only for the rewind,
    /// and its external changes are not recorded first, unlike before calls.
    pub async fn rewind(&self, session: &Session, to: Seq, options: RewindOptions) -> Result<Rewound, HubError> {
        self.take_in(session.id()).await?;
        let place = self.place(session.id()).lock_owned().await;
        let _going = self.shared.in_flight.begin(CancellationToken::new())?;
        if let Some(kept) = &*place {
            let user = User::of(kept);
            drop(place);
            let runner = user.tool_runner().as_agent(Arc::clone(session.agent()));
            return Ok(runner.rewind(to, options).await?);
        }
        let (opened, hub) = (session.clone(), self.clone());
        let workspace = blocking(move || hub.workspace_of(&opened)).await??;
        let rewound = rewind(session, &workspace, self.options.rules.budget, to, options).await;
        let closed = session.clone();
        let closing = move || {
            workspace.close();
            hosts::release(&closed);
            drop(place);
        };
        blocking(closing).await?;
        Ok(rewound?)
    }

    /// Refuses new work from now on; work in flight continues.
    pub fn end(&self) {
        self.shared.in_flight.end();
    }

    /// Returns the number of calls, rewinds and merges in flight.
    pub fn calls_in_flight(&self) -> usize {
        self.shared.in_flight.count()
    }

    /// Returns the counts of finished calls, by tool and status.
    pub fn call_figures(&self) -> Vec<CallFigures> {
        self.shared.in_flight.figures.all()
    }

    /// Cancels the calls in flight, which are recorded as interrupted. Rewinds and merges continue.
    pub fn cancel_calls(&self) {
        self.shared.in_flight.cancel();
    }

    /// Waits until nothing is in flight.
    pub async fn calls_ended(&self) {
        self.shared.in_flight.ended().await;
    }

    /// Closes all workspaces and refuses new work. Removes containers; files stay.
    pub async fn close(&self) {
        self.end();
        let places = std::mem::take(&mut *lock(&self.shared.places));
        for place in places.into_values() {
            let mut place = place.lock_owned().await;
            if let Some(kept) = place.take() {
                close_now(kept, place).await;
            }
        }
    }

    /// Returns a receiver that is notified when programs register or withdraw tools.
    #[doc(hidden)]
    pub fn tool_changes(&self) -> tokio::sync::watch::Receiver<u64> {
        self.shared.registrations.changes()
    }

    #[doc(hidden)]
    pub fn in_flight(&self) -> &Arc<InFlight> {
        &self.shared.in_flight
    }

    fn still_going(&self) -> Result<(), HubError> {
        self.shared.in_flight.still_going()
    }

    fn place(&self, id: SessionId) -> Arc<AsyncMutex<WorkspaceSlot>> {
        Arc::clone(lock(&self.shared.places).entry(id).or_default())
    }

    pub(in crate::hub) fn kept(&self, tool_runner: ToolRunner) -> Arc<KeptWorkspace> {
        let processes = self.shared.processes.of(tool_runner.session().id());
        KeptWorkspace::new(tool_runner, &self.shared.in_flight, processes)
    }

    fn tool_runner_of(&self, session: &Session) -> Result<ToolRunner, HubError> {
        let options = self.options();
        let workspace = self.workspace_of(session)?;
        let opened = ToolRunner::with_rules(
            session.clone(),
            Arc::clone(&options.tools),
            Arc::clone(&workspace),
            options.rules.clone(),
        );
        Ok(opened.inspect_err(|_| {
            Workspace::close(workspace.as_ref());
            hosts::release(session);
        })?)
    }

    fn workspace_of(&self, session: &Session) -> Result<Arc<dyn Workspace>, HubError> {
        // Two processes must never have it open at once, not even briefly.
        session.check_own()?;
        let Some(started) = session.started() else {
            return Err(SessionError::Unreadable { name: session.name().to_owned() }.into());
        };
        let spec = WorkspaceSpec::of_session(started)?;
        let spec = self.as_attached(session.id(), spec);
        spec.check_directory(&self.options.home)?;
        hosts::claim(session, &spec, &self.options.home)?;
        let opened = spec.open_ready(session.id(), &self.options.home, self.options.progress.clone());
        Ok(opened.inspect_err(|_| hosts::release(session))?)
    }
}

/// Checks that the commands of a new session can run.
async fn check_engine(spec: &WorkspaceSpec) -> Result<(), HubError> {
    let spec = spec.clone();
    Ok(blocking(move || spec.check_engine()).await??)
}

/// Runs blocking work on tokio's blocking threads.
pub async fn blocking<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> Result<T, HubError> {
    joined(tokio::task::spawn_blocking(work).await)
}

#[doc(hidden)]
pub fn joined<T>(done: Result<T, tokio::task::JoinError>) -> Result<T, HubError> {
    done.map_err(|error| if error.is_panic() { HubError::Panicked } else { HubError::Ending })
}

/// Closes a workspace. Its slot stays locked until then, even if the caller is gone.
async fn close_now(kept: Arc<KeptWorkspace>, place: OwnedMutexGuard<WorkspaceSlot>) {
    let closing = move || {
        kept.close();
        drop(place);
    };
    if blocking(closing).await.is_err() {
        tracing::debug!("a workspace will only close when the process ends");
    }
}

crate::engine::debug_by!(Hub, |hub| sessions: hub.sessions());
