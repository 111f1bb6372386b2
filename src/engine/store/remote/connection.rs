//! Connections to the owner, for requests.

use std::io::{self, BufReader, ErrorKind};
use std::net::Shutdown;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, Weak};
use std::time::Duration;

use super::socket::{self, Unreached};
use super::wire::{self, Message, StoreReply, StoreRequest};
use crate::engine::advice::Advice;
use crate::engine::bus::Bus;
use crate::engine::id::SessionId;
use crate::engine::lock::lock;
use crate::engine::store::{Result, StoreError};

const IDLE_MAX: usize = 4;
const SILENCE: Duration = Duration::from_secs(30);

pub(super) struct OwnerConnections {
    directory: PathBuf,
    idle: Mutex<Vec<UnixStream>>,
    /// The stream of the owner's notifications; shut down when this is dropped.
    watch: Option<UnixStream>,
}

pub(super) enum AskError {
    Gone,
    Told(StoreError),
}

impl OwnerConnections {
    pub(super) fn open(directory: &Path, bus: &Arc<Bus>) -> Result<Option<Self>> {
        let stream = match socket::connect(directory) {
            Ok(stream) => stream,
            Err(Unreached::Nobody) => return Ok(None),
            Err(Unreached::Refused(error)) => return Err(error),
        };
        // Without it, subscribers poll, a little later.
        let watch = begin_watching(directory, Arc::downgrade(bus));
        Ok(Some(Self { directory: directory.to_owned(), idle: Mutex::new(vec![stream]), watch }))
    }

    pub(super) fn ask(&self, request: &StoreRequest) -> Result<Message<StoreReply>, AskError> {
        let idle = lock(&self.idle).pop();
        let stream = match idle {
            Some(stream) => stream,
            None => match socket::connect(&self.directory) {
                Ok(stream) => stream,
                Err(Unreached::Nobody) => return Err(AskError::Gone),
                Err(Unreached::Refused(error)) => return Err(AskError::Told(error)),
            },
        };
        let asked = stream.set_read_timeout(Some(SILENCE)).and_then(|()| exchange(&stream, request));
        let answer = asked.map_err(|error| match error.kind() {
            // The request was not sent.
            ErrorKind::InvalidInput => AskError::Told(StoreError::io("send to", &self.directory)(error)),
            ErrorKind::WouldBlock | ErrorKind::TimedOut => AskError::Told(silent()),
            _ => AskError::Gone,
        })?;
        let mut idle = lock(&self.idle);
        if idle.len() < IDLE_MAX {
            idle.push(stream);
        }
        drop(idle);
        match answer.head {
            StoreReply::Failed(error) => Err(AskError::Told(error.error())),
            _ => Ok(answer),
        }
    }
}

fn silent() -> StoreError {
    let message = format!("it has not answered for {} seconds", SILENCE.as_secs());
    StoreError::Elsewhere { message, advice: Some(Advice::FindOwner) }
}

fn exchange(stream: &UnixStream, request: &StoreRequest) -> io::Result<Message<StoreReply>> {
    wire::write(&mut &*stream, request, &[])?;
    // One answer per request: the reader can't buffer bytes of a later answer.
    wire::read(&mut BufReader::with_capacity(16 << 10, stream))?.ok_or_else(|| ErrorKind::UnexpectedEof.into())
}

fn begin_watching(directory: &Path, bus: Weak<Bus>) -> Option<UnixStream> {
    let stream = socket::connect(directory).ok()?;
    let ours = stream.try_clone().ok()?;
    let thread = std::thread::Builder::new().name("foldspace-watch".to_owned());
    let watching = thread.spawn(move || {
        if let Err(error) = watch(&stream, &bus) {
            tracing::debug!(%error, "lost the notifications of the store's owner");
        }
    });
    watching.is_ok().then_some(ours)
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

impl Drop for OwnerConnections {
    fn drop(&mut self) {
        if let Some(watch) = &self.watch {
            drop(watch.shutdown(Shutdown::Both));
        }
    }
}
