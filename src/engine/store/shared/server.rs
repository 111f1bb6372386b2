//! The holder's side: a thread for each connection.

use std::io;
use std::net::Shutdown;
use std::os::fd::AsFd;
use std::os::unix::net::{UnixListener, UnixStream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::thread::JoinHandle;
use std::time::Duration;

use bytes::Bytes;

use super::super::{EventBatch, EventStore, LocalStore, StoreError};
use super::inner::SharedInner;
use super::socket;
use super::wire::{self, Message, StoreReply, StoreRequest, WireEntry, WireError, WireSnapshot};
use crate::engine::bus::Bus;
use crate::engine::id::{Digest, SessionId};

/// Connections at a time, a fraction of the files that a process may have open as a rule; one more is refused.
const CONNECTIONS_MAX: usize = 256;
/// How long one may read nothing of what is sent to it.
const STALL: Duration = Duration::from_secs(10);
/// How often who watches is told something, be it nothing, so that one who is gone is found out.
const HEARTBEAT: Duration = Duration::from_secs(5);
/// How often a watching thread looks whether it is to end.
const PATIENCE: Duration = Duration::from_millis(200);

/// Serves a store on its socket until it is stopped.
pub(super) struct StoreServer {
    listener: Arc<UnixListener>,
    lines: Arc<StoreConnections>,
    accepting: JoinHandle<()>,
}

/// The connections, and whether they are to end.
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
    pub(super) fn begin(inner: &Arc<SharedInner>) -> io::Result<Self> {
        let listener = Arc::new(socket::listen(&inner.directory)?);
        let lines = Arc::<StoreConnections>::default();
        let (accepting, open, served) = (Arc::clone(&listener), Arc::clone(&lines), Arc::downgrade(inner));
        let thread = std::thread::Builder::new().name("foldspace-accept".to_owned());
        let accepting = thread.spawn(move || accept(&accepting, &open, &served))?;
        Ok(Self { listener, lines, accepting })
    }

    /// Whether another process is connected.
    pub(super) fn has_company(&self) -> bool {
        let open = self.lines.open.lock().unwrap_or_else(PoisonError::into_inner);
        open.iter().any(|line| !line.thread.is_finished())
    }

    /// Ends it: what was asked is answered, and nothing more is taken. Nobody may hold what answers wait for.
    pub(super) fn stop(self) {
        self.lines.is_ending.store(true, Ordering::Release);
        // It wakes the thread that accepts.
        if let Err(error) = rustix::net::shutdown(self.listener.as_fd(), rustix::net::Shutdown::Both) {
            tracing::debug!(%error, "the store's socket could not be shut");
        }
        drop(self.accepting.join());
        let open = std::mem::take(&mut *self.lines.open.lock().unwrap_or_else(PoisonError::into_inner));
        for line in &open {
            drop(line.stream.shutdown(Shutdown::Read));
        }
        for line in open {
            drop(line.thread.join());
        }
    }
}

fn accept(listener: &UnixListener, lines: &Arc<StoreConnections>, inner: &Weak<SharedInner>) {
    while !lines.is_ending.load(Ordering::Acquire) {
        let stream = match listener.accept() {
            Ok((stream, _)) => Arc::new(stream),
            Err(_) if lines.is_ending.load(Ordering::Acquire) => return,
            Err(error) => {
                tracing::warn!(%error, "nobody can connect to the store");
                std::thread::sleep(PATIENCE);
                continue;
            }
        };
        let mut open = lines.open.lock().unwrap_or_else(PoisonError::into_inner);
        open.retain(|line| !line.thread.is_finished());
        if open.len() >= CONNECTIONS_MAX {
            tracing::warn!("{CONNECTIONS_MAX} connections to the store are open; one more is refused");
            continue;
        }
        let (served, ended, inner) = (Arc::clone(&stream), Arc::clone(lines), Weak::clone(inner));
        let thread = std::thread::Builder::new().name("foldspace-serve".to_owned());
        let thread = thread.spawn(move || {
            let _shut = Shut(&served);
            if let Err(error) = serve(&served, &ended, &inner) {
                tracing::debug!(%error, "a connection to the store ended");
            }
        });
        match thread {
            Ok(thread) => open.push(StoreConnection { stream, thread }),
            Err(error) => tracing::warn!(%error, "a connection to the store can't be served"),
        }
    }
}

/// Shuts a connection, whatever ends its thread: the other end must not wait for ever.
struct Shut<'a>(&'a UnixStream);

impl Drop for Shut<'_> {
    fn drop(&mut self) {
        drop(self.0.shutdown(Shutdown::Both));
    }
}

fn serve(stream: &UnixStream, lines: &StoreConnections, inner: &Weak<SharedInner>) -> io::Result<()> {
    if let Some(user) = socket::stranger(stream)? {
        tracing::warn!(user, "another user wanted to use the store, and was refused");
        return Ok(());
    }
    if !socket::greet(stream)? {
        return Ok(());
    }
    // Who does not read must not keep the holder from ending.
    stream.set_write_timeout(Some(STALL))?;
    let mut reader = io::BufReader::with_capacity(64 << 10, stream);
    while let Some(Message { head, tail }) = wire::read::<StoreRequest>(&mut reader)? {
        // Who lets go of the store meanwhile waits for this answer.
        let Some(inner) = inner.upgrade() else { return Ok(()) };
        if matches!(head, StoreRequest::Watch) {
            let bus = Arc::clone(&inner.bus);
            drop(inner);
            return watch(stream, lines, &bus);
        }
        let Some(answer) = inner.answer(head, tail) else { return Ok(()) };
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

/// Tells which sessions have moved.
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

/// What is sent back.
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

/// Does what another process asks for.
pub(super) fn answer(store: &LocalStore, request: StoreRequest, tail: Bytes) -> Result<StoreAnswer, StoreError> {
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
    let message = "what another process asked for makes no sense".to_owned();
    StoreError::Elsewhere { message, hint: None }
}
