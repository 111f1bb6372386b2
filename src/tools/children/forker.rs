//! Creation of child sessions with their own workspaces.

use std::path::Path;
use std::sync::Arc;

use super::fork_base::share_copy;
use crate::backends::{BackendError, Workspace, WorkspaceSpec};
use crate::engine::error::ValueError;
use crate::engine::event::{ChildLimits, Isolation, ToolPolicySet};
use crate::engine::id::{Seq, SessionId};
use crate::engine::path::EntryPath;
use crate::engine::session::Session;
use crate::engine::session::children::ForkOptions;
use crate::engine::session::error::SessionError;
use crate::engine::session::sessions::Sessions;
use crate::reducers::{Change, Mounts, ToolRules, VirtualFileSystem};
use crate::tools::call::tool_runner::ToolRunner;
use crate::tools::error::WorkspaceError;
use crate::tools::mounts::{AllowedRoots, MountSpec, hydrate};
use crate::tools::off_thread::off_thread;
use crate::tools::rewind::taken_up;
use crate::tools::workspace::limits;
use crate::tools::workspace::managed::Extent;
use crate::tools::workspace::plan::{ChangePlan, NewContents};
use crate::tools::workspace::populate::not_kept;
use crate::tools::workspace::project::project;

/// Creator of child sessions.
#[derive(Debug, Clone)]
pub struct Forker {
    /// Store of the parent and its children.
    pub sessions: Sessions,
    /// Directory for default workspaces.
    pub home: std::path::PathBuf,
    /// Directories that a child with full isolation may copy the parent's mounts from.
    pub roots: AllowedRoots,
}

impl Forker {
    /// Creates a child of a session without an open workspace. A workspace opened for the child later is populated from
    /// its history.
    ///
    /// # Errors
    /// Errors of the session's store, and [`BackendError`] if the parent's workspace options are invalid.
    pub fn begin(&self, parent: &Session, new: ForkOptions) -> Result<Session, WorkspaceError> {
        let new = within_what_is_left(parent, new)?;
        let (new, spec) = with_workspace(parent, new, &self.home)?;
        let child = self.sessions.child_of(parent, new)?;
        spec.keep_values(child.id(), &self.home)?;
        Ok(child)
    }

    /// Creates several children with the same options but their own ids and names, without opening workspaces. If one
    /// fails, removes the others.
    ///
    /// # Errors
    /// As [`begin`](Self::begin).
    pub fn begin_all(
        &self,
        parent: &Session,
        new: ForkOptions,
        children: Vec<(SessionId, Option<String>)>,
    ) -> Result<Vec<Session>, WorkspaceError> {
        let new = within_what_is_left(parent, new)?;
        let (new, spec) = with_workspace(parent, new, &self.home)?;
        let begun = self.sessions.children_with_ids(parent, &new, children)?;
        let kept = begun.iter().try_for_each(|child| spec.keep_values(child.id(), &self.home));
        if let Err(error) = kept {
            begun.iter().try_for_each(|child| self.sessions.remove(child.id()))?;
            return Err(error.into());
        }
        Ok(begun)
    }

    /// Records external changes in a session, unless a call changes its files, and returns its last position.
    ///
    /// # Errors
    /// Errors of the session's store.
    pub async fn settled(&self, session: &ToolRunner) -> Result<Seq, WorkspaceError> {
        let turn = session.runtime().try_lock_workspace();
        if turn.is_some() {
            record_drift(session).await;
        }
        Ok(session.session().aside(|| session.session().head())?)
    }

    /// Creates a child with its own workspace and a runner for its calls.
    ///
    /// - [`Isolation::Shared`]: the parent's session and workspace, under the child's agent.
    /// - [`Isolation::Fork`]: the parent's files at the position, copy-on-write if the backend supports it. External
    ///   changes are recorded in the parent first, so a fork of the present has them. While a call of the parent
    ///   changes files, the fork has the files as last recorded.
    /// - [`Isolation::Full`]: the parent's mounts, copied again.
    ///
    /// The child inherits no processes, variables, `/tmp` or approvals. It has the parent's rules for commands and at
    /// most the parent's remaining limits.
    ///
    /// # Errors
    /// [`WorkspaceError`]. The child exists only after [`WorkspaceError::Mounts`].
    pub async fn start(&self, parent: &ToolRunner, new: ForkOptions) -> Result<ToolRunner, WorkspaceError> {
        let new = parent.session().aside(|| within_what_is_left(parent.session(), new))?;
        match new.isolation {
            Isolation::Shared => {
                let begin = || parent.in_session(self.sessions.child_of(parent.session(), new)?);
                Ok(parent.session().aside(begin)?)
            }
            Isolation::Fork => self.fork(parent, new).await,
            Isolation::Full => self.afresh(parent, new).await,
        }
    }

    async fn fork(&self, parent: &ToolRunner, new: ForkOptions) -> Result<ToolRunner, WorkspaceError> {
        let session = parent.session();
        // Never waits: the caller may create a child in a call that has the workspace lock.
        let turn = parent.runtime().try_lock_workspace();
        if turn.is_some() {
            record_drift(parent).await;
        }
        let looking = if turn.is_some() { parent.runtime().try_lock_scan() } else { None };
        let at = session.aside(|| match new.at {
            Some(at) => session.commit_end(at),
            None => session.head(),
        })?;
        let (new, spec) = with_workspace(session, ForkOptions { at: Some(at), ..new }, &self.home)?;
        let id = new.id.unwrap_or_else(|| self.sessions.fresh_id());
        let (parent, forker) = (parent.clone(), self.clone());
        let may_share = looking.is_some();
        let begin = move || {
            // A running process would keep writing into the shared layers.
            let shared = match may_share && !parent.machine().processes.is_running() {
                true => share(&parent, id, at, &spec, &forker.home),
                false => None,
            };
            forker.begin_with_id(&parent, new, id, &spec, shared)
        };
        off_thread((turn, looking), stopped(), begin).await
    }

    async fn afresh(&self, parent: &ToolRunner, new: ForkOptions) -> Result<ToolRunner, WorkspaceError> {
        let id = new.id.unwrap_or_else(|| self.sessions.fresh_id());
        let (new, spec) = with_workspace(parent.session(), new, &self.home)?;
        let mounts = parent.session().aside(|| mounts_of(parent.session()))?;
        let (parent, forker) = (parent.clone(), self.clone());
        let begin = move || forker.begin_with_id(&parent, new, id, &spec, None);
        let child = off_thread((), stopped(), begin).await?;
        let hydrated = hydrate(child.session(), child.workspace().as_ref(), &mounts, &self.roots).await;
        let session = child.session();
        let told = |source| WorkspaceError::Mounts { id: session.id(), name: session.name().to_owned(), source };
        hydrated.map_err(told)?;
        Ok(child)
    }

    /// Creates the files first: the child exists once its first event is recorded. `foldspace gc` removes files without
    /// a child. After an error neither remains.
    fn begin_with_id(
        &self,
        parent: &ToolRunner,
        new: ForkOptions,
        id: SessionId,
        spec: &WorkspaceSpec,
        shared: Option<Arc<dyn Workspace>>,
    ) -> Result<ToolRunner, WorkspaceError> {
        let begin = || {
            let workspace = shared.map_or_else(|| spec.open(id, &self.home), Ok)?;
            let child = self.sessions.child_with_id(parent.session(), new, id)?;
            parent.for_child(child, workspace).inspect_err(|_| {
                if let Err(error) = self.sessions.remove(id) {
                    tracing::warn!(%error, "failed to remove a child after an error");
                }
            })
        };
        begin().inspect_err(|_| {
            if self.sessions.session(id).is_err()
                && let Err(error) = spec.remove(id, &self.home)
            {
                tracing::warn!(%error, "failed to remove the files of a child that did not begin");
            }
        })
    }
}

async fn record_drift(parent: &ToolRunner) {
    if let Err(error) = parent.machine().record_drift(parent.session(), Extent::All).await {
        tracing::warn!(%error, "the fork lacks external changes");
    }
}

/// Lists the entries of a fork's history that its files lack, or, before its workspace is opened, will lack: they can't
/// be restored.
pub fn left_of_fork(child: &Session, is_open: bool) -> Result<Vec<EntryPath>, SessionError> {
    let Some(at) = child.origin().filter(|origin| origin.isolation == Isolation::Fork).map(|origin| origin.at) else {
        return Ok(Vec::new());
    };
    let then = || Ok::<_, SessionError>(VirtualFileSystem::of(&child.state_at(at)?));
    if !is_open {
        return Ok(not_kept(&then()?).cloned().collect());
    }
    // Opening the workspace recorded the missing entries. Most forks lack nothing, and need no state.
    let Some(made) = taken_up(child)? else { return Ok(Vec::new()) };
    let then = then()?;
    let now = VirtualFileSystem::of(&child.state_at(made)?);
    let gone = then.diff(&now).into_iter().filter(|change| matches!(change, Change::Removed { .. }));
    Ok(gone.map(|change| change.path().clone()).collect())
}

/// Returns a session's mounts, to copy them again.
pub fn mounts_of(session: &Session) -> Result<Vec<MountSpec>, SessionError> {
    let state = session.state()?;
    let mounts = state.slice::<Mounts>().into_iter().flat_map(Mounts::iter);
    Ok(mounts.map(MountSpec::of_hydrated).collect())
}

fn stopped() -> WorkspaceError {
    let reason = "the child's workspace was not created: the runtime is shutting down".to_owned();
    BackendError { backend: "child's", reason }.into()
}

/// Limits a child to its parent's remaining limits. Calls of a shared child are counted in the parent.
fn within_what_is_left(parent: &Session, new: ForkOptions) -> Result<ForkOptions, WorkspaceError> {
    let mut left = limits::left(parent)?;
    if left.depth == Some(0) {
        return Err(SessionError::TooDeep { name: parent.name().to_owned() }.into());
    }
    if new.isolation == Isolation::Shared {
        left = ChildLimits { calls: None, wall_millis: None, bytes_written: None, ..left };
    }
    let policy = policy_of_child(parent, &new)?;
    Ok(ForkOptions { limits: new.limits.within(&left), policy, ..new })
}

/// Adds the parent's present policies to that of a child, unless the child's past has them.
fn policy_of_child(parent: &Session, new: &ForkOptions) -> Result<Option<ToolPolicySet>, WorkspaceError> {
    if new.isolation == Isolation::Shared {
        return match new.policy {
            Some(_) => Err(ValueError::new("a shared child has the session's policy; leave out its own").into()),
            None => Ok(None),
        };
    }
    let policies = |rules: &ToolRules| rules.iter().map(|one| one.policy.clone()).collect::<Vec<_>>();
    let now = policies(&ToolRules::of(&parent.state()?));
    let past = match (new.isolation, new.at) {
        (Isolation::Fork, None) => now.clone(),
        (Isolation::Fork, Some(at)) => policies(&ToolRules::of(&parent.state_at(parent.commit_end(at)?)?)),
        _ => Vec::new(),
    };
    let own = new.policy.as_ref().map(|own| own.policy.clone());
    if past == now {
        return Ok(own.map(|policy| ToolPolicySet { policy, inherited: None }));
    }
    let inherited = now.iter().map(serde_json::to_value).collect::<Result<_, _>>();
    let inherited = inherited.map_err(|error| ValueError::new(error.to_string()))?;
    Ok(Some(ToolPolicySet { policy: own.unwrap_or_default(), inherited: Some(inherited) }))
}

fn with_workspace(
    parent: &Session,
    new: ForkOptions,
    home: &Path,
) -> Result<(ForkOptions, WorkspaceSpec), WorkspaceError> {
    let spec = match (&new.workspace, parent.started()) {
        (Some((backend, _)), Some(started)) if backend == WorkspaceSpec::MOUNT => {
            WorkspaceSpec::of_session(started)?.forked().with_values_of(parent.id(), home).in_mount()?
        }
        (Some((backend, options)), _) => WorkspaceSpec::parse(backend, options)?,
        (None, Some(started)) => WorkspaceSpec::of_session(started)?.forked().with_values_of(parent.id(), home),
        (None, None) => return Err(SessionError::Unreadable { name: parent.name().to_owned() }.into()),
    };
    if let (Some(own), Some(started)) = (spec.given_directory(), parent.started())
        && WorkspaceSpec::of_session(started)?.given_directory() == Some(own)
    {
        let reason = format!("{} is the parent's own directory; give the child another one, or none", own.display());
        return Err(BackendError { backend: spec.backend_name(), reason }.into());
    }
    spec.check_new_directory(home)?;
    let workspace = Some((spec.backend_name().to_owned(), spec.options()));
    Ok((ForkOptions { workspace, ..new }, spec))
}

/// Opens a workspace with the parent's files at a position, without a copy; `None` if that is impossible.
fn share(parent: &ToolRunner, id: SessionId, at: Seq, spec: &WorkspaceSpec, home: &Path) -> Option<Arc<dyn Workspace>> {
    let shared = try_share(parent, id, at, spec, home);
    shared.unwrap_or_else(|error| {
        tracing::warn!(%error, "failed to share a fork's files; copying them");
        if let Err(error) = spec.remove(id, home) {
            tracing::warn!(%error, "failed to remove the files of a fork");
        }
        None
    })
}

fn try_share(
    parent: &ToolRunner,
    id: SessionId,
    at: Seq,
    spec: &WorkspaceSpec,
    home: &Path,
) -> Result<Option<Arc<dyn Workspace>>, WorkspaceError> {
    let session = parent.session();
    let plan = match at == session.head()? {
        true => ChangePlan::default(),
        false => ChangePlan::between(
            &VirtualFileSystem::of(&session.state()?),
            &VirtualFileSystem::of(&session.state_at(at)?),
        ),
    };
    // Files that can't be restored: the child must not get the parent's present versions.
    let is_shared = plan.left.is_empty() && parent.workspace().fork_to(id)?;
    if !is_shared {
        let is_copied = spec.is_in_mount() && share_copy(session, id, at, home)?;
        return Ok(is_copied.then(|| spec.open(id, home)).transpose()?);
    }
    let workspace = spec.open(id, home)?;
    // `foldspace gc` may have swept a workspace before it was open; it is then populated from the child's history.
    if !workspace.is_blank() {
        project(session, workspace.as_ref(), &plan.steps, &NewContents::new(), &mut 0)?;
    }
    Ok(Some(workspace))
}
