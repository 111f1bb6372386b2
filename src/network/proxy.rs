//! The proxy of a container.

use std::fmt;
use std::io;
use std::sync::atomic::AtomicU64;
use std::sync::{Arc, OnceLock, PoisonError, RwLock};
use std::time::Duration;

use tokio::net::{TcpListener, TcpStream, UdpSocket};
use tokio::runtime::Handle;
use tokio::sync::Semaphore;
use tokio_util::sync::{CancellationToken, DropGuard};

use super::certificates::{Authority, trusted_here};
use super::recording::HttpAnswers;
use super::report::ReportSink;
use super::rules::NetworkRules;
use super::sockets::{ContainerSocket, PROXY, ProxyError, RESOLVER, SocketOpener};
use super::state::{ClientPlace, Proxy, opened, outside_room};
use super::{http, names, socks};

/// The most clients at once that have no connection to the outside yet; more wait.
const CLIENTS_MAX: usize = 128;
/// Time limit for the first byte of a connection.
const FIRST: Duration = Duration::from_secs(30);
/// The first byte of SOCKS, version 5. No request of HTTP begins with it.
const SOCKS: u8 = 5;

type SharedAnswers = Arc<RwLock<Option<HttpAnswers>>>;

/// The proxy of a container, for HTTP, `CONNECT` and SOCKS 5, and the resolver for programs without proxy support. Dropping
/// it closes all its connections.
///
/// It runs on a thread that all proxies of this process share.
pub struct NetworkProxy {
    rules: Arc<RwLock<NetworkRules>>,
    answers: SharedAnswers,
    bundle: Option<String>,
    _end: DropGuard,
}

impl NetworkProxy {
    /// Serves the connections of a container; `open` opens sockets in it. If port 53 can't be bound there, the container
    /// gets no resolver.
    ///
    /// # Errors
    /// [`ProxyError`] if there is no listener or no thread.
    pub fn start(open: SocketOpener, rules: NetworkRules, sink: ReportSink) -> Result<Self, ProxyError> {
        let records = !rules.record_http.is_empty();
        let authority = records.then(|| Authority::trusting(trusted_here())).transpose();
        Self::with(open, rules, sink, authority.map_err(io::Error::other)?)
    }

    pub(crate) fn with(
        open: SocketOpener,
        rules: NetworkRules,
        sink: ReportSink,
        authority: Option<Authority>,
    ) -> Result<Self, ProxyError> {
        let (listener, resolver) = (open(ContainerSocket::Listen(PROXY))?, open(ContainerSocket::Datagram(RESOLVER)));
        let (rules, end) = (Arc::new(RwLock::new(rules)), CancellationToken::new());
        let room = Arc::new(Semaphore::new(CLIENTS_MAX));
        let outside_room = outside_room();
        let bundle = authority.as_ref().map(Authority::bundle);
        let answers = SharedAnswers::default();
        let proxy = Arc::new(Proxy {
            rules: Arc::clone(&rules),
            sink,
            requests: AtomicU64::new(0),
            authority,
            answers: Arc::clone(&answers),
            room,
            outside_room,
            end: end.clone(),
        });
        let _within = runtime()?.enter();
        let listener = opened(listener.into(), TcpListener::from_std)?;
        proxy.spawn(Arc::clone(&proxy).accept(listener, serve));
        match resolver.and_then(|resolver| opened(resolver.into(), UdpSocket::from_std)) {
            Ok(resolver) => proxy.spawn(names::resolve(resolver, Arc::clone(&proxy), open)),
            Err(error) => tracing::warn!(%error, "a container has no resolver: only programs with proxy support work"),
        }
        Ok(Self { rules, answers, bundle, _end: end.drop_guard() })
    }

    /// Returns the certificates that commands must trust, as PEM: the proxy's own, and what this machine trusts.
    /// `None` if the rules record no requests.
    pub fn certificates(&self) -> Option<&str> {
        self.bundle.as_deref()
    }

    /// Replays responses of a recording to requests that begin from now on, and refuses all other connections.
    pub fn answer_from(&self, answers: HttpAnswers) {
        *self.answers.write().unwrap_or_else(PoisonError::into_inner) = Some(answers);
    }

    /// Replaces the rules for connections that begin from now on.
    pub fn set_rules(&self, rules: NetworkRules) {
        *self.rules.write().unwrap_or_else(PoisonError::into_inner) = rules;
    }
}

impl fmt::Debug for NetworkProxy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("NetworkProxy").field("rules", &self.rules).finish_non_exhaustive()
    }
}

/// Returns the runtime of all proxies.
fn runtime() -> io::Result<&'static Handle> {
    static RUNTIME: OnceLock<Handle> = OnceLock::new();
    if let Some(known) = RUNTIME.get() {
        return Ok(known);
    }
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let handle = runtime.handle().clone();
    let thread = std::thread::Builder::new().name("foldspace-network".to_owned());
    thread.spawn(move || runtime.block_on(std::future::pending::<()>()))?;
    Ok(RUNTIME.get_or_init(|| handle))
}

async fn serve(stream: TcpStream, proxy: Arc<Proxy>, place: ClientPlace) {
    let mut first = [0];
    match tokio::time::timeout(FIRST, stream.peek(&mut first)).await {
        Ok(Ok(1)) if first[0] == SOCKS => socks::serve(stream, &proxy, &place).await,
        Ok(Ok(1)) => http::serve(stream, proxy, place).await,
        _ => {}
    }
}
