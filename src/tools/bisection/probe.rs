//! Probes: throw-away workspaces with a session's files at a position.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use tokio_util::sync::CancellationToken;

use crate::backends::{
    BackendError, ChangeDetector, FileChange, OutputWatch, Shell, ShellCommand, ShellError, ShellResult, Throwaway,
    Workspace, WorkspaceSpec,
};
use crate::engine::event::ContainerStarted;
use crate::engine::id::Seq;
use crate::engine::path::EntryPath;
use crate::engine::session::Session;
use crate::engine::session::error::SessionError;
use crate::engine::state::State;
use crate::reducers::{Allowances, VirtualFileSystem, can_be_made, directories_above};
use crate::tools::call::approval::unallowed;
use crate::tools::error::WorkspaceError;
use crate::tools::policy::rules::ShellRules;
use crate::tools::policy::{CommandPolicy, Decision};
use crate::tools::workspace::capture::{CaptureBudget, compare};
use crate::tools::workspace::hard_links::links_at;
use crate::tools::workspace::limits::{denied, limits_of};
use crate::tools::workspace::populate::{fill, not_kept, write_all};

/// Stores and reads no contents: a file that a command rewrote unchanged has a new time, and `make` compares times.
const LOOK: CaptureBudget = CaptureBudget { file_bytes: 0, step_bytes: 0, digest_bytes: 0 };

/// A throw-away workspace with a session's files at a position.
///
/// Commands run as in a tool: in the workspace's root by default, each in its own shell, with the same environment.
/// They never touch the session's files, log or container. Dropping the probe removes everything. Files that a command
/// leaves outside of the workspace, such as in a container's `/tmp`, stay for the probe's later commands.
///
/// ```
/// # use foldspace_tools as foldspace;
/// use std::sync::Arc;
/// use foldspace::{
///     MemoryWorkspace, NewSession, Registry, Sessions, ToolCall, ToolRunner, Tools, WorkspaceSpec,
///     backends::{ShellCommand, unwatched}, tools::{CommandPolicy, Probe, ShellRules},
/// };
/// # let directory = tempfile::tempdir()?;
/// # let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
/// let sessions = Sessions::open(directory.path(), Registry::standard())?;
/// let session = sessions.create(NewSession::default())?;
/// let tools = ToolRunner::new(session.clone(), Tools::standard(), Arc::new(MemoryWorkspace))?;
/// let params = serde_json::json!({ "file_path": "a.txt", "content": "hello" });
/// runtime.block_on(tools.call(ToolCall::new("write_file", params)))?;
///
/// let policy = CommandPolicy { auto_confirm: true, ..CommandPolicy::default() };
/// let rules = ShellRules { policy, ..ShellRules::default() };
/// let mut probe = Probe::open(&session, &session.state()?, &WorkspaceSpec::Memory, directory.path(), rules)?;
/// let cat = || ShellCommand::shell("cat a.txt && rm a.txt");
/// let result = runtime.block_on(probe.run(cat(), unwatched(), Default::default()))?;
/// assert_eq!(&result.stdout.kept[..], b"hello");
/// probe.move_to(&session.state_at(1)?)?;
/// assert!(!runtime.block_on(probe.run(cat(), unwatched(), Default::default()))?.success());
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug)]
pub struct Probe {
    session: Session,
    spec: WorkspaceSpec,
    home: PathBuf,
    rules: ShellRules,
    allowed: BTreeSet<String>,
    place: Throwaway,
    /// The files on the disk, before the commands' changes.
    tree: VirtualFileSystem,
    seq: Seq,
    /// True if commands may have changed the disk.
    is_used: bool,
}

impl Probe {
    /// Opens a probe with the files of `state`, in a workspace that `spec` describes but isolated from all others.
    /// Creates directories below `home` as needed. A session in memory gets a directory on this machine, without a
    /// sandbox for commands.
    pub fn open(
        session: &Session,
        state: &State,
        spec: &WorkspaceSpec,
        home: &Path,
        rules: ShellRules,
    ) -> Result<Self, WorkspaceError> {
        let tree = VirtualFileSystem::of(state);
        let place = filled(session, &tree, spec, home)?;
        Ok(Self {
            session: session.clone(),
            spec: spec.clone(),
            home: home.to_owned(),
            rules,
            allowed: allowed_in(state),
            place,
            tree,
            seq: state.seq(),
            is_used: false,
        })
    }

    /// Opens a probe with the files of a session at a position, with the session's limits and in a workspace like the
    /// session's.
    ///
    /// # Errors
    /// The session can't be read, or the workspace can't be opened.
    pub fn of_session(session: &Session, seq: Seq, home: &Path, mut rules: ShellRules) -> Result<Self, WorkspaceError> {
        let spec = spec_of(session, home, &mut rules.policy)?;
        Self::open(session, &session.state_at(seq)?, &spec, home, rules)
    }

    /// Returns the position of the probe's files.
    pub fn seq(&self) -> Seq {
        self.seq
    }

    /// Returns the entries that the probe lacks: files without stored contents, sockets and devices.
    pub fn left_out(&self) -> Vec<EntryPath> {
        not_kept(&self.tree).cloned().collect()
    }

    /// Returns the workspace's root as commands see it. `None` if no command can run.
    pub fn root(&self) -> Option<String> {
        self.place.workspace()?.root()
    }

    /// Returns the container of its commands, once one has run in it.
    pub(super) fn container(&self) -> Option<ContainerStarted> {
        self.place.workspace()?.container()?.last_start()
    }

    /// Returns the workspace, for inspection. [`move_to`](Probe::move_to) undoes changes made otherwise than with
    /// [`run`](Probe::run) only after a call of [`shell`](Probe::shell).
    pub fn workspace(&self) -> Option<&Arc<dyn Workspace>> {
        self.place.workspace()
    }

    /// Returns a shell that runs any command, without the policy. `None` if no command can run.
    pub fn shell(&mut self) -> Option<Arc<dyn Shell>> {
        self.is_used = true;
        self.place.workspace()?.unrecorded_shell()
    }

    /// Runs a command that the policy allows, without an approver. On the host, it runs on behalf of the rules' caller.
    ///
    /// # Errors
    /// [`ShellError`]: the command is invalid or not allowed, or the workspace can't run commands.
    pub async fn run(
        &mut self,
        mut command: ShellCommand,
        watch: OutputWatch,
        cancel: CancellationToken,
    ) -> Result<ShellResult, ShellError> {
        command.check()?;
        match self.rules.policy.check(&command, &self.allowed) {
            Decision::Allow { .. } => {}
            Decision::Deny { reason } => return Err(ShellError::Blocked(reason)),
            Decision::Ask { programs } => {
                return Err(ShellError::Blocked(unallowed(&programs)));
            }
        }
        let backend = self.place.workspace().map_or("probe", |workspace| workspace.backend_name());
        let nothing = || ShellError::Unavailable { backend, reason: "it can't run commands".to_owned() };
        let shell = self.shell().ok_or_else(nothing)?;
        command.caller = self.rules.caller_in(shell.as_ref())?;
        command.env.entry("PYTHONUNBUFFERED".to_owned()).or_insert_with(|| "1".to_owned());
        shell.execute(command, watch, cancel).await
    }

    /// Moves the probe to another state of the same session: undoes the commands' changes and writes the differences.
    /// The cost is proportional to the difference. If that fails, a new workspace replaces this one.
    ///
    /// # Errors
    /// The session can't be read, or the new workspace can't be opened. The probe must then be dropped.
    pub fn move_to(&mut self, state: &State) -> Result<(), WorkspaceError> {
        let target = VirtualFileSystem::of(state);
        if let Err(error) = self.project(&target) {
            tracing::debug!(%error, "can't move a probe; opening a new workspace");
            self.place = filled(&self.session, &target, &self.spec, &self.home)?;
        }
        (self.tree, self.seq, self.allowed, self.is_used) = (target, state.seq(), allowed_in(state), false);
        Ok(())
    }

    fn project(&self, target: &VirtualFileSystem) -> Result<(), WorkspaceError> {
        let Some(workspace) = self.place.workspace() else { return Ok(()) };
        let mut wrong = self.done_by_commands(workspace.as_ref())?;
        wrong.extend(self.tree.diff(target).iter().map(|change| change.path().clone()));
        // Remove entries that can't be restored, too: an older version or a command's file would be wrong.
        let is_to_go = |path: &&EntryPath| !target.node(path).is_some_and(can_be_made);
        let mut gone: BTreeSet<EntryPath> = BTreeSet::new();
        for path in wrong.iter().filter(is_to_go) {
            let is_gone = directories_above(path).any(|above| gone.contains(&above));
            let is_there = workspace.capture().map_or(Ok(true), |disk| disk.observe(path).map(|found| found.is_some()));
            if !is_gone && is_there? {
                gone.insert(path.clone());
            }
        }
        let changes: Vec<FileChange> = gone.into_iter().map(|path| FileChange::Delete { path }).collect();
        workspace.populate(&changes)?;
        let links = links_at(target, wrong.iter());
        let entries = wrong.iter().filter_map(|path| target.get(path).map(|entry| (path, entry)));
        write_all(&self.session, (entries.collect(), links), |piece| workspace.populate(piece))?;
        Ok(workspace.capture().map_or(Ok(()), ChangeDetector::adopt)?)
    }

    fn done_by_commands(&self, workspace: &dyn Workspace) -> Result<BTreeSet<EntryPath>, BackendError> {
        let mut paths = BTreeSet::new();
        let Some(disk) = workspace.capture().filter(|_| self.is_used) else { return Ok(paths) };
        let captured = compare(disk, disk.dirty()?, &self.tree, LOOK)?;
        disk.mark_clean()?;
        // A left-out file can't be distinguished from a file that a command made in its place.
        let named = captured.changes.iter().map(|change| change.path().clone());
        for path in named.chain(self.left_out()) {
            // The scan names a new entry without the new directories above it.
            paths.extend(directories_above(&path).take_while(|above| self.tree.get(above).is_none()));
            // The scan names a removed directory without the entries below it.
            if self.tree.get(&path).is_some_and(|entry| entry.is_directory()) {
                paths.extend(self.tree.below(&path).map(|(path, _)| path.clone()));
            }
            paths.insert(path);
        }
        Ok(paths)
    }
}

/// Returns the specification for copies of a session's workspace, and adds the session's limits to the policy.
pub(super) fn spec_of(
    session: &Session,
    home: &Path,
    policy: &mut CommandPolicy,
) -> Result<WorkspaceSpec, WorkspaceError> {
    let Some(started) = session.started() else {
        return Err(SessionError::Unreadable { name: session.name().to_owned() }.into());
    };
    policy.deny.extend(denied(&limits_of(session)?));
    Ok(WorkspaceSpec::of_session(started)?.with_values_of(session.id(), home))
}

fn allowed_in(state: &State) -> BTreeSet<String> {
    state.slice::<Allowances>().map(|known| known.programs.clone()).unwrap_or_default()
}

fn filled(
    session: &Session,
    tree: &VirtualFileSystem,
    spec: &WorkspaceSpec,
    home: &Path,
) -> Result<Throwaway, WorkspaceError> {
    let place = Throwaway::open(spec, home)?;
    if let Some(workspace) = place.workspace() {
        fill(session, tree, workspace.as_ref())?;
        if let Some(disk) = workspace.capture() {
            disk.adopt()?;
        }
    }
    Ok(place)
}
