//! Moving a session from one host to another.

use axum::response::{IntoResponse, Response};
use schemars::{JsonSchema, SchemaGenerator};
use serde::{Deserialize, Serialize};
use tokio::time::Instant;

use super::problem::{HttpProblem, ProblemKind};
use super::request::RequestHead;
use super::verb::{HttpVerb, Media};
use super::{HttpFace, blocking};
use crate::engine::id::SessionId;
use crate::engine::store::{StoreError, StoreHost};
use crate::hub::operations::OperationRoute;

/// Moves a session to another host of a shared store: waits for its calls, closes its workspace, and opens it there.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct MoveSession {
    /// The host's name.
    host: String,
}

/// The new place of a moved session.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct MovedSession {
    /// The session.
    #[schemars(with = "String")]
    pub session: SessionId,
    /// The host that has it now.
    pub host: String,
    /// Milliseconds that it took.
    pub millis: u64,
}

impl HttpVerb for MoveSession {
    const NAME: &'static str = "move_session";
    const ROUTE: OperationRoute = OperationRoute::at("POST", "sessions", "/v1/sessions/{session}/host", 200);
    const GIVES: Media = &[("application/json", Some(SchemaGenerator::subschema_for::<MovedSession>))];

    async fn answer(self, face: HttpFace, head: RequestHead) -> Result<Response, HttpProblem> {
        let begun = Instant::now();
        let session = face.session(&head.session).await?.id();
        match face.host(&self.host).await? {
            None => drop(face.hub().open(session).await?),
            Some(host) => {
                face.hub().hand_over(session).await?;
                let asked = serde_json::json!({ "host": self.host });
                face.ask_host(&host, &format!("/v1/sessions/{session}/host"), &asked).await?;
            }
        }
        let millis = u64::try_from(begun.elapsed().as_millis()).unwrap_or(u64::MAX);
        Ok(axum::Json(MovedSession { session, host: self.host, millis }).into_response())
    }
}

impl HttpFace {
    /// Finds another host by its name; `None` for this host.
    async fn host(&self, name: &str) -> Result<Option<StoreHost>, HttpProblem> {
        let (sessions, wanted) = (self.hub().sessions().clone(), name.to_owned());
        let find = move || {
            let Some(hosts) = sessions.store().hosts() else { return Ok(None) };
            let found = if hosts.own().name == wanted { Some(hosts.own().clone()) } else { hosts.find(&wanted)? };
            Ok::<_, StoreError>(Some((found, hosts.own().name == wanted)))
        };
        let Some((found, is_own)) = blocking(find).await?? else {
            let detail = "the store is one machine's, so it has no other host to move a session to";
            return Err(HttpProblem::new(ProblemKind::Refused, detail)
                .with_hint("start the hosts with `foldspace serve --store nats://...`"));
        };
        let shown = format!("{name:.80}");
        let found = found.ok_or_else(|| {
            HttpProblem::new(ProblemKind::NotFound, format!("host {shown:?} not found"))
                .with_hint("a host's name is set by `foldspace serve --host`, and is the machine's name by default")
        })?;
        Ok(if is_own { None } else { Some(found) })
    }
}
