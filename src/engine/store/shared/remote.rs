//! The side of a process that works through the owner of the store.

use std::io::{self, BufReader, ErrorKind};
use std::net::Shutdown;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, Weak};
use std::time::Duration;

use super::super::{Committed, Result, StoreError};
use super::socket::{self, Unreached};
use super::wire::{self, Message, StoreReply, StoreRequest, WireCommit, odd_answer};
use crate::engine::bus::Bus;
use crate::engine::commit::Commit;
use crate::engine::id::SessionId;
use crate::engine::lock::lock;

const IDLE_MAX: usize = 4;
const SILENCE: Duration = Duration::from_secs(30);

pub(super) struct Remote {
    directory: PathBuf,
    idle: Mutex<Vec<UnixStream>>,
    /// Stream of the owner's announcements; shut down when this is dropped.
    watch: Option<UnixStream>,
}

pub(super) enum RemoteError {
    Gone,
    Told(StoreError),
}

impl From<StoreError> for RemoteError {
    fn from(error: StoreError) -> Self {
        Self::Told(error)
    }
}

impl Remote {
    pub(super) fn connect(directory: &Path, bus: &Arc<Bus>) -> Result<Option<Self>> {
        let stream = match socket::connect(directory) {
            Ok(stream) => stream,
            Err(Unreached::Nobody) => return Ok(None),
            Err(Unreached::Refused(error)) => return Err(error),
        };
        let mut remote = Self { directory: directory.to_owned(), idle: Mutex::new(vec![stream]), watch: None };
        // Without it subscribers look by themselves, a little later.
        remote.watch = remote.begin_watching(Arc::downgrade(bus));
        Ok(Some(remote))
    }

    fn begin_watching(&self, bus: Weak<Bus>) -> Option<UnixStream> {
        let stream = socket::connect(&self.directory).ok()?;
        let ours = stream.try_clone().ok()?;
        let thread = std::thread::Builder::new().name("foldspace-watch".to_owned());
        let watching = thread.spawn(move || {
            if let Err(error) = watch(&stream, &bus) {
                tracing::debug!(%error, "the holder of the store tells no more what moves");
            }
        });
        watching.is_ok().then_some(ours)
    }

    pub(super) fn submit(&self, commit: &Commit) -> Result<Committed, RemoteError> {
        match self.ask(&StoreRequest::Submit(WireCommit::of(commit)), &WireCommit::tail(commit))?.head {
            StoreReply::Committed { first, last, repeated } => Ok(Committed { first, last, repeated }),
            _ => Err(odd_answer().into()),
        }
    }

    pub(super) fn ask(&self, request: &StoreRequest, tail: &[&[u8]]) -> Result<Message<StoreReply>, RemoteError> {
        let idle = lock(&self.idle).pop();
        let stream = match idle {
            Some(stream) => stream,
            None => match socket::connect(&self.directory) {
                Ok(stream) => stream,
                Err(Unreached::Nobody) => return Err(RemoteError::Gone),
                Err(Unreached::Refused(error)) => return Err(error.into()),
            },
        };
        let patience = if matches!(request, StoreRequest::Keep(_)) { None } else { Some(SILENCE) };
        let asked = stream.set_read_timeout(patience).and_then(|()| exchange(&stream, request, tail));
        let answer = asked.map_err(|error| match error.kind() {
            // It was not sent.
            ErrorKind::InvalidInput => RemoteError::Told(StoreError::io("send to", &self.directory)(error)),
            ErrorKind::WouldBlock | ErrorKind::TimedOut => RemoteError::Told(self.silent()),
            _ => RemoteError::Gone,
        })?;
        let mut idle = lock(&self.idle);
        if idle.len() < IDLE_MAX {
            idle.push(stream);
        }
        drop(idle);
        match answer.head {
            StoreReply::Failed(error) => Err(error.error().into()),
            _ => Ok(answer),
        }
    }

    fn silent(&self) -> StoreError {
        let holder = format!("a process that has not answered for {} seconds; it may be stopped", SILENCE.as_secs());
        StoreError::Locked { path: self.directory.clone(), holder }
    }
}

fn exchange(stream: &UnixStream, request: &StoreRequest, tail: &[&[u8]]) -> io::Result<Message<StoreReply>> {
    wire::write(&mut &*stream, request, tail)?;
    // One answer to one question: what is read is all that there is.
    wire::read(&mut BufReader::with_capacity(16 << 10, stream))?.ok_or_else(|| ErrorKind::UnexpectedEof.into())
}

fn watch(stream: &UnixStream, bus: &Weak<Bus>) -> io::Result<()> {
    wire::write(&mut &*stream, &StoreRequest::Watch, &[])?;
    let mut reader = BufReader::new(stream);
    while let Some(message) = wire::read::<StoreReply>(&mut reader)? {
        let Some(bus) = bus.upgrade() else { return Ok(()) };
        if let StoreReply::Moved(sessions) = message.head {
            sessions.into_iter().for_each(|session| bus.nudge(SessionId::from_bytes(session)));
        }
    }
    Ok(())
}

impl Drop for Remote {
    fn drop(&mut self) {
        if let Some(watch) = &self.watch {
            drop(watch.shutdown(Shutdown::Both));
        }
    }
}
