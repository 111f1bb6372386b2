//! The container backends of a program that was built without them.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::containers::{EngineKind, Leftovers, PodmanOptions};
use super::disk::KeptIndex;
use super::doctor::Finding;
use super::{BackendError, Workspace};
use crate::engine::id::SessionId;

const ABSENT: &str = "this program was built without containers; build it with the feature podman or docker";

fn absent() -> BackendError {
    BackendError { backend: "container", reason: ABSENT.to_owned() }
}

/// Fails: this build does not support containers.
pub(crate) fn open(
    _: SessionId,
    _: &PodmanOptions,
    _: &Path,
    _: KeptIndex,
) -> Result<Arc<dyn Workspace>, BackendError> {
    Err(absent())
}

/// Fails: only a program with containers can remove the files.
pub(crate) fn remove_files(_: SessionId) -> Result<(), BackendError> {
    Err(absent())
}

/// Reports that this build does not support containers.
pub(crate) fn diagnose(_: &PodmanOptions) -> Vec<Finding> {
    vec![Finding::limited(
        "containers",
        "this program was built without them",
        "build it with the feature podman or docker",
    )]
}

/// Reports that no engine was queried.
pub fn remove_leftovers(_: Option<&str>, _: bool) -> Result<Leftovers, BackendError> {
    Ok(Leftovers { unasked: Some(ABSENT.to_owned()), ..Leftovers::default() })
}

/// Fails: this build does not support engines.
pub fn find_engine(_: Option<&str>) -> Result<EngineKind, BackendError> {
    Err(absent())
}

/// Fails: this build does not support engines.
pub fn build_image(
    _: EngineKind,
    _: Option<&str>,
    _: Option<&str>,
    _: Option<&str>,
    _: &mut (dyn FnMut(&str) + Send),
) -> Result<String, BackendError> {
    Err(absent())
}

/// Returns `None`: this build does not support engines.
pub(crate) fn built_image(_: EngineKind, _: Option<&str>) -> Option<String> {
    None
}

/// Finds nothing.
pub fn sweep_sandboxes<E: From<BackendError>>(
    _: &Path,
    _: bool,
    _: impl Fn() -> Result<Vec<SessionId>, E>,
) -> Result<Vec<PathBuf>, E> {
    Ok(Vec::new())
}
