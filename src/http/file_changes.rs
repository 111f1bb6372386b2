//! Changes of files by a program: each is a recorded call.

use axum::response::{IntoResponse, Response};
use schemars::{JsonSchema, SchemaGenerator};
use serde::Deserialize;

use super::HttpFace;
use super::problem::{HttpProblem, ProblemKind};
use super::request::{RequestHead, upload};
use super::verb::{HttpVerb, Media};
use crate::engine::event::CallReason;
use crate::hub::operations::{OperationRoute, check_agent};
use crate::tools::{FileWork, ToolOutcome};

const OUTCOME: Media = &[("application/json", Some(SchemaGenerator::subschema_for::<ToolOutcome>))];
const FILE: &str = "/v1/sessions/{session}/files/{*path}";

/// Writes a file, the body's bytes: at most 1 GiB. Directories above it come into being, and links are followed.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct PutFile {
    /// The path from the workspace root; its slashes stand as they are
    path: String,
    /// Its executable bit; by default it stays as it is, and a new file has none.
    executable: Option<bool>,
    /// Fails when something is there.
    #[serde(default)]
    create: bool,
    /// The agent for whom it is done; none by default.
    agent: Option<String>,
}

impl HttpVerb for PutFile {
    const NAME: &'static str = "put_file";
    const ROUTE: OperationRoute = OperationRoute::at("PUT", "files", FILE, 200);
    const GIVES: Media = OUTCOME;
    const UPLOAD: Option<&'static str> = Some("application/octet-stream");

    async fn answer(self, face: HttpFace, head: RequestHead) -> Result<Response, HttpProblem> {
        let bytes = upload(head.body).await?;
        let Self { path, executable, create, agent } = self;
        change(face, &head.session, agent, FileWork::Write { path, bytes, executable, create }).await
    }
}

/// Removes an entry; a link itself.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct RemoveEntry {
    /// The path from the workspace root; its slashes stand as they are
    path: String,
    /// Removes a directory with what is in it; else it must be empty.
    #[serde(default)]
    recursive: bool,
    /// The agent for whom it is done; none by default.
    agent: Option<String>,
}

impl HttpVerb for RemoveEntry {
    const NAME: &'static str = "remove_entry";
    const ROUTE: OperationRoute = OperationRoute::at("DELETE", "files", FILE, 200);
    const GIVES: Media = OUTCOME;

    async fn answer(self, face: HttpFace, head: RequestHead) -> Result<Response, HttpProblem> {
        let Self { path, recursive, agent } = self;
        change(face, &head.session, agent, FileWork::Remove { path, recursive }).await
    }
}

/// Moves an entry, with what is below it.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct MoveEntry {
    /// The entry, from the workspace root.
    from: String,
    /// Its new path.
    to: String,
    /// Replaces a file or a link there; else nothing may be there.
    #[serde(default)]
    replace: bool,
    /// The agent for whom it is done; none by default.
    agent: Option<String>,
}

impl HttpVerb for MoveEntry {
    const NAME: &'static str = "move_entry";
    const ROUTE: OperationRoute = OperationRoute::at("POST", "files", "/v1/sessions/{session}/move", 200);
    const GIVES: Media = OUTCOME;

    async fn answer(self, face: HttpFace, head: RequestHead) -> Result<Response, HttpProblem> {
        let Self { from, to, replace, agent } = self;
        change(face, &head.session, agent, FileWork::Move { from, to, replace }).await
    }
}

/// Makes a directory, and those above it. One that is there stays.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct MakeDirectory {
    /// The directory, from the workspace root.
    path: String,
    /// The agent for whom it is done; none by default.
    agent: Option<String>,
}

impl HttpVerb for MakeDirectory {
    const NAME: &'static str = "make_directory";
    const ROUTE: OperationRoute = OperationRoute::at("POST", "files", "/v1/sessions/{session}/directories", 200);
    const GIVES: Media = OUTCOME;

    async fn answer(self, face: HttpFace, head: RequestHead) -> Result<Response, HttpProblem> {
        change(face, &head.session, self.agent, FileWork::MakeDirectory { path: self.path }).await
    }
}

/// Unpacks a tar archive, the body: directories, files and links, at most 1 GiB, as one call. Files that are there are
/// replaced, and others stay.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct PutTar {
    /// The directory to unpack it in; the root by default.
    below: Option<String>,
    /// The agent for whom it is done; none by default.
    agent: Option<String>,
}

impl HttpVerb for PutTar {
    const NAME: &'static str = "put_tar";
    const ROUTE: OperationRoute = OperationRoute::at("PUT", "files", "/v1/sessions/{session}/tar", 200);
    const GIVES: Media = OUTCOME;
    const UPLOAD: Option<&'static str> = Some("application/octet-stream");

    async fn answer(self, face: HttpFace, head: RequestHead) -> Result<Response, HttpProblem> {
        let archive = upload(head.body).await?;
        let below = self.below.unwrap_or_else(|| "/".to_owned());
        change(face, &head.session, self.agent, FileWork::Unpack { below, archive }).await
    }
}

async fn change(face: HttpFace, session: &str, agent: Option<String>, work: FileWork) -> Result<Response, HttpProblem> {
    let mut open = face.open(session).await?;
    if let Some(agent) = agent {
        check_agent(&agent)?;
        open = open.as_agent(&agent);
    }
    let outcome = open.change_files(work).await?;
    if outcome.is_ok() { Ok(axum::Json(outcome).into_response()) } else { Err(problem_of(outcome)) }
}

/// Returns the problem of a call that did not succeed.
pub(super) fn problem_of(outcome: ToolOutcome) -> HttpProblem {
    let kind = match outcome.reason {
        Some(CallReason::Invalid | CallReason::TooLarge) => ProblemKind::Unusable,
        Some(CallReason::NotFound) => ProblemKind::NotFound,
        Some(CallReason::Failed) => ProblemKind::Backend,
        _ => ProblemKind::Refused,
    };
    HttpProblem::new(kind, outcome.text)
}
