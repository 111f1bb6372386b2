//! File changes by a program: each is a recorded call.

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

/// Writes the body to a file: at most 1 GiB. Missing parent directories are created, and links are followed.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct PutFile {
    /// The path from the workspace root; its slashes are not escaped.
    path: String,
    /// The executable bit; by default it is unchanged, and not set on a new file.
    executable: Option<bool>,
    /// True to fail if the path exists.
    #[serde(default)]
    create: bool,
    /// The agent that makes the change; none by default.
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

/// Removes an entry; a link is removed, not its target.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct RemoveEntry {
    /// The path from the workspace root; its slashes are not escaped.
    path: String,
    /// True to remove a directory with its contents; else it must be empty.
    #[serde(default)]
    recursive: bool,
    /// The agent that makes the change; none by default.
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

/// Moves an entry; a directory with its contents.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct MoveEntry {
    /// The entry, from the workspace root.
    from: String,
    /// Its new path.
    to: String,
    /// True to replace a file or a link at the new path; else the path must not exist.
    #[serde(default)]
    replace: bool,
    /// The agent that makes the change; none by default.
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

/// Makes a directory and its missing parents. An existing directory is left as it is.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct MakeDirectory {
    /// The directory, from the workspace root.
    path: String,
    /// The agent that makes the change; none by default.
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

/// Unpacks the body, a tar archive of directories, files and links, at most 1 GiB, as one call. Existing files at its
/// paths are replaced; others stay.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct PutTar {
    /// The directory to unpack into; the root by default.
    below: Option<String>,
    /// The agent that makes the change; none by default.
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

/// Returns the problem of a failed call.
pub(super) fn problem_of(outcome: ToolOutcome) -> HttpProblem {
    let kind = match outcome.reason {
        Some(CallReason::Invalid | CallReason::TooLarge) => ProblemKind::Unusable,
        Some(CallReason::NotFound) => ProblemKind::NotFound,
        Some(CallReason::Failed) => ProblemKind::Backend,
        _ => ProblemKind::Refused,
    };
    HttpProblem::new(kind, outcome.text)
}
