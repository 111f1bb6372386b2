//! Commits on their way through the owner: sent one after the other, answered when they are durable.

use std::io::{self, BufReader};
use std::net::Shutdown;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};

use super::socket::{self, Unreached};
use super::wire::{self, StoreReply, StoreRequest, WireCommit, WireOutcome};
use crate::engine::commit::Commit;
use crate::engine::lock::lock;
use crate::engine::store::pending::{ExpectedAnswers, Ticket};
use crate::engine::store::{Pending, Result, StoreError};

/// Unsent bytes at which the next commit waits.
const UNSENT_MAX: usize = 1 << 20;

fn gone() -> StoreError {
    StoreError::Poisoned("the process that owned the store is gone".to_owned())
}

/// The connection that takes commits. A thread sends all that were submitted since it sent last, so that many writers
/// share one system call.
pub(super) struct Submissions {
    outgoing: Arc<Outgoing>,
    waiting: Arc<ExpectedAnswers>,
}

/// Commits that wait for the thread that sends.
#[derive(Default)]
struct Outgoing {
    unsent: Mutex<Unsent>,
    /// Notified when commits come, are taken, or no more will come.
    changed: Condvar,
}

#[derive(Default)]
struct Unsent {
    commits: Vec<WireCommit>,
    /// Bytes of the commits, one after the other.
    tail: Vec<u8>,
    is_closed: bool,
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
        let hearing = move || {
            if let Err(error) = hear(&reading, &told) {
                tracing::debug!(%error, "the owner of the store answers no more");
            }
            told.give_up(&StoreError::Unsettled);
        };
        let thread = |name: &str| std::thread::Builder::new().name(name.to_owned());
        thread("foldspace-answers").spawn(hearing).map_err(failed())?;
        let outgoing = Arc::new(Outgoing::default());
        let sent = Arc::clone(&outgoing);
        thread("foldspace-send").spawn(move || sent.send_to(&stream)).map_err(failed())?;
        Ok(Arc::new(Self { outgoing, waiting }))
    }

    pub(super) fn submit(&self, commit: &Commit) -> Result<Pending> {
        let mut unsent = self.outgoing.room();
        let was_empty = unsent.commits.is_empty();
        let head = WireCommit::of(commit, &mut unsent.tail)?;
        unsent.commits.push(head);
        // Under the same lock, so that answers come in the order of the commits.
        let answer = self.waiting.expect().ok_or_else(gone)?;
        drop(unsent);
        if was_empty {
            self.outgoing.changed.notify_all();
        }
        Ok(Pending { ticket: Ticket::Answered(answer) })
    }

    /// Waits until all that was submitted is answered.
    pub(super) fn answered(&self) -> Result<()> {
        let last = self.waiting.last();
        // Each outcome is told to who submitted it.
        match last.map(|last| last.wait()) {
            Some(Err(error @ StoreError::Unsettled)) => Err(error),
            _ => Ok(()),
        }
    }
}

fn hear(stream: &UnixStream, waiting: &ExpectedAnswers) -> io::Result<()> {
    let mut reader = BufReader::with_capacity(64 << 10, stream);
    while let Some(message) = wire::read::<StoreReply>(&mut reader)? {
        let StoreReply::Settled(outcomes) = message.head else { return Err(io::ErrorKind::InvalidData.into()) };
        waiting.tell(outcomes.into_iter().map(WireOutcome::outcome)).ok_or(io::ErrorKind::InvalidData)?;
    }
    Ok(())
}

impl Outgoing {
    /// Waits until the unsent commits are few.
    fn room(&self) -> MutexGuard<'_, Unsent> {
        let is_full = |unsent: &mut Unsent| unsent.tail.len() > UNSENT_MAX && !unsent.is_closed;
        self.changed.wait_while(lock(&self.unsent), is_full).unwrap_or_else(PoisonError::into_inner)
    }

    /// Sends commits as they come, until no more will come or the owner is gone.
    fn send_to(&self, mut stream: &UnixStream) {
        let mut tail = Vec::new();
        loop {
            let nothing = |unsent: &mut Unsent| unsent.commits.is_empty() && !unsent.is_closed;
            let unsent = self.changed.wait_while(lock(&self.unsent), nothing);
            let mut unsent = unsent.unwrap_or_else(PoisonError::into_inner);
            let commits = std::mem::take(&mut unsent.commits);
            std::mem::swap(&mut unsent.tail, &mut tail);
            drop(unsent);
            self.changed.notify_all();
            if commits.is_empty() {
                // The owner records all that was sent before it sees the end.
                return drop(stream.shutdown(Shutdown::Write));
            }
            if wire::write(&mut stream, &StoreRequest::Submit(commits), &[&tail]).is_err() {
                // The thread that hears ends then, and tells it.
                lock(&self.unsent).is_closed = true;
                self.changed.notify_all();
                return drop(stream.shutdown(Shutdown::Both));
            }
            tail.clear();
            tail.shrink_to(UNSENT_MAX);
        }
    }
}

impl Drop for Submissions {
    fn drop(&mut self) {
        lock(&self.outgoing.unsent).is_closed = true;
        self.outgoing.changed.notify_all();
    }
}
