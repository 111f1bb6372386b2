//! Changes below a directory, as they come.

use std::time::Duration;

use axum::response::Response;
use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::json;
use tokio::time::Instant;

use super::frames::{self, ALIVE, EVENTS, EventFrames, STILL_HERE};
use super::problem::HttpProblem;
use super::request::RequestHead;
use super::verb::{Headers, HttpVerb, Media};
use super::{HttpFace, blocking};
use crate::engine::event::{DeleteEntry, WriteFile, WriteMode};
use crate::engine::path::EntryPath;
use crate::engine::recorded::Recorded;
use crate::engine::session::Session;
use crate::engine::subscription::{Filter, Subscription};
use crate::hub::operations::OperationRoute;

/// Time between looks for what was changed outside of calls.
const LOOK: Duration = Duration::from_millis(500);

/// Watches a directory: server-sent events `change` `{path, kind, seq}`, where `kind` is `create`, `write` or `remove`,
/// from now on. Each has its position as `id`, so a client that comes again with `Last-Event-ID` misses nothing. The
/// workspace is opened, and while it is watched, changes of processes and from outside are looked for twice a second.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct WatchFiles {
    /// The directory; the root by default. It need not be there yet.
    below: Option<String>,
    /// Also what is in the directories below it; true by default.
    #[serde(default = "yes")]
    recursive: bool,
}

fn yes() -> bool {
    true
}

impl HttpVerb for WatchFiles {
    const NAME: &'static str = "watch_files";
    const ROUTE: OperationRoute = OperationRoute::at("GET", "files", "/v1/sessions/{session}/watch", 200);
    const GIVES: Media = &[(EVENTS, None)];
    const READS: Headers = &[("Last-Event-ID", "integer", "The last position that was seen")];

    async fn answer(self, face: HttpFace, head: RequestHead) -> Result<Response, HttpProblem> {
        let below = EntryPath::lookup(self.below.as_deref().unwrap_or("/"))?;
        let seen = head.last_seen()?;
        let open = face.open(&head.session).await?;
        face.hub().refresh(open.session().id()).await?;
        let session = open.session().clone();
        let from = match seen {
            Some(seen) => seen.saturating_add(1),
            None => session.head().map_err(HttpProblem::from)? + 1,
        };
        let changes = session.subscribe(from, Filter::of::<WriteFile>().or::<DeleteEntry>());
        let (frames, response) = frames::open(head.caller.is_some());
        let watch = FileWatch { below, recursive: self.recursive, session, changes };
        let ending = face.shared.ending.clone();
        tokio::spawn(async move {
            tokio::select! {
                _ = watch.run(&face, &frames) => {}
                () = frames.gone() => {}
                () = ending.cancelled() => {}
            }
            // It keeps the workspace open.
            drop(open);
        });
        Ok(response)
    }
}

struct FileWatch {
    below: EntryPath,
    recursive: bool,
    session: Session,
    changes: Subscription,
}

impl FileWatch {
    async fn run(mut self, face: &HttpFace, frames: &EventFrames) -> Result<(), HttpProblem> {
        let gone = |_| HttpProblem::new(super::problem::ProblemKind::Ending, "the client is gone");
        let mut spoken = Instant::now();
        loop {
            face.hub().refresh(self.session.id()).await?;
            let next = move |mut changes: Subscription| {
                let next = changes.next_within(Duration::ZERO);
                next.map(|next| (changes, next))
            };
            let mut text = Vec::new();
            loop {
                let changes = self.changes;
                let (changes, event) = blocking(move || next(changes)).await??;
                self.changes = changes;
                let Some(event) = event else { break };
                self.write(&mut text, &event);
            }
            if !text.is_empty() || spoken.elapsed() > ALIVE {
                spoken = Instant::now();
                let piece = if text.is_empty() { STILL_HERE.to_vec() } else { text };
                frames.send(piece).await.map_err(gone)?;
            }
            self.changes.announced(LOOK).await;
        }
    }

    fn write(&self, text: &mut Vec<u8>, event: &Recorded) {
        let (path, kind) = if let Some(Ok(written)) = event.typed::<WriteFile>() {
            let kind = if written.event.mode == WriteMode::Create { "create" } else { "write" };
            (written.event.path, kind)
        } else if let Some(Ok(removed)) = event.typed::<DeleteEntry>() {
            (removed.event.path, "remove")
        } else {
            return;
        };
        let is_near = self.recursive || path.parent().as_ref() == Some(&self.below);
        if path.is_below(&self.below) && is_near {
            let change = json!({ "path": path, "kind": kind, "seq": event.seq });
            frames::write(text, Some("change"), Some(event.seq), &change);
        }
    }
}
