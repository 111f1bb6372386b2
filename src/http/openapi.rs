//! The description of the API, from the table of verbs and the routes of their own.

use std::sync::LazyLock;

use axum::http::header;
use axum::response::IntoResponse;
use schemars::generate::SchemaSettings;
use schemars::transform::{RecursiveTransform, Transform};
use schemars::{JsonSchema, Schema, SchemaGenerator};
use serde_json::{Map, Value, json};

use super::calls::{CallRequest, CallResponse};
use super::files::{AtQuery, WholeEntry};
use super::follow::FromQuery;
use super::health::HealthBody;
use super::problem::{HttpProblem, MEDIA_TYPE};
use super::tar::TarRequest;
use crate::hub::operations::{OperationEntry, operations};
use crate::view::Position;

type MakeSchema = fn(&mut SchemaGenerator) -> Schema;

/// A route whose answer is no JSON document, or not always one.
struct HttpRoute {
    method: &'static str,
    path: &'static str,
    tag: &'static str,
    name: &'static str,
    about: &'static str,
    query: Option<MakeSchema>,
    /// Headers that it reads, with their types and meanings.
    headers: &'static [(&'static str, &'static str, &'static str)],
    /// The body, and whether it must be there.
    body: Option<(MakeSchema, bool)>,
    /// The media types of an answer; one without a schema is bytes or text.
    gives: &'static [(&'static str, Option<MakeSchema>)],
}

const PLAIN: HttpRoute = HttpRoute {
    method: "get",
    path: "",
    tag: "server",
    name: "",
    about: "",
    query: None,
    headers: &[],
    body: None,
    gives: &[],
};

const ROUTES: [HttpRoute; 7] = [
    HttpRoute {
        path: "/healthz",
        name: "healthz",
        about: "Tells that the server answers. It needs no token.",
        gives: &[("application/json", Some(of::<HealthBody>))],
        ..PLAIN
    },
    HttpRoute {
        path: "/metrics",
        name: "metrics",
        about: "Gives the server's figures, as Prometheus reads them.",
        gives: &[("text/plain", None)],
        ..PLAIN
    },
    HttpRoute {
        path: "/openapi.json",
        name: "openapi",
        about: "Gives this description.",
        gives: &[("application/json", Some(of::<Map<String, Value>>))],
        ..PLAIN
    },
    HttpRoute {
        method: "post",
        path: "/v1/sessions/{session}/calls",
        tag: "calls",
        name: "make_call",
        about: "Makes a tool call and waits for its outcome. With `Accept: text/event-stream` it comes as server-sent \
                events: `begun` `{call}`, `output` `{stream, text | base64}`, `missed` `{bytes}` (with `all_output` only \
                of a call that was taken back), `question` `{call, command, programs, ...}` (answer it with `POST \
                .../calls/{call}/answer`), at last `outcome`, or `problem`. A client that goes away takes its call back.",
        headers: &[
            ("traceparent", "string", "The span that is the parent of the call's, as W3C Trace Context has it"),
            ("tracestate", "string", "What belongs to it"),
        ],
        body: Some((of::<CallRequest>, true)),
        gives: &[("application/json", Some(of::<CallResponse>)), ("text/event-stream", None)],
        ..PLAIN
    },
    HttpRoute {
        path: "/v1/sessions/{session}/files/{path}",
        tag: "files",
        name: "read_file",
        about: "Gives a file as it was at a position: its bytes; with `Accept: application/json` what is known of it, \
                with its contents as text or base64.",
        query: Some(of::<AtQuery>),
        gives: &[("application/octet-stream", None), ("application/json", Some(of::<WholeEntry>))],
        ..PLAIN
    },
    HttpRoute {
        path: "/v1/sessions/{session}/events/stream",
        tag: "events",
        name: "follow_events",
        about: "Follows a session's events as server-sent events, from any position on: first those that are there, then \
                those that come. Each has its position as `id`, so a client that comes again with `Last-Event-ID` misses \
                nothing. An `end` event says that the session was removed.",
        query: Some(of::<FromQuery>),
        headers: &[("Last-Event-ID", "integer", "The last position that was seen")],
        gives: &[("text/event-stream", None)],
        ..PLAIN
    },
    HttpRoute {
        method: "post",
        path: "/v1/sessions/{session}/materialise",
        tag: "files",
        name: "materialise",
        about: "Gives the files of a session as they were at a position, as a tar stream. Modes, links and times are kept; \
                the same position gives the same bytes. Entries that were never kept are left out.",
        body: Some((of::<TarRequest>, false)),
        gives: &[("application/x-tar", None)],
        ..PLAIN
    },
];

fn of<T: JsonSchema>(generator: &mut SchemaGenerator) -> Schema {
    generator.subschema_for::<T>()
}

/// The parts of the description as they are put together.
struct Description {
    paths: Map<String, Value>,
    schemas: Map<String, Value>,
}

impl Description {
    /// Returns a schema, and keeps what it refers to.
    fn schema(&mut self, make: MakeSchema, is_answer: bool) -> Value {
        let settings = SchemaSettings::draft2020_12().with(|settings| {
            settings.definitions_path = "/components/schemas".into();
            settings.meta_schema = None;
        });
        let settings = if is_answer { settings.for_serialize() } else { settings.for_deserialize() };
        let mut generator = settings.into_generator();
        let mut schema = make(&mut generator);
        RecursiveTransform(with_known_width).transform(&mut schema);
        for (name, definition) in generator.take_definitions(true) {
            let Ok(mut definition) = Schema::try_from(definition) else { continue };
            RecursiveTransform(with_known_width).transform(&mut definition);
            self.schemas.insert(name, definition.into());
        }
        schema.into()
    }

    /// Takes a schema out of those that were kept, to be written where it is used.
    fn taken(&mut self, make: MakeSchema) -> Map<String, Value> {
        let schema = self.schema(make, false);
        let name = schema["$ref"].as_str().and_then(|reference| reference.rsplit('/').next()).unwrap_or_default();
        let fields = self.schemas.remove(name).and_then(|mut schema| schema["properties"].as_object_mut().cloned());
        fields.unwrap_or_default()
    }

    fn add(&mut self, path: &str, method: &str, operation: Value) {
        let methods = self.paths.entry(path.replace("{*", "{")).or_insert_with(|| json!({}));
        methods[method.to_ascii_lowercase()] = operation;
    }

    fn add_operation(&mut self, entry: &OperationEntry) {
        let Some(route) = entry.route else { return };
        let (is_query, names) = (route.method != "POST", path_names(route.path));
        let schema = self.schema(entry.params, false);
        let name = schema["$ref"].as_str().and_then(|reference| reference.rsplit('/').next()).unwrap_or_default();
        let mut fields = self.schemas.remove(name).unwrap_or_default();
        let own = fields["properties"].as_object_mut().map(std::mem::take).unwrap_or_default();
        let (places, others): (Map<_, _>, Map<_, _>) = own.into_iter().partition(|(name, _)| names.contains(&&**name));
        let mut operation = json!({ "tags": [route.tag], "summary": entry.about, "operationId": entry.name });
        let queries = if is_query { others.clone() } else { Map::new() };
        set_parameters(&mut operation, &names, &places, queries, &[]);
        if !is_query && !others.is_empty() {
            fields["properties"] = others.into();
            if let Some(required) = fields.get_mut("required").and_then(Value::as_array_mut) {
                required.retain(|field| !field.as_str().is_some_and(|field| names.contains(&field)));
            }
            self.schemas.insert(name.to_owned(), fields);
            operation["requestBody"] = body(schema, true);
        }
        let answer = match route.status {
            202 | 204 => json!({ "description": "" }),
            _ => given([("application/json", self.schema(entry.output, true))]),
        };
        operation["responses"] = json!({ route.status.to_string(): answer, "4XX": problem() });
        self.add(route.path, route.method, operation);
    }

    fn add_route(&mut self, route: &HttpRoute) {
        let mut operation = json!({ "tags": [route.tag], "summary": route.about, "operationId": route.name });
        let queries = route.query.map(|make| self.taken(make)).unwrap_or_default();
        set_parameters(&mut operation, &path_names(route.path), &Map::new(), queries, route.headers);
        if let Some((make, is_required)) = route.body {
            operation["requestBody"] = body(self.schema(make, false), is_required);
        }
        let text = || json!({ "type": "string" });
        let answers: Vec<_> = route
            .gives
            .iter()
            .map(|(media, make)| (*media, make.map_or_else(text, |make| self.schema(make, true))))
            .collect();
        operation["responses"] = json!({ "200": given(answers), "4XX": problem() });
        if route.name == "healthz" {
            operation["security"] = json!([{}]);
            operation["responses"].as_object_mut().map(|responses| responses.remove("4XX"));
        }
        self.add(route.path, route.method, operation);
    }
}

/// The names in a path.
fn path_names(path: &str) -> Vec<&str> {
    path.split('/').filter_map(|part| part.strip_prefix('{')?.strip_suffix('}')).collect()
}

fn set_parameters(
    operation: &mut Value,
    names: &[&str],
    places: &Map<String, Value>,
    queries: Map<String, Value>,
    headers: &[(&str, &str, &str)],
) {
    let of_path = names.iter().map(|name| match (*name, places.get(*name)) {
        ("session", _) => parameter(
            "path",
            name,
            json!({
                "type": "string", "description": "The session, by name or by the beginning of its id",
            }),
        ),
        ("path", None) => parameter(
            "path",
            name,
            json!({
                "type": "string", "description": "The path from the workspace root; its slashes stand as they are",
            }),
        ),
        (name, schema) => parameter("path", name, schema.cloned().unwrap_or_else(|| json!({ "type": "string" }))),
    });
    let of_query = queries.into_iter().map(|(name, schema)| parameter("query", &name, schema));
    let of_headers = headers
        .iter()
        .map(|(name, kind, about)| parameter("header", name, json!({ "type": kind, "description": about })));
    let all: Vec<Value> = of_path.chain(of_query).chain(of_headers).collect();
    if !all.is_empty() {
        operation["parameters"] = all.into();
    }
}

/// A parameter. What it is described by stands beside its schema; null can't be given here.
fn parameter(place: &str, name: &str, mut schema: Value) -> Value {
    let fields = schema.as_object_mut();
    let about = fields.and_then(|fields| {
        fields.remove("default");
        fields.remove("description")
    });
    if let Some(kinds) = schema["type"].as_array_mut() {
        kinds.retain(|kind| kind != "null");
        if let [only] = &kinds[..] {
            schema["type"] = only.clone();
        }
    }
    if let Some(one) = schema["anyOf"].as_array().and_then(|any| any.iter().find(|one| one["type"] != "null")) {
        schema = one.clone();
    }
    if let Some(fields) = schema.as_object_mut() {
        fields.retain(|_, value| !value.is_null());
    }
    json!({ "name": name, "in": place, "description": about, "required": place == "path", "schema": schema })
}

fn body(schema: Value, is_required: bool) -> Value {
    json!({ "content": { "application/json": { "schema": schema } }, "required": is_required })
}

fn given(answers: impl IntoIterator<Item = (&'static str, Value)>) -> Value {
    let content = answers.into_iter().map(|(media, schema)| (media.to_owned(), json!({ "schema": schema })));
    json!({ "description": "", "content": content.collect::<Map<_, _>>() })
}

fn problem() -> Value {
    given([(MEDIA_TYPE, json!({ "$ref": "#/components/schemas/Problem" }))])
}

/// Replaces the widths of Rust's numbers by those that OpenAPI knows.
fn with_known_width(schema: &mut Schema) {
    let known = match schema.get("format").and_then(Value::as_str) {
        Some("uint64") => Some("int64"),
        Some("uint32" | "uint16") => Some("int32"),
        Some(format) if !format.starts_with("uint") => return,
        Some(_) => None,
        None => return,
    };
    match known {
        Some(known) => drop(schema.insert("format".to_owned(), known.into())),
        None => drop(schema.remove("format")),
    }
}

fn description() -> Value {
    let mut description = Description { paths: Map::new(), schemas: Map::new() };
    operations().iter().for_each(|entry| description.add_operation(entry));
    ROUTES.iter().for_each(|route| description.add_route(route));
    description.schema(of::<HttpProblem>, true);
    let Description { mut paths, mut schemas } = description;
    paths.sort_keys();
    schemas.sort_keys();
    let about = "Sessions of AI agents' sandboxes: tool calls, their events, and every state that follows from them. A \
                 session stands in a path by its name or by the beginning of its id. On the unix socket no token is \
                 needed.";
    json!({
        "openapi": "3.1.0",
        "info": {
            "title": "foldspace",
            "description": format!("{about} {}", Position::meaning()),
            "license": { "name": "MIT OR Apache-2.0", "identifier": "MIT OR Apache-2.0" },
            "version": env!("CARGO_PKG_VERSION"),
        },
        "paths": paths,
        "components": { "schemas": schemas, "securitySchemes": { "token": { "type": "http", "scheme": "bearer" } } },
        "security": [{ "token": [] }],
    })
}

/// Returns the OpenAPI description of the API, as JSON.
pub fn openapi() -> String {
    static TEXT: LazyLock<String> = LazyLock::new(|| {
        // It is made of texts, numbers and lists of them.
        serde_json::to_string_pretty(&description()).unwrap_or_default()
    });
    TEXT.clone()
}

/// Gives this description.
pub(super) async fn serve() -> impl IntoResponse {
    ([(header::CONTENT_TYPE, "application/json")], openapi())
}
