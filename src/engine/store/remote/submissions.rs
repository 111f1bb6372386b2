//! Commits through the owner: sent one after the other, answered when they are durable.

use std::io::{self, BufReader};
use std::net::Shutdown;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::sync::{Arc, Mutex};

use super::odd_answer;
use super::socket::{self, Unreached};
use super::wire::{self, StoreReply, StoreRequest, WireCommit};
use crate::engine::commit::Commit;
use crate::engine::lock::lock;
use crate::engine::store::pending::{ExpectedAnswers, Ticket};
use crate::engine::store::{Committed, Pending, Result, StoreError};

fn gone() -> StoreError {
    StoreError::Poisoned("the process that owned the store ended".to_owned())
}

/// The connection for commits.
pub(super) struct Submissions {
    stream: UnixStream,
    /// Locked while a commit is sent, so that answers arrive in the order of `waiting`.
    sending: Mutex<()>,
    waiting: Arc<ExpectedAnswers>,
}

impl Submissions {
    pub(super) fn begin(directory: &Path) -> Result<Arc<Self>> {
        let stream = socket::connect(directory).map_err(|error| match error {
            Unreached::Nobody => gone(),
            Unreached::Refused(error) => error,
        })?;
        let failed = || StoreError::io("send to the owner of", directory);
        wire::write(&mut &stream, &StoreRequest::Submissions, &[]).map_err(failed())?;
        let reading = stream.try_clone().map_err(failed())?;
        let waiting = Arc::new(ExpectedAnswers::default());
        let told = Arc::clone(&waiting);
        let thread = std::thread::Builder::new().name("foldspace-answers".to_owned());
        let reading = move || {
            if let Err(error) = hear(&reading, &told) {
                tracing::debug!(%error, "lost the connection to the store's owner");
            }
            told.give_up(&StoreError::Unsettled);
        };
        thread.spawn(reading).map_err(failed())?;
        Ok(Arc::new(Self { stream, sending: Mutex::default(), waiting }))
    }

    pub(super) fn submit(&self, commit: &Commit) -> Result<Pending> {
        let (head, encoded) = WireCommit::of(commit);
        let contents = commit.contents.iter().map(|content| content.bytes.as_ref());
        let tail: Vec<&[u8]> = std::iter::once(&encoded[..]).chain(contents).collect();
        let _sending = lock(&self.sending);
        let answer = self.waiting.expect().ok_or_else(gone)?;
        if let Err(error) = wire::write(&mut &self.stream, &StoreRequest::Submit(head), &tail) {
            if error.kind() == io::ErrorKind::InvalidInput {
                // The message is too long, and nothing was sent.
                self.waiting.expect_less();
                return Err(StoreError::Elsewhere { message: error.to_string(), advice: None });
            }
            // Ends the reading thread, which fails the outstanding answers.
            drop(self.stream.shutdown(Shutdown::Both));
        }
        Ok(Pending::of(Ticket::Answered(answer)))
    }

    /// Waits until all submitted commits are answered.
    pub(super) fn answered(&self) -> Result<()> {
        let last = self.waiting.last();
        // The submitter of each commit gets its outcome.
        match last.map(|last| last.wait()) {
            Some(Err(error @ StoreError::Unsettled)) => Err(error),
            _ => Ok(()),
        }
    }
}

fn hear(stream: &UnixStream, waiting: &ExpectedAnswers) -> io::Result<()> {
    let mut reader = BufReader::with_capacity(64 << 10, stream);
    while let Some(message) = wire::read::<StoreReply>(&mut reader)? {
        let outcome = match message.head {
            StoreReply::Committed { first, last, repeated } => Ok(Committed { first, last, repeated }),
            StoreReply::Failed(error) => Err(error.error()),
            _ => Err(odd_answer()),
        };
        waiting.tell(outcome).ok_or(io::ErrorKind::InvalidData)?;
        // Wake waiters once for answers that arrive together.
        if reader.buffer().is_empty() {
            waiting.wake();
        }
    }
    Ok(())
}

impl Drop for Submissions {
    /// Stops sending; the owner records everything sent before.
    fn drop(&mut self) {
        drop(self.stream.shutdown(Shutdown::Write));
    }
}
