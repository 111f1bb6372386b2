//! Which problem an error of the library is.

use axum::extract::rejection::{JsonRejection, PathRejection, QueryRejection};

use super::problem::{HttpProblem, ProblemKind};
use crate::backends::BackendError;
use crate::engine::path::PathError;
use crate::engine::session::sessions::SessionError;
use crate::engine::slice::SliceError;
use crate::engine::store::StoreError;
use crate::hub::{ForwardError, HubError};
use crate::tools::{BisectError, ChildError, DispatchError, MergeError, MountError, PredicateError, RewindError};
use crate::view::PositionError;

impl From<HubError> for HttpProblem {
    fn from(error: HubError) -> Self {
        match error {
            HubError::Session(error) => error.into(),
            HubError::Dispatch(error) => error.into(),
            HubError::Mount(error) => error.into(),
            HubError::Child(error) => error.into(),
            HubError::Merge(error) => error.into(),
            HubError::Rewind(error) => error.into(),
            HubError::Forward(error) => error.into(),
            HubError::Busy { .. } => {
                Self::new(ProblemKind::Refused, error.to_string()).with_hint("try again when that is done")
            }
            HubError::Ending => Self::new(ProblemKind::Ending, error.to_string()),
            HubError::Panicked => Self::new(ProblemKind::Broken, error.to_string()),
        }
    }
}

impl From<ForwardError> for HttpProblem {
    fn from(error: ForwardError) -> Self {
        let detail = error.to_string();
        match error {
            ForwardError::Refused { kind, hint, .. } => Self { hint, ..Self::new(ProblemKind::of(&kind), detail) },
            ForwardError::Gone(_) | ForwardError::Ending(_) => {
                Self::new(ProblemKind::InUse, detail).with_hint("nothing was done; try again")
            }
            ForwardError::Lost { .. } => {
                Self::new(ProblemKind::Lost, detail).with_hint("look into the session's log before you do it again")
            }
        }
    }
}

impl From<SessionError> for HttpProblem {
    fn from(error: SessionError) -> Self {
        let kind = match error {
            SessionError::Store(error) => return error.into(),
            SessionError::Slice(error) => return error.into(),
            SessionError::NotFound { .. } => {
                return Self::new(ProblemKind::NotFound, error.to_string()).with_hint("GET /v1/sessions lists them");
            }
            SessionError::NoPosition { .. } => {
                return Self::new(ProblemKind::NotFound, error.to_string())
                    .with_hint("positions begin with 1; 0 is before them");
            }
            SessionError::Ambiguous { .. } | SessionError::NameTaken { .. } => ProblemKind::Clash,
            SessionError::BadName { .. } | SessionError::NoAgent { .. } => ProblemKind::Unusable,
            SessionError::TooDeep { .. } | SessionError::Unreadable { .. } => ProblemKind::Refused,
        };
        let hint = error.hint();
        Self { hint, ..Self::new(kind, error.to_string()) }
    }
}

impl From<PositionError> for HttpProblem {
    fn from(error: PositionError) -> Self {
        match error {
            PositionError::NothingBack { .. } => Self::new(ProblemKind::NotFound, error.to_string()),
            PositionError::Session(error) => error.into(),
        }
    }
}

impl From<StoreError> for HttpProblem {
    fn from(error: StoreError) -> Self {
        let kind = match &error {
            StoreError::NoSession(_) | StoreError::NoContent(_) => ProblemKind::NotFound,
            StoreError::Conflict { .. } => ProblemKind::Clash,
            StoreError::InUse { .. } => ProblemKind::InUse,
            StoreError::Buried(_) | StoreError::ReadOnly | StoreError::Locked { .. } => ProblemKind::Refused,
            StoreError::Elsewhere { .. } | StoreError::Unsettled(_) | StoreError::Foreign { .. } => ProblemKind::Broken,
            StoreError::Commit(_) => ProblemKind::Unusable,
            StoreError::Io { source, .. } if source.kind() == std::io::ErrorKind::StorageFull => ProblemKind::Full,
            StoreError::Io { .. } | StoreError::Damaged { .. } | StoreError::Format { .. } => ProblemKind::Broken,
            StoreError::Lost(_) => ProblemKind::Broken,
            StoreError::Poisoned(_) | StoreError::Index(_) => ProblemKind::Broken,
        };
        let mut problem = Self::new(kind, error.to_string());
        problem.hint = error.hint();
        if let StoreError::InUse { holder, .. } = &error {
            problem.holder = Some(Box::new(holder.as_ref().into()));
        }
        problem
    }
}

impl From<SliceError> for HttpProblem {
    fn from(error: SliceError) -> Self {
        Self::new(ProblemKind::Broken, error.to_string())
    }
}

impl From<BackendError> for HttpProblem {
    fn from(error: BackendError) -> Self {
        Self::new(ProblemKind::Backend, error.to_string())
            .with_hint("`foldspace doctor` tells what works on the server")
    }
}

impl From<DispatchError> for HttpProblem {
    fn from(error: DispatchError) -> Self {
        match error {
            DispatchError::Session(error) => error.into(),
            DispatchError::Workspace(error) => error.into(),
            DispatchError::NotEmpty(_) | DispatchError::SecondContainer(_) => {
                Self::new(ProblemKind::Refused, error.to_string())
            }
        }
    }
}

impl From<MountError> for HttpProblem {
    fn from(error: MountError) -> Self {
        match error {
            MountError::Session(error) => error.into(),
            MountError::Outside { .. } => Self::new(ProblemKind::Forbidden, error.to_string())
                .with_hint("the server mounts only what is below its --allow-root directories"),
            MountError::Backend(error) => error.into(),
            MountError::Stopped => Self::new(ProblemKind::Ending, error.to_string()),
            other => Self::new(ProblemKind::Unusable, other.to_string()),
        }
    }
}

impl From<ChildError> for HttpProblem {
    fn from(error: ChildError) -> Self {
        match error {
            ChildError::Dispatch(error) => error.into(),
            ChildError::Mounts { ref name, ref source, .. } => {
                let words = error.to_string();
                let hint = format!("DELETE /v1/sessions/{name} takes the child away again");
                let cause = Self::from(source.clone());
                Self { detail: words, hint: Some(hint), ..cause }
            }
        }
    }
}

impl From<MergeError> for HttpProblem {
    fn from(error: MergeError) -> Self {
        match error {
            MergeError::Session(error) => error.into(),
            MergeError::Workspace(error) => error.into(),
            MergeError::NotAChild { .. } | MergeError::Itself(_) => Self::new(ProblemKind::Unusable, error.to_string()),
            MergeError::Tool(_) => Self::new(ProblemKind::Refused, error.to_string()),
            MergeError::NotPutBack(_) => Self::new(ProblemKind::Broken, error.to_string()),
        }
    }
}

impl From<RewindError> for HttpProblem {
    fn from(error: RewindError) -> Self {
        match error {
            RewindError::Session(error) => error.into(),
            RewindError::Workspace(error) => error.into(),
            RewindError::Slice(error) => error.into(),
            RewindError::NotPutBack { .. } | RewindError::Stopped => Self::new(ProblemKind::Broken, error.to_string()),
            RewindError::InsideCommit { .. } | RewindError::TooLarge { .. } => {
                Self::new(ProblemKind::Refused, error.to_string())
            }
            RewindError::Earlier { .. } => Self::new(ProblemKind::Refused, error.to_string())
                .with_hint("`\"force\": true`, without `\"keep_earlier\"`, removes that, too"),
            other => Self::new(ProblemKind::Refused, other.to_string())
                .with_hint("`\"force\": true` records what was changed outside first, and leaves what was not kept"),
        }
    }
}

impl From<BisectError> for HttpProblem {
    fn from(error: BisectError) -> Self {
        match error {
            BisectError::Session(error) => error.into(),
            BisectError::Workspace(error) => error.into(),
            BisectError::Order { .. } | BisectError::NothingChanged { .. } => {
                Self::new(ProblemKind::Unusable, error.to_string())
            }
            BisectError::Stopped | BisectError::Cancelled => Self::new(ProblemKind::Ending, error.to_string()),
            other => Self::new(ProblemKind::Refused, other.to_string()),
        }
    }
}

impl From<PredicateError> for HttpProblem {
    fn from(error: PredicateError) -> Self {
        Self::new(ProblemKind::Unusable, error.to_string())
    }
}

impl From<PathError> for HttpProblem {
    fn from(error: PathError) -> Self {
        Self::new(ProblemKind::Unusable, error.to_string())
    }
}

impl From<JsonRejection> for HttpProblem {
    fn from(rejection: JsonRejection) -> Self {
        let kind = match &rejection {
            JsonRejection::JsonDataError(_) => ProblemKind::Unusable,
            JsonRejection::MissingJsonContentType(_) => ProblemKind::MediaType,
            _ => ProblemKind::BadRequest,
        };
        Self::new(kind, rejection.body_text())
    }
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
