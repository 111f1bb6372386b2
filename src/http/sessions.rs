//! Sessions: which there are, how they begin and go.

use axum::extract::State;
use axum::http::{StatusCode, header};
use axum::response::IntoResponse;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use utoipa::{IntoParams, ToSchema};

use super::extract::{Body, Path, StrictQuery};
use super::problem::{HttpProblem, ProblemKind};
use super::{HttpFace, blocking};
use crate::backends::{HostOptions, WorkspaceSpec};
use crate::engine::id::SessionId;
use crate::engine::session::error::SessionError;
use crate::engine::store::StoreError;
use crate::tools::{AllowedRoots, MountError, MountSpec};
use crate::view::{self, SessionDocument};

/// Sessions of a page at most.
const LIMIT: usize = 1000;

/// A session that is to begin.
#[derive(Debug, Clone, Deserialize, JsonSchema, ToSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct NewSessionBody {
    /// Its name: 1 to 80 letters, digits, dots, underscores or hyphens; without one it is called by the beginning of
    /// its id.
    #[serde(default)]
    name: Option<String>,
    /// `memory` (the default, where nothing can run), `host`, `podman` or `mock`.
    #[serde(default)]
    backend: Option<String>,
    /// Options of the backend for the workspace: of `podman` image (else the server's FOLDSPACE_IMAGE), limits and so
    /// on. A directory of `host` must be below one that the server allows.
    #[serde(default)]
    #[schema(value_type = Object)]
    options: Map<String, Value>,
    /// Host directories that are copied into the workspace.
    #[serde(default)]
    mounts: Vec<NewMount>,
}

/// A host directory that is to be copied into a workspace.
#[derive(Debug, Clone, Deserialize, JsonSchema, ToSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct NewMount {
    /// The directory on the server's machine, below one that it allows.
    host_path: String,
    /// Where its entries go in the workspace; the root when nothing is said.
    #[serde(default)]
    mount_path: Option<String>,
    /// Copies only files whose path below the directory matches one of these globs.
    #[serde(default)]
    include_glob: Vec<String>,
    /// Leaves out what matches one of these.
    #[serde(default)]
    exclude_glob: Vec<String>,
    /// Bytes of all files together, above which nothing is copied.
    #[serde(default)]
    max_bytes: Option<u64>,
    /// Copies what links inside the directory lead to.
    #[serde(default)]
    follow_symlinks: bool,
}

impl NewMount {
    fn spec(self) -> Result<MountSpec, HttpProblem> {
        use crate::engine::path::EntryPath;
        let mount_path = self.mount_path.filter(|path| !path.bytes().all(|byte| byte == b'/'));
        Ok(MountSpec {
            host_path: self.host_path.into(),
            mount_path: mount_path.map(|path| EntryPath::for_creation(&path)).transpose()?,
            include_glob: self.include_glob,
            exclude_glob: self.exclude_glob,
            max_bytes: self.max_bytes,
            follow_symlinks: self.follow_symlinks,
        })
    }
}

impl NewSessionBody {
    /// What its workspace is to be. A directory is looked for on the disk.
    fn spec(backend: Option<&str>, options: Value, roots: &AllowedRoots) -> Result<WorkspaceSpec, HttpProblem> {
        let spec = WorkspaceSpec::asked_for(backend.unwrap_or("memory"), &options);
        let mut spec = spec.map_err(|error| HttpProblem::new(ProblemKind::Unusable, error.to_string()))?;
        if let WorkspaceSpec::Host(HostOptions { directory: Some(directory) }) = &mut spec {
            *directory = roots.place_of(directory).map_err(|error| match error {
                MountError::Outside { path, .. } => {
                    let detail = format!("{} is not below a directory that the server allows", path.display());
                    let hint = "start it with --allow-root DIR, or leave `directory` out for one of the session's own";
                    HttpProblem::new(ProblemKind::Forbidden, detail).with_hint(hint)
                }
                other => other.into(),
            })?;
        }
        Ok(spec)
    }
}

/// Which of the sessions.
#[derive(Debug, Clone, Copy, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(super) struct SessionsQuery {
    /// How many at most, from 1 to 1000; all when nothing is said.
    #[serde(default)]
    #[param(minimum = 1, maximum = 1000)]
    limit: Option<usize>,
    /// Only those behind this one in the list: its whole id.
    #[serde(default)]
    #[param(value_type = Option<String>, pattern = "^[0-9a-f]{32}$")]
    after: Option<SessionId>,
}

/// Lists the sessions, the oldest first. Page by page, `after` is the `session` of the last one that was listed; the end
/// is where none comes. `calls` is null where a session can't be read.
#[utoipa::path(get, path = "/v1/sessions", tag = "sessions", params(SessionsQuery),
    responses((status = 200, body = Vec<SessionDocument>), (status = "4XX", body = HttpProblem, content_type = "application/problem+json")))]
pub(super) async fn list(
    State(face): State<HttpFace>,
    StrictQuery(SessionsQuery { limit, after }): StrictQuery<SessionsQuery>,
) -> Result<axum::Json<Vec<SessionDocument>>, HttpProblem> {
    if let Some(limit) = limit.filter(|limit| !(1..=LIMIT).contains(limit)) {
        return Err(HttpProblem::new(ProblemKind::Unusable, format!("limit is {limit}; it must be from 1 to {LIMIT}")));
    }
    let listed = blocking(move || {
        let sessions = face.hub().sessions();
        let entries = sessions.list()?;
        let from = match after {
            None => 0,
            Some(after) => {
                let at = entries.iter().position(|entry| entry.id == after);
                // Where it stood is not known any more.
                1 + at.ok_or(SessionError::Store(StoreError::NoSession(after)))?
            }
        };
        Ok::<_, HttpProblem>(view::listed(sessions, entries[from..].iter().take(limit.unwrap_or(usize::MAX))))
    });
    Ok(axum::Json(listed.await??))
}

/// Begins a session, and copies its mounts. Of one that can't be made ready nothing is left.
#[utoipa::path(post, path = "/v1/sessions", tag = "sessions", request_body = NewSessionBody,
    responses((status = 201, body = SessionDocument), (status = "4XX", body = HttpProblem, content_type = "application/problem+json")))]
pub(super) async fn create(
    State(face): State<HttpFace>,
    Body(new): Body<NewSessionBody>,
) -> Result<impl IntoResponse, HttpProblem> {
    let (backend, options, hub) = (new.backend, Value::Object(new.options), face.hub().clone());
    let spec = blocking(move || NewSessionBody::spec(backend.as_deref(), options, &hub.options().roots)).await??;
    let mounts: Result<Vec<MountSpec>, HttpProblem> = new.mounts.into_iter().map(NewMount::spec).collect();
    let open = face.hub().create(new.name, &spec, &mounts?).await?;
    let id = open.session().id();
    let document = one_of(&face, id.to_string()).await?;
    let place = [(header::LOCATION, format!("/v1/sessions/{id}"))];
    Ok((StatusCode::CREATED, place, axum::Json(document)))
}

/// Tells of one session.
#[utoipa::path(get, path = "/v1/sessions/{session}", tag = "sessions",
    params(("session" = String, Path, description = "The session, by name or by the beginning of its id")),
    responses((status = 200, body = SessionDocument), (status = "4XX", body = HttpProblem, content_type = "application/problem+json")))]
pub(super) async fn one(
    State(face): State<HttpFace>,
    Path(wanted): Path<String>,
) -> Result<axum::Json<SessionDocument>, HttpProblem> {
    Ok(axum::Json(one_of(&face, wanted).await?))
}

async fn one_of(face: &HttpFace, wanted: String) -> Result<SessionDocument, HttpProblem> {
    let face = face.clone();
    Ok(blocking(move || {
        let (id, sessions) = (face.find(&wanted)?.id(), face.hub().sessions());
        let entry = sessions.store().entry(id)?.ok_or(StoreError::NoSession(id))?;
        view::session(sessions, &entry)
    })
    .await??)
}

/// Removes a session with its files. What its children have of its past they keep.
#[utoipa::path(delete, path = "/v1/sessions/{session}", tag = "sessions",
    params(("session" = String, Path, description = "The session, by name or by the beginning of its id")),
    responses((status = 204), (status = "4XX", body = HttpProblem, content_type = "application/problem+json")))]
pub(super) async fn remove(
    State(face): State<HttpFace>,
    Path(wanted): Path<String>,
) -> Result<StatusCode, HttpProblem> {
    let id = face.session(wanted).await?.id();
    face.hub().remove(id).await?;
    Ok(StatusCode::NO_CONTENT)
}

/// What a prompt says of a session's workspace.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema, ToSchema)]
pub(super) struct SectionDocument {
    /// The text for the model: what the workspace is, its tools, its limits, what was copied into it.
    pub(super) text: String,
}

/// Gives the text about a session's workspace that belongs into a prompt. The workspace is opened for it.
#[utoipa::path(get, path = "/v1/sessions/{session}/section", tag = "sessions",
    params(("session" = String, Path, description = "The session, by name or by the beginning of its id")),
    responses((status = 200, body = SectionDocument), (status = "4XX", body = HttpProblem, content_type = "application/problem+json")))]
pub(super) async fn section(
    State(face): State<HttpFace>,
    Path(wanted): Path<String>,
) -> Result<axum::Json<SectionDocument>, HttpProblem> {
    Ok(axum::Json(SectionDocument { text: face.open(wanted).await?.section().await? }))
}
