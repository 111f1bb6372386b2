//! Following a session's events, from any position on.

use std::sync::Arc;
use std::time::Duration;

use axum::response::Response;
use bytes::Bytes;
use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::json;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::frames::{self, ALIVE, EventFrames, Gone, PIECE, STILL_HERE};
use super::problem::HttpProblem;
use super::request::RequestHead;
use super::verb::{Headers, HttpVerb, Media};
use super::{HttpFace, blocking};
use crate::engine::id::Seq;
use crate::engine::recorded::Recorded;
use crate::engine::session::Session;
use crate::engine::store::StoreError;
use crate::engine::subscription::{Filter, Subscription};
use crate::hub::operations::OperationRoute;
use crate::view::{self, EventSelection, Position};

/// Time to wait for an announcement before reading the store anyway: it may have events, or the session may be gone.
const LOOK: Duration = Duration::from_millis(200);
/// Limit for the events of a piece; a selection may skip most of them.
const EVENTS: u64 = 10_000;
/// Time that a slow client may hold up announcements. Then they are dropped, and read from the store later.
const HOLD: Duration = Duration::from_secs(1);

/// Follows a session's events as server-sent events, from any position on: first the stored events, then new ones. Each
/// has its position as `id`, so a client that reconnects with `Last-Event-ID` misses nothing. An `end` event reports
/// that the session was removed.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct FollowEvents {
    /// The first position; 1 by default. `Last-Event-ID` overrides it.
    from: Option<Position>,
    /// Only events of these kinds, separated by commas; case is ignored.
    kind: Option<String>,
    /// Only events of this agent.
    agent: Option<String>,
    /// Only events of calls of this tool.
    tool: Option<String>,
    /// Only changes of entries whose path matches this glob.
    path: Option<String>,
}

impl HttpVerb for FollowEvents {
    const NAME: &'static str = "follow_events";
    const ROUTE: OperationRoute = OperationRoute::at("GET", "events", "/v1/sessions/{session}/events/stream", 200);
    const GIVES: Media = &[("text/event-stream", None)];
    const READS: Headers = &[("Last-Event-ID", "integer", "The last position that the client received")];

    async fn answer(self, face: HttpFace, head: RequestHead) -> Result<Response, HttpProblem> {
        let seen = head.last_seen()?;
        let Self { from, kind, agent, tool, path } = self;
        let selection = EventSelection::new(kind.as_deref(), agent, tool, path.as_deref())?;
        let from = seen.map(|seen| Position::Seq(seen.saturating_add(1))).or(from);
        let session = face.session(&head.session).await?;
        let looked = session.clone();
        let next = blocking(move || from.map_or(Ok(1), |from| from.first_read(&looked))).await??;
        let (frames, response) = frames::open(head.caller.is_some());
        let follower = Arc::clone(&face.metrics().followers);
        let follow = EventFollower { session, frames, next, spoken: Instant::now(), selection, follower };
        tokio::spawn(follow.run(face.clone(), face.shared.ending.clone()));
        Ok(response)
    }
}

struct EventFollower {
    session: Session,
    frames: EventFrames,
    next: Seq,
    spoken: Instant,
    selection: EventSelection,
    #[expect(dead_code, reason = "it counts the client while it is connected")]
    follower: Arc<()>,
}

struct FollowStart {
    subscription: Subscription,
    text: Vec<u8>,
    count: u64,
    outcome: Result<(), StoreError>,
}

impl EventFollower {
    async fn run(mut self, face: HttpFace, ending: CancellationToken) {
        let mut subscription = self.subscribe();
        loop {
            let found = self.look(subscription).await;
            let Ok(FollowStart { subscription: back, text, count, outcome }) = found else { return };
            subscription = back;
            face.metrics().sent(count);
            if !text.is_empty() {
                match self.send(text, subscription).await {
                    Ok(again) => subscription = again,
                    Err(Gone) => return,
                }
            }
            if let Err(error) = outcome {
                return self.over(error).await;
            }
            if count > 0 {
                continue;
            }
            tokio::select! {
                () = subscription.announced(LOOK) => {}
                () = self.frames.gone() => return,
                () = ending.cancelled() => return,
            }
            if self.keep_alive().await.is_err() {
                return;
            }
        }
    }

    fn subscribe(&self) -> Subscription {
        self.session.subscribe(self.next, Filter::all())
    }

    /// Takes the announced events; without any it reads the store on a blocking thread.
    async fn look(&mut self, subscription: Subscription) -> Result<FollowStart, HttpProblem> {
        let take = |subscription: &mut Subscription| Ok(subscription.next_at_hand());
        let mut found = gather(&self.session, &mut self.selection, subscription, take);
        if found.count == 0 && found.subscription.is_behind() {
            let (session, subscription) = (self.session.clone(), found.subscription);
            let mut selection = std::mem::take(&mut self.selection);
            let read = |subscription: &mut Subscription| subscription.next_within(Duration::ZERO);
            (found, self.selection) = blocking(move || {
                let found = gather(&session, &mut selection, subscription, read);
                (found, selection)
            })
            .await?;
        }
        self.next = found.subscription.position();
        Ok(found)
    }

    /// Sends a piece. For a slow client it drops the subscription: the journal has the events.
    async fn send(&mut self, text: Vec<u8>, subscription: Subscription) -> Result<Subscription, Gone> {
        self.spoken = Instant::now();
        let text = Bytes::from(text);
        if self.frames.send_within(HOLD, text.clone()).await.is_ok() {
            return Ok(subscription);
        }
        drop(subscription);
        self.frames.send(text).await?;
        Ok(self.subscribe())
    }

    async fn keep_alive(&mut self) -> Result<(), Gone> {
        if self.spoken.elapsed() < ALIVE {
            return Ok(());
        }
        self.spoken = Instant::now();
        self.frames.send(STILL_HERE).await
    }

    async fn over(&self, error: StoreError) {
        let mut text = Vec::new();
        match error {
            StoreError::NoSession(_) => frames::write(&mut text, Some("end"), None, &json!({ "why": "removed" })),
            error => frames::write(&mut text, Some("problem"), None, &HttpProblem::from(error)),
        }
        // The client may be gone.
        let _ = self.frames.send(text).await;
    }
}

/// Writes events until the last one, or until the piece is full.
fn gather(
    session: &Session,
    selection: &mut EventSelection,
    mut subscription: Subscription,
    mut next: impl FnMut(&mut Subscription) -> Result<Option<Recorded>, StoreError>,
) -> FollowStart {
    let (mut text, mut count) = (Vec::new(), 0);
    let mut outcome = Ok(());
    while text.len() < PIECE && count < EVENTS {
        match next(&mut subscription) {
            Ok(Some(event)) => {
                count += 1;
                if selection.holds(session, &event.view()) {
                    frames::write(&mut text, None, Some(event.seq), &view::event(session, &event.view()));
                }
            }
            Ok(None) => break,
            Err(error) => {
                outcome = Err(error);
                break;
            }
        }
    }
    FollowStart { subscription, text, count, outcome }
}
