//! The HTTP problem of an error of the library.

use super::advice;
use super::problem::{HttpProblem, ProblemDetails, RewindRefusal, positions};
use crate::engine::error::Diagnostic;

impl<E: Diagnostic> From<E> for HttpProblem {
    fn from(error: E) -> Self {
        let error: &dyn Diagnostic = &error;
        let advice = error.advice();
        let rewind = error.chain().find_map(|error| RewindRefusal::of(error.downcast_ref()?));
        let hint = advice.as_ref().map(advice::hint);
        let of_session = error.chain().find_map(|error| Some(positions(error.downcast_ref()?)));
        let (position, head) = of_session.unwrap_or_default();
        let more = Box::new(ProblemDetails { advice, rewind, position, head });
        Self { hint, more, ..Self::new(error.kind().into(), error.to_string()) }
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
