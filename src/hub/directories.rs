//! Sessions that start from a copy of a person's directory, and applying their changes to it.

use std::path::Path;
use std::sync::Arc;

use super::{Hub, HubError, HubOptions, OpenSession, blocking, check_engine};
use crate::backends::{BackendError, HostOptions, WorkspaceSpec};
use crate::engine::event::{Isolation, SessionStarted};
use crate::engine::id::{Seq, SessionId};
use crate::engine::session::Session;
use crate::engine::session::children::ForkOptions;
use crate::engine::session::error::SessionError;
use crate::engine::session::name_index::check_name;
use crate::engine::session::sessions::Sessions;
use crate::engine::store::SessionEntry;
use crate::reducers::{MergeChoices, VirtualFileSystem, can_be_made};
use crate::tools::{CaptureBudget, Extent, MergeReport, ShellRules, WorkspaceError, began, taken_up};

/// Limit for the files in a copied directory, in bytes. All are held in memory while they are recorded.
const COPIED_BYTES: u64 = 1 << 30;
/// Suffix of the name of the session that works in the directory itself.
const HOME: &str = ".dir";

impl Hub {
    /// Creates a session as a fork of the directory's own session, which records the directory. Commands never see the
    /// directory itself.
    pub(super) async fn create_copy(
        &self,
        (name, id): (Option<String>, Option<SessionId>),
        spec: &WorkspaceSpec,
        directory: &Path,
    ) -> Result<OpenSession, HubError> {
        let hub = self.reading_more();
        if !directory.is_dir() {
            let reason = format!("{} is not a directory, so it can't be copied", directory.display());
            return Err(BackendError { backend: spec.backend_name(), reason }.into());
        }
        check_engine(spec).await?;
        let (home, is_new) = hub.home_session(name.as_deref(), directory).await?;
        let workspace = Some((spec.backend_name().to_owned(), spec.options_with_values()));
        let new = ForkOptions { name, workspace, id, ..ForkOptions::new(Isolation::Fork) };
        let begun = self.start_child(home.session().id(), new).await;
        self.tell_missing(home.session()).await?;
        let id = home.session().id();
        drop(home);
        if begun.is_err()
            && is_new
            && let Err(error) = self.remove(id).await
        {
            tracing::warn!(%error, "failed to remove a directory's session after its copy failed");
        }
        self.begin_slices(begun?).await
    }

    /// Returns the same hub with a capture budget large enough for a whole directory.
    fn reading_more(&self) -> Self {
        let budget =
            CaptureBudget { file_bytes: COPIED_BYTES, step_bytes: COPIED_BYTES, ..self.options().rules.budget };
        let rules = ShellRules { budget, ..self.options().rules.clone() };
        Self { options: Arc::new(HubOptions { rules, ..self.options().clone() }), ..self.clone() }
    }

    /// Reports how many of a directory's entries the copy lacks.
    async fn tell_missing(&self, home: &Session) -> Result<(), HubError> {
        let home = home.clone();
        let files = VirtualFileSystem::of(&blocking(move || home.state()).await??);
        let missing = files.iter().filter(|(_, entry)| !can_be_made(&entry.node)).count();
        if let (Some(progress), 1..) = (&self.options().progress, missing) {
            progress(&format!(
                "not copied: {missing} of the directory's entries (special, unreadable, or beyond 1 GiB in total); \
                 applying changes to the directory leaves them unchanged"
            ));
        }
        Ok(())
    }

    /// Opens the session that works in a directory that session `name` copies. The flag is true if the session is new.
    async fn home_session(&self, name: Option<&str>, directory: &Path) -> Result<(OpenSession, bool), HubError> {
        let spec = files_of(directory);
        let mut name = name.map(|name| format!("{name}{HOME}")).filter(|name| check_name(name).is_ok());
        if let Some(wanted) = name.clone() {
            let (sessions, spec) = (self.sessions().clone(), spec.clone());
            let named = move || sessions.named(&wanted)?.map(|entry| sessions.session(entry.id)).transpose();
            match blocking(named).await?? {
                // Left by an earlier copy, which may have been removed.
                Some(session) if works_in(&session, &spec) => return Ok((self.open(session.id()).await?, false)),
                Some(_) => name = None,
                None => {}
            }
        }
        Ok((self.create_own((name, None), &spec, &[]).await?, true))
    }

    /// Opens the directory's session that `session`'s changes can be merged into: the nearest ancestor that works in a
    /// directory, or for a given directory `to` a separate session that starts from the same base as `session`.
    pub(crate) async fn home_of(&self, session: &Session, to: Option<&Path>) -> Result<OpenSession, HubError> {
        let (sessions, of, hub) = (self.sessions().clone(), session.clone(), self.reading_more());
        let (above, base) = blocking(move || above(&sessions, &of)).await??;
        let Some(to) = to else {
            let nowhere = || WorkspaceError::NoDirectory { name: session.name().to_owned() };
            return hub.open(above.ok_or_else(nowhere)?.id()).await;
        };
        if let Some(above) = above.filter(|above| WorkspaceSpec::directory_of(above.started()).as_deref() == Some(to)) {
            return hub.open(above.id()).await;
        }
        let spec = files_of(to);
        let (sessions, id, wanted) = (self.sessions().clone(), session.id(), spec.clone());
        let known = move || {
            let mut children = sessions.children(id)?.into_iter();
            let is_it = |started: &SessionStarted| WorkspaceSpec::of_session(started).is_ok_and(|spec| spec == wanted);
            let typed = |entry: &SessionEntry| {
                let started = entry.origin.typed::<SessionStarted>().and_then(Result::ok);
                started.is_some_and(|started| is_it(&started.event))
            };
            Ok::<_, SessionError>(children.find(typed).map(|entry| entry.id))
        };
        if let Some(known) = blocking(known).await?? {
            return hub.open(known).await;
        }
        let workspace = Some((spec.backend_name().to_owned(), spec.options()));
        hub.start_child(session.id(), ForkOptions { workspace, ..ForkOptions::fork_at(base) }).await
    }

    /// Merges a session's changes into the directory of `home`. Records the directory's current state first, even in a
    /// dry run.
    pub(crate) async fn apply(
        &self,
        session: &Session,
        home: &OpenSession,
        choices: &MergeChoices,
        dry_run: bool,
    ) -> Result<MergeReport, HubError> {
        if dry_run {
            let _turn = home.tool_runner().runtime().lock_workspace().await;
            home.tool_runner().machine().record_drift(home.session(), Extent::All).await?;
        }
        self.merge(session.id(), home, choices, dry_run).await
    }
}

/// Returns the spec of a directory as a workspace without commands.
fn files_of(directory: &Path) -> WorkspaceSpec {
    let directory = Some(directory.to_owned());
    WorkspaceSpec::Host(HostOptions { directory, files_only: true, ..HostOptions::default() })
}

fn works_in(session: &Session, spec: &WorkspaceSpec) -> bool {
    session.started().and_then(|started| WorkspaceSpec::of_session(started).ok()).as_ref() == Some(spec)
}

/// Finds the nearest ancestor that works in a person's directory, and the position where the session started to differ
/// from a directory.
fn above(sessions: &Sessions, session: &Session) -> Result<(Option<Session>, Seq), SessionError> {
    let own = match WorkspaceSpec::directory_of(session.started()) {
        Some(_) => taken_up(session)?.map_or_else(|| began(session), Ok)?,
        None => began(session)?,
    };
    let mut at = session.clone();
    while let Some(origin) = at.origin().cloned() {
        // A removed session's directory can't be merged into.
        let Ok(parent) = sessions.session(origin.parent) else { break };
        if WorkspaceSpec::directory_of(parent.started()).is_some() {
            return Ok((
                Some(parent),
                if WorkspaceSpec::directory_of(session.started()).is_none() { origin.at } else { own },
            ));
        }
        at = parent;
    }
    Ok((None, own))
}
