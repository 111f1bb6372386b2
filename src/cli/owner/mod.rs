//! The owner of the store, through which this program acts: a process that is started on demand, or this process.

mod start;

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use foldspace::backends::ProgressWatch;
use foldspace::http::{Attended, ClientError, HttpClient, HttpFace, HttpOptions, ServerStatus};
use foldspace::hub::HubOptions;
use foldspace::hub::operations::ChildDocument;
use foldspace::store::{Durability, StoreOwner};
use foldspace::tools::{PodmanShellTool, ShellRules};
use foldspace::{Hub, SessionId, Tools};
use serde_json::Value;
use tokio::time::Instant;

pub(super) use super::hook::record_kept;
use super::shared_store::HostArgs;
use super::stop::stop;
use super::{Exit, Failure, Globals, OpenedStore, open, output, text};
#[cfg(feature = "mcp")]
pub(super) use start::Starter;
pub(super) use start::owner_command;
use start::{Begun, begin_in_background};

pub(super) const SOCKET: &str = "http.sock";
/// The time limit for another process to serve the store or to release it.
const OWNER_START_LIMIT: Duration = Duration::from_secs(5);
/// The time limit for an owner's answer to a request that takes no work.
const ANSWER: Duration = Duration::from_secs(10);
/// The time between two attempts to start an owner while another process has the store.
const AGAIN: Duration = Duration::from_millis(100);
const UNSERVED: &str =
    "that process accepts no clients: it runs with --in-process or uses the library; wait until it ends";
const PAUSE: Duration = Duration::from_millis(5);

/// A connection to the owner, which keeps the owner running.
pub(super) struct OwnerClient {
    pub(super) client: HttpClient,
    directory: PathBuf,
    place: OwnerPlace,
}

enum OwnerPlace {
    /// Another process, which stays up until this is dropped.
    Elsewhere {
        _attended: Attended,
    },
    Here {
        hub: Hub,
        opened: OpenedStore,
    },
}

impl OwnerClient {
    /// Finds the owner of the data, or starts it; with `--in-process`, becomes the owner. Needs a runtime.
    pub(super) async fn of(globals: &Globals, durability: Durability) -> Result<Self, Failure> {
        Self::at(open::directory(globals)?, globals, durability).await
    }

    /// Does the same for a store that must exist.
    pub(super) async fn of_existing(globals: &Globals) -> Result<Self, Failure> {
        Self::at(open::existing(globals)?, globals, Durability::default()).await
    }

    async fn at(directory: PathBuf, globals: &Globals, durability: Durability) -> Result<Self, Failure> {
        if is_in_process(globals) {
            take_turn(&directory).await?;
            return Self::here(directory, durability);
        }
        let (client, attended) = attend(&directory).await?;
        Ok(Self { client, directory, place: OwnerPlace::Elsewhere { _attended: attended } })
    }

    fn here(directory: PathBuf, durability: Durability) -> Result<Self, Failure> {
        let opened = OpenedStore::own(&directory, durability, open::STORE_LOCK_WAIT, &HostArgs::default())?;
        let progress: Option<ProgressWatch> = Some(Arc::new(output::progress));
        let options = HubOptions { progress, tools: all_tools()?.into(), ..HubOptions::new(&directory) };
        let hub = Hub::new(opened.sessions.clone(), options);
        hub.watch_hosts();
        // The caller's rules come with each call.
        let face = HttpFace::with_rules(hub.clone(), ShellRules::default());
        #[cfg(feature = "mcp")]
        let others = super::mcp::attach_route(&face);
        #[cfg(not(feature = "mcp"))]
        let others = axum::Router::new();
        let client = HttpClient::within(face.router_with(HttpOptions::default(), others));
        Ok(Self { client, directory, place: OwnerPlace::Here { hub, opened } })
    }

    /// Returns the data directory.
    pub(super) fn directory(&self) -> &Path {
        &self.directory
    }

    /// Returns true if this process is the owner.
    pub(super) fn is_here(&self) -> bool {
        matches!(self.place, OwnerPlace::Here { .. })
    }

    /// Returns the sessions, read-only.
    pub(super) fn sessions(&self) -> Result<OpenedStore, Failure> {
        match &self.place {
            OwnerPlace::Here { opened, .. } => Ok(opened.again()),
            OwnerPlace::Elsewhere { .. } => open::reading_at(&self.directory),
        }
    }

    /// Begins a child of a session, with the parameters of the API.
    pub(super) async fn begin_child(&self, parent: SessionId, asked: &Value) -> Result<ChildDocument, Failure> {
        Ok(self.client.work(&format!("/v1/sessions/{parent}/children"), asked, output::progress).await?)
    }

    /// Closes everything that this process has open, for a forced exit: containers would stay otherwise.
    pub(super) fn closing(&self) -> impl Future<Output = ()> + Send + 'static {
        let hub = match &self.place {
            OwnerPlace::Here { hub, .. } => Some(hub.clone()),
            OwnerPlace::Elsewhere { .. } => None,
        };
        async move {
            if let Some(hub) = hub {
                hub.close().await;
            }
        }
    }

    /// Closes everything that this process has open.
    pub(super) async fn end(self) {
        if let OwnerPlace::Here { hub, .. } = &self.place {
            hub.end();
            end_calls(hub).await;
        }
        self.closing().await;
    }
}

/// Returns the tools of all sessions.
pub(super) fn all_tools() -> Result<Tools, Failure> {
    Tools::standard().with(PodmanShellTool).map_err(|error| Failure::failed(error.to_string()))
}

/// The time limit for cancelled calls to end.
const KILLING: Duration = Duration::from_secs(15);

/// Cancels calls in flight, and waits for their end.
pub(super) async fn end_calls(hub: &Hub) {
    hub.cancel_calls();
    if tokio::time::timeout(KILLING, hub.calls_ended()).await.is_err() {
        tracing::warn!(calls = hub.calls_in_flight(), "cancelled calls have not ended");
    }
}

fn is_in_process(globals: &Globals) -> bool {
    let set = std::env::var_os("FOLDSPACE_IN_PROCESS");
    // A program without `serve` can't start an owner in the background.
    cfg!(not(feature = "mcp")) || globals.in_process || set.is_some_and(|value| !value.is_empty() && value != "0")
}

/// Returns the status of the running owner, with a client for it; `None` if no owner runs.
pub(super) async fn running(directory: &Path) -> Result<Option<(HttpClient, ServerStatus)>, Failure> {
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

/// Ends the running owner if it is unused, so that this process can open the store.
pub(super) async fn make_way(directory: &Path) -> Result<(), Failure> {
    let Some((_, status)) = running(directory).await? else { return Ok(()) };
    if status.clients.is_empty() && status.calls.is_empty() {
        return stop(directory).await.map(drop);
    }
    let (process, clients) = (status.process, text::count(status.clients.len() as u64, "client"));
    let calls = text::count(status.calls.len() as u64, "call");
    Err(Failure::new(Exit::Busy, format!("process {process} has the store, with {clients} and {calls} in flight"))
        .with_hint("`foldspace status` lists them, and `foldspace stop` ends the process"))
}

/// Ends an unused owner in the background, so that this process becomes the owner. A client that has just ended may
/// still count for a moment.
pub(super) async fn take_turn(directory: &Path) -> Result<(), Failure> {
    let until = Instant::now() + open::STORE_LOCK_WAIT;
    let is_background = |owner: StoreOwner| owner.command.split(' ').any(|word| word == "--background");
    while StoreOwner::of(directory)?.is_some_and(is_background) {
        match make_way(directory).await {
            Err(failure) if Instant::now() >= until => return Err(failure),
            Err(_) => tokio::time::sleep(AGAIN).await,
            Ok(()) => return Ok(()),
        }
    }
    Ok(())
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

async fn attend(directory: &Path) -> Result<(HttpClient, Attended), Failure> {
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
pub(super) fn start(directory: &Path) -> Result<(), Failure> {
    let directory = directory.to_owned();
    // The caller may be on a thread of a runtime, which must not be blocked.
    let started = std::thread::spawn(move || super::block_on(attend(&directory)).map(|attended| attended.map(drop)));
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
