//! Watching for changes below a directory.

use std::time::Duration;

use axum::response::Response;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use tokio::time::Instant;

use super::frames::{self, ALIVE, EVENTS, EventFrames, STILL_HERE};
use super::problem::HttpProblem;
use super::request::RequestHead;
use super::verb::{Headers, HttpVerb, Media};
use super::{HttpFace, blocking};
use crate::engine::event::{DeleteEntry, Node, WriteFile, WriteMode};
use crate::engine::id::Seq;
use crate::engine::path::EntryPath;
use crate::engine::recorded::Recorded;
use crate::engine::subscription::{Filter, Subscription};
use crate::hub::OpenSession;
use crate::hub::operations::OperationRoute;

/// Interval of scans for changes outside of calls.
const LOOK: Duration = Duration::from_millis(500);

/// Watches a directory: server-sent events `change` `{path, kind, seq}`, where `kind` is `create`, `write` or `remove`,
/// from now on. Each has its position as `id`, so a client that reconnects with `Last-Event-ID` misses nothing. The
/// workspace is opened, and scanned twice a second for changes by processes and from outside.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct WatchFiles {
    /// The directory; the root by default. It need not exist yet.
    below: Option<String>,
    /// True to watch the directories below it, too; true by default.
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
    const READS: Headers = &[("Last-Event-ID", "integer", "The last position that the client received")];

    async fn answer(self, face: HttpFace, head: RequestHead) -> Result<Response, HttpProblem> {
        let below = EntryPath::lookup(self.below.as_deref().unwrap_or("/"))?;
        let watch = FileWatch::begin(&face, &head.session, (below, self.recursive), head.last_seen()?).await?;
        let (frames, response) = frames::open(head.caller.is_some());
        tokio::spawn(async move {
            tokio::select! {
                _ = stream(watch, &face, &frames) => {}
                () = frames.gone() => {}
                () = face.shared.ending.cancelled() => {}
            }
        });
        Ok(response)
    }
}

async fn stream(mut watch: FileWatch, face: &HttpFace, frames: &EventFrames) -> Result<(), HttpProblem> {
    let gone = |_| HttpProblem::new(super::problem::ProblemKind::Ending, "the client is gone");
    let mut spoken = Instant::now();
    loop {
        let mut text = Vec::new();
        let (next, changes) = watch.changes(face).await?;
        watch = next;
        for change in changes {
            frames::write(&mut text, Some("change"), Some(change.seq), &change);
        }
        if !text.is_empty() || spoken.elapsed() > ALIVE {
            spoken = Instant::now();
            let piece = if text.is_empty() { STILL_HERE.to_vec() } else { text };
            frames.send(piece).await.map_err(gone)?;
        }
        watch.more().await;
    }
}

/// A watched directory. It keeps the workspace open.
pub(super) struct FileWatch {
    below: EntryPath,
    recursive: bool,
    open: OpenSession,
    changes: Subscription,
}

/// A change below a watched directory.
#[derive(Serialize)]
pub(super) struct WatchedChange {
    pub(super) path: EntryPath,
    /// `create`, `write` or `remove`.
    pub(super) kind: &'static str,
    #[serde(skip)]
    #[cfg_attr(not(feature = "e2b"), expect(dead_code, reason = "only E2B's events differ by it"))]
    pub(super) is_file: bool,
    pub(super) seq: Seq,
}

impl FileWatch {
    /// Begins to watch a directory, recursively or not: after the last seen position, or from now on.
    pub(super) async fn begin(
        face: &HttpFace,
        session: &str,
        (below, recursive): (EntryPath, bool),
        seen: Option<Seq>,
    ) -> Result<Self, HttpProblem> {
        let open = face.open(session).await?;
        face.hub().refresh(open.session().id()).await?;
        let from = match seen {
            Some(seen) => seen.saturating_add(1),
            None => open.session().aside(|| open.session().head()).map_err(HttpProblem::from)? + 1,
        };
        let changes = open.session().subscribe(from, Filter::of::<WriteFile>().or::<DeleteEntry>());
        Ok(Self { below, recursive, open, changes })
    }

    /// Returns the changes since the last call, and the watch itself.
    pub(super) async fn changes(self, face: &HttpFace) -> Result<(Self, Vec<WatchedChange>), HttpProblem> {
        self.refresh(face).await?;
        self.recorded().await
    }

    /// Records external changes, so that the watch sees them.
    pub(super) async fn refresh(&self, face: &HttpFace) -> Result<(), HttpProblem> {
        Ok(face.hub().refresh(self.open.session().id()).await?)
    }

    /// Returns the recorded changes since the last call, and the watch itself.
    pub(super) async fn recorded(mut self) -> Result<(Self, Vec<WatchedChange>), HttpProblem> {
        let look = move || {
            let mut found = Vec::new();
            while let Some(event) = self.changes.next_within(Duration::ZERO)? {
                found.extend(change(&event).filter(|change| self.is_watched(&change.path)));
            }
            Ok::<_, HttpProblem>((self, found))
        };
        blocking(look).await?
    }

    fn is_watched(&self, path: &EntryPath) -> bool {
        path.is_below(&self.below) && (self.recursive || path.parent().as_ref() == Some(&self.below))
    }

    /// Waits until something is recorded, or the next scan is due.
    pub(super) async fn more(&mut self) {
        self.changes.announced(LOOK).await;
    }
}

fn change(event: &Recorded) -> Option<WatchedChange> {
    let (path, kind, is_file) = if let Some(Ok(written)) = event.typed::<WriteFile>() {
        let kind = if written.event.mode == WriteMode::Create { "create" } else { "write" };
        (written.event.path, kind, matches!(written.event.node, Node::File { .. }))
    } else {
        (event.typed::<DeleteEntry>()?.ok()?.event.path, "remove", false)
    };
    Some(WatchedChange { path, kind, is_file, seq: event.seq })
}
