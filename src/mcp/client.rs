//! A client, and the session that it joins when it needs one.

use std::sync::{Arc, OnceLock};

use rmcp::RoleServer;
use rmcp::service::{Peer, RequestContext};
use tokio::sync::{Notify, OnceCell};
use tokio_util::sync::CancellationToken;

use super::connect_query::ConnectQuery;
use super::names::{self, AgentName, Agents};
use super::offered::Offered;
use super::pending_questions::Parked;
use super::watching::Watching;
use super::{McpOptions, ToolGroup};
use crate::backends::WorkspaceSpec;
use crate::engine::event::Isolation;
use crate::engine::id::SessionId;
use crate::engine::session::Session;
use crate::engine::session::children::ForkOptions;
use crate::engine::session::error::SessionError;
use crate::engine::session::sessions::Sessions;
use crate::hub::operations::{OperationError, begin_policy};
use crate::hub::{Hub, HubError, OpenSession};

/// The name that SDKs use for all of their clients.
const NAMELESS: &str = "mcp";
/// Minimum number of digits for a text to count as an id prefix rather than a name.
const ID_DIGITS: usize = 8;

pub(super) struct ServerState {
    pub(super) hub: Hub,
    pub(super) options: McpOptions,
    pub(super) agents: Arc<Agents>,
    pub(super) offered: OnceLock<Offered>,
}

impl ServerState {
    pub(super) fn offered(&self) -> &Offered {
        self.offered.get_or_init(|| Offered::new(&self.hub.options().tools, &self.options.groups))
    }
}

pub(super) struct McpClient {
    pub(super) shared: Arc<ServerState>,
    asked: OnceLock<ConnectQuery>,
    joined: OnceCell<Joined>,
    pub(super) watching: Watching,
    pub(super) parked: Parked,
    pub(super) arrived: Notify,
    pub(super) gone: CancellationToken,
    /// Set once the client has listed tools; it is then notified when they change.
    has_listed_tools: OnceLock<()>,
}

pub(super) struct Joined {
    pub(super) open: OpenSession,
    _agent: AgentName,
}

impl McpClient {
    pub(super) fn new(shared: &Arc<ServerState>, end: &CancellationToken) -> Arc<Self> {
        Arc::new(Self {
            shared: Arc::clone(shared),
            asked: OnceLock::new(),
            joined: OnceCell::new(),
            watching: Watching::default(),
            parked: Parked::default(),
            arrived: Notify::new(),
            gone: end.child_token(),
            has_listed_tools: OnceLock::new(),
        })
    }

    pub(super) fn hub(&self) -> &Hub {
        &self.shared.hub
    }

    /// Reads the store for a caller that can't await.
    pub(super) fn read<T>(&self, read: impl FnOnce(&Sessions) -> T) -> T {
        self.hub().sessions().aside(read)
    }

    pub(super) fn options(&self) -> &McpOptions {
        &self.shared.options
    }

    fn chosen(&self) -> Option<&str> {
        self.options().session.as_deref().or(self.asked.get().and_then(|asked| asked.session.as_deref()))
    }

    /// Sets the client's query. Only the first call has an effect.
    pub(super) fn ask_for(&self, asked: ConnectQuery) {
        drop(self.asked.set(asked));
    }

    pub(super) fn has_group(&self, group: ToolGroup) -> bool {
        let wanted = self.asked.get().and_then(|asked| asked.groups.as_ref());
        self.options().groups.contains(&group) && wanted.is_none_or(|wanted| wanted.contains(&group))
    }

    pub(super) fn offers(&self, tool: &str) -> bool {
        ToolGroup::of(tool).is_none_or(|group| self.has_group(group))
    }

    pub(super) fn reaches_all(&self) -> bool {
        self.has_group(ToolGroup::Sessions)
    }

    pub(super) fn has_joined(&self) -> bool {
        self.joined.initialized()
    }

    /// Returns the client's name, or the usual name if it only has an SDK's name.
    fn name(&self, context: &RequestContext<RoleServer>) -> String {
        let named = context.client_info().map(|info| info.name).filter(|name| name != NAMELESS);
        named.or_else(|| self.options().usual_name.clone()).unwrap_or_else(|| NAMELESS.to_owned())
    }

    /// Returns the agent name for its calls in sessions other than its own.
    pub(super) fn agent_name(&self, context: &RequestContext<RoleServer>) -> String {
        let joined = self.joined.get().map(|own| own.open.session().agent().to_string());
        joined.unwrap_or_else(|| names::for_agent(&self.agent(context)))
    }

    fn agent(&self, context: &RequestContext<RoleServer>) -> String {
        let asked = || self.asked.get().and_then(|asked| asked.agent.clone());
        self.options().agent.clone().or_else(asked).unwrap_or_else(|| self.name(context))
    }

    /// Starts notifying the client when programs register or withdraw tools.
    pub(super) fn tell_of_tools(&self, peer: &Peer<RoleServer>) {
        if self.has_listed_tools.set(()).is_err() {
            return;
        }
        let (gone, mut changes, peer) = (self.gone.clone(), self.hub().tool_changes(), peer.clone());
        tokio::spawn(gone.run_until_cancelled_owned(async move {
            while changes.changed().await.is_ok() && peer.notify_tool_list_changed().await.is_ok() {}
        }));
    }

    pub(super) async fn joined(&self, context: &RequestContext<RoleServer>) -> Result<&Joined, OperationError> {
        self.joined
            .get_or_try_init(|| async {
                let open = self.join(&self.name(context)).await?;
                let agent = self.shared.agents.take(open.session().id(), &self.agent(context));
                let open = open.as_agent(&agent.name);
                self.watching.has_joined(open.session(), &context.peer);
                self.arrived.notify_waiters();
                Ok(Joined { open, _agent: agent })
            })
            .await
    }

    async fn join(&self, client: &str) -> Result<OpenSession, OperationError> {
        let Some(name) = self.chosen() else { return self.begin_own(client).await };
        let Some(id) = self.find(name)? else {
            return match self.options().isolation {
                None | Some(Isolation::Shared) => self.begin_named(name).await,
                // A child needs an existing parent.
                Some(_) => Err(SessionError::NotFound { wanted: name.to_owned(), nearest: None }.into()),
            };
        };
        match self.options().isolation {
            None | Some(Isolation::Shared) => {
                self.check_same(&self.read(|sessions| sessions.session(id))?)?;
                Ok(self.hub().open(id).await?)
            }
            Some(isolation) => Ok(self.hub().start_child(id, ForkOptions::new(isolation)).await?),
        }
    }

    async fn begin_own(&self, client: &str) -> Result<OpenSession, OperationError> {
        let wanted = names::for_session(client);
        for name in names::numbered(&wanted) {
            if self.read(|sessions| sessions.named(&name))?.is_some() {
                continue;
            }
            match self.create(name).await {
                // Another client took the name first.
                Err(HubError::Session(SessionError::NameTaken { .. })) => {}
                other => return self.with_policy(other?),
            }
        }
        Err(HubError::Ending.into())
    }

    async fn begin_named(&self, name: &str) -> Result<OpenSession, OperationError> {
        match self.create(name.to_owned()).await {
            Err(HubError::Session(SessionError::NameTaken { .. })) => {
                let id = self.read(|sessions| sessions.find(name))?.id;
                Ok(self.hub().open(id).await?)
            }
            other => self.with_policy(other?),
        }
    }

    fn with_policy(&self, open: OpenSession) -> Result<OpenSession, OperationError> {
        begin_policy(open.session(), self.options().policy.as_ref())?;
        Ok(open)
    }

    async fn create(&self, name: String) -> Result<OpenSession, HubError> {
        let spec = self.options().workspace.clone().unwrap_or_default();
        self.hub().create(Some(name), &spec, &self.options().mounts).await
    }

    /// Finds a session by name or id. A short digit string is the name of a new session.
    fn find(&self, wanted: &str) -> Result<Option<SessionId>, SessionError> {
        match self.read(|sessions| sessions.find(wanted)) {
            Ok(entry) if entry.name() == wanted || wanted.len() >= ID_DIGITS => Ok(Some(entry.id)),
            Ok(_) | Err(SessionError::NotFound { .. }) => Ok(None),
            Err(SessionError::Ambiguous { .. }) if wanted.len() < ID_DIGITS => Ok(None),
            Err(error) => Err(error),
        }
    }

    fn check_same(&self, session: &Session) -> Result<(), OperationError> {
        let (Some(spec), Some(started)) = (&self.options().workspace, session.started()) else { return Ok(()) };
        if started.backend == spec.backend_name() && started.options == spec.options() {
            return Ok(());
        }
        let (name, backend) = (session.name(), session.backend());
        let what = format!(
            "session {name} began with another workspace, on {backend}; omit --backend and its options, or name a \
             different session"
        );
        Err(OperationError::refused(what))
    }

    /// Returns its session, or the session that it would join. Creates and opens nothing.
    pub(super) fn known(&self) -> Option<Session> {
        if let Some(joined) = self.joined.get() {
            return Some(joined.open.session().clone());
        }
        if matches!(self.options().isolation, Some(Isolation::Fork | Isolation::Full)) {
            return None;
        }
        self.found()
    }

    fn found(&self) -> Option<Session> {
        let id = self.find(self.chosen()?).ok().flatten()?;
        self.read(|sessions| sessions.session(id)).ok()
    }

    /// Returns the workspace of its present or future session. A child's is like its parent's.
    pub(super) fn workspace(&self) -> WorkspaceSpec {
        let session = self.known().or_else(|| self.found());
        let started = session.as_ref().and_then(Session::started);
        let recorded = started.and_then(|started| WorkspaceSpec::of_session(started).ok());
        recorded.or_else(|| self.options().workspace.clone()).unwrap_or_default()
    }

    /// Finds a session that the client may read; its own by default.
    pub(super) async fn session(
        &self,
        wanted: Option<&str>,
        context: &RequestContext<RoleServer>,
    ) -> Result<Session, OperationError> {
        match wanted {
            Some(wanted) => self.reachable(wanted),
            None => Ok(self.joined(context).await?.open.session().clone()),
        }
    }

    pub(super) fn reachable(&self, wanted: &str) -> Result<Session, OperationError> {
        if let Some(own) = self.known()
            && (own.name() == wanted || own.id().to_string() == wanted)
        {
            return Ok(own);
        }
        if !self.reaches_all() {
            return Err(SessionError::NotFound { wanted: names::shown(wanted, 80), nearest: None }.into());
        }
        Ok(self.read(|sessions| sessions.session(sessions.find(wanted)?.id))?)
    }

    /// Opens such a session.
    pub(super) async fn open(
        &self,
        wanted: Option<&str>,
        context: &RequestContext<RoleServer>,
    ) -> Result<OpenSession, OperationError> {
        if wanted.is_none() {
            let own = &self.joined(context).await?.open;
            // Another host may have claimed the session since then.
            return match own.session().hosts() {
                None => Ok(own.clone()),
                Some(_) => Ok(self.hub().open(own.session().id()).await?.as_agent(own.session().agent())),
            };
        }
        let session = self.session(wanted, context).await?;
        match self.joined.get() {
            Some(own) if own.open.session().id() == session.id() && session.hosts().is_none() => Ok(own.open.clone()),
            Some(own) => Ok(self.hub().open(session.id()).await?.as_agent(own.open.session().agent())),
            None => Ok(self.hub().open(session.id()).await?.as_agent(&names::for_agent(&self.agent(context)))),
        }
    }
}

impl Drop for McpClient {
    fn drop(&mut self) {
        self.gone.cancel();
    }
}
