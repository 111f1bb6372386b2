#[cfg_attr(not(feature = "e2b"), path = "no_e2b.rs")]
mod e2b;
mod notify;
#[cfg(feature = "replicate")]
mod replication;
mod server_socket;
mod token;
#[cfg_attr(not(feature = "otel"), path = "no_traces.rs")]
mod traces;
mod workspaces;

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::time::Duration;

use axum::Router;
use foldspace::event::{Clock, SystemClock};
use foldspace::http::{Access, HttpFace, HttpOptions, HttpServer, ServerLimits};
use foldspace::hub::HubOptions;
use foldspace::mcp::McpServer;
use foldspace::store::{Durability, StoreServer};
use foldspace::tools::{AllowedRoots, MAX_COMMAND_CHARS, ShellRules};
use foldspace::{Hub, WorkspaceSpec};
use futures_util::FutureExt;
use tokio::net::TcpListener;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::logs::LogFormat;
use super::mcp::{OfferArgs, attach_route};
use super::owner::{Starter, all_tools, end_calls};
use super::run::mounts::allowed_roots;
use super::shared_store::HostArgs;
use super::stop::take_turn;
use super::{Exit, Failure, Globals, OpenedStore, Out, Signals, logs, open, output, text};
#[cfg(feature = "e2b")]
use e2b::E2bArgs;
#[cfg(not(feature = "e2b"))]
use e2b::NoE2bArgs as E2bArgs;
use notify::Notify;
#[cfg(feature = "replicate")]
use replication::ReplicateToArgs;
use server_socket::ServerSocket;
use token::ChosenToken;
use workspaces::OpenArgs;

/// The process that waits until a server in the background is ready.
type Starting = Option<Starter>;

/// The server's copying of the journal, stopped on drop.
type Replicating = Option<Box<dyn Send>>;

/// The reason for a server's end: a request, or a failure after which a service manager should restart it.
type ServeEnd = Result<&'static str, Failure>;

/// Serves sessions to other programs over HTTP, and MCP at /mcp
///
/// It listens on a unix socket in the data directory and, with --http, on TCP, with MCP. It ends on Ctrl-C or SIGTERM:
/// after a grace period calls in flight are cancelled and recorded as interrupted. A second Ctrl-C skips the wait.
#[derive(Debug, clap::Args)]
#[command(group(clap::ArgGroup::new("tcp").multiple(true)))]
#[command(after_help = "\
Examples:
  foldspace serve
  foldspace serve --http 127.0.0.1:7300 --token-file ~/.foldspace-token
  foldspace serve --e2b --token-file ~/.foldspace-token
  curl --unix-socket DATA/http.sock http://localhost/v1/sessions

The API is described in docs/openapi.json, and at /openapi.json. TCP clients need a token: from --token-file, else from
FOLDSPACE_TOKEN, else a random one, which is written to http.token in the data directory.")]
pub(super) struct Serve {
    /// Also serves on this address
    #[arg(long, value_name = "ADDR:PORT", group = "tcp")]
    http: Option<SocketAddr>,
    /// Allows an address that other machines can reach; the token is sent in clear text, so put TLS in front
    #[arg(long, requires = "tcp")]
    allow_remote: bool,
    /// Refuses all changes on that address; clients on the unix socket may still make them
    #[arg(long, requires = "http")]
    read_only: bool,
    /// Accepts requests to this host name, besides localhost and the machine's addresses; may be given several times
    #[arg(long, value_name = "NAME", requires = "tcp")]
    host_name: Vec<String>,
    /// Serves only /metrics, /healthz and /readyz on this address, without a token; the metrics do not show session
    /// names
    #[arg(long, value_name = "ADDR:PORT")]
    metrics: Option<SocketAddr>,
    /// Reads the token from the first line of FILE
    #[arg(long, value_name = "FILE", requires = "tcp")]
    token_file: Option<PathBuf>,
    /// Allows mounts, and directories of the host backend, below DIR; may be given several times
    #[arg(long = "allow-root", value_name = "DIR")]
    roots: Vec<PathBuf>,
    #[command(flatten)]
    e2b: E2bArgs,
    #[command(flatten)]
    offer: OfferArgs,
    #[command(flatten)]
    host: HostArgs,
    #[command(flatten)]
    workspaces: OpenArgs,
    #[cfg(feature = "replicate")]
    #[command(flatten)]
    replicate_to: ReplicateToArgs,
    /// Closes workspaces, with their containers, after SECS without use [default: 300]; their files stay
    #[arg(long, value_name = "SECS")]
    keep: Option<u64>,
    /// Ends after SECS without clients, calls and open workspaces [default: never; in the background FOLDSPACE_IDLE,
    /// else 600, or 0 if CI is set]
    #[arg(long, value_name = "SECS")]
    idle: Option<u64>,
    /// Detaches from the process that starts it
    #[arg(long, hide = true, conflicts_with = "tcp")]
    background: bool,
    /// Waits up to SECS for calls in flight when the server ends
    #[arg(long, value_name = "SECS", default_value_t = 10)]
    grace: u64,
    /// The format of log lines on the error stream; -v logs each call
    #[arg(long, value_name = "FORMAT", default_value = "text")]
    log_format: LogFormat,
    /// Limits the connections on each listener
    #[arg(long, value_name = "N", default_value_t = 1024, hide_short_help = true)]
    max_connections: u32,
    /// Sends a span for each tool call to this OTLP collector, over HTTP without TLS [default: the environment's
    /// OTEL_EXPORTER_OTLP_ENDPOINT]. A call with a `traceparent` joins that trace, and is not sent if it is unsampled
    #[arg(long, value_name = "URL")]
    otlp: Option<String>,
}

/// The largest number of threads for blocking work: each running command uses one.
const THREADS_MAX: usize = 8192;
/// The time between two checks for unused workspaces and an unused server.
const LOOK: Duration = Duration::from_secs(1);
/// The same for a server that ends after its last client.
const QUICK_LOOK: Duration = Duration::from_millis(20);
/// The time that such a server waits for its first client.
const FIRST: Duration = Duration::from_secs(10);
const KEEP: Duration = Duration::from_secs(300);
const IDLE: Duration = Duration::from_secs(600);
const LAST: Duration = Duration::from_secs(2);

impl Serve {
    pub(super) fn run(&self, globals: &Globals, out: &mut Out) -> Result<Exit, Failure> {
        let mut starter = self.background.then(Starter::leave);
        let served = self.run_until_end(globals, out, &mut starter);
        // Reports the failure to the process that waits for this one.
        match (served, starter) {
            (Err(failure), Some(starter)) => {
                starter.failed(&failure);
                Err(Failure::Closed)
            }
            (served, _) => served,
        }
    }

    fn run_until_end(&self, globals: &Globals, out: &mut Out, starter: &mut Starting) -> Result<Exit, Failure> {
        self.check_address()?;
        if self.background {
            usual_idle()?;
        }
        let directory = open::directory(globals)?;
        let runtime =
            tokio::runtime::Builder::new_multi_thread().max_blocking_threads(THREADS_MAX).enable_all().build();
        let runtime = runtime.map_err(|error| Failure::io("start", "the runtime", &error))?;
        if let Some(starter) = starter {
            starter.log_to(&directory);
        }
        let (traces, end_traces) = traces::begin(self.otlp.as_deref(), runtime.handle())?;
        let _log = logs::serving(self.log_format, globals.verbose, traces);
        // The process that starts this one in the background retries.
        let patience = if self.background { Duration::ZERO } else { open::STORE_LOCK_WAIT };
        let roots = AllowedRoots::new(allowed_roots(&self.roots)?.unwrap_or_default())?;
        if !self.background {
            runtime.block_on(take_turn(&directory))?;
        }
        let opened = OpenedStore::own(&directory, Durability::default(), patience, &self.host)?;
        // Tries again: opening the store may have created the directory.
        if let Some(starter) = starter {
            starter.log_to(&directory);
        }
        out.go_live()?;
        let store = StoreServer::start(&opened.sessions, &directory)?;
        let served = runtime.block_on(self.serve((&opened, &store), &directory, roots, starter, out));
        end_traces();
        runtime.shutdown_timeout(LAST);
        drop(store);
        drop(opened);
        // Stops copying last, so that the copy has the store's last writes.
        let (_replicating, end) = served?;
        end.map(|_| Exit::Ok)
    }

    fn check_address(&self) -> Result<(), Failure> {
        if SystemClock::default().now().0 < 0 {
            let what = "the machine's clock is before 1970, which a server does not support";
            return Err(Failure::new(Exit::Io, what).with_hint("set the clock; --in-process works without a server"));
        }
        check_reach(self.http, self.allow_remote)?;
        self.e2b.check(self.allow_remote)
    }

    async fn serve(
        &self,
        (opened, store): (&OpenedStore, &StoreServer),
        directory: &Path,
        roots: AllowedRoots,
        starter: &mut Starting,
        out: &mut Out,
    ) -> Result<(Replicating, ServeEnd), Failure> {
        let offer = self.offer.options(Vec::new())?;
        let mut rules = ShellRules { advice: Some(foldspace::tools::ASK_THE_PERSON.into()), ..offer.rules.clone() };
        // The option limits only models, which call through /mcp.
        rules.policy.max_chars = MAX_COMMAND_CHARS;
        let tools = all_tools()?.into();
        let open_max = Some(self.workspaces.open_max());
        let options = HubOptions { rules, roots, tools, open_max, ..open::hub_options(directory)? };
        let hub = Hub::new(opened.sessions.clone(), options);
        let _warm = self.workspaces.keep_warm();
        hub.watch_hosts();
        let face = HttpFace::new(hub.clone());
        let replicating = self.replicate(directory, &face)?;
        let limits = ServerLimits { connections: self.max_connections.max(1) as usize, ..ServerLimits::default() };
        let server = HttpServer::new(limits);
        let mut signals = Signals::listen();
        let (socket, unix) = ServerSocket::listen(directory)?;
        let (serving, router) = (server.clone(), face.router_with(HttpOptions::default(), attach_route(&face)));
        tokio::spawn(async move { serving.serve_unix(unix, router).await });
        let ending = CancellationToken::new();
        let mcp_ends = ending.clone();
        match starter.take() {
            Some(starter) => starter.ready(),
            None => out.line(format!("serving on {}", text::one_line(&socket.path().display().to_string(), 300)))?,
        }
        let workspace = offer.workspace.clone();
        let others = || Router::new().route_service("/mcp", McpServer::new(hub, offer).streamable_http(ending));
        self.serve_tcp(&server, (&face, others), workspace, directory, out).await?;
        let notify = Notify::from_environment();
        notify.tell("READY=1");
        let alive = tokio::spawn(async move { keep_alive(&notify).await });
        let end = tokio::select! {
            _ = signals.next() => Ok("a signal has ended it"),
            () = face.stopped() => Ok("a client has ended it"),
            end = self.unused(&face, &socket, (opened, store)) => end,
        };
        Notify::from_environment().tell("STOPPING=1");
        tracing::info!(
            why = end.as_ref().copied().unwrap_or("a failure"),
            calls = face.hub().calls_in_flight(),
            "the server ends"
        );
        self.end(&face, (&server, &mcp_ends), &mut signals).await;
        alive.abort();
        Ok((replicating, end))
    }

    #[cfg(feature = "replicate")]
    fn replicate(&self, directory: &Path, face: &HttpFace) -> Result<Replicating, Failure> {
        let replication = self.replicate_to.start(directory, face)?;
        Ok(replication.map(|replication| Box::new(replication) as Box<dyn Send>))
    }

    #[cfg(not(feature = "replicate"))]
    fn replicate(&self, _: &Path, _: &HttpFace) -> Result<Replicating, Failure> {
        Ok(None)
    }

    /// Closes unused workspaces until the server has a reason to end.
    async fn unused(
        &self,
        face: &HttpFace,
        socket: &ServerSocket,
        (opened, store): (&OpenedStore, &StoreServer),
    ) -> ServeEnd {
        let idle = self.idle.map(Duration::from_secs).or_else(|| usual_idle().ok().filter(|_| self.background));
        let keep = self.keep.map_or_else(|| idle.map_or(KEEP, |idle| idle.min(KEEP)), Duration::from_secs);
        let look = if idle == Some(Duration::ZERO) { QUICK_LOOK } else { LOOK };
        let begun = Instant::now();
        let mut used = begun;
        loop {
            tokio::time::sleep(look).await;
            // A connected client may make more calls.
            if !keep.is_zero() || face.is_idle() {
                match face.hub().close_unused(keep).await {
                    0 => {}
                    closed => tracing::info!(closed, "closed unused workspaces"),
                }
            }
            if !socket.is_there() || !opened.is_in_place() {
                return Err(Failure::new(Exit::Io, "the data directory, its lock or the socket is gone"));
            }
            if opened.has_failed() {
                opened.sessions.store().check_own()?;
            }
            // A person's server stays until the person replaces it.
            let is_outdated = self.background && face.outdated().now_or_never().is_some();
            // Readers of a shared store need its owner: the local files are only a copy.
            let is_read = opened.sessions.store().hosts().is_some() && store.has_clients();
            if !face.is_idle() || store.has_writers() || is_read || (face.hub().open_count() > 0 && !is_outdated) {
                used = Instant::now();
                continue;
            }
            let first = if face.was_attended() { Duration::ZERO } else { FIRST };
            if is_outdated {
                return Ok("another version takes over");
            }
            let is_due = idle.is_some_and(|idle| used.elapsed() >= idle && begun.elapsed() >= first);
            if is_due && face.end_if_idle() {
                return Ok("the server is unused");
            }
        }
    }

    async fn serve_tcp(
        &self,
        server: &HttpServer,
        (face, others): (&HttpFace, impl FnOnce() -> Router),
        workspace: Option<WorkspaceSpec>,
        directory: &Path,
        out: &mut Out,
    ) -> Result<(), Failure> {
        if let Some(address) = self.metrics {
            let (listener, place) = bound(address).await?;
            out.line(format!("serving metrics on http://{place}/metrics"))?;
            let (server, router) = (server.clone(), face.figures_router());
            tokio::spawn(async move { server.serve_tcp(listener, router).await });
        }
        if self.http.is_none() && !self.e2b.is_given() {
            if let Some(given) = token::given(self.token_file.as_deref())? {
                face.hub().share_with_hosts(&given.text);
            }
            return Ok(());
        }
        let ChosenToken { token, text, told } = token::chosen(self.token_file.as_deref(), directory)?;
        face.hub().share_with_hosts(&text);
        if let Some(address) = self.http {
            let (listener, place) = bound(address).await?;
            out.line(format!("serving on http://{place}"))?;
            let names = self.host_name.iter().cloned().chain(self.host.reached_as()).collect();
            let access = Access::Token { token: token.clone(), names };
            let router =
                face.router_with(HttpOptions { access, read_only: self.read_only, ..HttpOptions::default() }, others());
            let server = server.clone();
            tokio::spawn(async move { server.serve_tcp(listener, router).await });
        }
        let workspace = (workspace, self.offer.names_image());
        self.e2b.serve(server, face, workspace, (token, &self.host_name), out).await?;
        told.map_or(Ok(()), |told| out.line(told))
    }

    /// Waits for calls in flight, then cancels them. A second signal skips the wait, a third ends at once.
    async fn end(&self, face: &HttpFace, (server, mcp): (&HttpServer, &CancellationToken), signals: &mut Signals) {
        let hub = face.hub();
        face.end();
        tokio::select! {
            () = hub.foreground_ended() => {}
            () = tokio::time::sleep(Duration::from_secs(self.grace)) => {}
            _ = signals.next() => {}
        }
        let ending = async {
            let left = hub.calls_in_flight();
            if left > 0 {
                output::note(&format!("{} in flight cancelled", text::count(left as u64, "call")));
                end_calls(hub).await;
            }
            mcp.cancel();
            server.stop(LAST).await;
            hub.close().await;
        };
        tokio::select! {
            () = ending => {}
            _ = signals.next() => output::note("ended at once; calls in flight are recorded at the next start"),
        }
    }
}

fn check_reach(address: Option<SocketAddr>, allow_remote: bool) -> Result<(), Failure> {
    match address {
        Some(address) if !address.ip().is_loopback() && !allow_remote => {
            Err(Failure::usage(format!("other machines can reach {address}"))
                .with_hint("serve on 127.0.0.1 behind TLS, or allow it with --allow-remote"))
        }
        _ => Ok(()),
    }
}

async fn bound(address: SocketAddr) -> Result<(TcpListener, SocketAddr), Failure> {
    let failed = |error| Failure::io("listen on", address, &error);
    let listener = TcpListener::bind(address).await.map_err(failed)?;
    let place = listener.local_addr().map_err(failed)?;
    Ok((listener, place))
}

async fn keep_alive(notify: &Notify) {
    while let Some(pause) = notify.pause() {
        tokio::time::sleep(pause).await;
        notify.alive();
    }
}

/// Returns the idle timeout of a server in the background.
fn usual_idle() -> Result<Duration, Failure> {
    let set = |name| std::env::var(name).ok().filter(|value| !value.is_empty());
    if let Some(said) = set("FOLDSPACE_IDLE") {
        let seconds = said.parse().map(Duration::from_secs);
        return seconds.map_err(|_| {
            Failure::usage(format!("FOLDSPACE_IDLE is {:?}", text::one_line(&said, 80)))
                .with_hint("set it to whole seconds, or to 0 to end after the last call")
        });
    }
    let in_ci = set("CI").is_some_and(|value| value != "false" && value != "0");
    Ok(if in_ci { Duration::ZERO } else { IDLE })
}
