//! Sessions that begin with a copy of a person's directory, and the way back there.

use std::path::Path;
use std::sync::Arc;

use super::{Hub, HubError, HubOptions, OpenSession, blocking};
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

/// Bytes of files that a copy of a directory holds at most. They are in memory together when they are recorded.
const COPIED_BYTES: u64 = 1 << 30;
/// Ends the name of the session that has the directory itself.
const HOME: &str = ".dir";

impl Hub {
    /// Begins a session as a fork of one that has the directory, which is recorded there and never shown to a command.
    pub(super) async fn create_copy(
        &self,
        (name, id): (Option<String>, Option<SessionId>),
        spec: &WorkspaceSpec,
        directory: &Path,
    ) -> Result<OpenSession, HubError> {
        spec.check_apart(directory, &self.options().home)?;
        let hub = self.reading_more();
        if !directory.is_dir() {
            let reason = format!("{} is not a directory, so it can't be copied", directory.display());
            return Err(BackendError { backend: spec.backend_name(), reason }.into());
        }
        let (home, is_new) = hub.home_session(name.as_deref(), directory).await?;
        let workspace = Some((spec.backend_name().to_owned(), spec.options_with_values()));
        let new = ForkOptions { name, workspace, id, ..ForkOptions::new(Isolation::Fork) };
        let begun = self.start_child(home.session().id(), new).await;
        self.tell_missing(home.session())?;
        let id = home.session().id();
        drop(home);
        if begun.is_err()
            && is_new
            && let Err(error) = self.remove(id).await
        {
            tracing::warn!(%error, "the session of a directory is left without the copy that it was for");
        }
        begun
    }

    /// Returns the same hub, which keeps more of what a directory holds than of what a command writes.
    fn reading_more(&self) -> Self {
        let budget =
            CaptureBudget { file_bytes: COPIED_BYTES, step_bytes: COPIED_BYTES, ..self.options().rules.budget };
        let rules = ShellRules { budget, ..self.options().rules.clone() };
        Self { options: Arc::new(HubOptions { rules, ..self.options().clone() }), ..self.clone() }
    }

    /// Tells how much of a directory a copy can't have.
    fn tell_missing(&self, home: &Session) -> Result<(), HubError> {
        let files = VirtualFileSystem::of(&home.state()?);
        let missing = files.iter().filter(|(_, entry)| !can_be_made(&entry.node)).count();
        if let (Some(progress), 1..) = (&self.options().progress, missing) {
            progress(&format!(
                "not in the copy: {missing} of the directory's entries, which are no files, not readable, or beyond 1 GiB \
                 together; `foldspace apply` leaves them as they are"
            ));
        }
        Ok(())
    }

    /// Opens the session that has a directory for a session of that name. Tells whether it is new.
    async fn home_session(&self, name: Option<&str>, directory: &Path) -> Result<(OpenSession, bool), HubError> {
        let spec = files_of(directory);
        let mut name = name.map(|name| format!("{name}{HOME}")).filter(|name| check_name(name).is_ok());
        if let Some(wanted) = name.clone() {
            let (sessions, spec) = (self.sessions().clone(), spec.clone());
            let named = move || match sessions.find(&wanted) {
                Ok(entry) => Ok(Some(sessions.session(entry.id)?).filter(|session| session.name() == wanted)),
                Err(SessionError::NotFound { .. }) => Ok(None),
                Err(error) => Err(error),
            };
            match blocking(named).await?? {
                // An earlier copy may be removed by now.
                Some(session) if works_in(&session, &spec) => return Ok((self.open(session.id()).await?, false)),
                Some(_) => name = None,
                None => {}
            }
        }
        Ok((self.create_own((name, None), &spec, &[]).await?, true))
    }

    /// Opens the session that works in a directory into which another session's changes can be merged: the nearest above
    /// it, or for a directory that is given a session of its own, which begins as that other session did.
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
            let mut all = sessions.list()?.into_iter();
            let is_it = |started: &SessionStarted| {
                started.origin.as_ref().is_some_and(|origin| origin.parent == id)
                    && WorkspaceSpec::of_session(started).is_ok_and(|spec| spec == wanted)
            };
            let typed = |entry: &SessionEntry| {
                let started = entry.origin.typed::<SessionStarted>().and_then(Result::ok);
                started.is_some_and(|started| is_it(&started.event))
            };
            Ok::<_, SessionError>(all.find(typed).map(|entry| entry.id))
        };
        if let Some(known) = blocking(known).await?? {
            return hub.open(known).await;
        }
        let workspace = Some((spec.backend_name().to_owned(), spec.options()));
        hub.start_child(session.id(), ForkOptions { workspace, ..ForkOptions::fork_at(base) }).await
    }

    /// Merges what a session changed into the directory of another one. What that directory has become is recorded first,
    /// also in a dry run.
    pub(crate) async fn apply(
        &self,
        session: &Session,
        home: &OpenSession,
        choices: &MergeChoices,
        dry_run: bool,
    ) -> Result<MergeReport, HubError> {
        if dry_run {
            let _turn = home.session().turn().await;
            home.tool_runner().machine().record_drift(home.session(), Extent::All).await?;
        }
        self.merge(session.id(), home, choices, dry_run).await
    }
}

/// Describes a directory as the workspace of a session in which no command runs.
fn files_of(directory: &Path) -> WorkspaceSpec {
    let directory = Some(directory.to_owned());
    WorkspaceSpec::Host(HostOptions { directory, files_only: true, ..HostOptions::default() })
}

fn works_in(session: &Session, spec: &WorkspaceSpec) -> bool {
    session.started().and_then(|started| WorkspaceSpec::of_session(started).ok()).as_ref() == Some(spec)
}

/// Finds the nearest session above one that works in a person's directory, and the position at which the session began
/// to differ from a directory.
fn above(sessions: &Sessions, session: &Session) -> Result<(Option<Session>, Seq), SessionError> {
    let own = match WorkspaceSpec::directory_of(session.started()) {
        Some(_) => taken_up(session)?.map_or_else(|| began(session), Ok)?,
        None => began(session)?,
    };
    let mut at = session.clone();
    while let Some(origin) = at.origin().cloned() {
        // What was removed has no directory any more into which anything could be merged.
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
