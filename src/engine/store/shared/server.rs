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
use super::inner::Inner;
use super::socket;
use super::wire::{self, Message, Reply, Request, WireEntry, WireError, WireSnapshot};
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
pub(super) struct Server {
    listener: Arc<UnixListener>,
    lines: Arc<Lines>,
    accepting: JoinHandle<()>,
}

/// The connections, and whether they are to end.
#[derive(Default)]
struct Lines {
    is_ending: AtomicBool,
    open: Mutex<Vec<Line>>,
}

struct Line {
    stream: Arc<UnixStream>,
    thread: JoinHandle<()>,
}

impl Server {
    pub(super) fn begin(inner: &Arc<Inner>) -> io::Result<Self> {
        let listener = Arc::new(socket::listen(&inner.directory)?);
        let lines = Arc::<Lines>::default();
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

fn accept(listener: &UnixListener, lines: &Arc<Lines>, inner: &Weak<Inner>) {
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
            Ok(thread) => open.push(Line { stream, thread }),
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

fn serve(stream: &UnixStream, lines: &Lines, inner: &Weak<Inner>) -> io::Result<()> {
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
    while let Some(Message { head, tail }) = wire::read::<Request>(&mut reader)? {
        // Who lets go of the store meanwhile waits for this answer.
        let Some(inner) = inner.upgrade() else { return Ok(()) };
        if matches!(head, Request::Watch) {
            let bus = Arc::clone(&inner.bus);
            drop(inner);
            return watch(stream, lines, &bus);
        }
        let Some(answer) = inner.answer(head, tail) else { return Ok(()) };
        let answer = answer.unwrap_or_else(|error| Answer::of(Reply::Failed(WireError::of(&error))));
        match wire::write(&mut &*stream, &answer.head, &[&answer.tail]) {
            // It is too long, and nothing of it was sent.
            Err(error) if error.kind() == io::ErrorKind::InvalidInput => {
                let failed = WireError::Other { message: error.to_string(), hint: None };
                wire::write(&mut &*stream, &Reply::Failed(failed), &[])?;
            }
            written => written?,
        }
    }
    Ok(())
}

/// Tells which sessions have moved.
fn watch(mut stream: &UnixStream, lines: &Lines, bus: &Bus) -> io::Result<()> {
    let (tap, mut quiet) = (bus.tap(), Duration::ZERO);
    wire::write(&mut stream, &Reply::Done, &[])?;
    while !lines.is_ending.load(Ordering::Acquire) {
        let moved: Vec<_> = tap.moved_within(PATIENCE).iter().map(|session| *session.as_bytes()).collect();
        quiet = if moved.is_empty() { quiet + PATIENCE } else { Duration::ZERO };
        if !moved.is_empty() || quiet >= HEARTBEAT {
            quiet = Duration::ZERO;
            wire::write(&mut stream, &Reply::Moved(moved), &[])?;
        }
    }
    Ok(())
}

/// What is sent back.
pub(super) struct Answer {
    head: Reply,
    tail: Bytes,
}

impl Answer {
    fn of(head: Reply) -> Self {
        Self { head, tail: Bytes::new() }
    }

    pub(super) fn json(text: String) -> Self {
        Self::of(Reply::Json(text))
    }

    fn with(head: Reply, tail: impl Into<Bytes>) -> Self {
        Self { head, tail: tail.into() }
    }
}

/// Does what another process asks for.
pub(super) fn answer(store: &LocalStore, request: Request, tail: Bytes) -> Result<Answer, StoreError> {
    let session = SessionId::from_bytes;
    Ok(match request {
        Request::Submit(commit) => {
            let pending = store.submit(commit.commit(tail).ok_or_else(nonsense)?)?;
            let committed = pending.committed;
            let (first, last, repeated) = (committed.first, committed.last, committed.repeated);
            Answer::of(Reply::Committed { first, last, repeated })
        }
        Request::Sync => Answer::of(store.sync().map(|()| Reply::Done)?),
        Request::Head(id) => Answer::of(Reply::Number(store.head(session(id))?)),
        Request::Entry(id) => Answer::of(Reply::Entries(store.entry(session(id))?.iter().map(WireEntry::of).collect())),
        Request::Entries => Answer::of(Reply::Entries(store.entries()?.iter().map(WireEntry::of).collect())),
        Request::Read { session: id, from, until, bytes } => {
            let bytes = usize::try_from(bytes).unwrap_or(usize::MAX).min(super::super::READ_MAX);
            let batch: EventBatch = store.read(session(id), from, until, bytes)?;
            let mut tail = Vec::new();
            batch.write_to(&mut tail);
            Answer::with(Reply::Bytes, tail)
        }
        Request::Content(digest) => Answer::with(Reply::Bytes, store.content(&Digest::from_bytes(digest))?),
        Request::HasContent(digest) => Answer::of(Reply::Flag(store.has_content(&Digest::from_bytes(digest))?)),
        Request::Snapshot { session: id, seq } => match store.snapshot(session(id), seq)? {
            None => Answer::of(Reply::Snapshot(None)),
            Some(snapshot) => {
                let tail = WireSnapshot::tail(&snapshot).concat();
                Answer::with(Reply::Snapshot(Some(WireSnapshot::of(&snapshot))), tail)
            }
        },
        Request::Snapshots(id) => Answer::of(Reply::Numbers(store.snapshots(session(id))?)),
        Request::PutSnapshot(snapshot) => {
            let snapshot = snapshot.snapshot(tail).ok_or_else(nonsense)?;
            Answer::of(Reply::Number(store.put_snapshot(&snapshot)?))
        }
        Request::DropSnapshot { session: id, seq } => {
            Answer::of(store.drop_snapshot(session(id), seq).map(|()| Reply::Done)?)
        }
        Request::Remove(id) => Answer::of(store.remove(session(id)).map(|()| Reply::Done)?),
        Request::Usage => Answer::of(Reply::Json(serde_json::to_string(&store.usage()?).unwrap_or_default())),
        // These are no work of a store: who serves it does them.
        Request::Keep(_) | Request::Watch => return Err(nonsense()),
    })
}

fn nonsense() -> StoreError {
    let message = "what another process asked for makes no sense".to_owned();
    StoreError::Elsewhere { message, hint: None }
}
