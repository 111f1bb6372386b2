//! Accepting connections, up to a limit.

use std::future::Future;
use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use hyper::Request;
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::{Service, service_fn};
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::service::TowerToHyperService;
use rustix::fs::{Mode, OFlags};
use rustix::process::{Resource, getrlimit};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, TcpStream, UnixListener, UnixStream};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use super::admission::{Admission, ConnectionShare};
use super::connection::Impatient;
use super::unread_body;
use crate::backends::HostCaller;
use crate::engine::peer;

/// The limits of a server.
#[derive(Debug, Clone)]
pub struct ServerLimits {
    /// Concurrent connections on each listener, at most a third of the files that this process may open; more wait in
    /// the kernel's queue. Over TCP, clients without the token have at most three quarters of them: one more closes the
    /// oldest.
    pub connections: usize,
    /// Time limit for the first byte from a client that has to show the token, and for a body that no handler reads.
    pub first: Duration,
    /// Time limit for a request's head; also the idle timeout of a connection.
    pub head: Duration,
    /// Time limit for a stalled write to a TCP client. The kernel reports when a client on the unix socket is gone.
    pub stall: Duration,
}

impl Default for ServerLimits {
    fn default() -> Self {
        let (first, others) = (Duration::from_secs(5), Duration::from_secs(30));
        Self { connections: 1024, first, head: others, stall: others }
    }
}

/// A connection, and the process at its other end if the kernel names it.
type Accepted<S> = (S, Option<HostCaller>);

async fn accept_unix(listener: &UnixListener) -> io::Result<Accepted<UnixStream>> {
    let own = rustix::process::getuid().as_raw();
    loop {
        let (stream, _) = listener.accept().await?;
        // The socket's mode requires this, too; the check also covers connections from before the mode was set.
        if stream.peer_cred().is_ok_and(|peer| [0, own].contains(&peer.uid())) {
            let process = stream.peer_cred()?.pid().and_then(|pid| u32::try_from(pid).ok()).unwrap_or(0);
            let caller = HostCaller::of(process, peer::pidfd(&stream).ok());
            return Ok((stream, Some(caller)));
        }
    }
}

async fn accept_tcp(listener: &TcpListener) -> io::Result<Accepted<TcpStream>> {
    let (stream, _) = listener.accept().await?;
    stream.set_nodelay(true)?;
    Ok((stream, None))
}

/// Time to wait after a failed accept, as when file descriptors run out.
const SHORTAGE: Duration = Duration::from_millis(50);
/// Bytes of a connection's read and write buffers.
const BUFFER: usize = 64 << 10;

/// Serves routers on listeners until it is stopped.
#[derive(Debug, Clone, Default)]
pub struct HttpServer {
    limits: ServerLimits,
    stop: CancellationToken,
    connections: TaskTracker,
}

impl HttpServer {
    /// Creates a server that serves nothing yet.
    pub fn new(limits: ServerLimits) -> Self {
        Self { limits, stop: CancellationToken::new(), connections: TaskTracker::new() }
    }

    /// Serves a router on a unix socket, to this process's own user and root only.
    pub async fn serve_unix(&self, listener: UnixListener, router: Router) {
        self.serve(|| accept_unix(&listener), None, router).await;
    }

    /// Serves a router to this process itself, on one connection.
    pub(super) fn serve_stream<S>(&self, stream: S, router: Router)
    where
        S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
    {
        let admission = Arc::new(Admission::known());
        let stream = Impatient::new(stream, Arc::clone(&admission), None, None);
        let caller = HostCaller::of(std::process::id(), None);
        self.connections.spawn(self.clone().connection(stream, router, admission, Some(caller)));
    }

    /// Serves a router on a TCP socket.
    pub async fn serve_tcp(&self, listener: TcpListener, router: Router) {
        self.serve(|| accept_tcp(&listener), Some(self.limits.first), router).await;
    }

    /// Serves connections. With a time limit for the first byte, clients are strangers until they show the token.
    async fn serve<S, N>(&self, accept: impl Fn() -> N, first: Option<Duration>, router: Router)
    where
        S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
        N: Future<Output = io::Result<Accepted<S>>>,
    {
        let files = getrlimit(Resource::Nofile).current.and_then(|files| usize::try_from(files).ok());
        let share = files.map_or(usize::MAX, |files| (files / 3).max(1));
        let room = ConnectionShare::new(self.limits.connections.min(share));
        loop {
            let next = async {
                let (stream, caller) = accept().await?;
                let (admission, place) = room.admit(first.is_none()).await;
                io::Result::Ok((stream, caller, admission, place))
            };
            let accepted = tokio::select! {
                next = next => next,
                () = self.stop.cancelled() => return,
            };
            match accepted {
                Ok((stream, caller, admission, place)) => {
                    let patience = caller.is_none().then_some(self.limits.stall);
                    let stream = Impatient::new(stream, Arc::clone(&admission), first, patience);
                    let connection = self.clone().connection(stream, router.clone(), admission, caller);
                    self.connections.spawn(async move {
                        connection.await;
                        drop(place);
                    });
                }
                Err(error) => {
                    tracing::debug!(%error, "failed to accept a connection");
                    tokio::time::sleep(SHORTAGE).await;
                }
            }
        }
    }

    async fn connection<S>(
        self,
        stream: Impatient<S>,
        router: Router,
        admission: Arc<Admission>,
        caller: Option<HostCaller>,
    ) where
        S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
    {
        let mut http = http1::Builder::new();
        http.timer(TokioTimer::new()).header_read_timeout(self.limits.head).max_buf_size(BUFFER);
        let (service, admitted) = (TowerToHyperService::new(router), Arc::clone(&admission));
        let patience = self.limits.first;
        let service = service_fn(move |mut request: Request<Incoming>| {
            request.extensions_mut().insert(Arc::clone(&admitted));
            if let Some(caller) = &caller {
                request.extensions_mut().insert(caller.clone());
            }
            let (request, rest) = unread_body::lend(request);
            let answer = service.call(request);
            async move {
                let answer = answer.await;
                rest.drain(patience).await;
                answer
            }
        });
        let mut connection = std::pin::pin!(http.serve_connection(TokioIo::new(stream), service).with_upgrades());
        let ended = tokio::select! {
            ended = connection.as_mut() => ended,
            () = admission.over.cancelled() => return,
            () = self.stop.cancelled() => {
                connection.as_mut().graceful_shutdown();
                connection.await
            }
        };
        if let Err(error) = ended {
            tracing::debug!(%error, "a connection ended with an error");
        }
    }

    /// Accepts no more connections, and waits for the existing ones to finish, at most for `patience`.
    pub async fn stop(&self, patience: Duration) {
        self.stop.cancel();
        self.connections.close();
        // The remaining connections end with the runtime.
        drop(tokio::time::timeout(patience, self.connections.wait()).await);
    }
}

/// The most bytes of a path in a socket's address.
const ADDRESS_MAX: usize = 100;

/// Returns a short path to a socket. It is valid while the handle lives.
fn reachable(path: &Path) -> io::Result<(PathBuf, Option<OwnedFd>)> {
    if path.as_os_str().len() <= ADDRESS_MAX {
        return Ok((path.to_owned(), None));
    }
    let (Some(parent), Some(name)) = (path.parent(), path.file_name()) else {
        return Err(io::Error::from(io::ErrorKind::InvalidInput));
    };
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let directory = rustix::fs::open(parent, flags, Mode::empty())?;
    let short = Path::new("/proc/self/fd").join(directory.as_raw_fd().to_string()).join(name);
    Ok((short, Some(directory)))
}

/// Listens on a unix socket at a path of any length, for this user only.
///
/// # Errors
/// [`io::ErrorKind::AddrInUse`] if the path exists; other errors of the system.
pub fn bind_unix(path: &Path) -> io::Result<UnixListener> {
    use std::os::unix::fs::PermissionsExt;
    let (short, _directory) = reachable(path)?;
    let listener = UnixListener::bind(&short)?;
    std::fs::set_permissions(&short, std::fs::Permissions::from_mode(0o600))?;
    Ok(listener)
}

/// Connects to a unix socket at a path of any length, if its server runs as this user or root.
///
/// # Errors
/// [`io::ErrorKind::PermissionDenied`] if the server runs as another user; other errors of the system.
pub async fn connect_unix(path: &Path) -> io::Result<UnixStream> {
    let (short, _directory) = reachable(path)?;
    let stream = UnixStream::connect(&short).await?;
    let peer = stream.peer_cred()?.uid();
    match [0, rustix::process::getuid().as_raw()].contains(&peer) {
        true => Ok(stream),
        false => {
            let what = format!("socket {} belongs to user {peer}", path.display());
            Err(io::Error::new(io::ErrorKind::PermissionDenied, what))
        }
    }
}
