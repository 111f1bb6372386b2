//! The verbs of the hub as routes: parameters from the path, the query and the body; documents or problems back.

use axum::Router;
use axum::extract::{FromRequest, FromRequestParts, Query, Request, State};
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::routing::{MethodFilter, on};
use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use serde_json::{Map, Value};

use super::HttpFace;
use super::extract::{Body, Path};
use super::problem::{HttpProblem, ProblemKind};
use crate::engine::session::Session;
use crate::hub::OpenSession;
use crate::hub::operations::{Caller, OperationContext, OperationEntry, OperationError, OperationRoute, operations};
use crate::tools::ShellRules;

/// The routes of all verbs.
pub(super) fn router() -> Router<HttpFace> {
    let routes = operations().iter().filter_map(|entry| Some((entry, entry.route?)));
    routes.fold(Router::new(), |router, (entry, route)| {
        let filter = match route.method {
            "POST" => MethodFilter::POST,
            "DELETE" => MethodFilter::DELETE,
            _ => MethodFilter::GET,
        };
        let answer = move |State(face): State<HttpFace>, request: Request| serve(face, entry, route, request);
        router.route(route.path, on(filter, answer))
    })
}

async fn serve(
    face: HttpFace,
    entry: &'static OperationEntry,
    route: OperationRoute,
    request: Request,
) -> Result<Response, HttpProblem> {
    let (mut parts, body) = request.into_parts();
    let Path(given) = Path::<Vec<(String, String)>>::from_request_parts(&mut parts, &()).await?;
    let (of_session, mut places): (Vec<_>, Vec<_>) = given.into_iter().partition(|(name, _)| name == "session");
    let is_query = route.method != "POST";
    let mut params = match is_query {
        true => {
            places.extend(Query::<Vec<(String, String)>>::from_request_parts(&mut parts, &()).await?.0);
            Map::new()
        }
        false if entry.takes_body() => Body::from_request(Request::from_parts(parts, body), &()).await?.0,
        false => Map::new(),
    };
    for (name, text) in places {
        let value = typed(&name, entry.fields.get(&name), text)?;
        if params.insert(name.clone(), value).is_some() {
            return Err(HttpProblem::new(ProblemKind::BadRequest, format!("{name:.100} is there twice")));
        }
    }
    let cancel = face.shared.ending.child_token();
    // Dropped with the request, it cancels the work.
    let _stop = cancel.clone().drop_guard();
    let context = OperationContext {
        hub: face.hub(),
        session: of_session.into_iter().next().map(|(_, name)| name),
        caller: &face,
        cancel,
        progress: None,
        bytes_max: usize::MAX,
    };
    let answer = (entry.run)(Value::Object(params), &context).await.map_err(|error| match error {
        OperationError::Parameters(error) if is_query => HttpProblem::new(ProblemKind::BadRequest, error.to_string()),
        error => error.into(),
    })?;
    if matches!(route.status, 202 | 204) {
        return Ok(StatusCode::from_u16(route.status).unwrap_or_default().into_response());
    }
    let json = ([(header::CONTENT_TYPE, "application/json")], answer.json().map_err(unwritten)?);
    if route.status != 201 {
        return Ok(json.into_response());
    }
    let began = answer.value().map_err(unwritten)?;
    let place = format!("/v1/sessions/{}", began["session"].as_str().unwrap_or_default());
    Ok((StatusCode::CREATED, [(header::LOCATION, place)], json).into_response())
}

fn unwritten(error: serde_json::Error) -> HttpProblem {
    HttpProblem::new(ProblemKind::Broken, format!("the answer can't be written: {error}"))
}

/// Reads a text of the path or the query as what the parameter is.
fn typed(name: &str, schema: Option<&Value>, text: String) -> Result<Value, HttpProblem> {
    let kind = schema.map(|schema| &schema["type"]);
    let is = |wanted: &str| match kind {
        Some(Value::Array(kinds)) => kinds.iter().any(|kind| kind == wanted),
        Some(kind) => kind == wanted,
        None => false,
    };
    let wrong = |what| HttpProblem::new(ProblemKind::BadRequest, format!("{name} must be {what}, not {text:.100?}"));
    match () {
        () if is("integer") => text.parse::<u64>().map(Value::from).map_err(|_| wrong("a whole number")),
        () if is("boolean") => text.parse::<bool>().map(Value::from).map_err(|_| wrong("true or false")),
        () => Ok(Value::String(text)),
    }
}

impl Caller for HttpFace {
    fn session<'a>(&'a self, wanted: Option<&'a str>) -> BoxFuture<'a, Result<Session, OperationError>> {
        async move { Ok(HttpFace::session(self, wanted.unwrap_or_default().to_owned()).await?) }.boxed()
    }

    fn open<'a>(&'a self, wanted: Option<&'a str>) -> BoxFuture<'a, Result<OpenSession, OperationError>> {
        async move { Ok(HttpFace::open(self, wanted.unwrap_or_default().to_owned()).await?) }.boxed()
    }

    fn rules(&self) -> &ShellRules {
        HttpFace::rules(self)
    }
}
