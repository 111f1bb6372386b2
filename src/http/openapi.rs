//! The description of the API, from the handlers and their types.

use axum::http::header;
use axum::response::IntoResponse;
use utoipa::openapi::security::{HttpAuthScheme, HttpBuilder, SecurityScheme};
use utoipa::{Modify, OpenApi};

use super::{approvals, bisect, calls, children, events, files, follow, health, problem, sessions, states, tools};
use crate::view::Position;

#[derive(OpenApi)]
#[openapi(
    info(
        title = "foldspace",
        description = "Sessions of AI agents' sandboxes: tool calls, their events, and every state that follows from \
                       them. A session stands in a path by its name or by the beginning of its id. On the unix socket \
                       no token is needed."
    ),
    paths(
        tools::list, sessions::list, sessions::create, sessions::one, sessions::remove, sessions::section, calls::make, calls::one,
        calls::cancel, approvals::answer, states::state, states::slice, states::diff, states::verify, files::list,
        files::one, events::page, follow::stream, children::begin, children::merge, children::rewind, bisect::run,
        health::healthz, health::metrics, serve,
    ),
    components(schemas(problem::HttpProblem)),
    modifiers(&TokenScheme, &Positions),
    security(("token" = []))
)]
struct Description;

struct TokenScheme;

impl Modify for TokenScheme {
    fn modify(&self, openapi: &mut utoipa::openapi::OpenApi) {
        let scheme = HttpBuilder::new().scheme(HttpAuthScheme::Bearer).build();
        let components = openapi.components.get_or_insert_default();
        components.add_security_scheme("token", SecurityScheme::Http(scheme));
    }
}

struct Positions;

impl Modify for Positions {
    fn modify(&self, openapi: &mut utoipa::openapi::OpenApi) {
        let description = openapi.info.description.get_or_insert_default();
        *description = format!("{description} {}", Position::meaning());
    }
}

/// The OpenAPI description of the API, as JSON.
pub fn openapi() -> String {
    // It is made of texts, numbers and lists of them.
    Description::openapi().to_pretty_json().unwrap_or_default()
}

/// Gives this description.
#[utoipa::path(get, path = "/openapi.json", tag = "server",
    responses((status = 200, content_type = "application/json", body = Object), (status = "4XX", body = problem::HttpProblem, content_type = "application/problem+json")))]
pub(super) async fn serve() -> impl IntoResponse {
    ([(header::CONTENT_TYPE, "application/json")], openapi())
}
