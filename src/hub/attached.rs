//! A person's directories where coding agents work. Each has a session, and the agents' hooks report to it.

use std::collections::BTreeMap;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use futures_util::FutureExt;
use futures_util::future::OptionFuture;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use tokio::sync::{Mutex as AsyncMutex, oneshot};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::hook_message::{HookMessage, RecentReports, ReportId, ReportOutcome};
use super::spool_files::{ATTACHED, keep_report, put};
use super::{Hub, HubError, blocking};
use crate::backends::disk::{entries_in, remove_path};
use crate::backends::{BackendError, HostOptions, HostPath, WorkspaceSpec, git};
use crate::engine::error::{Diagnostic, ErrorKind};
use crate::engine::event::Isolation;
use crate::engine::id::{Digest, SessionId};
use crate::engine::lock::lock;
use crate::engine::path::EntryPath;
use crate::engine::session::children::ForkOptions;
use crate::engine::session::error::SessionError;
use crate::tools::agents::before_look::prepare_look;
use crate::tools::agents::observer::Arrival;
use crate::tools::agents::report::HookKind;

/// Time limit of a hook's wait for its report to be recorded.
const ANSWER: Duration = Duration::from_secs(2);
/// Pause between scans of the disk while an agent waits for a permission: the longer of `LOOK_EVERY` and `LOOK_SHARE`
/// times the duration of the last scan.
const LOOK_EVERY: Duration = Duration::from_millis(200);
const LOOK_SHARE: u32 = 10;
/// The longest that new settings wait for an open workspace to become idle.
const FREE: Duration = Duration::from_secs(5);
/// Default limit for copies of contents that exist only in git, in bytes.
const OWN_COPY: u64 = 1 << 30;
const NAME_CHARS: usize = 60;

/// Attaches a directory. Records its files as they are, by git's ignore rules; contents that git has are recorded as
/// blob ids. From then on, hooks of agents that work there report to its session. Only for clients on the unix socket.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct AttachDirectory {
    /// The directory. Inside a git repository, the whole worktree is attached.
    #[schemars(with = "String")]
    pub directory: HostPath,
    /// Paths below it to record, with everything below them, even if git ignores them.
    #[serde(default)]
    #[schemars(with = "Vec<String>")]
    pub include: Vec<EntryPath>,
    /// True to store agents' prompts and tool outputs in full, instead of the first line and a digest of each.
    #[serde(default)]
    pub transcripts: bool,
    /// True to record small ignored files, except in generated directories. Default: the current setting, or else true.
    #[serde(default)]
    pub keep_ignored: Option<bool>,
    /// True to store, on this machine only, the contents of files that look like secrets. Default: the current setting,
    /// or else true.
    #[serde(default)]
    pub keep_secrets: Option<bool>,
    /// Limit for copies of contents that exist only in git, in bytes; 0 disables them. Default: the current setting, or
    /// else 1 GiB.
    #[serde(default)]
    pub own_copy: Option<u64>,
}

/// A directory with agents that report to a session.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct AttachedDirectory {
    /// The directory.
    #[schemars(with = "String")]
    pub directory: HostPath,
    /// The session.
    #[schemars(with = "String")]
    pub session: SessionId,
    /// True if agents' prompts and tool outputs are stored in full, not just the first line and a digest of each.
    #[serde(default)]
    pub transcripts: bool,
    /// Paths that are recorded, with everything below them, even if git ignores them.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(with = "Vec<String>")]
    pub include: Vec<EntryPath>,
    /// True if small ignored files are recorded, except in generated directories.
    #[serde(default)]
    pub keep_ignored: bool,
    /// True if the contents of files that look like secrets are stored, on this machine only.
    #[serde(default)]
    pub keep_secrets: bool,
    /// Limit for copies of contents that exist only in git, in bytes; 0 disables them.
    #[serde(default)]
    pub own_copy: u64,
    /// For an additional worktree, the attached directory of the same repository. The worktree's session is a fork.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Option<String>")]
    pub worktree_of: Option<HostPath>,
}

impl AttachedDirectory {
    /// Applies a request's settings. A missing setting keeps its current value, or else the default; `transcripts` is
    /// always taken from the request.
    fn asked(asked: AttachDirectory, known: Option<&Self>, top: PathBuf) -> Self {
        let mut include = known.map(|known| known.include.clone()).unwrap_or_default();
        include.extend(asked.include.into_iter().filter(|path| !include.contains(path)).collect::<Vec<_>>());
        let set = |asked: Option<bool>, known: Option<bool>| asked.or(known).unwrap_or(true);
        Self {
            directory: HostPath(top),
            session: known.map_or(SessionId::from_bytes([0; 16]), |known| known.session),
            transcripts: asked.transcripts,
            include,
            keep_ignored: set(asked.keep_ignored, known.map(|known| known.keep_ignored)),
            keep_secrets: set(asked.keep_secrets, known.map(|known| known.keep_secrets)),
            own_copy: asked.own_copy.or(known.map(|known| known.own_copy)).unwrap_or(OWN_COPY),
            worktree_of: known.and_then(|known| known.worktree_of.clone()),
        }
    }
}

/// Queues that record each session's reports in order of arrival.
pub(super) type ReportOrder = Mutex<BTreeMap<SessionId, Arc<AsyncMutex<RecentReports>>>>;

/// Returns the path of the file that marks a directory as attached.
pub fn attached_file(home: &Path, directory: &Path) -> PathBuf {
    home.join(ATTACHED).join(Digest::of(directory.as_os_str().as_bytes()).to_string())
}

/// Finds the attached directory at or above a path.
pub fn attached_at(home: &Path, path: &Path) -> Option<AttachedDirectory> {
    path.ancestors().find_map(|above| read(&attached_file(home, above)).ok().flatten())
}

/// Finds the unattached worktree that contains a path, if the repository's main worktree is attached.
pub fn worktree_at(home: &Path, path: &Path) -> Option<(PathBuf, AttachedDirectory)> {
    for above in path.ancestors() {
        if attached_file(home, above).exists() {
            return None;
        }
        let Some(main) = main_worktree(&above.join(".git")) else { continue };
        let attached = read(&attached_file(home, &main)).ok().flatten();
        return attached.map(|attached| (above.to_owned(), attached));
    }
    None
}

/// Returns the main worktree named by a worktree's `.git` file.
#[expect(clippy::disallowed_methods, reason = "git names the main worktree in a file")]
fn main_worktree(link: &Path) -> Option<PathBuf> {
    if !link.is_file() {
        return None;
    }
    let text = std::fs::read_to_string(link).ok()?;
    let (main, _) = text.trim().strip_prefix("gitdir: ")?.split_once("/.git/worktrees/")?;
    Some(PathBuf::from(main))
}

/// Lists the attached directories, sorted by path.
///
/// # Errors
/// An entry can't be read.
pub fn all_attached(home: &Path) -> io::Result<Vec<AttachedDirectory>> {
    let mut all = Vec::new();
    for entry in entries_in(&home.join(ATTACHED))? {
        if entry.file_type()?.is_file() {
            all.extend(read(&entry.path())?);
        }
    }
    all.sort_by(|one, other| one.directory.0.cmp(&other.directory.0));
    Ok(all)
}

#[expect(clippy::disallowed_methods, reason = "the list of attached directories is the hub's")]
fn read(file: &Path) -> io::Result<Option<AttachedDirectory>> {
    match std::fs::read(file) {
        Ok(bytes) => Ok(Some(serde_json::from_slice(&bytes)?)),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error),
    }
}

fn failed(directory: &Path, reason: impl std::fmt::Display) -> HubError {
    BackendError { backend: "host", reason: format!("can't attach {}: {reason}", directory.display()) }.into()
}

impl Hub {
    /// Attaches a directory, or in a git repository the top of its worktree. Records its files as they are; hooks
    /// report from then on. A directory that is already attached keeps its session and gets the new settings.
    pub(crate) async fn attach(&self, asked: AttachDirectory) -> Result<AttachedDirectory, HubError> {
        let home = self.options().home.clone();
        let looked = move || {
            let directory = &asked.directory.0;
            let canonical = directory.canonicalize().map_err(|error| failed(directory, error))?;
            let repository = git::GitRepository::find(&canonical).map_err(|error| failed(&canonical, error))?;
            let top = repository.map_or(canonical, |repository| repository.top);
            let known = read(&attached_file(&home, &top)).map_err(|error| failed(&top, error))?;
            let attached = AttachedDirectory::asked(asked, known.as_ref(), top.clone());
            let host = HostOptions {
                directory: Some(top.clone()),
                files_only: true,
                gitignore: true,
                include: attached.include.clone(),
                keep_ignored: attached.keep_ignored,
                keep_secrets: attached.keep_secrets,
                ..HostOptions::default()
            };
            let spec = WorkspaceSpec::Host(host);
            spec.check_new_directory(&home)?;
            Ok::<_, HubError>((known, attached, spec))
        };
        let (known, mut attached, spec) = blocking(looked).await??;
        match self.session_of(&attached, &spec).await? {
            Ok(session) => {
                attached.session = session;
                let attached = self.note_attached(attached).await?;
                if known.as_ref() != Some(&attached) {
                    self.close_for_settings(session).await;
                }
                drop(self.open(session).await?);
                Ok(attached)
            }
            Err(name) => {
                attached.session = self.create(Some(name), &spec, &[]).await?.session().id();
                self.note_attached(attached).await
            }
        }
    }

    /// Closes a workspace so that it reopens with new settings. If it stays in use, they apply when it next opens.
    async fn close_for_settings(&self, session: SessionId) {
        let until = Instant::now() + FREE;
        if !self.close_once(session, until, |kept| kept.is_none_or(|kept| !kept.is_used())).await {
            tracing::warn!("the new settings of an attached directory take effect when its session next opens");
        }
    }

    /// Adds the settings of an attached directory to the options of its session.
    pub(super) fn as_attached(&self, session: SessionId, spec: WorkspaceSpec) -> WorkspaceSpec {
        let WorkspaceSpec::Host(host) = spec else { return spec };
        let place = host.directory.as_ref().map(|directory| attached_file(&self.options().home, directory));
        let attached = place.and_then(|place| read(&place).ok().flatten());
        let Some(attached) = attached.filter(|attached| attached.session == session) else {
            return WorkspaceSpec::Host(host);
        };
        let earlier = host.include.into_iter().filter(|path| !attached.include.contains(path));
        let include = earlier.chain(attached.include.clone()).collect();
        let AttachedDirectory { keep_ignored, keep_secrets, .. } = attached;
        WorkspaceSpec::Host(HostOptions { include, keep_ignored, keep_secrets, is_taken_up: true, ..host })
    }

    async fn note_attached(&self, attached: AttachedDirectory) -> Result<AttachedDirectory, HubError> {
        let home = self.options().home.clone();
        let write = move || {
            let bytes = serde_json::to_vec(&attached).map_err(io::Error::from);
            let written = bytes.and_then(|bytes| put(&attached_file(&home, &attached.directory.0), &bytes));
            written.map_err(|error| failed(&attached.directory.0, error)).map(|()| attached)
        };
        let attached = blocking(write).await??;
        self.begin_own_copies(&attached);
        Ok(attached)
    }

    pub(super) fn report_order(&self, session: SessionId) -> Arc<AsyncMutex<RecentReports>> {
        Arc::clone(lock(&self.shared.reports).entry(session).or_default())
    }

    /// Attaches another worktree of an attached repository, with a fork as its session.
    async fn attach_worktree(&self, top: PathBuf, of: AttachedDirectory) -> Result<AttachedDirectory, HubError> {
        // Serialized, because two reports may arrive from a new worktree at once.
        let _turn = self.report_order(of.session).lock_owned().await;
        let (home, known) = (self.options().home.clone(), top.clone());
        if let Some(known) = blocking(move || read(&attached_file(&home, &known)).ok().flatten()).await? {
            return Ok(known);
        }
        let parent = self.session(of.session).await?;
        let spec = parent.started().map(WorkspaceSpec::of_session).transpose()?;
        let Some(WorkspaceSpec::Host(host)) = spec.map(|spec| self.as_attached(of.session, spec)) else {
            return Ok(of);
        };
        let spec = WorkspaceSpec::Host(HostOptions { directory: Some(top.clone()), is_taken_up: false, ..host });
        let workspace = Some((spec.backend_name().to_owned(), spec.options()));
        let parent = self.open_now(of.session).await?;
        let child = self.start_child_of(parent, ForkOptions { workspace, ..ForkOptions::new(Isolation::Fork) }).await?;
        let (session, directory, worktree_of) = (child.session().id(), HostPath(top), Some(of.directory.clone()));
        self.note_attached(AttachedDirectory { directory, session, worktree_of, ..of }).await
    }

    /// Finds the session that records a directory, or else an unused name for a new session.
    async fn session_of(
        &self,
        attached: &AttachedDirectory,
        spec: &WorkspaceSpec,
    ) -> Result<Result<SessionId, String>, HubError> {
        let (sessions, wanted) = (self.sessions().clone(), spec.clone());
        let (known, top) = (attached.session, attached.directory.0.clone());
        let looked = move || {
            let all = sessions.list()?;
            for entry in all.iter().filter(|entry| entry.id == known).chain(&all) {
                let session = sessions.session(entry.id)?;
                let started = session.started().and_then(|started| WorkspaceSpec::of_session(started).ok());
                if started.is_some_and(|started| {
                    started.only_watches() && started.given_directory() == wanted.given_directory()
                }) {
                    return Ok(Ok(entry.id));
                }
            }
            let fits = |c: char| if c.is_ascii_alphanumeric() || "._-".contains(c) { c } else { '-' };
            let name = top.file_name().unwrap_or_default().to_string_lossy();
            let name: String = name.chars().take(NAME_CHARS).map(fits).collect();
            let name = name.trim_start_matches(['.', '_', '-']);
            let name = if name.is_empty() { "directory" } else { name };
            let taken: Vec<String> = all.iter().map(|entry| entry.name()).collect();
            let numbered = (2..).map(|number| format!("{name}-{number}"));
            let mut names = std::iter::once(name.to_owned()).chain(numbered);
            Ok::<_, SessionError>(Err(names.find(|name| !taken.contains(name)).unwrap_or_default()))
        };
        Ok(blocking(looked).await??)
    }

    /// Detaches a directory and its other worktrees; `purge` removes their sessions too. Returns the directory's entry.
    pub(crate) async fn detach(&self, directory: PathBuf, purge: bool) -> Result<Option<AttachedDirectory>, HubError> {
        let home = self.options().home.clone();
        let found = move || {
            let Some(attached) = attached_at(&home, &directory) else { return Ok(None) };
            let mut ending = all_attached(&home).map_err(|error| failed(&directory, error))?;
            ending.retain(|other| other.worktree_of.as_ref() == Some(&attached.directory));
            ending.push(attached.clone());
            Ok::<_, HubError>(Some((attached, ending)))
        };
        let Some((attached, ending)) = blocking(found).await?? else { return Ok(None) };
        for one in ending {
            let _turn = self.report_order(one.session).lock_owned().await;
            if purge {
                match self.remove(one.session).await {
                    // An earlier attempt removed it.
                    Err(error) if error.kind() == ErrorKind::NotFound => {}
                    other => other?,
                }
            }
            // Last, so that a retry finds what failed.
            let home = &self.options().home;
            let files = [Self::copies_file(home, &one.directory.0), attached_file(home, &one.directory.0)];
            let removed = move || files.iter().try_for_each(|file| remove_path(file));
            blocking(removed).await?.map_err(|error| failed(&one.directory.0, error))?;
        }
        self.drop_unattached().await?;
        Ok(Some(attached))
    }

    /// Records a report, after earlier reports and the spool.
    pub(crate) async fn report(&self, message: HookMessage) -> Result<ReportOutcome, HubError> {
        let arrived = message.began();
        let report = message.report()?;
        let (home, directory) = (self.options().home.clone(), message.place());
        let found = move || (attached_at(&home, &directory), worktree_at(&home, &directory));
        let attached = match blocking(found).await? {
            (_, Some((top, of))) => self.attach_worktree(top, of).await?,
            (Some(attached), None) => attached,
            (None, None) => return Ok(ReportOutcome::Unattached),
        };
        self.begin_own_copies(&attached);
        let order = self.report_order(attached.session);
        // Takes its place in the queue before anything else is awaited.
        let mut turn = Box::pin(order.lock_owned());
        let taken = turn.as_mut().now_or_never();
        let going = self.shared.in_flight.begin(CancellationToken::new())?;
        let (hub, (done, answer)) = (self.clone(), oneshot::channel());
        // Spawned, so that it completes even if the hook stops waiting.
        tokio::spawn(async move {
            let mut turn = match taken {
                Some(turn) => turn,
                None => turn.await,
            };
            let arrival = message.arrival(report, attached.transcripts, arrived);
            let recorded = match hub.record_kept(&attached, &mut turn, false).await {
                // The hook gave up waiting and spooled the report, which is now recorded.
                Ok(()) if turn.has(message.id) => Ok(None),
                Ok(()) => hub.record_report(&attached, arrival).await.map(Some),
                Err(error) => Err(error),
            };
            match recorded {
                Ok(noted) => {
                    turn.add(message.id);
                    drop(done.send(Ok(())));
                    hub.drop_kept(message.id).await;
                    if let Some(Err(error)) = OptionFuture::from(noted).await {
                        tracing::warn!(%error, "failed to record the git state or exit codes that follow a report");
                    }
                }
                // A hook that is still waiting spools the report itself.
                Err(error) => {
                    if let Err(Err(error)) = done.send(Err(error))
                        && !message.payload.is_null()
                    {
                        let kept = serde_json::to_vec(&message).map_err(io::Error::from);
                        let id = message.id.unwrap_or_else(ReportId::of_now);
                        let kept = kept.and_then(|message| keep_report(&hub.options().home, id, &message));
                        tracing::warn!(%error, is_kept = kept.is_ok(), "failed to record a hook report");
                    }
                }
            }
            drop(going);
        });
        match tokio::time::timeout(ANSWER, answer).await {
            Err(_) => Ok(ReportOutcome::Later),
            Ok(Ok(recorded)) => recorded.map(|()| ReportOutcome::Recorded),
            Ok(Err(_)) => Err(HubError::Panicked),
        }
    }

    /// Records a report. The returned future records the facts that follow from it.
    async fn record_report(
        &self,
        attached: &AttachedDirectory,
        arrival: Arrival,
    ) -> Result<impl Future<Output = Result<(), HubError>>, HubError> {
        let is_question = arrival.report.kind == HookKind::Asked;
        let is_pause = matches!(arrival.report.kind, HookKind::Paused { .. } | HookKind::RunEnded { .. });
        let paused = is_pause.then(|| arrival.report.run.clone());
        let (session, root) = (self.session(attached.session).await?, attached.directory.0.clone());
        prepare_look(session, root, vec![arrival.clone()]).await?;
        let open = self.open_now(attached.session).await?;
        open.tool_runner().observe(arrival).await?;
        if is_question {
            tokio::spawn(self.clone().look_while_asked(attached.session));
        }
        Ok(async move {
            let runner = open.tool_runner();
            runner.note_git().await?;
            match paused {
                Some(run) => Ok(runner.note_exit_codes(&run).await?),
                None => Ok(()),
            }
        })
    }

    /// Scans the disk repeatedly while a call waits for a permission.
    async fn look_while_asked(self, session: SessionId) {
        loop {
            let began = Instant::now();
            let looked = match self.open_now(session).await {
                Ok(open) => open.tool_runner().look_while_asked().await,
                Err(_) => return,
            };
            match looked {
                Ok(true) => tokio::time::sleep(LOOK_EVERY.max(began.elapsed() * LOOK_SHARE)).await,
                Ok(false) => return,
                Err(error) => return tracing::warn!(%error, "can't scan the files while a permission is pending"),
            }
        }
    }
}
