//! The OpenAPI description of the API, built from its routes.

use schemars::generate::SchemaSettings;
use schemars::transform::{RecursiveTransform, Transform};
use schemars::{Schema, SchemaGenerator};
use serde_json::{Map, Value, json};

use super::problem::{HttpProblem, MEDIA_TYPE};
use super::verb::{HttpRoute, MakeSchema};
use crate::view::Position;

struct Description {
    paths: Map<String, Value>,
    schemas: Map<String, Value>,
}

impl Description {
    /// Returns a schema, and collects the schemas that it refers to.
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

    fn add(&mut self, route: &HttpRoute) {
        let names: Vec<&str> = route.path_names().collect();
        let schema = self.schema(route.params, false);
        let name = schema["$ref"].as_str().and_then(|reference| reference.rsplit('/').next()).unwrap_or_default();
        let mut fields = self.schemas.remove(name).unwrap_or_default();
        let own = fields["properties"].as_object_mut().map(std::mem::take).unwrap_or_default();
        let (places, others): (Map<_, _>, Map<_, _>) = own.into_iter().partition(|(name, _)| names.contains(&&**name));
        let mut operation = json!({ "tags": [route.place.tag], "summary": route.about, "operationId": route.name });
        let queries = if route.is_query() { others.clone() } else { Map::new() };
        set_parameters(&mut operation, &names, &places, queries, route.reads);
        if !route.is_query() && !others.is_empty() {
            fields["properties"] = others.into();
            if let Some(required) = fields.get_mut("required").and_then(Value::as_array_mut) {
                required.retain(|field| !field.as_str().is_some_and(|field| names.contains(&field)));
            }
            self.schemas.insert(name.to_owned(), fields);
            let content = json!({ "application/json": { "schema": schema } });
            operation["requestBody"] = json!({ "content": content, "required": route.needs_body });
        }
        if let Some(media) = route.upload {
            let content = json!({ media: { "schema": { "type": "string", "format": "binary" } } });
            operation["requestBody"] = json!({ "content": content, "required": true });
        }
        let text = || json!({ "type": "string" });
        let schema_of =
            |(media, make): &(_, Option<_>)| (*media, make.map_or_else(text, |make| self.schema(make, true)));
        let answer = match route.gives.is_empty() {
            true => json!({ "description": "" }),
            false => given(route.gives.iter().map(schema_of).collect::<Vec<_>>()),
        };
        operation["responses"] = json!({ route.place.status.to_string(): answer, "4XX": problem() });
        if route.name == "readyz" {
            operation["responses"]["503"] = problem();
        }
        if matches!(route.name, "healthz" | "readyz") {
            operation["security"] = json!([{}]);
            operation["responses"].as_object_mut().map(|responses| responses.remove("4XX"));
        }
        let methods = self.paths.entry(route.place.path.replace("{*", "{")).or_insert_with(|| json!({}));
        methods[route.place.method.to_ascii_lowercase()] = operation;
    }
}

fn set_parameters(
    operation: &mut Value,
    names: &[&str],
    places: &Map<String, Value>,
    queries: Map<String, Value>,
    headers: &[(&str, &str, &str)],
) {
    let session = json!({ "type": "string", "description": "The session, by name or by the beginning of its id" });
    let of_path = names.iter().map(|name| parameter("path", name, places.get(*name).unwrap_or(&session).clone()));
    let of_query = queries.into_iter().map(|(name, schema)| parameter("query", &name, schema));
    let of_headers = headers
        .iter()
        .map(|(name, kind, about)| parameter("header", name, json!({ "type": kind, "description": about })));
    let all: Vec<Value> = of_path.chain(of_query).chain(of_headers).collect();
    if !all.is_empty() {
        operation["parameters"] = all.into();
    }
}

/// Builds a parameter: the description moves out of the schema, and null is not allowed.
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

fn given(answers: impl IntoIterator<Item = (&'static str, Value)>) -> Value {
    let content = answers.into_iter().map(|(media, schema)| (media.to_owned(), json!({ "schema": schema })));
    json!({ "description": "", "content": content.collect::<Map<_, _>>() })
}

fn problem() -> Value {
    given([(MEDIA_TYPE, json!({ "$ref": "#/components/schemas/Problem" }))])
}

/// Replaces Rust's integer formats with OpenAPI's.
fn with_known_width(schema: &mut Schema) {
    let format = schema.get("format").and_then(Value::as_str);
    let known = match format.and_then(|format| format.strip_prefix("uint")) {
        None => return,
        Some("64") => "int64",
        Some("32" | "16") => "int32",
        Some(_) => return drop(schema.remove("format")),
    };
    schema.insert("format".to_owned(), known.into());
}

/// Describes an API with these routes.
pub(super) fn describe(routes: &[HttpRoute]) -> Value {
    let mut description = Description { paths: Map::new(), schemas: Map::new() };
    routes.iter().for_each(|route| description.add(route));
    description.schema(SchemaGenerator::subschema_for::<HttpProblem>, true);
    let Description { mut paths, mut schemas } = description;
    paths.sort_keys();
    schemas.sort_keys();
    let about = "Sessions of AI agents' sandboxes: tool calls, their events, and every state that follows from them. A \
                 path names a session by its name or by the beginning of its id. The unix socket needs no token.";
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
