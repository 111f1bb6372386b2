//! The verbs of HTTP: parameters come from the path, the query and the body; answers are documents or problems.

use std::sync::Arc;

use axum::body::Body;
use axum::extract::{FromRequestParts, Path, Query, Request};
use axum::http::{StatusCode, Uri, header};
use axum::response::{IntoResponse, Response};
use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use hyper::body::Body as _;
use schemars::{JsonSchema, Schema, SchemaGenerator};
use serde::de::DeserializeOwned;
use serde_json::{Map, Value, json};
use tokio::sync::mpsc;

use super::HttpFace;
use super::frames::{self, ALIVE, EVENTS, STILL_HERE};
use super::problem::{HttpProblem, ProblemKind};
use super::request::{self, RequestHead};
use crate::hub::joined;
use crate::hub::operations::{
    OperationAnswer, OperationContext, OperationEntry, OperationError, OperationRoute, admit, described,
};

pub(super) type MakeSchema = fn(&mut SchemaGenerator) -> Schema;
/// Media types; a type without a schema is bytes or text.
pub(super) type Media = &'static [(&'static str, Option<MakeSchema>)];
/// Names, types and meanings of headers.
pub(super) type Headers = &'static [(&'static str, &'static str, &'static str)];

type VerbFuture = BoxFuture<'static, Result<Response, HttpProblem>>;
type VerbAnswer = dyn Fn(HttpFace, RequestHead, Value) -> VerbFuture + Send + Sync;

/// A verb of HTTP alone: its answer is not always a JSON document. As with a hub's verb, its fields are the parameters,
/// and its documentation is its description.
pub(super) trait HttpVerb: DeserializeOwned + JsonSchema + Send + 'static {
    const NAME: &'static str;
    const ROUTE: OperationRoute;
    const GIVES: Media;
    const READS: Headers = &[];
    const NEEDS_BODY: bool = true;
    /// The media type of a body that is passed on unparsed.
    const UPLOAD: Option<&'static str> = None;

    fn answer(self, face: HttpFace, head: RequestHead) -> impl Future<Output = Result<Response, HttpProblem>> + Send;
}

pub(super) struct HttpRoute {
    pub(super) name: &'static str,
    pub(super) place: OperationRoute,
    pub(super) about: String,
    pub(super) params: MakeSchema,
    pub(super) gives: Vec<(&'static str, Option<MakeSchema>)>,
    pub(super) reads: Headers,
    pub(super) needs_body: bool,
    pub(super) upload: Option<&'static str>,
    fields: Arc<Map<String, Value>>,
    answer: Box<VerbAnswer>,
}

pub(super) fn own<V: HttpVerb>() -> HttpRoute {
    let (fields, about) = described::<V>();
    HttpRoute {
        name: V::NAME,
        place: V::ROUTE,
        about,
        params: SchemaGenerator::subschema_for::<V>,
        gives: V::GIVES.to_vec(),
        reads: V::READS,
        needs_body: V::NEEDS_BODY,
        upload: V::UPLOAD,
        fields,
        answer: Box::new(|face, head, params| {
            async move {
                if let Some(client) = &head.caller {
                    admit(V::NAME, client)?;
                }
                let verb: V = serde_json::from_value(params)
                    .map_err(|error| unfit(OperationError::Parameters(error), V::ROUTE))?;
                verb.answer(face, head).await
            }
            .boxed()
        }),
    }
}

pub(super) fn of_hub(entry: &'static OperationEntry) -> Option<HttpRoute> {
    let place = entry.route?;
    Some(HttpRoute {
        name: entry.name,
        place,
        about: entry.about.clone(),
        params: entry.params,
        gives: if matches!(place.status, 202 | 204) { vec![] } else { vec![("application/json", Some(entry.output))] },
        reads: &[],
        needs_body: true,
        upload: None,
        fields: Arc::clone(&entry.fields),
        answer: Box::new(move |face, head, params| run(face, entry, place, head, params).boxed()),
    })
}

impl HttpRoute {
    pub(super) fn is_query(&self) -> bool {
        !takes_json(self.place.method, self.upload)
    }

    pub(super) fn path_names(&self) -> impl Iterator<Item = &'static str> {
        let name = |part: &'static str| Some(part.strip_prefix('{')?.strip_suffix('}')?.trim_start_matches('*'));
        self.place.path.split('/').filter_map(name)
    }

    pub(super) async fn serve(&self, face: HttpFace, request: Request) -> Result<Response, HttpProblem> {
        let (mut parts, body) = request.into_parts();
        let Path(given) = Path::<Vec<(String, String)>>::from_request_parts(&mut parts, &())
            .await
            .map_err(|refused| HttpProblem::new(ProblemKind::BadRequest, refused.body_text()))?;
        let (of_session, mut texts): (Vec<_>, Vec<_>) = given.into_iter().partition(|(name, _)| name == "session");
        if let [(_, session)] = &of_session[..]
            && let Some(forward) = face.forward(session, &parts).await?
        {
            return forward.send(&face, parts, body).await;
        }
        let takes_body = !self.is_query() && self.fields.len() > texts.len();
        texts.extend(self.query(&parts.uri)?);
        let (mut params, body) = match takes_body && (self.needs_body || body.size_hint().exact() != Some(0)) {
            true => (request::json(&parts, body).await?, Body::empty()),
            false => (Map::new(), body),
        };
        for (name, text) in texts {
            let value = typed(&name, self.fields.get(&name), text)?;
            if params.insert(name.clone(), value).is_some() {
                return Err(HttpProblem::new(ProblemKind::BadRequest, format!("{name:.100} is given twice")));
            }
        }
        let session = of_session.into_iter().next().map(|(_, name)| name).unwrap_or_default();
        let (caller, upgrade) = (parts.extensions.remove(), parts.extensions.remove());
        let options = parts.extensions.remove().unwrap_or_default();
        let head = RequestHead { session, headers: parts.headers, caller, upgrade, options, body };
        (self.answer)(face, head, params.into()).await
    }

    /// Reads the query. A misspelt parameter would change the meaning.
    fn query(&self, uri: &Uri) -> Result<Vec<(String, String)>, HttpProblem> {
        let Query(given) = Query::<Vec<(String, String)>>::try_from_uri(uri)
            .map_err(|refused| HttpProblem::new(ProblemKind::BadRequest, refused.body_text()))?;
        let known: Vec<_> = self.fields.keys().filter(|name| !self.path_names().any(|other| other == **name)).collect();
        let known = if self.is_query() { known } else { Vec::new() };
        let Some((name, _)) = given.iter().find(|(name, _)| !known.contains(&name)) else { return Ok(given) };
        let name = format!("{name:.100}");
        let problem = HttpProblem::new(ProblemKind::BadRequest, format!("unknown query parameter {name:?}"));
        let known: Vec<_> = known.into_iter().map(String::as_str).collect();
        Err(problem.with_hint(match known.is_empty() {
            true => "this path takes no query parameters with this method".to_owned(),
            false => format!("this path takes {}", known.join(", ")),
        }))
    }
}

/// Runs a verb. A client that prefers a stream of events gets one from the first message on: `progress` `{text}`,
/// `result` with one of several results, at last `outcome`, or `problem`.
async fn run(
    face: HttpFace,
    entry: &'static OperationEntry,
    place: OperationRoute,
    head: RequestHead,
    params: Value,
) -> Result<Response, HttpProblem> {
    let (is_streamed, is_local) = (head.accepts(EVENTS), head.caller.is_some());
    let (progress, told) = mpsc::unbounded_channel();
    let (results, given) = mpsc::unbounded_channel();
    let mut work = work(face, entry, head, params, (progress, results)).boxed();
    let mut heard = Heard { told, given };
    let done = tokio::select! {
        biased;
        Some(first) = heard.next(), if is_streamed => return Ok(stream_work((place, is_local), work, first, heard)),
        done = &mut work => done,
    };
    if is_streamed && let Some(first) = heard.left() {
        return Ok(stream_work((place, is_local), std::future::ready(done).boxed(), first, heard));
    }
    let answer = done.map_err(|error| unfit(error, place))?;
    if matches!(place.status, 202 | 204) {
        return Ok(StatusCode::from_u16(place.status).unwrap_or_default().into_response());
    }
    let json = ([(header::CONTENT_TYPE, "application/json")], answer.json().map_err(unwritten)?);
    if place.status != 201 {
        return Ok(json.into_response());
    }
    let document = answer.value().map_err(unwritten)?;
    let began = format!("/v1/sessions/{}", document["session"].as_str().unwrap_or_default());
    Ok((StatusCode::CREATED, [(header::LOCATION, began)], json).into_response())
}

/// The messages of a verb before its end.
struct Heard {
    told: mpsc::UnboundedReceiver<String>,
    given: mpsc::UnboundedReceiver<Value>,
}

impl Heard {
    /// Returns the next event, with its name.
    async fn next(&mut self) -> Option<(&'static str, Value)> {
        tokio::select! {
            biased;
            Some(text) = self.told.recv() => Some(("progress", json!({ "text": text }))),
            Some(result) = self.given.recv() => Some(("result", result)),
            else => None,
        }
    }

    /// Returns the next event that has come already.
    fn left(&mut self) -> Option<(&'static str, Value)> {
        self.next().now_or_never().flatten()
    }
}

type Answer = Result<Box<dyn OperationAnswer>, OperationError>;

/// Runs a verb. A verb that changes something runs in a separate task: its steps belong together, so they complete even
/// if the client disconnects. A disconnect cancels what can be cancelled, and drops what only reads.
async fn work(
    face: HttpFace,
    entry: &'static OperationEntry,
    head: RequestHead,
    params: Value,
    (progress, results): (mpsc::UnboundedSender<String>, mpsc::UnboundedSender<Value>),
) -> Answer {
    let face = face.for_client(head.caller.as_ref()).telling(&progress);
    let cancel = face.shared.ending.child_token();
    // Dropped with the request, it cancels the work.
    let _stop = cancel.clone().drop_guard();
    let only_looks = entry.route.is_some_and(|place| place.method == "GET");
    let work = async move {
        // A server that is shutting down still answers and cancels calls.
        let _going = if only_looks { None } else { face.hub().in_flight().begin(cancel.clone()).ok() };
        let context = OperationContext {
            hub: face.hub(),
            session: Some(head.session),
            caller: &face,
            cancel,
            progress: Some(progress),
            results: Some(results),
            bytes_max: usize::MAX,
        };
        (entry.run)(params, &context).await
    };
    if only_looks {
        return work.await;
    }
    joined(tokio::spawn(work).await)?
}

fn stream_work(
    (place, is_local): (OperationRoute, bool),
    mut work: BoxFuture<'static, Answer>,
    first: (&'static str, Value),
    mut heard: Heard,
) -> Response {
    let (frames, response) = frames::open(is_local);
    tokio::spawn(async move {
        let mut next = Some(first);
        let done = loop {
            if let Some((name, event)) = next.take()
                && frames.event(name, &event).await.is_err()
            {
                return;
            }
            tokio::select! {
                biased;
                () = frames.gone() => return,
                Some(event) = heard.next() => next = Some(event),
                done = &mut work => break done,
                () = tokio::time::sleep(ALIVE) => if frames.send(STILL_HERE).await.is_err() { return },
            }
        };
        while let Some((name, event)) = heard.left() {
            if frames.event(name, &event).await.is_err() {
                return;
            }
        }
        let value = done.map_err(|error| unfit(error, place)).and_then(|answer| answer.value().map_err(unwritten));
        // The client may be gone.
        let _ = match value {
            Ok(value) => frames.event("outcome", &value).await,
            Err(problem) => frames.event("problem", &problem).await,
        };
    });
    response
}

/// Returns the problem of an error. Wrong parameters in a query are a bad request.
fn unfit(error: OperationError, place: OperationRoute) -> HttpProblem {
    match error {
        OperationError::Parameters(error) if !takes_json(place.method, None) => {
            HttpProblem::new(ProblemKind::BadRequest, error.to_string())
        }
        error => error.into(),
    }
}

/// Returns true if the parameters of a method are in its JSON body.
fn takes_json(method: &str, upload: Option<&str>) -> bool {
    method == "POST" || method == "PUT" && upload.is_none()
}

fn unwritten(error: serde_json::Error) -> HttpProblem {
    HttpProblem::new(ProblemKind::Broken, format!("failed to serialize the answer: {error}"))
}

fn typed(name: &str, schema: Option<&Value>, text: String) -> Result<Value, HttpProblem> {
    let is = |wanted: &str| match schema.map(|schema| &schema["type"]) {
        Some(Value::Array(kinds)) => kinds.iter().any(|kind| kind == wanted),
        Some(kind) => kind == wanted,
        None => false,
    };
    let wrong = |what| {
        let shown = format!("{text:.100}");
        HttpProblem::new(ProblemKind::BadRequest, format!("{name} must be {what}, not {shown:?}"))
    };
    match () {
        () if is("integer") => text.parse::<u64>().map(Value::from).map_err(|_| wrong("a whole number")),
        () if is("boolean") => text.parse::<bool>().map(Value::from).map_err(|_| wrong("true or false")),
        () => Ok(Value::String(text)),
    }
}
