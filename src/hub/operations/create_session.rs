//! The beginning of a session.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use super::show_session::shown;
use super::{Operation, OperationContext, OperationError, OperationRoute, SessionDocument, reading};
use crate::backends::{HostPath, WorkspaceSpec};
use crate::engine::path::EntryPath;
use crate::hub::begin_once::chosen_id;
use crate::tools::{AllowedRoots, MountSpec};

const CREATE_ID_MAX: usize = 200;

/// Begins a session, and copies its mounts. Of one that can't be made ready nothing is left.
#[derive(Debug, Clone, Default, Serialize, Deserialize, JsonSchema)]
#[schemars(rename = "NewSession")]
#[serde(deny_unknown_fields)]
pub struct CreateSession {
    /// Its name: 1 to 80 letters, digits, dots, underscores or hyphens; without one it is called by the beginning of
    /// its id.
    pub name: Option<String>,
    /// `memory` (the default, where nothing can run), `host`, `podman`, `docker`, `mock`, or `container`: the engine
    /// that works.
    pub backend: Option<String>,
    /// Options of the backend for the workspace: of containers image (else the server's FOLDSPACE_IMAGE), limits,
    /// `name_prefix`, `uptime_seconds` and so on. A `directory`, of `host` or a container, must be below one that the
    /// server allows. Where commands run also their `environment` (an object of texts, of which digests are recorded
    /// unless `record_environment` is set), `workdir`, `output_bytes`, `keep_output_bytes`, `merge_output` and
    /// `generated` (globs of generated files).
    #[serde(default)]
    pub options: Map<String, Value>,
    /// Host directories that are copied into the workspace.
    #[serde(default)]
    pub mounts: Vec<NewMount>,
    /// Directories of the host below which mounts and the directory may be, instead of those that the server allows. Only
    /// a client on the unix socket may name some, from the same sandbox as the server.
    #[serde(default)]
    #[schemars(with = "Vec<String>")]
    pub allow_roots: Vec<HostPath>,
    /// A text of the client's for this request, of at most 200 bytes. The same again gives the session that has begun by
    /// it, so that a client whose answer was lost may ask again.
    pub create_id: Option<String>,
}

/// A host directory that is to be copied into a workspace.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct NewMount {
    /// The directory on the server's machine, below one that it allows.
    pub host_path: String,
    /// The place of its entries in the workspace; the root by default.
    pub mount_path: Option<String>,
    /// Copies only files whose path below the directory matches one of these globs.
    #[serde(default)]
    pub include_glob: Vec<String>,
    /// Leaves out what matches one of these.
    #[serde(default)]
    pub exclude_glob: Vec<String>,
    /// Bytes of all files together, above which nothing is copied.
    pub max_bytes: Option<u64>,
    /// Copies what links inside the directory lead to.
    #[serde(default)]
    pub follow_symlinks: bool,
}

impl Operation for CreateSession {
    const NAME: &'static str = "create_session";
    const ROUTE: Option<OperationRoute> = OperationRoute::post("sessions", "/v1/sessions", 201);
    type Output = SessionDocument;

    async fn run(self, context: &OperationContext<'_>) -> Result<SessionDocument, OperationError> {
        let hub = context.hub_within(self.allow_roots).await?;
        let (backend, options, roots) = (self.backend, Value::Object(self.options), hub.options().roots.clone());
        let spec = reading(move || spec(backend.as_deref(), options, &roots)).await?;
        let mounts: Result<Vec<MountSpec>, OperationError> = self.mounts.into_iter().map(NewMount::spec).collect();
        let open = match self.create_id {
            None => hub.create(self.name, &spec, &mounts?).await?,
            Some(request) => {
                check_create_id(&request)?;
                hub.create_once(chosen_id(&request, None), self.name, &spec, &mounts?).await?
            }
        };
        shown(context.hub, open.session().id()).await
    }
}

pub(super) fn check_create_id(request: &str) -> Result<(), OperationError> {
    match (1..=CREATE_ID_MAX).contains(&request.len()) {
        true => Ok(()),
        false => Err(OperationError::invalid(format!("create_id has 1 to {CREATE_ID_MAX} bytes"))),
    }
}

impl From<&MountSpec> for NewMount {
    fn from(spec: &MountSpec) -> Self {
        Self {
            host_path: spec.host_path.to_string_lossy().into_owned(),
            mount_path: spec.mount_path.as_ref().map(ToString::to_string),
            include_glob: spec.include_glob.clone(),
            exclude_glob: spec.exclude_glob.clone(),
            max_bytes: spec.max_bytes,
            follow_symlinks: spec.follow_symlinks,
        }
    }
}

impl NewMount {
    pub(crate) fn spec(self) -> Result<MountSpec, OperationError> {
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

fn spec(backend: Option<&str>, options: Value, roots: &AllowedRoots) -> Result<WorkspaceSpec, OperationError> {
    let asked = WorkspaceSpec::asked_for(backend.unwrap_or("memory"), &options);
    let mut spec = asked.map_err(|error| OperationError::invalid(error.to_string()))?;
    if let Some(directory) = spec.named_directory_mut() {
        *directory = roots.place_of(directory)?;
    }
    Ok(spec)
}
