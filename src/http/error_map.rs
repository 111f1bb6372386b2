//! The HTTP problem of an error of the library.

use axum::extract::rejection::{PathRejection, QueryRejection};

use super::advice;
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
        let advice = error.advice();
        let rewind = error.chain().find_map(|error| RewindRefusal::of(error.downcast_ref()?));
        let hint = advice.as_ref().map(advice::hint);
        let more = Box::new(ProblemDetails { advice, rewind });
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

impl From<QueryRejection> for HttpProblem {
    fn from(rejection: QueryRejection) -> Self {
        Self::new(ProblemKind::BadRequest, rejection.body_text())
    }
}

impl From<PathRejection> for HttpProblem {
    fn from(rejection: PathRejection) -> Self {
        Self::new(ProblemKind::BadRequest, rejection.body_text())
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::HttpProblem;
    use crate::engine::advice::Advice;
    use crate::engine::error::Diagnostic;
    use crate::engine::session::error::SessionError;
    use crate::http::ClientError;

    #[test]
    fn problem_has_advice_as_text_and_as_data() {
        let nearest = Some("story".to_owned());
        let problem =
            HttpProblem::from(SessionError::NotFound { wanted: "stroy".to_owned(), nearest: nearest.clone() });
        let hint = "did you mean story? GET /v1/sessions lists them";
        assert_eq!(problem.hint.as_deref(), Some(hint));
        let mut sent = serde_json::to_value(&problem).unwrap();
        assert_eq!(sent["advice"], json!({ "kind": "list_sessions", "nearest": "story" }));
        let received = |sent| ClientError::Refused(Box::new(serde_json::from_value(sent).unwrap())).advice();
        assert_eq!(received(sent.clone()), Some(Advice::ListSessions { nearest }));
        sent["advice"]["kind"] = json!("of_a_newer_server");
        assert_eq!(received(sent), Some(Advice::text(hint)));
    }
}
