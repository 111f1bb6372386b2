//! Finds the process that owns the store, and starts it if none runs.

use std::path::Path;
use std::time::Duration;

use foldspace::http::{Attended, ClientError, HttpClient, ServerStatus};
use foldspace::store::StoreOwner;
use tokio::time::Instant;

use super::start::{Begun, begin_in_background};
use crate::cli::{Exit, Failure};

pub(in crate::cli) const SOCKET: &str = "http.sock";
/// The time limit for another process to serve the store or to release it.
const OWNER_START_LIMIT: Duration = Duration::from_secs(5);
/// The time limit for an owner's answer to a request that takes no work.
const ANSWER: Duration = Duration::from_secs(10);
/// The time between two attempts to start an owner while another process has the store.
const AGAIN: Duration = Duration::from_millis(100);
const UNSERVED: &str =
    "that process accepts no clients: it runs with --in-process or uses the library; wait until it ends";
const PAUSE: Duration = Duration::from_millis(5);

/// Returns the status of the running owner, with a client for it; `None` if no owner runs.
pub(in crate::cli) async fn running(directory: &Path) -> Result<Option<(HttpClient, ServerStatus)>, Failure> {
    let client = HttpClient::at(directory.join(SOCKET));
    match in_time(directory, client.get("/v1/server")).await? {
        Ok(status) => Ok(Some((client, status))),
        Err(error) if is_nobody(&error) => Ok(None),
        Err(error) => Err(error.into()),
    }
}

/// Waits for the answer to a request that takes no work, with a time limit, since the owner's process may be suspended.
async fn in_time<T>(
    directory: &Path,
    answer: impl Future<Output = Result<T, ClientError>>,
) -> Result<Result<T, ClientError>, Failure> {
    let Ok(answer) = tokio::time::timeout(ANSWER, answer).await else {
        let owner = StoreOwner::of(directory)?.unwrap_or_default();
        let what = format!("{owner} has the store, and has not answered for {} seconds", ANSWER.as_secs());
        let hint = format!("if it was suspended, `kill -CONT {}` resumes it", owner.process);
        return Err(Failure::new(Exit::Busy, what).with_hint(hint));
    };
    Ok(answer)
}

fn is_nobody(error: &ClientError) -> bool {
    use std::io::ErrorKind::{ConnectionRefused, ConnectionReset, NotFound};
    match error {
        ClientError::Unreachable { source, .. } => {
            matches!(source.kind(), NotFound | ConnectionRefused | ConnectionReset)
        }
        // The owner has just ended.
        ClientError::Broken(_) => true,
        _ => false,
    }
}

pub(super) async fn attend(directory: &Path) -> Result<(HttpClient, Attended), Failure> {
    let (until, mut start_at) = (Instant::now() + OWNER_START_LIMIT, Instant::now());
    let mut unserved = None;
    loop {
        match greet(directory).await? {
            Greeting::Welcome(client, attended) => return Ok((client, attended)),
            Greeting::Leaving(failure) => unserved = Some(failure),
            Greeting::Nobody if Instant::now() >= start_at => match begin_in_background(directory).await? {
                Begun::Ready if Instant::now() < until => continue,
                Begun::Ready => unserved = Some(Failure::failed("the owner of the store ends as soon as it is ready")),
                Begun::Taken(failure) => {
                    start_at = Instant::now() + AGAIN;
                    unserved = Some(failure.with_hint(UNSERVED));
                }
            },
            Greeting::Nobody => {}
        }
        if let Some(failure) = unserved.take_if(|_| Instant::now() >= until) {
            return Err(failure);
        }
        tokio::time::sleep(PAUSE).await;
    }
}

/// Starts the owner of the data in the background, if none runs.
pub(in crate::cli) fn start(directory: &Path) -> Result<(), Failure> {
    let directory = directory.to_owned();
    // The caller may be on a thread of a runtime, which must not be blocked.
    let started =
        std::thread::spawn(move || crate::cli::block_on(attend(&directory)).map(|attended| attended.map(drop)));
    started.join().unwrap_or_else(|_| Ok(Err(Failure::failed("failed to start the owner of the store"))))?
}

enum Greeting {
    Welcome(HttpClient, Attended),
    Nobody,
    /// The owner is ending, perhaps only after its last client.
    Leaving(Failure),
}

async fn greet(directory: &Path) -> Result<Greeting, Failure> {
    let client = HttpClient::at(directory.join(SOCKET));
    match in_time(directory, client.attend()).await? {
        Ok(attended) => Ok(Greeting::Welcome(client, attended)),
        Err(error) if is_nobody(&error) => Ok(Greeting::Nobody),
        Err(ClientError::Unreachable { path, source }) => Err(Failure::io("use", path.display(), &source)),
        Err(ClientError::Refused(problem)) if matches!(&*problem.kind, "ending" | "other_version") => {
            Ok(Greeting::Leaving(ClientError::Refused(problem).into()))
        }
        Err(error) => Err(error.into()),
    }
}
