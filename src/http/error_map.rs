//! The HTTP problem of an error of the library.

use super::problem::{HttpProblem, ProblemDetails, ProblemKind, RewindRefusal};
use crate::backends::BackendError;
use crate::engine::error::Diagnostic;
use crate::engine::session::error::SessionError;
use crate::engine::store::StoreError;
use crate::tools::{MountError, WorkspaceError};

impl<E: Diagnostic> From<E> for HttpProblem {
    fn from(error: E) -> Self {
        let error: &dyn Diagnostic = &error;
        let kind = error.chain().find_map(finer).unwrap_or_else(|| error.kind().into());
        let (of_api, command_hint) = (error.chain().find_map(hint), error.hint());
        let rewind = error.chain().find_map(|error| RewindRefusal::of(error.downcast_ref()?));
        let hint = of_api.or_else(|| command_hint.clone());
        let more = Box::new(ProblemDetails { command_hint, rewind });
        Self { hint, more, ..Self::new(kind, error.to_string()) }
    }
}

/// Returns a more specific problem than the kind of the error.
fn finer(error: &dyn Diagnostic) -> Option<ProblemKind> {
    let store = |error: &StoreError| match error {
        StoreError::Foreign { .. } => Some(ProblemKind::Broken),
        StoreError::OtherHost { .. } => Some(ProblemKind::OtherHost),
        StoreError::Io { source, .. } if source.kind() == std::io::ErrorKind::StorageFull => Some(ProblemKind::Full),
        _ => None,
    };
    let session = |error: &SessionError| match error {
        SessionError::Ambiguous { .. } => Some(ProblemKind::Clash),
        SessionError::Unreadable { .. } => Some(ProblemKind::Unreadable),
        _ => None,
    };
    let mount = |error: &MountError| match error {
        MountError::Backend(_) | MountError::Session(_) | MountError::Stopped => None,
        MountError::Outside { .. } => Some(ProblemKind::Forbidden),
        _ => Some(ProblemKind::Unusable),
    };
    let workspace = |error: &WorkspaceError| match error {
        WorkspaceError::NothingChanged { .. } => Some(ProblemKind::Unusable),
        _ => None,
    };
    let found = error.downcast_ref().and_then(store).or_else(|| error.downcast_ref().and_then(session));
    let found = found.or_else(|| error.downcast_ref().and_then(mount));
    let found = found.or_else(|| error.downcast_ref().and_then(workspace));
    found.or_else(|| error.downcast_ref().map(|_: &BackendError| ProblemKind::Backend))
}

/// Returns a hint for clients of the API.
fn hint(error: &dyn Diagnostic) -> Option<String> {
    let session = |error: &SessionError| match error {
        SessionError::NotFound { .. } => Some("GET /v1/sessions lists them"),
        SessionError::NoPosition { .. } => Some("positions begin with 1; 0 is before them"),
        _ => None,
    };
    let mount = |error: &MountError| match error {
        MountError::Outside { .. } => Some("the server mounts only directories below its --allow-root"),
        _ => None,
    };
    let workspace = |error: &WorkspaceError| match error {
        WorkspaceError::Earlier { .. } => Some("`\"force\": true` without `\"keep_earlier\"` removes them, too"),
        WorkspaceError::Drifted(_) | WorkspaceError::NotKept(_) => {
            Some("`\"force\": true` first records external changes, and leaves files without stored contents")
        }
        _ => None,
    };
    if let Some(WorkspaceError::Mounts { name, .. }) = error.downcast_ref() {
        return Some(format!("DELETE /v1/sessions/{name} removes the child"));
    }
    let found = error.downcast_ref().and_then(session).or_else(|| error.downcast_ref().and_then(mount));
    let found = found.or_else(|| error.downcast_ref().and_then(workspace));
    let backend = |_: &BackendError| "`foldspace doctor` reports what works on the server";
    found.or_else(|| error.downcast_ref().map(backend)).map(str::to_owned)
}
