//! The owner's side: a thread for each connection.

use std::io;
use std::net::Shutdown;
use std::os::fd::AsFd;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, Weak};
use std::thread::JoinHandle;
use std::time::Duration;

use bytes::Bytes;

use super::super::{EventBatch, EventStore, LocalStore, Result, StoreError};
use super::socket;
use super::wire::{self, Message, StoreReply, StoreRequest, WireEntry, WireError, WireSnapshot};
use crate::engine::bus::Bus;
use crate::engine::id::{Digest, SessionId};
use crate::engine::lock::lock;

/// Maximum connections, a fraction of the usual limit of open files.
const CONNECTIONS_MAX: usize = 256;
const STALL: Duration = Duration::from_secs(10);
/// Interval of messages to watchers, possibly empty, to detect closed ones.
const HEARTBEAT: Duration = Duration::from_secs(5);
const PATIENCE: Duration = Duration::from_millis(200);

/// Store that answers other processes.
pub(super) trait ServedStore: Send + Sync {
    fn bus(&self) -> &Arc<Bus>;

    /// Answers a request; none if the store is not here any more.
    fn answer(self: Arc<Self>, request: StoreRequest, tail: Bytes) -> Option<Result<StoreAnswer>>;
}

pub(super) struct StoreServer {
    listener: Arc<UnixListener>,
    lines: Arc<StoreConnections>,
    accepting: JoinHandle<()>,
}

#[derive(Default)]
struct StoreConnections {
    is_ending: AtomicBool,
    open: Mutex<Vec<StoreConnection>>,
}

struct StoreConnection {
    stream: Arc<UnixStream>,
    thread: JoinHandle<()>,
}

impl StoreServer {
    pub(super) fn begin(directory: &Path, store: Weak<dyn ServedStore>) -> io::Result<Self> {
        let listener = Arc::new(socket::listen(directory)?);
        let lines = Arc::<StoreConnections>::default();
        let (accepting, open) = (Arc::clone(&listener), Arc::clone(&lines));
        let thread = std::thread::Builder::new().name("foldspace-accept".to_owned());
        let accepting = thread.spawn(move || accept(&accepting, &open, &store))?;
        Ok(Self { listener, lines, accepting })
    }

    pub(super) fn has_company(&self) -> bool {
        let open = lock(&self.lines.open);
        open.iter().any(|line| !line.thread.is_finished())
    }

    /// Ends it after answering pending requests. The caller must hold no lock that answers need.
    pub(super) fn stop(self) {
        self.lines.is_ending.store(true, Ordering::Release);
        // It wakes the thread that accepts.
        if let Err(error) = rustix::net::shutdown(self.listener.as_fd(), rustix::net::Shutdown::Both) {
            tracing::debug!(%error, "the store's socket could not be shut");
        }
        drop(self.accepting.join());
        let open = std::mem::take(&mut *lock(&self.lines.open));
        for line in &open {
            drop(line.stream.shutdown(Shutdown::Read));
        }
        for line in open {
            drop(line.thread.join());
        }
    }
}

fn accept(listener: &UnixListener, lines: &Arc<StoreConnections>, store: &Weak<dyn ServedStore>) {
    while !lines.is_ending.load(Ordering::Acquire) {
        let stream = match listener.accept() {
            Ok((stream, _)) => Arc::new(stream),
            Err(_) if lines.is_ending.load(Ordering::Acquire) => return,
            Err(error) => {
                tracing::warn!(%error, "could not accept a connection to the store");
                std::thread::sleep(PATIENCE);
                continue;
            }
        };
        let mut open = lock(&lines.open);
        open.retain(|line| !line.thread.is_finished());
        if open.len() >= CONNECTIONS_MAX {
            tracing::warn!("{CONNECTIONS_MAX} connections to the store are open; one more is refused");
            continue;
        }
        let (served, ended, store) = (Arc::clone(&stream), Arc::clone(lines), Weak::clone(store));
        let thread = std::thread::Builder::new().name("foldspace-serve".to_owned());
        let thread = thread.spawn(move || {
            let _shut = Shut(&served);
            if let Err(error) = serve(&served, &ended, &store) {
                tracing::debug!(%error, "a connection to the store ended");
            }
        });
        match thread {
            Ok(thread) => open.push(StoreConnection { stream, thread }),
            Err(error) => tracing::warn!(%error, "a connection to the store can't be served"),
        }
    }
}

/// Shuts a connection down when its thread ends, also by a panic.
struct Shut<'a>(&'a UnixStream);

impl Drop for Shut<'_> {
    fn drop(&mut self) {
        drop(self.0.shutdown(Shutdown::Both));
    }
}

fn serve(stream: &UnixStream, lines: &StoreConnections, store: &Weak<dyn ServedStore>) -> io::Result<()> {
    if let Some(user) = socket::stranger(stream)? {
        tracing::warn!(user, "another user wanted to use the store, and was refused");
        return Ok(());
    }
    if !socket::greet(stream)? {
        return Ok(());
    }
    // A client that does not read must not keep the owner from ending.
    stream.set_write_timeout(Some(STALL))?;
    let mut reader = io::BufReader::with_capacity(64 << 10, stream);
    while let Some(Message { head, tail }) = wire::read::<StoreRequest>(&mut reader)? {
        // A close of the store waits for this answer.
        let Some(store) = store.upgrade() else { return Ok(()) };
        if matches!(head, StoreRequest::Watch) {
            let bus = Arc::clone(store.bus());
            drop(store);
            return watch(stream, lines, &bus);
        }
        let Some(answer) = Arc::clone(&store).answer(head, tail) else { return Ok(()) };
        let answer = answer.unwrap_or_else(|error| StoreAnswer::of(StoreReply::Failed(WireError::of(&error))));
        match wire::write(&mut &*stream, &answer.head, &[&answer.tail]) {
            // It is too long, and nothing of it was sent.
            Err(error) if error.kind() == io::ErrorKind::InvalidInput => {
                let failed = WireError::Other { message: error.to_string(), hint: None };
                wire::write(&mut &*stream, &StoreReply::Failed(failed), &[])?;
            }
            written => written?,
        }
    }
    Ok(())
}

fn watch(mut stream: &UnixStream, lines: &StoreConnections, bus: &Bus) -> io::Result<()> {
    let (tap, mut quiet) = (bus.tap(), Duration::ZERO);
    wire::write(&mut stream, &StoreReply::Done, &[])?;
    while !lines.is_ending.load(Ordering::Acquire) {
        let moved: Vec<_> = tap.moved_within(PATIENCE).iter().map(|session| *session.as_bytes()).collect();
        quiet = if moved.is_empty() { quiet + PATIENCE } else { Duration::ZERO };
        if !moved.is_empty() || quiet >= HEARTBEAT {
            quiet = Duration::ZERO;
            wire::write(&mut stream, &StoreReply::Moved(moved), &[])?;
        }
    }
    Ok(())
}

pub(super) struct StoreAnswer {
    head: StoreReply,
    tail: Bytes,
}

impl StoreAnswer {
    fn of(head: StoreReply) -> Self {
        Self { head, tail: Bytes::new() }
    }

    pub(super) fn json(text: String) -> Self {
        Self::of(StoreReply::Json(text))
    }

    fn with(head: StoreReply, tail: impl Into<Bytes>) -> Self {
        Self { head, tail: tail.into() }
    }
}

pub(super) fn answer(store: &LocalStore, request: StoreRequest, tail: Bytes) -> Result<StoreAnswer> {
    let session = SessionId::from_bytes;
    Ok(match request {
        StoreRequest::Submit(commit) => {
            let pending = store.submit(commit.commit(tail).ok_or_else(nonsense)?)?;
            let committed = pending.committed;
            let (first, last, repeated) = (committed.first, committed.last, committed.repeated);
            StoreAnswer::of(StoreReply::Committed { first, last, repeated })
        }
        StoreRequest::Sync => StoreAnswer::of(store.sync().map(|()| StoreReply::Done)?),
        StoreRequest::Head(id) => StoreAnswer::of(StoreReply::Number(store.head(session(id))?)),
        StoreRequest::Entry(id) => {
            StoreAnswer::of(StoreReply::Entries(store.entry(session(id))?.iter().map(WireEntry::of).collect()))
        }
        StoreRequest::Entries => {
            StoreAnswer::of(StoreReply::Entries(store.entries()?.iter().map(WireEntry::of).collect()))
        }
        StoreRequest::Read { session: id, from, until, bytes } => {
            let bytes = usize::try_from(bytes).unwrap_or(usize::MAX).min(super::super::READ_MAX);
            let batch: EventBatch = store.read(session(id), from, until, bytes)?;
            let mut tail = Vec::new();
            batch.write_to(&mut tail);
            StoreAnswer::with(StoreReply::Bytes, tail)
        }
        StoreRequest::Content(digest) => {
            StoreAnswer::with(StoreReply::Bytes, store.content(&Digest::from_bytes(digest))?)
        }
        StoreRequest::HasContent(digest) => {
            StoreAnswer::of(StoreReply::Flag(store.has_content(&Digest::from_bytes(digest))?))
        }
        StoreRequest::Snapshot { session: id, seq } => match store.snapshot(session(id), seq)? {
            None => StoreAnswer::of(StoreReply::Snapshot(None)),
            Some(snapshot) => {
                let tail = WireSnapshot::tail(&snapshot).concat();
                StoreAnswer::with(StoreReply::Snapshot(Some(WireSnapshot::of(&snapshot))), tail)
            }
        },
        StoreRequest::Snapshots(id) => StoreAnswer::of(StoreReply::Numbers(store.snapshots(session(id))?)),
        StoreRequest::PutSnapshot(snapshot) => {
            let snapshot = snapshot.snapshot(tail).ok_or_else(nonsense)?;
            StoreAnswer::of(StoreReply::Number(store.put_snapshot(&snapshot)?))
        }
        StoreRequest::DropSnapshot { session: id, seq } => {
            StoreAnswer::of(store.drop_snapshot(session(id), seq).map(|()| StoreReply::Done)?)
        }
        StoreRequest::Remove(id) => StoreAnswer::of(store.remove(session(id)).map(|()| StoreReply::Done)?),
        StoreRequest::Usage => {
            StoreAnswer::of(StoreReply::Json(serde_json::to_string(&store.usage()?).unwrap_or_default()))
        }
        // These are no work of a store: who serves it does them.
        StoreRequest::Keep(_) | StoreRequest::Watch => return Err(nonsense()),
    })
}

fn nonsense() -> StoreError {
    let message = "invalid request of another process".to_owned();
    StoreError::Elsewhere { message, hint: None }
}
