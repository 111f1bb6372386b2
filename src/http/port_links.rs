//! Links to ports of sessions for browsers, with tokens that open one port only.
//!
//! A sandbox serves the page behind such a link, and must not get the server's own token: a service worker of that page
//! would read the address of each later visit.

use axum::response::{IntoResponse, Response};
use schemars::{JsonSchema, SchemaGenerator};
use serde::{Deserialize, Serialize};

use super::problem::{HttpProblem, ProblemKind};
use super::request::RequestHead;
use super::verb::{HttpVerb, Media};
use super::{Access, HttpFace, Token};
use crate::engine::id::SessionId;
use crate::hub::operations::OperationRoute;

/// Returns the host label and the token for a port of the session's container. A browser opens
/// `http://LABEL.localhost:SERVER_PORT/?foldspace-token=TOKEN`. The token opens this port only, which need not listen yet.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct LinkPort {
    /// The port in the container.
    port: u16,
}

/// A link to a port of a session.
#[derive(Debug, Clone, Serialize, JsonSchema)]
pub(super) struct PortLink {
    /// The port in the container.
    port: u16,
    /// The part of the host before the name of the server.
    label: String,
    /// The token for this port of the session.
    token: String,
}

impl Token {
    /// Returns the token that opens one port of a session.
    fn of_port(&self, session: SessionId, port: u16) -> blake3::Hash {
        self.derived(&format!("port {port} of {session}"))
    }

    /// Returns true if a browser has shown the token that opens that port.
    pub(super) fn is_of_port(&self, session: SessionId, port: u16, shown: &str) -> bool {
        blake3::Hash::from_hex(shown).is_ok_and(|shown| shown == self.of_port(session, port))
    }
}

impl HttpVerb for LinkPort {
    const NAME: &'static str = "link_port";
    const ROUTE: OperationRoute = OperationRoute::at("GET", "processes", "/v1/sessions/{session}/ports/{port}", 200);
    const GIVES: Media = &[("application/json", Some(SchemaGenerator::subschema_for::<PortLink>))];

    async fn answer(self, face: HttpFace, head: RequestHead) -> Result<Response, HttpProblem> {
        let session = face.session(&head.session).await?.id();
        let Access::Token { token, .. } = &head.options.access else {
            let told = "ports of containers are not available over a unix socket";
            return Err(HttpProblem::new(ProblemKind::NotFound, told).with_hint("ask the TCP port of `serve --http`"));
        };
        if self.port == 0 {
            return Err(HttpProblem::new(ProblemKind::Unusable, "port is 0; the range is 1 to 65535"));
        }
        let label = format!("{}-{}", self.port, session.short());
        let token = token.of_port(session, self.port).to_hex().to_string();
        Ok(axum::Json(PortLink { port: self.port, label, token }).into_response())
    }
}
