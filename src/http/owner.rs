//! The server itself: its clients, its status, and its shutdown.

use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use schemars::{JsonSchema, SchemaGenerator};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use tokio::time::Instant;

use super::machine_figures::resident_bytes;
use super::problem::{HttpProblem, ProblemKind};
use super::request::RequestHead;
use super::stream::shown;
use super::verb::{HttpVerb, Media};
use super::{HttpFace, VERSION, blocking};
use crate::backends::HostCaller;
use crate::engine::id::{Seq, SessionId};
use crate::engine::lock::lock;
use crate::hub::in_flight::CallGoing;
use crate::hub::operations::OperationRoute;

/// The status of a server: its clients and its work.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct ServerStatus {
    /// Its process.
    pub process: u32,
    /// The program's version.
    pub version: String,
    /// Seconds since it started.
    pub seconds: u64,
    /// Bytes of memory that it uses; null if the kernel does not report it.
    pub memory_bytes: Option<u64>,
    /// Clients that stay connected, the oldest first.
    pub clients: Vec<ClientStatus>,
    /// Calls in flight, the oldest first.
    pub calls: Vec<CallInFlight>,
    /// Open workspaces.
    pub workspaces: Vec<WorkspaceStatus>,
    /// True if this listener refuses requests that change anything.
    #[serde(default)]
    pub read_only: bool,
    /// The copy of the journal that it writes; null without one.
    #[serde(default)]
    pub replication: Option<ReplicationStatus>,
    /// This host, if several share the store; null for a store of one machine.
    #[serde(default)]
    pub host: Option<HostStatus>,
}

/// A host of a shared store.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct HostStatus {
    /// Its name.
    pub name: String,
    /// The URL for other hosts; null if they can't reach it.
    pub at: Option<String>,
    /// Seconds of silence before other hosts consider it dead.
    pub lease_seconds: f64,
    /// Seconds that it has been waiting for the store's cluster; null if it is not waiting.
    pub waited_seconds: Option<f64>,
}

/// A copy of the journal in object storage.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct ReplicationStatus {
    /// Its address.
    pub to: String,
    /// The last segment in it; 0 before the first.
    pub segment: u32,
    /// The end of the copy in that segment's file, in bytes.
    pub offset: u64,
    /// The time of the copy: everything recorded earlier is in it; null at first.
    pub until: Option<String>,
    /// Seconds since then.
    pub lag_seconds: Option<f64>,
    /// Bytes of the journal that are not yet in it.
    pub lag_bytes: u64,
    /// Git repositories that hold contents: the copy lacks contents that only git has.
    #[serde(default)]
    pub git_repositories: Vec<String>,
    /// The reason why the last attempt failed; null if it succeeded.
    pub problem: Option<String>,
    /// True if it is not retried.
    pub stopped: bool,
}

/// A client that stays connected.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct ClientStatus {
    /// Its process.
    pub process: u32,
    /// Its command line, cut at 200 characters.
    pub command: String,
    /// Seconds since it connected.
    pub seconds: u64,
}

/// A call in flight.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct CallInFlight {
    /// The session.
    #[schemars(with = "String")]
    pub session: SessionId,
    /// The session's name.
    pub name: String,
    /// The position of its intent, to cancel it with.
    pub call: Seq,
    /// Seconds since it began.
    pub seconds: u64,
    /// The pending question, as in the event `question` of its stream; null without one.
    #[serde(default)]
    pub question: Option<Value>,
}

/// An open workspace.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct WorkspaceStatus {
    /// The session.
    #[schemars(with = "String")]
    pub session: SessionId,
    /// The session's name.
    pub name: String,
    /// The backend.
    pub backend: String,
    /// Seconds since it was last used; null while it is in use.
    pub unused_seconds: Option<u64>,
}

/// Returns the server's status.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct ShowServer {}

impl HttpVerb for ShowServer {
    const NAME: &'static str = "show_server";
    const ROUTE: OperationRoute = OperationRoute::at("GET", "server", "/v1/server", 200);
    const GIVES: Media = &[("application/json", Some(SchemaGenerator::subschema_for::<ServerStatus>))];

    async fn answer(self, face: HttpFace, head: RequestHead) -> Result<Response, HttpProblem> {
        let read_only = head.options.read_only;
        Ok(axum::Json(blocking(move || ServerStatus { read_only, ..face.status() }).await?).into_response())
    }
}

/// Stops the server as SIGTERM does: calls in flight get some time. Only for clients on the unix socket.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct StopServer {}

impl HttpVerb for StopServer {
    const NAME: &'static str = "stop_server";
    const ROUTE: OperationRoute = OperationRoute::at("POST", "server", "/v1/server/stop", 202);
    const GIVES: Media = &[];
    const NEEDS_BODY: bool = false;

    async fn answer(self, face: HttpFace, head: RequestHead) -> Result<Response, HttpProblem> {
        local_only(&head)?;
        face.shared.stopping.cancel();
        Ok(StatusCode::ACCEPTED.into_response())
    }
}

pub(super) fn local_only(head: &RequestHead) -> Result<&HostCaller, HttpProblem> {
    let refused = || HttpProblem::new(ProblemKind::Forbidden, "only clients on the unix socket may do this");
    head.caller.as_ref().ok_or_else(refused)
}

/// Clients that stay connected.
#[derive(Debug, Default)]
pub(super) struct Attending {
    last: u64,
    clients: std::collections::BTreeMap<u64, (u32, String, Instant)>,
}

/// The registration of a client, until it is dropped.
pub(crate) struct Attendance {
    face: HttpFace,
    number: u64,
}

impl Drop for Attendance {
    fn drop(&mut self) {
        lock(&self.face.shared.attending).clients.remove(&self.number);
    }
}

impl HttpFace {
    pub(crate) fn attend(&self, client: &HostCaller) -> Result<Attendance, HttpProblem> {
        let process = client.number();
        if self.hub().sessions().store().check_own().is_err() {
            // After a failed write, only the next owner can record anything.
            self.end();
        }
        let mut attending = lock(&self.shared.attending);
        if self.shared.ending.is_cancelled() {
            return Err(HttpProblem::new(ProblemKind::Ending, "foldspace is shutting down; it accepts no new clients"));
        }
        attending.last += 1;
        let number = attending.last;
        attending.clients.insert(number, (process, command_of(process), Instant::now()));
        drop(attending);
        Ok(Attendance { face: self.clone(), number })
    }

    /// Returns true if no client stays connected, no page is open, and nothing is in flight.
    pub fn is_idle(&self) -> bool {
        lock(&self.shared.attending).clients.is_empty() && self.is_unwatched()
    }

    /// Returns true if no page is open and nothing is in flight.
    fn is_unwatched(&self) -> bool {
        !self.shared.open_pages.are_any() && self.hub().calls_in_flight() == 0
    }

    /// Begins to shut down if idle, and returns true if it was. No client can connect in between.
    pub fn end_if_idle(&self) -> bool {
        let attending = lock(&self.shared.attending);
        let is_idle = attending.clients.is_empty() && self.is_unwatched();
        if is_idle {
            self.end();
        }
        is_idle
    }

    /// Returns true if any client has stayed connected so far.
    pub fn was_attended(&self) -> bool {
        lock(&self.shared.attending).last > 0
    }

    /// Waits until a client has requested the server to stop.
    pub async fn stopped(&self) {
        self.shared.stopping.cancelled().await;
    }

    /// Sets the source of the replication status, once.
    pub fn tell_replication(&self, status: impl Fn() -> ReplicationStatus + Send + Sync + 'static) {
        // A second source would report the same: a process copies to one place.
        drop(self.shared.replication.set(Box::new(status)));
    }

    pub(super) fn replication(&self) -> Option<ReplicationStatus> {
        self.shared.replication.get().map(|status| status())
    }

    fn status(&self) -> ServerStatus {
        let clients = lock(&self.shared.attending).clients.values().cloned().collect::<Vec<_>>();
        let name = |session: SessionId| {
            let session = self.hub().sessions().session(session);
            session.map_or_else(|_| String::new(), |session| session.name().to_owned())
        };
        let calls = self.hub().in_flight().calls().into_iter();
        let workspaces = self.hub().open_workspaces().into_iter();
        ServerStatus {
            process: std::process::id(),
            version: VERSION.to_owned(),
            seconds: self.shared.since.elapsed().as_secs(),
            memory_bytes: resident_bytes(),
            clients: clients
                .into_iter()
                .map(|(process, command, since)| ClientStatus { process, command, seconds: since.elapsed().as_secs() })
                .collect(),
            calls: calls
                .map(|CallGoing { session, call, since, question }| CallInFlight {
                    session,
                    name: name(session),
                    call,
                    seconds: since.as_secs(),
                    question: question.as_ref().map(shown),
                })
                .collect(),
            read_only: false,
            replication: self.replication(),
            host: self.hub().sessions().store().hosts().map(|hosts| HostStatus {
                name: hosts.own().name.clone(),
                at: hosts.own().at.clone(),
                lease_seconds: hosts.lease().as_secs_f64(),
                waited_seconds: hosts.waited().map(|waited| waited.as_secs_f64()),
            }),
            workspaces: workspaces
                .map(|(session, backend, unused)| WorkspaceStatus {
                    session,
                    name: name(session),
                    backend: backend.to_owned(),
                    unused_seconds: unused.map(|unused| unused.as_secs()),
                })
                .collect(),
        }
    }
}

const COMMAND_CHARS: usize = 200;

#[expect(clippy::disallowed_methods, reason = "the kernel reports processes in files")]
fn command_of(process: u32) -> String {
    let words = std::fs::read(format!("/proc/{process}/cmdline")).unwrap_or_default();
    let words = String::from_utf8_lossy(&words).trim_end_matches('\0').replace('\0', " ");
    words.chars().take(COMMAND_CHARS).collect()
}
