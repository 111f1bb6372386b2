//! The lifecycle of sandboxes: creation, pause, resume, and end.

use std::collections::BTreeMap;
use std::sync::Mutex;
use std::time::Duration;

use super::connect::Wrong;
use super::place::HOME;
use super::sandbox::{PortRules, Sandbox, SandboxRecord, SandboxState};
use super::snapshots::{SNAPSHOT, SnapshotRecord};
use super::{DEBUG_SANDBOX, E2bApi};
use crate::backends::{ContainerNetwork, NetworkRules, WorkspaceSpec};
use crate::engine::clock::Timestamp;
use crate::engine::event::{Annotated, ChildLimits, Isolation, VariableValue};
use crate::engine::id::Digest;
use crate::engine::lock::lock;
use crate::engine::session::children::ForkOptions;
use crate::engine::session::{Session, error::SessionError};
use crate::hub::begin_once::chosen_id;
use crate::hub::operations::{ForkSession, Operation};
use crate::hub::{Hub, HubError, blocking};
use crate::reducers::Annotations;

/// The name of the annotations for sandboxes, and the prefix of their sessions' names.
const SANDBOX: &str = "e2b";
const PREFIX: &str = "e2b-";
/// The template with the server's own image.
pub(super) const BASE: &str = "base";
/// Interval of checks for expired sandboxes.
const LOOK: Duration = Duration::from_millis(250);
/// The most forks per request.
const FORKS_MAX: u32 = 100;

/// The existing sandboxes and snapshots.
#[derive(Default)]
pub(super) struct Table {
    sandboxes: Mutex<BTreeMap<String, Sandbox>>,
    pub(super) snapshots: Mutex<BTreeMap<String, SnapshotRecord>>,
}

/// The options of a new sandbox.
pub(super) struct NewSandbox {
    pub(super) template: String,
    pub(super) seconds: u64,
    pub(super) metadata: BTreeMap<String, String>,
    pub(super) envs: BTreeMap<String, String>,
    pub(super) auto_pause: bool,
    pub(super) keeps_memory: bool,
    pub(super) auto_resume: bool,
    /// True to let its commands use the network, if the server's workspaces may.
    pub(super) network: bool,
    pub(super) ports: PortRules,
    pub(super) egress: Option<NetworkRules>,
    /// The client's idempotency key: the same key returns the same sandbox.
    pub(super) request: Option<String>,
}

impl Table {
    /// Reads the table from the store.
    pub(super) async fn read(hub: &Hub) -> Result<Self, HubError> {
        let sessions = hub.sessions().clone();
        let read = move || {
            let table = Self::default();
            for entry in sessions.list()? {
                let name = entry.name();
                if !name.starts_with(PREFIX) && name != DEBUG_SANDBOX {
                    continue;
                }
                let session = sessions.session(entry.id)?;
                let state = session.state()?;
                let Some(known) = state.slice::<Annotations>() else { continue };
                for entry in known.entries.iter() {
                    if entry.name == SANDBOX
                        && let Ok(record) = serde_json::from_value::<SandboxRecord>(entry.value.clone())
                        && record.sandbox == name
                    {
                        table.put(Sandbox::new(session.id(), record));
                    } else if entry.name == SNAPSHOT
                        && let Ok(record) = serde_json::from_value::<SnapshotRecord>(entry.value.clone())
                        && record.snapshot == name
                    {
                        lock(&table.snapshots).insert(name.clone(), record);
                    }
                }
            }
            Ok(table)
        };
        blocking(read).await?
    }

    pub(super) fn get(&self, name: &str) -> Option<Sandbox> {
        lock(&self.sandboxes).get(name).cloned()
    }

    /// Returns all sandboxes, the oldest first.
    pub(super) fn all(&self) -> Vec<Sandbox> {
        let mut all: Vec<Sandbox> = lock(&self.sandboxes).values().cloned().collect();
        all.sort_by(|a, b| (a.record.started, a.name()).cmp(&(b.record.started, b.name())));
        all
    }

    fn put(&self, sandbox: Sandbox) {
        let mut all = lock(&self.sandboxes);
        match sandbox.record.state {
            SandboxState::Ended => all.remove(sandbox.name()),
            _ => all.insert(sandbox.name().to_owned(), sandbox),
        };
    }
}

impl E2bApi {
    pub(super) fn now(&self) -> Timestamp {
        self.face.hub().sessions().clock().now()
    }

    pub(super) fn in_seconds(&self, seconds: u64) -> Timestamp {
        Timestamp(self.now().0.saturating_add(i64::try_from(seconds.saturating_mul(1000)).unwrap_or(i64::MAX)))
    }

    /// Returns an unused name.
    pub(super) fn fresh_name(kind: &str) -> Result<String, Wrong> {
        let mut bytes = [0; 16];
        let no_random = |error| Wrong::new(axum::http::StatusCode::INTERNAL_SERVER_ERROR, format!("no name: {error}"));
        getrandom::fill(&mut bytes).map_err(no_random)?;
        let digits = Digest::of(&bytes).to_string();
        Ok(format!("{PREFIX}{kind}{}", digits.get(..20).unwrap_or(&digits)))
    }

    pub(super) async fn begin(&self, new: NewSandbox) -> Result<Sandbox, Wrong> {
        if new.egress.is_some() {
            self.takes_egress()?;
        }
        let name = Self::fresh_name("")?;
        let id = new.request.as_deref().map(|request| chosen_id(&format!("e2b\0{request}"), None));
        let snapshot = self.snapshot(&new.template);
        let mut envs = BTreeMap::new();
        let session = match snapshot {
            Some(snapshot) => {
                envs = new.envs;
                let parent = self.face.session(&snapshot.snapshot).await?;
                let fork = ForkOptions { name: Some(name), id, ..ForkOptions::new(Isolation::Fork) };
                self.face.hub().fork_once(parent.id(), fork).await?.0
            }
            None => {
                let spec = self.workspace(&new.template, new.envs, new.network)?;
                let hub = self.face.hub();
                match id {
                    Some(id) => hub.create_once(id, Some(name), &spec, &[]).await?,
                    None => hub.create(Some(name), &spec, &[]).await?,
                }
                .session()
                .clone()
            }
        };
        // A repeated request.
        if let Some(known) = self.table.get(session.name()) {
            return Ok(known);
        }
        let record = SandboxRecord {
            sandbox: session.name().to_owned(),
            template: new.template,
            metadata: new.metadata,
            started: self.now(),
            ends: self.in_seconds(new.seconds),
            state: SandboxState::Running,
            auto_pause: new.auto_pause,
            keeps_memory: new.keeps_memory,
            auto_resume: new.auto_resume,
            ports: new.ports,
            egress: new.egress,
        };
        self.keep(Sandbox { envs, ..Sandbox::new(session.id(), record) }).await
    }

    /// Returns true if rules for connections to the outside can be applied; without a network there is no need to.
    fn takes_egress(&self) -> Result<bool, Wrong> {
        let why = match &self.options.workspace {
            WorkspaceSpec::Podman(options) => match &options.network {
                ContainerNetwork::None => return Ok(false),
                ContainerNetwork::Recorded(own) if *own == NetworkRules::default() => return Ok(true),
                ContainerNetwork::Recorded(_) => "the server has its own rules",
                ContainerNetwork::Engine => "the server's sandboxes have the engine's own network",
            },
            _ => "rules need containers",
        };
        Err(Wrong::missing(format_args!("network rules for these sandboxes ({why})")))
    }

    /// Applies rules for connections to the outside to a sandbox.
    pub(super) async fn apply_egress(&self, sandbox: &str, rules: NetworkRules) -> Result<(), Wrong> {
        if self.takes_egress()? {
            let container = self.face.open(sandbox).await?.tool_runner().workspace().container();
            blocking(move || container.is_some_and(|container| container.set_network_rules(rules))).await?;
        }
        Ok(())
    }

    /// Returns the workspace of a template: the server's own, or with the template as its image.
    fn workspace(&self, template: &str, envs: BTreeMap<String, String>, network: bool) -> Result<WorkspaceSpec, Wrong> {
        let mut spec = self.options.workspace.clone();
        if template != BASE {
            match &mut spec {
                WorkspaceSpec::Podman(options) => options.image = template.to_owned(),
                other => {
                    let what = "is not a snapshot, and only containers have images; this server's template is \"base\"";
                    return Err(Wrong::not_found(format!(
                        "the template {template:.100} {what} (its backend is {})",
                        other.backend_name()
                    )));
                }
            }
        }
        if let WorkspaceSpec::Podman(options) = &mut spec {
            if !network {
                options.network = ContainerNetwork::None;
            }
            // A directory of the server's user can't be at a second place.
            if options.also_at.is_none() && options.own_directory().is_none() {
                options.also_at = Some(HOME.to_owned());
            }
        }
        if let Some(commands) = spec.commands_mut() {
            commands.environment.extend(envs.into_iter().map(|(name, value)| (name, VariableValue::Text(value))));
        }
        Ok(spec)
    }

    /// Records the present state of a sandbox.
    pub(super) async fn keep(&self, sandbox: Sandbox) -> Result<Sandbox, Wrong> {
        self.annotate(sandbox.name(), SANDBOX, &sandbox.record).await?;
        self.table.put(sandbox.clone());
        Ok(sandbox)
    }

    pub(super) async fn annotate(
        &self,
        session: &str,
        subject: &str,
        value: &impl serde::Serialize,
    ) -> Result<(), Wrong> {
        let session = self.face.session(session).await?;
        let value = serde_json::to_value(value).unwrap_or_default();
        let subject = subject.to_owned();
        Ok(blocking(move || annotated(&session, subject, value)).await??)
    }

    /// Returns a running sandbox for a request to it; a paused sandbox is resumed if it has `auto_resume`.
    pub(super) async fn running(&self, name: &str) -> Result<Sandbox, Wrong> {
        let gone = || Wrong::new(axum::http::StatusCode::BAD_GATEWAY, format!("the sandbox {name:.100} was not found"));
        let sandbox = self.table.get(name).ok_or_else(gone)?;
        let sandbox = match sandbox.record.state {
            SandboxState::Running => sandbox,
            SandboxState::Paused if sandbox.record.auto_resume => self.resume(sandbox, 300).await?,
            _ => return Err(gone()),
        };
        // Its workspace may have been closed since.
        if let Some(rules) = &sandbox.record.egress {
            self.apply_egress(name, rules.clone()).await?;
        }
        Ok(sandbox)
    }

    /// Returns the sandbox of clients with `E2B_DEBUG`, created by their first request.
    pub(super) async fn debug_sandbox(&self) -> Result<Sandbox, Wrong> {
        if let Some(known) = self.table.get(DEBUG_SANDBOX) {
            return Ok(known);
        }
        let spec = self.workspace(BASE, BTreeMap::new(), true)?;
        let id = chosen_id(DEBUG_SANDBOX, None);
        let open = self.face.hub().create_once(id, Some(DEBUG_SANDBOX.to_owned()), &spec, &[]).await?;
        let record = SandboxRecord {
            sandbox: DEBUG_SANDBOX.to_owned(),
            template: BASE.to_owned(),
            metadata: BTreeMap::new(),
            started: self.now(),
            ends: Timestamp(253_402_300_799_000),
            state: SandboxState::Running,
            auto_pause: false,
            keeps_memory: true,
            auto_resume: true,
            ports: PortRules::default(),
            egress: None,
        };
        self.keep(Sandbox::new(open.session().id(), record)).await
    }

    pub(super) async fn resume(&self, sandbox: Sandbox, seconds: u64) -> Result<Sandbox, Wrong> {
        if let Some(container) = self.face.hub().open_container(sandbox.session).await {
            blocking(move || container.resume()).await??;
        }
        let (ends, envs) = (self.in_seconds(seconds), sandbox.envs);
        let record = SandboxRecord { state: SandboxState::Running, ends, ..sandbox.record };
        self.keep(Sandbox { envs, ..Sandbox::new(sandbox.session, record) }).await
    }

    /// Pauses a sandbox: its files stay. Its processes are frozen, or end if `keep_memory` is false or the engine can't
    /// freeze them.
    pub(super) async fn pause(&self, mut sandbox: Sandbox, keep_memory: bool) -> Result<(), Wrong> {
        sandbox.record.state = SandboxState::Paused;
        let sandbox = self.keep(sandbox).await?;
        self.disconnect(&sandbox);
        if !keep_memory || !self.freeze(&sandbox).await {
            self.stop(&sandbox).await;
        }
        Ok(())
    }

    /// Freezes the processes of a sandbox. Returns false if none was frozen.
    pub(super) async fn freeze(&self, sandbox: &Sandbox) -> bool {
        let Some(container) = self.face.hub().open_container(sandbox.session).await else { return false };
        match blocking(move || container.pause()).await {
            Ok(Ok(is_frozen)) => is_frozen,
            Ok(Err(error)) => {
                tracing::warn!(%error, sandbox = sandbox.name(), "its processes end instead of being frozen");
                false
            }
            Err(_) => false,
        }
    }

    /// Ends a sandbox. Its history stays unless `remove_ended` is set.
    pub(super) async fn end(&self, mut sandbox: Sandbox) -> Result<(), Wrong> {
        sandbox.record.state = SandboxState::Ended;
        let sandbox = self.keep(sandbox).await?;
        self.disconnect(&sandbox);
        self.stop(&sandbox).await;
        if self.options.remove_ended {
            self.face.hub().remove(sandbox.session).await?;
        }
        Ok(())
    }

    /// Ends the streams of a sandbox.
    fn disconnect(&self, sandbox: &Sandbox) {
        sandbox.over.cancel();
        lock(&self.watchers).retain(|_, watcher| watcher.sandbox != sandbox.name());
    }

    async fn stop(&self, sandbox: &Sandbox) {
        if let Err(error) = self.face.hub().release(sandbox.session).await {
            tracing::warn!(%error, sandbox = sandbox.name(), "failed to close a sandbox: its processes may go on");
        }
    }

    /// Forks a sandbox at its present state.
    pub(super) async fn fork(&self, parent: &Sandbox, count: u32, seconds: u64) -> Result<Vec<Sandbox>, Wrong> {
        if !(1..=FORKS_MAX).contains(&count) {
            return Err(Wrong::invalid(format!("count is from 1 to {FORKS_MAX}, not {count}")));
        }
        let forks = ForkSession {
            mount: false,
            count,
            at: None,
            name: Some(Self::fresh_name("")?),
            agent: None,
            limits: ChildLimits::default(),
            policy: None,
            create_id: None,
        };
        let forks = forks.run(&self.context(parent.name())).await?;
        let mut begun = Vec::new();
        for fork in forks.children {
            let record = SandboxRecord {
                sandbox: fork.name,
                started: self.now(),
                ends: self.in_seconds(seconds),
                state: SandboxState::Running,
                ..parent.record.clone()
            };
            let envs = parent.envs.clone();
            begun.push(self.keep(Sandbox { envs, ..Sandbox::new(fork.session, record) }).await?);
        }
        Ok(begun)
    }

    /// Ends or pauses sandboxes when their time is over.
    pub(super) async fn end_in_time(&self) {
        loop {
            tokio::time::sleep(LOOK).await;
            let now = self.now();
            let is_due =
                |sandbox: &Sandbox| sandbox.record.state == SandboxState::Running && sandbox.record.ends <= now;
            for sandbox in self.table.all().into_iter().filter(is_due) {
                let (name, keeps_memory) = (sandbox.name().to_owned(), sandbox.record.keeps_memory);
                let ended = match sandbox.record.auto_pause {
                    true => self.pause(sandbox, keeps_memory).await,
                    false => self.end(sandbox).await,
                };
                if let Err(wrong) = ended {
                    tracing::warn!(problem = %wrong.message, sandbox = name, "failed to end a sandbox");
                }
            }
        }
    }
}

fn annotated(session: &Session, name: String, value: serde_json::Value) -> Result<(), SessionError> {
    session.check_own()?;
    let mut commit = session.commit();
    commit.push(&Annotated { name, at: session.head()?, score: None, note: None, value })?;
    session.record(commit).map(drop)
}
