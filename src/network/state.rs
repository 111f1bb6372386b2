//! The state that the connections of a proxy share.

use std::io;
use std::os::fd::AsFd;
use std::sync::atomic::AtomicU64;
use std::sync::{Arc, Mutex, OnceLock, PoisonError, RwLock};
use std::time::Duration;

use rustix::process::{Resource, getrlimit};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio_util::sync::CancellationToken;

use super::certificates::Authority;
use super::recording::HttpAnswers;
use super::report::ReportSink;
use super::rules::NetworkRules;

/// The most connections to the outside of all proxies, and the share of this process's open files: each takes two.
const OUTSIDE_MAX: usize = 4096;
const SHARE_OF_FILES: usize = 6;
/// Time limit for room for a connection.
const ROOM_TIME_LIMIT: Duration = Duration::from_secs(30);

/// A permit for one client, until it has a connection to the outside.
#[derive(Clone)]
pub(crate) struct ClientPlace(Arc<Mutex<Option<OwnedSemaphorePermit>>>);

impl ClientPlace {
    /// Releases the permit for another client.
    pub(crate) fn leave(&self) {
        drop(self.0.lock().unwrap_or_else(PoisonError::into_inner).take());
    }
}

/// Room for one connection to the outside.
pub(crate) struct OutsidePlace {
    _own: OwnedSemaphorePermit,
    _all: OwnedSemaphorePermit,
}

/// Returns the most connections to the outside of all proxies.
fn outside_max() -> usize {
    let files = getrlimit(Resource::Nofile).current.and_then(|files| usize::try_from(files).ok());
    files.map_or(OUTSIDE_MAX, |files| (files / SHARE_OF_FILES).clamp(2, OUTSIDE_MAX))
}

fn all_room() -> &'static Arc<Semaphore> {
    static ALL: OnceLock<Arc<Semaphore>> = OnceLock::new();
    ALL.get_or_init(|| Arc::new(Semaphore::new(outside_max())))
}

/// Returns the room of one proxy: half of all, so that it can't take everything.
pub(crate) fn outside_room() -> Arc<Semaphore> {
    Arc::new(Semaphore::new(outside_max() / 2))
}

/// The pause after a connection could not be accepted.
pub(crate) const SHORTAGE: Duration = Duration::from_millis(100);

/// The state of a proxy's connections.
pub(crate) struct Proxy {
    pub(crate) rules: Arc<RwLock<NetworkRules>>,
    pub(crate) sink: ReportSink,
    /// The number of recorded requests.
    pub(crate) requests: AtomicU64,
    /// The authority for recorded HTTPS; `None` if no requests are recorded.
    pub(crate) authority: Option<Authority>,
    /// The recording that replaces all hosts.
    pub(crate) answers: Arc<RwLock<Option<HttpAnswers>>>,
    /// Room for clients until their connection to the outside is made.
    pub(crate) room: Arc<Semaphore>,
    pub(crate) outside_room: Arc<Semaphore>,
    pub(crate) end: CancellationToken,
}

impl Proxy {
    /// Returns the rules that are in force now.
    pub(crate) fn rules(&self) -> NetworkRules {
        self.rules.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Returns true if requests to the host are recorded.
    pub(crate) fn records(&self, host: &str, port: u16) -> bool {
        self.rules.read().unwrap_or_else(PoisonError::into_inner).records(host, port)
    }

    pub(crate) fn answers(&self) -> Option<HttpAnswers> {
        self.answers.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Waits for room for a connection to the outside: in this proxy, and among all proxies of this process. `None` if
    /// there is none in time.
    pub(crate) async fn outside_place(&self) -> Option<OutsidePlace> {
        let both = async {
            let own = Arc::clone(&self.outside_room).acquire_owned().await.ok()?;
            Some(OutsidePlace { _own: own, _all: Arc::clone(all_room()).acquire_owned().await.ok()? })
        };
        tokio::time::timeout(ROOM_TIME_LIMIT, both).await.ok().flatten()
    }

    /// Accepts connections, and serves each until the proxy ends.
    pub(crate) async fn accept<F>(
        self: Arc<Self>,
        listener: TcpListener,
        serve: impl Fn(TcpStream, Arc<Self>, ClientPlace) -> F,
    ) where
        F: Future<Output = ()> + Send + 'static,
    {
        loop {
            // It is never closed.
            let Ok(place) = Arc::clone(&self.room).acquire_owned().await else { return };
            match listener.accept().await {
                Ok((stream, _)) => {
                    drop(stream.set_nodelay(true));
                    self.spawn(serve(stream, Arc::clone(&self), ClientPlace(Arc::new(Mutex::new(Some(place))))));
                }
                Err(error) => {
                    tracing::debug!(%error, "failed to accept a connection of a container");
                    tokio::time::sleep(SHORTAGE).await;
                }
            }
        }
    }

    /// Spawns work that ends with the proxy.
    pub(crate) fn spawn(&self, work: impl Future<Output = ()> + Send + 'static) {
        let end = self.end.clone();
        tokio::spawn(async move {
            tokio::select! {
                () = work => {}
                () = end.cancelled() => {}
            }
        });
    }
}

/// Makes a socket asynchronous.
pub(crate) fn opened<S: AsFd, T>(socket: S, from: impl FnOnce(S) -> io::Result<T>) -> io::Result<T> {
    rustix::io::ioctl_fionbio(&socket, true)?;
    from(socket)
}
