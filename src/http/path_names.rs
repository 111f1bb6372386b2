//! Names in the paths of requests.

use percent_encoding::{NON_ALPHANUMERIC, utf8_percent_encode};

use super::problem::{HttpProblem, ProblemKind};

/// Fails for a path with an empty name, which would match another route.
pub(super) fn check_names(path: &str) -> Result<(), HttpProblem> {
    let what = match path.strip_prefix("/v1/sessions/") {
        Some(rest) if rest.is_empty() || rest.starts_with('/') => "the session's name is empty",
        _ if path.len() > 1 && path.split('/').skip(1).any(str::is_empty) => "a name in the request is empty",
        _ => return Ok(()),
    };
    Err(HttpProblem::new(ProblemKind::Unusable, what))
}

/// Encodes a name as one part of a request's path.
pub fn encoded(part: &str) -> impl std::fmt::Display {
    utf8_percent_encode(part, NON_ALPHANUMERIC)
}
