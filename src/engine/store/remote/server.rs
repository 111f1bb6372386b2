//! The owner's side: one thread per connection.

use std::io::{self, BufReader, BufWriter, Write};
use std::net::Shutdown;
use std::os::fd::AsFd;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::Duration;

use bytes::Bytes;
use crossbeam_channel::Receiver;

use super::socket;
use super::wire::{self, Message, StoreReply, StoreRequest, WireError, WireSnapshot};
use crate::engine::bus::Bus;
use crate::engine::id::{Digest, SessionId};
use crate::engine::lock::lock;
use crate::engine::peer;
use crate::engine::session::error::SessionError;
use crate::engine::session::sessions::Sessions;
use crate::engine::store::index::CatalogueRow;
use crate::engine::store::{Pending, READ_MAX, Result, SessionEntry, StoreError};

/// Maximum connections, a fraction of the usual limit of open files.
const CONNECTIONS_MAX: usize = 256;
const STALL: Duration = Duration::from_secs(10);
/// Interval of messages to watchers, possibly empty, to detect closed connections.
const HEARTBEAT: Duration = Duration::from_secs(5);
const POLL_INTERVAL: Duration = Duration::from_millis(200);
/// Maximum commits of a connection that wait for the disk.
const WAITING_MAX: usize = 1024;

/// Serves a store to other processes of the same user until it is dropped. See
/// [`RemoteStore`](super::RemoteStore).
///
/// ```
/// # use foldspace_engine as foldspace;
/// use foldspace::{EventStore, NewSession, Registry, Sessions, store::{RemoteStore, StoreServer}};
/// # let directory = tempfile::tempdir()?;
/// let sessions = Sessions::open(directory.path(), Registry::standard())?;
/// let server = StoreServer::start(&sessions, directory.path())?;
/// let store = RemoteStore::connect(directory.path())?.expect("it is served");
/// sessions.create(NewSession::named("demo"))?;
/// assert_eq!(store.entries()?.len(), 1);
/// # drop((store, server));
/// # sessions.close();
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct StoreServer {
    path: PathBuf,
    listener: Arc<UnixListener>,
    shared: Arc<ServerInner>,
    accepting: Option<JoinHandle<()>>,
}

struct ServerInner {
    sessions: Sessions,
    is_ending: AtomicBool,
    /// Number of connections for commits.
    writers: AtomicUsize,
    open: Mutex<Vec<(Arc<UnixStream>, JoinHandle<()>)>>,
}

impl StoreServer {
    /// Serves the store of the sessions, which this process owns, in its directory. Fails with [`StoreError::Io`].
    pub fn start(sessions: &Sessions, directory: &Path) -> Result<Self> {
        let path = socket::path_in(directory);
        let failed = || StoreError::io("serve the store at", &path);
        let listener = Arc::new(socket::listen(directory).map_err(failed())?);
        let shared = Arc::new(ServerInner {
            sessions: sessions.clone(),
            is_ending: AtomicBool::new(false),
            writers: AtomicUsize::new(0),
            open: Mutex::default(),
        });
        let (accepting, served) = (Arc::clone(&listener), Arc::clone(&shared));
        let thread = std::thread::Builder::new().name("foldspace-accept".to_owned());
        let accepting = thread.spawn(move || accept(&accepting, &served)).map_err(failed())?;
        Ok(Self { path, listener, shared, accepting: Some(accepting) })
    }

    /// Returns true if another process may submit commits.
    pub fn has_writers(&self) -> bool {
        self.shared.writers.load(Ordering::Acquire) > 0
    }

    /// Returns true if another process is connected.
    pub fn has_clients(&self) -> bool {
        lock(&self.shared.open).iter().any(|(_, thread)| !thread.is_finished())
    }
}

impl Drop for StoreServer {
    /// Stops the server after answering pending requests.
    fn drop(&mut self) {
        self.shared.is_ending.store(true, Ordering::Release);
        // Wakes the accepting thread.
        if let Err(error) = rustix::net::shutdown(self.listener.as_fd(), rustix::net::Shutdown::Both) {
            tracing::debug!(%error, "failed to shut down the store's socket");
        }
        drop(self.accepting.take().map(JoinHandle::join));
        let open = std::mem::take(&mut *lock(&self.shared.open));
        for (stream, _) in &open {
            drop(stream.shutdown(Shutdown::Read));
        }
        for (_, thread) in open {
            drop(thread.join());
        }
        if let Err(error) = socket::remove(&self.path) {
            tracing::debug!(%error, "failed to remove the store's socket");
        }
    }
}

crate::engine::debug_by!(StoreServer, |server| path: server.path);

fn accept(listener: &UnixListener, server: &Arc<ServerInner>) {
    while !server.is_ending.load(Ordering::Acquire) {
        let stream = match listener.accept() {
            Ok((stream, _)) => Arc::new(stream),
            Err(_) if server.is_ending.load(Ordering::Acquire) => return,
            Err(error) => {
                tracing::warn!(%error, "failed to accept a connection to the store");
                std::thread::sleep(POLL_INTERVAL);
                continue;
            }
        };
        let mut open = lock(&server.open);
        open.retain(|(_, thread)| !thread.is_finished());
        if open.len() >= CONNECTIONS_MAX {
            tracing::warn!("refused a connection to the store: {CONNECTIONS_MAX} are open");
            continue;
        }
        let (served, answering) = (Arc::clone(&stream), Arc::clone(server));
        let thread = std::thread::Builder::new().name("foldspace-serve".to_owned());
        let thread = thread.spawn(move || {
            let _shut = Shut(&served);
            if let Err(error) = answering.serve(&served) {
                tracing::debug!(%error, "a connection to the store ended");
            }
        });
        match thread {
            Ok(thread) => open.push((stream, thread)),
            Err(error) => tracing::warn!(%error, "failed to serve a connection to the store"),
        }
    }
}

/// Shuts a connection down when its thread ends, even by a panic.
struct Shut<'a>(&'a UnixStream);

impl Drop for Shut<'_> {
    fn drop(&mut self) {
        drop(self.0.shutdown(Shutdown::Both));
    }
}

impl ServerInner {
    fn serve(&self, stream: &UnixStream) -> io::Result<()> {
        if let Some(user) = socket::stranger(stream)? {
            tracing::warn!(user, "refused a connection of another user to the store");
            return Ok(());
        }
        if !socket::greet(stream)? {
            return Ok(());
        }
        // A client that does not read must not keep the owner from stopping.
        stream.set_write_timeout(Some(STALL))?;
        let mut reader = BufReader::with_capacity(64 << 10, stream);
        while let Some(Message { head, .. }) = wire::read::<StoreRequest>(&mut reader)? {
            match head {
                StoreRequest::Watch => return self.watch(stream, self.sessions.store().bus()),
                StoreRequest::Submissions => return self.take_submissions(stream, reader),
                StoreRequest::Remove(id) => {
                    let allowed = check_writer(stream).map_err(|why| refused(&why));
                    send(&mut &*stream, allowed.and_then(|()| self.remove(id)))?;
                }
                request => send(&mut &*stream, self.answer(request))?,
            }
        }
        Ok(())
    }

    fn watch(&self, mut stream: &UnixStream, bus: &Bus) -> io::Result<()> {
        let (tap, mut quiet) = (bus.tap(), Duration::ZERO);
        wire::write(&mut stream, &StoreReply::Done, &[])?;
        while !self.is_ending.load(Ordering::Acquire) {
            let moved: Vec<_> = tap.moved_within(POLL_INTERVAL).iter().map(|session| *session.as_bytes()).collect();
            quiet = if moved.is_empty() { quiet + POLL_INTERVAL } else { Duration::ZERO };
            if !moved.is_empty() || quiet >= HEARTBEAT {
                quiet = Duration::ZERO;
                wire::write(&mut stream, &StoreReply::Moved(moved), &[])?;
            }
        }
        Ok(())
    }

    /// Records commits as they arrive, while another thread answers the durable ones.
    fn take_submissions(&self, stream: &UnixStream, mut reader: BufReader<&UnixStream>) -> io::Result<()> {
        let may_write = check_writer(stream);
        self.writers.fetch_add(1, Ordering::AcqRel);
        let taken = std::thread::scope(|scope| {
            let (send, waiting) = crossbeam_channel::bounded(WAITING_MAX);
            let answering = std::thread::Builder::new().name("foldspace-answer".to_owned());
            answering.spawn_scoped(scope, move || {
                if let Err(error) = answer_in_order(stream, &waiting) {
                    tracing::debug!(%error, "failed to answer the commits of another process");
                    // The other process is waiting; closing the connection notifies it.
                    drop(stream.shutdown(Shutdown::Both));
                }
            })?;
            while let Some(Message { head, tail }) = wire::read::<StoreRequest>(&mut reader)? {
                let taken = match head {
                    StoreRequest::Submit(_) if let Err(why) = &may_write => Err(refused(why)),
                    StoreRequest::Submit(commit) => commit.commit(tail).ok_or_else(nonsense),
                    _ => Err(nonsense()),
                };
                if send.send(taken.and_then(|commit| self.sessions.record_for_other(commit).map_err(told))).is_err() {
                    break;
                }
            }
            Ok(())
        });
        self.writers.fetch_sub(1, Ordering::AcqRel);
        taken
    }

    fn remove(&self, session: [u8; 16]) -> Result<(StoreReply, Bytes)> {
        self.sessions.remove(SessionId::from_bytes(session)).map_err(told)?;
        Ok((StoreReply::Done, Bytes::new()))
    }

    fn answer(&self, request: StoreRequest) -> Result<(StoreReply, Bytes)> {
        let (store, session) = (self.sessions.store(), SessionId::from_bytes);
        let rows = |entries: &[SessionEntry]| {
            entries.iter().cloned().map(|entry| CatalogueRow::of(entry).encode()).collect::<Result<_>>()
        };
        let (mut tail, bytes) = (Bytes::new(), |bytes: Vec<u8>| Bytes::from(bytes));
        let head = match request {
            StoreRequest::Sync => store.sync().map(|()| StoreReply::Done)?,
            StoreRequest::Head(id) => StoreReply::Number(store.head(session(id))?),
            StoreRequest::Entry(id) => StoreReply::Entries(rows(store.entry(session(id))?.as_slice())?),
            StoreRequest::Entries => StoreReply::Entries(rows(&store.entries()?)?),
            StoreRequest::Select { query, limit } => {
                let limit = usize::try_from(limit).unwrap_or(usize::MAX);
                StoreReply::Entries(rows(&store.select(query.query(), limit)?)?)
            }
            StoreRequest::Read { session: id, from, until, bytes: limit } => {
                let limit = usize::try_from(limit).unwrap_or(usize::MAX).min(READ_MAX);
                let mut encoded = Vec::new();
                store.read(session(id), from, until, limit)?.write_to(&mut encoded);
                tail = bytes(encoded);
                StoreReply::Bytes
            }
            StoreRequest::Content(digest) => {
                tail = store.content(&Digest::from_bytes(digest))?;
                StoreReply::Bytes
            }
            StoreRequest::HasContent(digest) => StoreReply::Flag(store.has_content(&Digest::from_bytes(digest))?),
            StoreRequest::ReadAhead(digests) => {
                let digests: Vec<Digest> = digests.into_iter().map(Digest::from_bytes).collect();
                store.read_ahead(&digests);
                StoreReply::Done
            }
            StoreRequest::Snapshot { session: id, seq } => {
                let found = store.snapshot(session(id), seq)?;
                let found = found.as_ref().map(WireSnapshot::of);
                StoreReply::Snapshot(found.map(|(head, blocks)| {
                    tail = bytes(blocks.concat());
                    head
                }))
            }
            StoreRequest::Usage => StoreReply::Json(serde_json::to_string(&store.usage()?).unwrap_or_default()),
            StoreRequest::Submissions | StoreRequest::Submit(_) | StoreRequest::Watch | StoreRequest::Remove(_) => {
                return Err(nonsense());
            }
        };
        Ok((head, tail))
    }
}

/// Answers commits in order; flushes all waiting commits together, once the last is durable.
fn answer_in_order(stream: &UnixStream, waiting: &Receiver<Result<Pending>>) -> io::Result<()> {
    let mut out = BufWriter::new(stream);
    while let Ok(first) = waiting.recv() {
        for pending in std::iter::once(first).chain(waiting.try_iter()).collect::<Vec<_>>() {
            let committed = pending.and_then(Pending::wait);
            let answer = committed.map(|committed| {
                let (first, last, repeated) = (committed.first, committed.last, committed.repeated);
                (StoreReply::Committed { first, last, repeated }, Bytes::new())
            });
            send(&mut out, answer)?;
        }
        out.flush()?;
    }
    Ok(())
}

fn send(to: &mut impl Write, answer: Result<(StoreReply, Bytes)>) -> io::Result<()> {
    let failed = |error: &StoreError| (StoreReply::Failed(WireError::of(error)), Bytes::new());
    let (head, tail) = answer.unwrap_or_else(|error| failed(&error));
    match wire::write(to, &head, &[&tail]) {
        // The answer is too long, and nothing was sent.
        Err(error) if error.kind() == io::ErrorKind::InvalidInput => {
            wire::write(to, &failed(&StoreError::Elsewhere { message: error.to_string(), advice: None }).0, &[])
        }
        written => written,
    }
}

fn told(error: SessionError) -> StoreError {
    match error {
        SessionError::Store(error) => error,
        other => StoreError::Elsewhere { message: other.to_string(), advice: None },
    }
}

/// Refuses commits from another sandbox, because an event may name the host directory that a session works in.
fn check_writer(stream: &UnixStream) -> std::result::Result<(), String> {
    let what = "a client outside of the store owner's sandbox can only read";
    peer::check_sandbox(stream).map_err(|why| format!("{what}: {why}"))
}

fn refused(message: &str) -> StoreError {
    StoreError::Elsewhere { message: message.to_owned(), advice: None }
}

fn nonsense() -> StoreError {
    StoreError::Elsewhere { message: "invalid request from another process".to_owned(), advice: None }
}
