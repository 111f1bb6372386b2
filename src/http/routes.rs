//! The routes of the API: the hub's verbs and the verbs of HTTP alone.

use std::sync::LazyLock;

use axum::Router;
use axum::extract::{Request, State};
use axum::http::header;
use axum::response::{IntoResponse, Response};
use axum::routing::{MethodFilter, on};
use schemars::{JsonSchema, SchemaGenerator};
use serde::Deserialize;
use serde_json::{Map, Value};

use super::openapi::describe;
use super::problem::HttpProblem;
use super::request::RequestHead;
use super::verb::{HttpRoute, HttpVerb, Media, of_hub, own};
use super::{
    HttpFace, call_output, calls, file_changes, files, follow, health, move_session, owner, port_links, processes,
    recorded, sign_in, tar, terminal, watch,
};
use crate::hub::operations::{OperationRoute, operations};

fn routes() -> &'static [HttpRoute] {
    static ROUTES: LazyLock<Vec<HttpRoute>> = LazyLock::new(|| {
        let own = [
            own::<health::Healthz>(),
            own::<health::Readyz>(),
            own::<health::ServerFigures>(),
            own::<ShowApi>(),
            own::<owner::ShowServer>(),
            own::<owner::StopServer>(),
            own::<sign_in::OpenPage>(),
            own::<sign_in::SignIn>(),
            own::<calls::CallRequest>(),
            own::<call_output::FollowCall>(),
            own::<recorded::ReadRecorded>(),
            own::<recorded::TerminalFrames>(),
            own::<terminal::OpenTerminal>(),
            own::<files::FileAt>(),
            own::<file_changes::PutFile>(),
            own::<file_changes::RemoveEntry>(),
            own::<file_changes::MoveEntry>(),
            own::<file_changes::MakeDirectory>(),
            own::<file_changes::PutTar>(),
            own::<follow::FollowEvents>(),
            own::<processes::StartProcess>(),
            own::<processes::FollowProcess>(),
            own::<port_links::LinkPort>(),
            own::<tar::TarRequest>(),
            own::<watch::WatchFiles>(),
            own::<move_session::MoveSession>(),
        ];
        operations().iter().filter_map(of_hub).chain(own).collect()
    });
    &ROUTES
}

pub(super) fn router() -> Router<HttpFace> {
    routed(|_| true)
}

/// Returns the routes that reveal no session.
pub(super) fn figures() -> Router<HttpFace> {
    routed(|route| matches!(route.place.path, "/healthz" | "/readyz" | "/metrics"))
}

fn routed(is_wanted: impl Fn(&HttpRoute) -> bool) -> Router<HttpFace> {
    routes().iter().filter(|route| is_wanted(route)).fold(Router::new(), |router, route| {
        let filter = match route.place.method {
            "POST" => MethodFilter::POST,
            "DELETE" => MethodFilter::DELETE,
            "PUT" => MethodFilter::PUT,
            _ => MethodFilter::GET,
        };
        let answer = move |State(face): State<HttpFace>, request: Request| route.serve(face, request);
        router.route(route.place.path, on(filter, answer))
    })
}

/// Returns the OpenAPI description of the API, as JSON.
pub fn openapi() -> String {
    static TEXT: LazyLock<String> = LazyLock::new(|| {
        // JSON values always serialize.
        serde_json::to_string_pretty(&describe(routes())).unwrap_or_default()
    });
    TEXT.clone()
}

/// Returns this description.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct ShowApi {}

impl HttpVerb for ShowApi {
    const NAME: &'static str = "openapi";
    const ROUTE: OperationRoute = OperationRoute::at("GET", "server", "/openapi.json", 200);
    const GIVES: Media = &[("application/json", Some(SchemaGenerator::subschema_for::<Map<String, Value>>))];

    async fn answer(self, _: HttpFace, _: RequestHead) -> Result<Response, HttpProblem> {
        Ok(([(header::CONTENT_TYPE, "application/json")], openapi()).into_response())
    }
}
