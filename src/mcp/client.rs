//! A client, and the session in which it works once it needs one.

use std::sync::{Arc, OnceLock};

use rmcp::RoleServer;
use rmcp::service::RequestContext;
use tokio::sync::{Notify, OnceCell};
use tokio_util::sync::CancellationToken;

use super::connect_query::ConnectQuery;
use super::names::{self, AgentName, Agents};
use super::pending_questions::Parked;
use super::tool_list::Offered;
use super::watching::Watching;
use super::{McpError, McpOptions, ToolGroup};
use crate::backends::WorkspaceSpec;
use crate::engine::event::Isolation;
use crate::engine::id::SessionId;
use crate::engine::session::Session;
use crate::engine::session::children::ForkOptions;
use crate::engine::session::error::SessionError;
use crate::engine::session::name_index::name_of;
use crate::hub::{Hub, HubError, OpenSession};

/// Digits from which on a text counts as the beginning of an id rather than a name.
const ID_DIGITS: usize = 8;

/// The state that the clients of a server share.
pub(super) struct ServerState {
    pub(super) hub: Hub,
    pub(super) options: McpOptions,
    pub(super) agents: Arc<Agents>,
    pub(super) offered: OnceLock<Offered>,
}

/// A client.
pub(super) struct McpClient {
    pub(super) shared: Arc<ServerState>,
    /// Options from the client's own address.
    asked: OnceLock<ConnectQuery>,
    joined: OnceCell<Joined>,
    /// The resources that it watches.
    pub(super) watching: Watching,
    /// Its calls that wait for a person's answer.
    pub(super) parked: Parked,
    /// Is told when it has a session.
    pub(super) arrived: Notify,
    /// It is not there any more.
    pub(super) gone: CancellationToken,
}

/// The session in which a client works.
pub(super) struct Joined {
    /// Its workspace, under the client's agent.
    pub(super) open: OpenSession,
    _agent: AgentName,
}

impl McpClient {
    /// A client that is gone when the server ends, if not before.
    pub(super) fn new(shared: &Arc<ServerState>, end: &CancellationToken) -> Arc<Self> {
        Arc::new(Self {
            shared: Arc::clone(shared),
            asked: OnceLock::new(),
            joined: OnceCell::new(),
            watching: Watching::default(),
            parked: Parked::default(),
            arrived: Notify::new(),
            gone: end.child_token(),
        })
    }

    pub(super) fn hub(&self) -> &Hub {
        &self.shared.hub
    }

    pub(super) fn options(&self) -> &McpOptions {
        &self.shared.options
    }

    /// The session by the name that somebody chose for it.
    fn chosen(&self) -> Option<&str> {
        self.options().session.as_deref().or(self.asked.get().and_then(|asked| asked.session.as_deref()))
    }

    /// Asks for a session and others. What was asked for first counts.
    pub(super) fn ask_for(&self, asked: ConnectQuery) {
        drop(self.asked.set(asked));
    }

    /// Tells whether a group of tools is offered to it.
    pub(super) fn has_group(&self, group: ToolGroup) -> bool {
        let wanted = self.asked.get().and_then(|asked| asked.groups.as_ref());
        self.options().groups.contains(&group) && wanted.is_none_or(|wanted| wanted.contains(&group))
    }

    /// Tells whether a workspace's tool of that name is offered to it. Own tools are.
    pub(super) fn offers(&self, tool: &str) -> bool {
        ToolGroup::of(tool).is_none_or(|group| self.has_group(group))
    }

    /// Tells whether it can reach sessions other than its own.
    pub(super) fn reaches_all(&self) -> bool {
        self.has_group(ToolGroup::Sessions)
    }

    /// Tells whether it has a session.
    pub(super) fn has_joined(&self) -> bool {
        self.joined.initialized()
    }

    /// Under which name it works where nobody has that yet.
    fn agent(&self, context: &RequestContext<RoleServer>) -> String {
        let asked = || self.asked.get().and_then(|asked| asked.agent.clone());
        self.options().agent.clone().or_else(asked).unwrap_or_else(|| name_in(context))
    }

    /// Its session; where it has none yet, that is begun, or joined.
    pub(super) async fn joined(&self, context: &RequestContext<RoleServer>) -> Result<&Joined, McpError> {
        self.joined
            .get_or_try_init(|| async {
                let open = self.join(&name_in(context)).await?;
                let agent = self.shared.agents.take(open.session().id(), &self.agent(context));
                let open = open.by(agent.as_str());
                self.watching.has_joined(open.session(), &context.peer);
                self.arrived.notify_waiters();
                Ok(Joined { open, _agent: agent })
            })
            .await
    }

    async fn join(&self, client: &str) -> Result<OpenSession, McpError> {
        let Some(name) = self.chosen() else { return self.begin_own(client).await };
        let Some(id) = self.find(name)? else {
            return match self.options().isolation {
                None | Some(Isolation::Shared) => self.begin_named(name).await,
                // There is nothing of which it could be a child.
                Some(_) => Err(SessionError::NotFound { wanted: name.to_owned() }.into()),
            };
        };
        match self.options().isolation {
            None | Some(Isolation::Shared) => {
                self.check_same(&self.hub().sessions().session(id)?)?;
                Ok(self.hub().open(id).await?)
            }
            Some(isolation) => Ok(self.hub().start_child(id, ForkOptions::new(isolation)).await?),
        }
    }

    /// Begins a session that is called after the client.
    async fn begin_own(&self, client: &str) -> Result<OpenSession, McpError> {
        let taken: Vec<String> = self.hub().sessions().list()?.iter().map(name_of).collect();
        let wanted = names::for_session(client);
        for name in names::numbered(&wanted).filter(|name| !taken.contains(name)) {
            match self.create(name).await {
                // Somebody was faster.
                Err(HubError::Session(SessionError::NameTaken { .. })) => {}
                other => return Ok(other?),
            }
        }
        Err(HubError::Ending.into())
    }

    async fn begin_named(&self, name: &str) -> Result<OpenSession, McpError> {
        match self.create(name.to_owned()).await {
            Err(HubError::Session(SessionError::NameTaken { .. })) => {
                let id = self.hub().sessions().find(name)?.id;
                Ok(self.hub().open(id).await?)
            }
            other => Ok(other?),
        }
    }

    async fn create(&self, name: String) -> Result<OpenSession, HubError> {
        let spec = self.options().workspace.clone().unwrap_or_default();
        self.hub().create(Some(name), &spec, &self.options().mounts).await
    }

    /// The session of that name or id; a few digits are rather the name of a new one.
    fn find(&self, wanted: &str) -> Result<Option<SessionId>, SessionError> {
        match self.hub().sessions().find(wanted) {
            Ok(entry) if name_of(&entry) == wanted || wanted.len() >= ID_DIGITS => Ok(Some(entry.id)),
            Ok(_) | Err(SessionError::NotFound { .. }) => Ok(None),
            Err(SessionError::Ambiguous { .. }) if wanted.len() < ID_DIGITS => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// A session keeps the workspace that it began with.
    fn check_same(&self, session: &Session) -> Result<(), McpError> {
        let (Some(spec), Some(started)) = (&self.options().workspace, session.started()) else { return Ok(()) };
        if started.backend == spec.backend_name() && started.options == spec.options() {
            return Ok(());
        }
        Err(McpError::OtherWorkspace { name: session.name().to_owned(), backend: session.backend().to_owned() })
    }

    /// Its session, if it has one, or one is there that it would go on with. Nothing is begun or opened.
    pub(super) fn known(&self) -> Option<Session> {
        if let Some(joined) = self.joined.get() {
            return Some(joined.open.session().clone());
        }
        if matches!(self.options().isolation, Some(Isolation::Fork | Isolation::Full)) {
            return None;
        }
        self.found()
    }

    /// The session that was chosen, if it is there.
    fn found(&self) -> Option<Session> {
        let id = self.find(self.chosen()?).ok().flatten()?;
        self.hub().sessions().session(id).ok()
    }

    /// Returns the workspace of its session, there or to be: a child's is like its parent's.
    pub(super) fn workspace(&self) -> WorkspaceSpec {
        let session = self.known().or_else(|| self.found());
        let started = session.as_ref().and_then(Session::started);
        let recorded = started.and_then(|started| WorkspaceSpec::of_session(started).ok());
        recorded.or_else(|| self.options().workspace.clone()).unwrap_or_default()
    }

    /// A session that it may look at, by name or by the beginning of its id; its own when nothing is said.
    pub(super) async fn session(
        &self,
        wanted: Option<&str>,
        context: &RequestContext<RoleServer>,
    ) -> Result<Session, McpError> {
        let Some(wanted) = wanted else { return Ok(self.joined(context).await?.open.session().clone()) };
        if let Some(own) = self.known()
            && (own.name() == wanted || own.id().to_string() == wanted)
        {
            return Ok(own);
        }
        if !self.reaches_all() {
            return Err(SessionError::NotFound { wanted: names::shown(wanted, 80) }.into());
        }
        let entry = self.hub().sessions().find(wanted)?;
        Ok(self.hub().sessions().session(entry.id)?)
    }

    /// The same with its workspace, to work in. For another session than its own it needs none.
    pub(super) async fn open(
        &self,
        wanted: Option<&str>,
        context: &RequestContext<RoleServer>,
    ) -> Result<OpenSession, McpError> {
        let session = self.session(wanted, context).await?;
        match self.joined.get() {
            Some(own) if own.open.session().id() == session.id() => Ok(own.open.clone()),
            Some(own) => Ok(self.hub().open(session.id()).await?.by(own.open.session().agent())),
            None => Ok(self.hub().open(session.id()).await?.by(&names::for_agent(&self.agent(context)))),
        }
    }
}

/// Returns the name that a client gives itself.
fn name_in(context: &RequestContext<RoleServer>) -> String {
    context.client_info().map_or_else(|| "mcp".to_owned(), |info| info.name)
}

impl Drop for McpClient {
    fn drop(&mut self) {
        self.gone.cancel();
    }
}
