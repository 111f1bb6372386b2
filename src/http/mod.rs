//! The HTTP API over a [`Hub`]: JSON, server-sent events, and an OpenAPI description of it all.

mod admission;
mod advice;
mod call_output;
mod calls;
mod client;
mod connection;
#[cfg(feature = "e2b")]
mod e2b;
mod elsewhere;
pub(crate) mod error_map;
mod file_changes;
mod files;
mod follow;
mod forward;
mod frames;
mod guard;
mod health;
mod machine_figures;
mod metrics;
mod move_session;
mod openapi;
mod owner;
mod page;
mod path_names;
mod peers;
mod port_links;
mod ports;
mod problem;
mod process_client;
mod processes;
mod recorded;
mod remote_tools;
mod request;
mod routes;
mod screen;
mod server;
mod sign_in;
mod stream;
mod tar;
mod terminal;
mod terminal_client;
mod terminal_copy;
mod terminal_keys;
mod token;
mod unread_body;
mod upgrade;
mod verb;
mod visit;
mod watch;

use std::sync::{Arc, Mutex, OnceLock};
use std::time::Duration;

use axum::Router;
use axum::http::HeaderValue;
use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use tokio::sync::mpsc;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use crate::backends::{HostCaller, ProgressWatch};
use crate::engine::id::SessionId;
use crate::engine::session::Session;
use crate::hub::operations::{Caller, OperationError};
use crate::hub::{Hub, HubError, OpenSession, blocking};
use crate::tools::{ASK_THE_PERSON, MAX_COMMAND_CHARS, ShellRules};

use elsewhere::ThroughApi;
use guard::Guard;
use machine_figures::DiskGauge;
use metrics::Metrics;
use owner::Attending;
use peers::HostAnswers;
use problem::ProblemKind;
use sign_in::Pages;
use visit::OpenPages;

pub use calls::CallRequest;
pub use client::{Attended, CallEvent, CallStream, ClientError, HttpClient, exchange};
#[cfg(feature = "e2b")]
pub use e2b::{E2bApi, E2bOptions};
pub use move_session::MovedSession;
pub use owner::{CallInFlight, ClientStatus, HostStatus, ReplicationStatus, ServerStatus, WorkspaceStatus};
pub use page::page_files;
pub use path_names::encoded;
pub use problem::{HttpProblem, ProblemDetails, RewindRefusal};
pub use process_client::ProcessEvents;
pub use remote_tools::{RegisteredTools, RemoteCommand, RemoteContext, RemoteEntry, RemoteRun, RemoteTools};
pub use routes::openapi;
pub use server::{HttpServer, ServerLimits, bind_unix, connect_unix};
pub use sign_in::{PageAddress, SignedIn};
pub use terminal::TerminalRequest;
pub use terminal_client::TerminalKeys;
pub use token::{Access, Token};
pub use upgrade::{UpgradeRequest, UpgradeWork, UpgradedStream, upgrade_route};

/// The options of the API.
#[derive(Debug, Clone)]
pub struct HttpOptions {
    /// The clients that may use it.
    pub access: Access,
    /// The most bytes of a request's body.
    pub body_bytes: usize,
    /// Time limit for the arrival of a body.
    pub body_time: Duration,
    /// True to refuse requests that may change something.
    pub read_only: bool,
}

impl Default for HttpOptions {
    fn default() -> Self {
        Self { access: Access::Owner, body_bytes: 64 << 20, body_time: Duration::from_secs(30), read_only: false }
    }
}

/// The state that all HTTP listeners of a hub share: rules, metrics.
///
/// ```
/// # use foldspace_http as foldspace;
/// use foldspace::{Hub, Registry, Sessions, http::{HttpFace, HttpOptions}, hub::HubOptions};
/// # let directory = tempfile::tempdir()?;
/// let hub = Hub::new(Sessions::open(directory.path(), Registry::standard())?, HubOptions::new(directory.path()));
/// let face = HttpFace::new(hub);
/// let _for_the_owner = face.router(HttpOptions::default());
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone)]
pub struct HttpFace {
    shared: Arc<AppState>,
    hub: Hub,
    rules: Arc<ShellRules>,
}

struct AppState {
    /// True if the hub opens sessions with exactly these rules.
    are_hubs_rules: bool,
    metrics: Metrics,
    disk: DiskGauge,
    ending: CancellationToken,
    outdated: CancellationToken,
    stopping: CancellationToken,
    attending: Mutex<Attending>,
    replication: OnceLock<Box<dyn Fn() -> ReplicationStatus + Send + Sync>>,
    pages: Pages,
    host_answers: HostAnswers,
    open_pages: OpenPages,
    since: Instant,
}

const VERSION: &str = env!("CARGO_PKG_VERSION");

const ROOTS: &str = "only clients on the unix socket may name allowed directories";

impl HttpFace {
    /// A face over a hub, with its rules.
    pub fn new(hub: Hub) -> Self {
        let rules = hub.options().rules.clone();
        let are_hubs_rules = rules.advice.is_some();
        Self::of(hub, rules, are_hubs_rules)
    }

    /// Creates a face with separate rules for commands: the hub's may be for more trusted callers.
    pub fn with_rules(hub: Hub, rules: ShellRules) -> Self {
        Self::of(hub, rules, false)
    }

    fn of(hub: Hub, mut rules: ShellRules, are_hubs_rules: bool) -> Self {
        rules.advice.get_or_insert_with(|| ASK_THE_PERSON.into());
        // Callers here are programs or people: a limit for models comes with the request.
        rules.policy.max_chars = MAX_COMMAND_CHARS;
        hub.reach_hosts(Box::new(ThroughApi));
        let shared = AppState {
            are_hubs_rules,
            metrics: Metrics::default(),
            disk: DiskGauge::default(),
            ending: CancellationToken::new(),
            outdated: CancellationToken::new(),
            stopping: CancellationToken::new(),
            attending: Mutex::default(),
            replication: OnceLock::new(),
            pages: Pages::default(),
            host_answers: HostAnswers::default(),
            open_pages: OpenPages::default(),
            since: Instant::now(),
        };
        let shared = Arc::new(shared);
        Self { shared, hub, rules: Arc::new(rules) }
    }

    /// The hub.
    pub fn hub(&self) -> &Hub {
        &self.hub
    }

    /// Returns the API for one listener.
    pub fn router(&self, options: HttpOptions) -> Router {
        self.router_with(options, Router::new())
    }

    /// Returns the API and other routes, behind the same guard.
    pub fn router_with(&self, options: HttpOptions, others: Router) -> Router {
        self.routed(options, others, false)
    }

    /// Returns only `/metrics`, `/healthz` and `/readyz`, without a token, for monitoring. They do not show session
    /// names.
    pub fn figures_router(&self) -> Router {
        let figures = routes::figures().fallback(health::no_route).method_not_allowed_fallback(health::wrong_method);
        figures.with_state(self.clone()).layer(axum::middleware::from_fn(guard::run))
    }

    fn routed(&self, options: HttpOptions, others: Router, is_page: bool) -> Router {
        let api = routes::router()
            .merge(page::routes())
            .fallback(health::no_route)
            .method_not_allowed_fallback(health::wrong_method)
            .with_state(self.clone());
        let others = others
            .merge(upgrade::attend_route(self))
            .merge(ports::tunnel_route(self))
            .merge(remote_tools::register_route(self));
        let guard = Guard { face: self.clone(), options: Arc::new(options), is_page };
        let guarded = api.merge(others).layer(axum::middleware::from_fn_with_state(guard.clone(), guard::pass));
        guarded.layer(axum::middleware::from_fn_with_state(guard, ports::pass))
    }

    /// Begins to shut down: event streams end and new calls are refused. Calls in flight continue.
    pub fn end(&self) {
        self.hub().end();
        self.shared.ending.cancel();
    }

    /// Refuses clients of another version, and marks this server as outdated so that it exits once idle.
    fn check_version(&self, theirs: Option<&HeaderValue>) -> Result<(), HttpProblem> {
        if theirs.is_none_or(|theirs| theirs == VERSION) {
            return Ok(());
        }
        self.shared.outdated.cancel();
        let detail = format!("the store is in use by foldspace {VERSION}, a different version");
        Err(HttpProblem::new(ProblemKind::OtherVersion, detail)
            .with_hint("`foldspace stop` ends it; a server in the background also exits when idle"))
    }

    /// Waits until a client of another version has connected.
    pub async fn outdated(&self) {
        self.shared.outdated.cancelled().await;
    }

    fn metrics(&self) -> &Metrics {
        &self.shared.metrics
    }

    /// Returns the face for one client: commands on the host run on its behalf.
    fn for_client(&self, caller: Option<&HostCaller>) -> Self {
        let Some(caller) = caller else { return self.clone() };
        let rules = ShellRules { caller: caller.clone(), ..(*self.rules).clone() };
        Self { rules: Arc::new(rules), ..self.clone() }
    }

    /// Returns the face for one request, with progress messages sent to its client.
    fn telling(&self, progress: &mpsc::UnboundedSender<String>) -> Self {
        let progress = progress.clone();
        // The client may have its answer by then.
        let watch: ProgressWatch = Arc::new(move |line: &str| drop(progress.send(line.to_owned())));
        Self { hub: self.hub.with_progress(watch), ..self.clone() }
    }

    async fn session(&self, wanted: &str) -> Result<Session, HubError> {
        let (sessions, id) = (self.hub().sessions().clone(), self.find(wanted).await?);
        Ok(blocking(move || sessions.session(id)).await??)
    }

    async fn open(&self, wanted: &str) -> Result<OpenSession, HubError> {
        self.hub().open(self.find(wanted).await?).await
    }

    async fn find(&self, wanted: &str) -> Result<SessionId, HubError> {
        let (sessions, wanted) = (self.hub().sessions().clone(), wanted.to_owned());
        let may_wait = sessions.store().may_wait();
        let find = move || sessions.find(&wanted).map(|entry| entry.id);
        // A lookup in memory is cheaper than another thread.
        Ok(if may_wait { blocking(find).await?? } else { find()? })
    }
}

impl Caller for HttpFace {
    fn session<'a>(&'a self, wanted: Option<&'a str>) -> BoxFuture<'a, Result<Session, OperationError>> {
        async move { Ok(HttpFace::session(self, wanted.unwrap_or_default()).await?) }.boxed()
    }

    fn open<'a>(&'a self, wanted: Option<&'a str>) -> BoxFuture<'a, Result<OpenSession, OperationError>> {
        async move { Ok(HttpFace::open(self, wanted.unwrap_or_default()).await?) }.boxed()
    }

    fn rules(&self) -> &ShellRules {
        &self.rules
    }

    fn may_name_roots(&self) -> Result<(), OperationError> {
        match self.rules.caller.process() {
            Ok(Some(_)) => Ok(()),
            Ok(None) => Err(OperationError::refused(ROOTS)),
            Err(why) => Err(OperationError::refused(&*why)),
        }
    }
}

crate::engine::debug_by!(HttpFace, |face| hub: face.hub());
