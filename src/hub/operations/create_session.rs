//! Creation of a session.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use super::show_session::shown;
use super::{Operation, OperationContext, OperationError, OperationRoute, SessionDocument};
use super::{begin_policy, policy_of_new, reading};
use crate::backends::{HostPath, WorkspaceSpec};
use crate::engine::path::EntryPath;
use crate::hub::begin_once::chosen_id;
use crate::reducers::ToolPolicy;
use crate::tools::{AllowedRoots, MountSpec};

const CREATE_ID_MAX: usize = 200;

/// Creates a session and copies its mounts. On failure, nothing remains.
#[derive(Debug, Clone, Default, Serialize, Deserialize, JsonSchema)]
#[schemars(rename = "NewSession")]
#[serde(deny_unknown_fields)]
pub struct CreateSession {
    /// Its name: 1 to 80 letters, digits, dots, underscores or hyphens; a prefix of its id by default.
    pub name: Option<String>,
    /// `memory` (the default, without commands), `host`, `mount` (as `host`, in an overlay that forks share), `podman`,
    /// `docker`, `mock`, or `container`: whichever engine works.
    pub backend: Option<String>,
    /// Backend options of the workspace. Containers have the image (default: the server's FOLDSPACE_IMAGE), limits,
    /// `name_prefix`, `uptime_seconds` and so on. A `directory`, for `host` and containers, must be below a directory
    /// that the server allows. Backends with commands also have `environment` (an object of strings, recorded as
    /// digests unless `record_environment` is set), `workdir`, `output_bytes`, `keep_output_bytes`, `merge_output` and
    /// `generated` (globs of generated files).
    #[serde(default)]
    pub options: Map<String, Value>,
    /// Host directories to copy into the workspace.
    #[serde(default)]
    pub mounts: Vec<NewMount>,
    /// Host directories that may contain mounts and the directory, instead of the server's. Only for clients on the
    /// unix socket, from the server's sandbox.
    #[serde(default)]
    #[schemars(with = "Vec<String>")]
    pub allow_roots: Vec<HostPath>,
    /// The policy for the session's tools.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub policy: Option<ToolPolicy>,
    /// An idempotency key of at most 200 bytes. A retry with the same key returns the session that the first request
    /// created.
    pub create_id: Option<String>,
}

/// A host directory, or a single file, to copy into a workspace.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct NewMount {
    /// The directory or file on the server's machine, below a directory that the server allows.
    pub host_path: String,
    /// The destination in the workspace; by default the root, for a file its name there.
    pub mount_path: Option<String>,
    /// Copies only files that match one of these globs, by their path below the directory.
    #[serde(default)]
    pub include_glob: Vec<String>,
    /// Leaves out entries that match one of these globs.
    #[serde(default)]
    pub exclude_glob: Vec<String>,
    /// Limit for the total size in bytes; if it is exceeded, nothing is copied.
    pub max_bytes: Option<u64>,
    /// True to copy the targets of links inside the directory.
    #[serde(default)]
    pub follow_symlinks: bool,
}

impl Operation for CreateSession {
    const NAME: &'static str = "create_session";
    const ROUTE: Option<OperationRoute> = OperationRoute::post("sessions", "/v1/sessions", 201);
    type Output = SessionDocument;

    async fn run(self, context: &OperationContext<'_>) -> Result<SessionDocument, OperationError> {
        policy_of_new(context.hub, self.policy.as_ref())?;
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
        if let Some(policy) = self.policy {
            let session = open.session().clone();
            reading(move || begin_policy(&session, Some(&policy))).await?;
        }
        shown(context.hub, open.session().id()).await
    }
}

pub(super) fn check_create_id(request: &str) -> Result<(), OperationError> {
    match (1..=CREATE_ID_MAX).contains(&request.len()) {
        true => Ok(()),
        false => Err(OperationError::invalid(format!("create_id must have 1 to {CREATE_ID_MAX} bytes"))),
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
    #[doc(hidden)]
    pub fn spec(self) -> Result<MountSpec, OperationError> {
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
