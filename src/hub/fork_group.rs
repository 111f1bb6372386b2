//! Groups of forks. A file lists the forks of a group until all have begun. After a kill, the next owner begins the
//! missing ones.

use std::fs;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::spool_files::put;
use super::{Hub, HubError, OpenSession, blocking, joined};
use crate::backends::WorkspaceSpec;
use crate::backends::disk::entries_in;
use crate::engine::event::{ChildLimits, Isolation, ToolPolicySet};
use crate::engine::id::{Seq, SessionId};
use crate::engine::session::Session;
use crate::engine::session::children::ForkOptions;
use crate::engine::session::error::SessionError;
use crate::engine::store::StoreError;
use crate::tools::{Forker, WorkspaceError};

/// The subdirectory of the data directory with a file for each group that is beginning.
const FORKING: &str = "forking";

/// Forks of a session at one position, as the file lists them.
#[derive(Serialize, Deserialize)]
struct ForkGroup {
    parent: SessionId,
    at: Seq,
    agent: String,
    limits: ChildLimits,
    policy: Option<ToolPolicySet>,
    workspace: Option<(String, Value)>,
    forks: Vec<(SessionId, Option<String>)>,
}

impl ForkGroup {
    fn of(parent: SessionId, at: Seq, new: &ForkOptions, forks: &[(SessionId, Option<String>)]) -> Self {
        let ForkOptions { agent, limits, policy, workspace, .. } = new.clone();
        Self { parent, at, agent, limits, policy, workspace, forks: forks.to_vec() }
    }

    fn options(self) -> ForkOptions {
        let Self { at, agent, limits, policy, workspace, .. } = self;
        ForkOptions { agent, limits, policy, workspace, ..ForkOptions::fork_at(at) }
    }

    /// Begins the missing forks. A fork that was removed since can't come back, because its id was used.
    fn finish(mut self, forker: &Forker) -> Result<(), WorkspaceError> {
        let parent = forker.sessions.session(self.parent)?;
        let mut forks = std::mem::take(&mut self.forks);
        forks.retain(|(id, _)| forker.sessions.session(*id).is_err());
        if !forks.is_empty() {
            tracing::info!(parent = %self.parent, count = forks.len(), "beginning the forks that a kill left out");
            forker.begin_all(&parent, self.options(), forks)?;
        }
        Ok(())
    }
}

impl Hub {
    /// Creates forks that differ in their ids and names only: all of them, or none, also if the process is killed. A
    /// fork that exists already is returned as it is.
    ///
    /// The workspaces of forks on the host and in memory stay closed: their files are written when they open.
    #[doc(hidden)]
    pub async fn fork_group(
        &self,
        parent: SessionId,
        new: ForkOptions,
        forks: Vec<(SessionId, Option<String>)>,
    ) -> Result<Vec<Session>, HubError> {
        let parent = self.open(parent).await?;
        let hub = self.clone();
        // Spawned, so that it completes even if the caller stops waiting.
        let begun = tokio::spawn(async move {
            let Some((first, _)) = forks.first() else { return Ok(Vec::new()) };
            // A repeated request has the same first id.
            let alone = hub.shared.beginning.of(*first);
            let _alone = alone.lock().await;
            let mut missing = Vec::new();
            for (id, name) in &forks {
                if hub.known(*id).await?.is_none() {
                    missing.push((*id, name.clone()));
                }
            }
            let (agent, sessions) = (new.agent.clone(), hub.sessions().clone());
            hub.begin_group(&parent, new, missing).await?;
            let all = move || {
                let one = |(id, _): &(SessionId, _)| Ok(sessions.session(*id)?.as_agent(agent.as_str()));
                forks.iter().map(one).collect::<Result<_, HubError>>()
            };
            blocking(all).await?
        });
        joined(begun.await)?
    }

    async fn begin_group(
        &self,
        parent: &OpenSession,
        new: ForkOptions,
        forks: Vec<(SessionId, Option<String>)>,
    ) -> Result<(), HubError> {
        if forks.is_empty() {
            return Ok(());
        }
        let forker = self.forker();
        let at = match new.at {
            Some(at) => at,
            None => forker.settled(parent.tool_runner()).await?,
        };
        let new = ForkOptions { at: Some(at), isolation: Isolation::Fork, ..new };
        let group = ForkGroup::of(parent.session().id(), at, &new, &forks);
        let file = self.options().home.join(FORKING).join(format!("{}.json", forks[0].0));
        let listed = file.clone();
        blocking(move || list(&listed, &group)).await??;
        let begun = match shares_files(parent.session(), &new) {
            true => self.share_each(parent, &new, forks).await,
            false => {
                let parent = parent.session().clone();
                blocking(move || forker.begin_all(&parent, new, forks).map(drop)).await?.map_err(HubError::from)
            }
        };
        blocking(move || forget(&file)).await?;
        begun
    }

    /// Begins the forks one after the other, with open workspaces that share the parent's files.
    async fn share_each(
        &self,
        parent: &OpenSession,
        new: &ForkOptions,
        forks: Vec<(SessionId, Option<String>)>,
    ) -> Result<(), HubError> {
        let mut begun = Vec::new();
        for (id, name) in forks {
            let new = ForkOptions { id: Some(id), name, ..new.clone() };
            match self.start_child_of(parent.clone(), new).await {
                Ok(_) => begun.push(id),
                Err(error) => {
                    for id in begun {
                        if let Err(error) = self.remove(id).await {
                            tracing::warn!(%error, "failed to remove a fork after another fork failed");
                        }
                    }
                    return Err(error);
                }
            }
        }
        Ok(())
    }
}

fn shares_files(parent: &Session, new: &ForkOptions) -> bool {
    let own = || WorkspaceSpec::of_session(parent.started()?).ok();
    new.workspace.is_some() || own().is_some_and(|spec| spec.shares_files())
}

fn list(file: &Path, group: &ForkGroup) -> Result<(), HubError> {
    if group.forks.len() < 2 {
        return Ok(());
    }
    let text = serde_json::to_vec(group).map_err(std::io::Error::from);
    let written = text.and_then(|text| put(file, &text));
    let failed =
        |source: std::io::Error| StoreError::Io { action: "write", path: file.to_owned(), source: source.into() };
    Ok(written.map_err(failed).map_err(SessionError::from)?)
}

#[expect(clippy::disallowed_methods, reason = "lists of forks are the hub's")]
fn forget(file: &Path) {
    match fs::remove_file(file) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
            tracing::warn!(%error, "failed to remove the list of forks that have begun");
        }
        _ => {}
    }
}

/// Begins the missing forks of groups that a killed process began.
#[expect(clippy::disallowed_methods, reason = "lists of forks are the hub's")]
pub(super) fn finish_groups(forker: &Forker) {
    let files = entries_in(&forker.home.join(FORKING)).unwrap_or_default();
    let files: Vec<PathBuf> = files.iter().map(fs::DirEntry::path).collect();
    if files.is_empty() || forker.sessions.store().check_own().is_err() {
        return;
    }
    for file in files {
        // If the list is incomplete, no fork has begun.
        let group: Option<ForkGroup> = fs::read(&file).ok().and_then(|bytes| serde_json::from_slice(&bytes).ok());
        if let Some(Err(error)) = group.map(|group| group.finish(forker)) {
            tracing::warn!(%error, "failed to begin the forks that a kill left out");
        }
        forget(&file);
    }
}
