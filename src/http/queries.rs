//! Query parameters, of which a path takes only those that it knows.

use std::collections::BTreeMap;
use std::sync::LazyLock;

use axum::extract::{MatchedPath, Query, Request};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use serde_json::Value;

use super::openapi::openapi;
use super::problem::{HttpProblem, ProblemKind};

/// The names of the query parameters, by path and method, as the API's description has them.
static KNOWN: LazyLock<BTreeMap<(String, String), Vec<String>>> = LazyLock::new(|| {
    let description: Value = serde_json::from_str(&openapi()).unwrap_or_default();
    let mut known = BTreeMap::new();
    for (path, methods) in description["paths"].as_object().into_iter().flatten() {
        for (method, operation) in methods.as_object().into_iter().flatten() {
            let parameters = operation["parameters"].as_array().into_iter().flatten();
            let names = parameters.filter(|parameter| parameter["in"] == "query");
            let names = names.filter_map(|parameter| parameter["name"].as_str().map(str::to_owned)).collect();
            known.insert((path.clone(), method.clone()), names);
        }
    }
    known
});

/// Refuses a request with a query parameter that its path does not take: a misspelt one would change what is meant.
pub(super) async fn check(request: Request, next: Next) -> Response {
    match unknown(&request) {
        Some(problem) => problem.into_response(),
        None => next.run(request).await,
    }
}

fn unknown(request: &Request) -> Option<HttpProblem> {
    let query = request.uri().query().filter(|query| !query.is_empty())?;
    let path = request.extensions().get::<MatchedPath>()?.as_str().replace("{*", "{");
    let method = match request.method().as_str() {
        "HEAD" => "get".to_owned(),
        method => method.to_ascii_lowercase(),
    };
    // Another method is refused by the path itself.
    let known = KNOWN.get(&(path, method))?;
    let Ok(Query(given)) = Query::<Vec<(String, String)>>::try_from_uri(request.uri()) else {
        return Some(HttpProblem::new(ProblemKind::BadRequest, format!("the query can't be read: {query:.100}")));
    };
    let (name, _) = given.into_iter().find(|(name, _)| !known.contains(name))?;
    let shown: String = name.chars().take(100).collect();
    let problem = HttpProblem::new(ProblemKind::BadRequest, format!("there is no query parameter {shown:?} here"));
    Some(problem.with_hint(match known.is_empty() {
        true => "this path takes none with this method".to_owned(),
        false => format!("this path takes {}", known.join(", ")),
    }))
}
