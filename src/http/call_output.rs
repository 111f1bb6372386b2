//! Output of a call in flight, for other clients than its caller.

use axum::response::Response;
use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::json;
use tokio_util::sync::CancellationToken;

use super::HttpFace;
use super::frames::{self, ALIVE, EVENTS, EventFrames, Gone, STILL_HERE};
use super::problem::{HttpProblem, ProblemKind};
use super::request::RequestHead;
use super::stream::OutputText;
use super::verb::{HttpVerb, Media};
use crate::engine::id::Seq;
use crate::hub::operations::OperationRoute;
use crate::tools::{OutputOptions, OutputSubscription, SessionRuntime};

/// Follows the further output of a call in flight as server-sent events: `output` `{stream, text | base64}`, `missed`
/// `{bytes}` if this client was too slow, and at last `ended`. The command does not wait for this client.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct FollowCall {
    /// The position of the call's intent.
    call: Seq,
}

impl HttpVerb for FollowCall {
    const NAME: &'static str = "follow_call";
    const ROUTE: OperationRoute = OperationRoute::at("GET", "calls", "/v1/sessions/{session}/calls/{call}/output", 200);
    const GIVES: Media = &[(EVENTS, None)];

    async fn answer(self, face: HttpFace, head: RequestHead) -> Result<Response, HttpProblem> {
        let session = face.session(&head.session).await?;
        let output = SessionRuntime::of(&session).output(OutputOptions { call: Some(self.call), whole: false });
        let over = face.hub().in_flight().end_of(session.id(), self.call).ok_or_else(|| {
            let what = format!("no call {} of session {:?} is in flight", self.call, session.name());
            HttpProblem::new(ProblemKind::NotFound, what)
        })?;
        let (frames, response) = frames::open(head.caller.is_some());
        // The client may go away.
        tokio::spawn(async move { follow(&output, &over, &frames).await });
        Ok(response)
    }
}

async fn follow(output: &OutputSubscription, over: &CancellationToken, frames: &EventFrames) -> Result<(), Gone> {
    let mut shown = OutputText::default();
    loop {
        tokio::select! {
            biased;
            () = frames.gone() => return Err(Gone),
            piece = output.next() => {
                let text = shown.of(output, piece);
                if !text.is_empty() {
                    frames.send(text).await?;
                }
            }
            () = over.cancelled() => break,
            () = tokio::time::sleep(ALIVE) => frames.send(STILL_HERE).await?,
        }
    }
    let rest = shown.rest(output);
    if !rest.is_empty() {
        frames.send(rest).await?;
    }
    frames.event("ended", &json!({})).await
}
