//! Directories of a person's in which coding agents work: each has a session, and its agents' hooks report to it.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{self, Write};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use futures_util::FutureExt;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use tokio::sync::{Mutex as AsyncMutex, oneshot};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::{Hub, HubError, blocking, close_now};
use crate::backends::disk::{entries_in, make_private, remove_path};
use crate::backends::{BackendError, HostOptions, HostPath, WorkspaceSpec, git};
use crate::engine::event::Isolation;
use crate::engine::id::{Digest, SessionId};
use crate::engine::lock::lock;
use crate::engine::path::EntryPath;
use crate::engine::session::children::ForkOptions;
use crate::engine::session::error::SessionError;
use crate::engine::session::name_index::name_of;
use crate::tools::AgentKind;
use crate::tools::agents::observer::Arrival;
use crate::tools::agents::read_report;
use crate::tools::agents::report::HookKind;

/// The directory of the data with an entry for each attached directory.
pub const ATTACHED: &str = "attached";
/// The directory in it with reports that came while there was no owner.
pub const SPOOL: &str = "spool";
/// Time for which a report is waited for.
const ANSWER: Duration = Duration::from_secs(2);
/// Bytes of contents that only git has, of which the store gets copies by default.
const OWN_COPY: u64 = 1 << 30;
const NAME_CHARS: usize = 60;

/// A directory whose agents report to a session.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct AttachedDirectory {
    /// The directory.
    #[schemars(with = "String")]
    pub directory: HostPath,
    /// The session.
    #[schemars(with = "String")]
    pub session: SessionId,
    /// Keeps requests to agents and outputs of their tools whole; else the first line of each, and a digest.
    #[serde(default)]
    pub transcripts: bool,
    /// Paths that are recorded although git ignores them, with everything below them.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(with = "Vec<String>")]
    pub include: Vec<EntryPath>,
    /// Records small files that git ignores, outside of directories that programs make.
    #[serde(default)]
    pub keep_ignored: bool,
    /// Keeps the contents of files that look like secrets, on this machine only.
    #[serde(default)]
    pub keep_secrets: bool,
    /// Bytes of contents that only git has, of which the store gets copies; 0 for none.
    #[serde(default)]
    pub own_copy: u64,
    /// The attached directory of whose repository it is another worktree; its session is a fork of that one's.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Option<String>")]
    pub worktree_of: Option<HostPath>,
}

/// Settings of an attached directory; what is not set stays as it was, or is the default.
#[derive(Debug, Clone, Default)]
pub(crate) struct AttachSettings {
    pub(crate) include: Vec<EntryPath>,
    pub(crate) transcripts: bool,
    pub(crate) keep_ignored: Option<bool>,
    pub(crate) keep_secrets: Option<bool>,
    pub(crate) own_copy: Option<u64>,
}

impl AttachSettings {
    fn applied_to(self, known: Option<&AttachedDirectory>, top: PathBuf) -> AttachedDirectory {
        let mut include = known.map(|known| known.include.clone()).unwrap_or_default();
        include.extend(self.include.into_iter().filter(|path| !include.contains(path)).collect::<Vec<_>>());
        let set = |asked: Option<bool>, known: Option<bool>| asked.or(known).unwrap_or(true);
        AttachedDirectory {
            directory: HostPath(top),
            session: known.map_or(SessionId::from_bytes([0; 16]), |known| known.session),
            transcripts: self.transcripts,
            include,
            keep_ignored: set(self.keep_ignored, known.map(|known| known.keep_ignored)),
            keep_secrets: set(self.keep_secrets, known.map(|known| known.keep_secrets)),
            own_copy: self.own_copy.or(known.map(|known| known.own_copy)).unwrap_or(OWN_COPY),
            worktree_of: known.and_then(|known| known.worktree_of.clone()),
        }
    }
}

/// A report of an agent's hook, as it is sent to the owner, and kept while there is none. Only for clients on the unix
/// socket.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct HookMessage {
    /// The agent whose hook it is: `claude`, `codex`, `gemini`, `copilot` or `opencode`.
    pub agent: String,
    /// The name under which it is recorded; that of the agent by default.
    #[serde(default)]
    pub name: Option<String>,
    /// The hook's event, where the payload does not name it.
    #[serde(default)]
    pub event: Option<String>,
    /// The directory in which the hook ran.
    #[schemars(with = "String")]
    pub directory: HostPath,
    /// Microseconds since the hook ran, where the report comes later.
    #[serde(default)]
    pub late_micros: u64,
    /// The payload that the hook was given; null only has the owner look at the disk.
    pub payload: Value,
}

/// The outcome of a report.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum ReportOutcome {
    /// It is recorded.
    Recorded,
    /// It is being recorded, which takes longer.
    Later,
    /// Nothing is attached at that directory.
    Unattached,
}

/// The order in which the reports of a directory are recorded: that in which they came.
pub(super) type ReportOrder = Mutex<BTreeMap<SessionId, Arc<AsyncMutex<()>>>>;

/// Returns the file that says that a directory is attached.
pub fn attached_file(home: &Path, directory: &Path) -> PathBuf {
    home.join(ATTACHED).join(Digest::of(directory.as_os_str().as_bytes()).to_string())
}

/// Finds the attached directory that a path is, or is in.
pub fn attached_at(home: &Path, path: &Path) -> Option<AttachedDirectory> {
    path.ancestors().find_map(|above| read(&attached_file(home, above)).ok().flatten())
}

/// Finds the worktree that a path is in, where its repository's main worktree is attached and it is not.
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

/// Returns the main worktree that a worktree's `.git` names.
#[expect(clippy::disallowed_methods, reason = "git names the main worktree in a file")]
fn main_worktree(link: &Path) -> Option<PathBuf> {
    if !link.is_file() {
        return None;
    }
    let text = std::fs::read_to_string(link).ok()?;
    let (main, _) = text.trim().strip_prefix("gitdir: ")?.split_once("/.git/worktrees/")?;
    Some(PathBuf::from(main))
}

/// Lists the attached directories, in order.
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

#[expect(clippy::disallowed_methods, reason = "the list of attached directories is the hub's")]
fn write(home: &Path, attached: &AttachedDirectory) -> io::Result<()> {
    make_private(&home.join(ATTACHED))?;
    let file = attached_file(home, &attached.directory.0);
    let begun = file.with_extension("new");
    File::create(&begun)?.write_all(&serde_json::to_vec(attached)?)?;
    std::fs::rename(&begun, &file)
}

fn failed(directory: &Path, reason: impl std::fmt::Display) -> HubError {
    BackendError { backend: "host", reason: format!("can't attach {}: {reason}", directory.display()) }.into()
}

impl Hub {
    /// Attaches a directory: its worktree's top, where it is in a git repository. Its files are recorded as they are, and
    /// hooks that report from there are from now on. One that is attached stays so, in the same session, with other settings.
    pub(crate) async fn attach(
        &self,
        directory: PathBuf,
        settings: AttachSettings,
    ) -> Result<AttachedDirectory, HubError> {
        let home = self.options().home.clone();
        let looked = move || {
            let canonical = directory.canonicalize().map_err(|error| failed(&directory, error))?;
            let repository = git::GitRepository::find(&canonical).map_err(|error| failed(&canonical, error))?;
            let top = repository.map_or(canonical, |repository| repository.top);
            let is_home = std::env::var_os("HOME").is_some_and(|home| *home == *top);
            if is_home || top.parent().is_none() {
                return Err(failed(&top, "it has much more than a project; give a project's directory"));
            }
            let known = read(&attached_file(&home, &top)).map_err(|error| failed(&top, error))?;
            let attached = settings.applied_to(known.as_ref(), top.clone());
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
            spec.check_apart(&top, &home)?;
            Ok((known, attached, spec))
        };
        let (known, mut attached, spec) = blocking(looked).await??;
        match self.session_of(&attached, &spec).await? {
            (Some(session), _) => {
                attached.session = session;
                let attached = self.note_attached(attached).await?;
                if known.as_ref() != Some(&attached) {
                    self.close_for_settings(session).await;
                }
                drop(self.open(session).await?);
                Ok(attached)
            }
            (None, name) => {
                attached.session = self.create(Some(name), &spec, &[]).await?.session().id();
                self.note_attached(attached).await
            }
        }
    }

    /// Closes a workspace, so that it opens with other settings. One that stays in use gets them when it opens again.
    async fn close_for_settings(&self, session: SessionId) {
        for _ in 0..50 {
            let mut place = self.place(session).lock_owned().await;
            match place.take_if(|kept| !kept.is_used()) {
                Some(kept) => return close_now(kept, place).await,
                None if place.is_none() => return,
                None => drop(place),
            }
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
        tracing::warn!("the settings of an attached directory count when its session opens again");
    }

    /// Adds what an attached directory's settings say to the options of its session.
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
        let write = move || match write(&home, &attached) {
            Ok(()) => Ok(attached),
            Err(error) => Err(failed(&attached.directory.0, error)),
        };
        let attached = blocking(write).await??;
        self.begin_own_copies(&attached);
        Ok(attached)
    }

    fn report_order(&self, session: SessionId) -> Arc<AsyncMutex<()>> {
        Arc::clone(lock(&self.shared.reports).entry(session).or_default())
    }

    /// Attaches another worktree of an attached repository: its session is a fork.
    async fn attach_worktree(&self, top: PathBuf, of: AttachedDirectory) -> Result<AttachedDirectory, HubError> {
        // One after the other: two reports may come from a new worktree at once.
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
        let child =
            self.start_child(of.session, ForkOptions { workspace, ..ForkOptions::new(Isolation::Fork) }).await?;
        let (session, directory, worktree_of) = (child.session().id(), HostPath(top), Some(of.directory.clone()));
        self.note_attached(AttachedDirectory { directory, session, worktree_of, ..of }).await
    }

    /// Finds the session that records a directory; where there is none, a name for one.
    async fn session_of(
        &self,
        attached: &AttachedDirectory,
        spec: &WorkspaceSpec,
    ) -> Result<(Option<SessionId>, String), HubError> {
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
                    return Ok((Some(entry.id), String::new()));
                }
            }
            let fits = |c: char| if c.is_ascii_alphanumeric() || "._-".contains(c) { c } else { '-' };
            let name = top.file_name().unwrap_or_default().to_string_lossy();
            let name: String = name.chars().take(NAME_CHARS).map(fits).collect();
            let name = name.trim_start_matches(['.', '_', '-']);
            let name = if name.is_empty() { "directory" } else { name };
            let taken: Vec<String> = all.iter().map(name_of).collect();
            let numbered = (2..).map(|number| format!("{name}-{number}"));
            let mut names = std::iter::once(name.to_owned()).chain(numbered);
            Ok::<_, SessionError>((None, names.find(|name| !taken.contains(name)).unwrap_or_default()))
        };
        Ok(blocking(looked).await??)
    }

    /// Ends that the agents in a directory report. Its session stays. Returns what was attached there.
    pub(crate) async fn detach(&self, directory: PathBuf) -> Result<Option<AttachedDirectory>, HubError> {
        let home = self.options().home.clone();
        let removed = move || {
            let Some(attached) = attached_at(&home, &directory) else { return Ok(None) };
            let forget = |directory: &HostPath| {
                remove_path(&Hub::copies_file(&home, &directory.0))?;
                remove_path(&attached_file(&home, &directory.0))
            };
            let others = all_attached(&home).map_err(|error| failed(&directory, error))?.into_iter();
            let worktrees = others.filter(|other| other.worktree_of.as_ref() == Some(&attached.directory));
            let removed = worktrees.map(|other| other.directory).try_for_each(|directory| forget(&directory));
            let removed = removed.and_then(|()| forget(&attached.directory));
            removed.map(|()| Some(attached)).map_err(|error| failed(&directory, error))
        };
        blocking(removed).await?
    }

    /// Records a report, after those that came before it, and after those that were kept while there was no owner.
    pub(crate) async fn report(&self, message: HookMessage) -> Result<ReportOutcome, HubError> {
        let arrived = Instant::now();
        let home = self.options().home.clone();
        let spooled = blocking(move || take_spooled(&home)).await?;
        for earlier in spooled {
            if let Err(error) = self.report_one(earlier, arrived).await {
                tracing::warn!(%error, "a report that was kept could not be recorded");
            }
        }
        self.report_one(message, arrived).await
    }

    async fn report_one(&self, message: HookMessage, arrived: Instant) -> Result<ReportOutcome, HubError> {
        let kind: AgentKind = message
            .agent
            .parse()
            .map_err(|error: crate::tools::UnknownAgent| BackendError { backend: "host", reason: error.to_string() })?;
        let mut report = read_report(kind, message.event.as_deref(), &message.payload);
        if let Some(name) = message.name {
            report.agent = name;
        }
        let directory = report.directory.as_ref().map_or(message.directory.0, PathBuf::from);
        let home = self.options().home.clone();
        let found = move || {
            let directory = directory.canonicalize().unwrap_or(directory);
            (attached_at(&home, &directory), worktree_at(&home, &directory))
        };
        let attached = match blocking(found).await? {
            (_, Some((top, of))) => self.attach_worktree(top, of).await?,
            (Some(attached), None) => attached,
            (None, None) => return Ok(ReportOutcome::Unattached),
        };
        self.begin_own_copies(&attached);
        let arrival = Arrival {
            report,
            payload: message.payload,
            arrived,
            waited: message.late_micros,
            keeps_all: attached.transcripts,
        };
        let order = self.report_order(attached.session);
        // Its place in the order is taken now.
        let mut turn = Box::pin(order.lock_owned());
        let taken = turn.as_mut().now_or_never();
        let going = self.shared.in_flight.begin(CancellationToken::new())?;
        let (hub, (done, answer)) = (self.clone(), oneshot::channel());
        // A task of its own: it completes also if the hook stops waiting.
        tokio::spawn(async move {
            let _turn = match taken {
                Some(turn) => turn,
                None => turn.await,
            };
            let recorded = hub.record_report(attached.session, arrival, done).await;
            if let Err(error) = recorded {
                tracing::warn!(%error, "a report could not be recorded");
            }
            drop(going);
        });
        match tokio::time::timeout(ANSWER, answer).await {
            Err(_) => Ok(ReportOutcome::Later),
            Ok(Ok(recorded)) => recorded.map(|()| ReportOutcome::Recorded),
            Ok(Err(_)) => Err(HubError::Panicked),
        }
    }

    async fn record_report(
        &self,
        session: SessionId,
        arrival: Arrival,
        done: oneshot::Sender<Result<(), HubError>>,
    ) -> Result<(), HubError> {
        let is_pause = matches!(arrival.report.kind, HookKind::Paused { .. } | HookKind::RunEnded { .. });
        let paused = is_pause.then(|| arrival.report.run.clone());
        let recorded = async {
            let open = self.open(session).await?;
            open.tool_runner().observe(arrival).await.map_err(crate::tools::WorkspaceError::from)?;
            Ok(open)
        };
        match recorded.await {
            Err(error) => {
                drop(done.send(Err(error)));
                Ok(())
            }
            Ok(open) => {
                drop(done.send(Ok(())));
                let runner = open.tool_runner();
                let noted = async {
                    runner.note_git().await?;
                    match paused {
                        Some(run) => runner.note_exit_codes(&run).await,
                        None => Ok(()),
                    }
                };
                Ok(noted.await.map_err(crate::tools::WorkspaceError::from)?)
            }
        }
    }
}

/// Takes the reports that hooks have kept, in the order in which they were made.
fn take_spooled(home: &Path) -> Vec<HookMessage> {
    let Ok(mut entries) = entries_in(&home.join(ATTACHED).join(SPOOL)) else { return Vec::new() };
    entries.sort_by_key(std::fs::DirEntry::file_name);
    entries.iter().filter_map(|entry| take_one(&entry.path())).collect()
}

#[expect(clippy::disallowed_methods, reason = "reports that were kept are the hub's")]
fn take_one(file: &Path) -> Option<HookMessage> {
    // One that is still being written has another name.
    file.extension().is_some_and(|extension| extension == "json").then_some(())?;
    let bytes = std::fs::read(file).ok()?;
    let since = file.metadata().ok()?.modified().ok()?.elapsed().unwrap_or_default();
    std::fs::remove_file(file).ok()?;
    let message = serde_json::from_slice::<HookMessage>(&bytes);
    let message = message.inspect_err(|error| tracing::warn!(%error, "a report that was kept can't be read")).ok()?;
    let late_micros = u64::try_from(since.as_micros()).unwrap_or(u64::MAX).max(1);
    Some(HookMessage { late_micros, ..message })
}
