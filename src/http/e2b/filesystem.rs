//! The service `filesystem.Filesystem` of `envd`: entries, and watched directories.

use std::sync::Arc;

use axum::Extension;
use axum::body::Body;
use axum::extract::{Path, State};
use axum::http::{HeaderMap, StatusCode};
use axum::response::Response;
use serde::Deserialize;
use serde_json::{Value, json};
use tokio::sync::Mutex as AsyncMutex;
use tokio::time::Instant;

use super::connect::{self, Wrong, answered, streamed, unary};
use super::place::SandboxPlace;
use super::sandbox::Sandbox;
use super::{Api, DirectoryWatcher, E2bAnswer, E2bApi, Within};
use crate::engine::clock::Timestamp;
use crate::engine::event::{CallReason, Node};
use crate::engine::lock::lock;
use crate::http::file_changes::problem_of;
use crate::http::frames::{self, ALIVE, EventFrames};
use crate::http::watch::{FileWatch, WatchedChange};
use crate::hub::HubError;
use crate::hub::operations::{ListFiles, Operation, StatEntry};
use crate::tools::{FileWork, ToolOutcome};
use crate::view::EntryDocument;

/// The most polled watchers: on a server, and of one sandbox.
const WATCHERS_MAX: usize = 1000;
const WATCHERS_OF_SANDBOX: usize = 100;

pub(super) async fn serve(
    State(api): Api,
    Extension(sandbox): Within,
    Path(method): Path<String>,
    headers: HeaderMap,
    body: Body,
) -> Response {
    let call = FileCall { api, sandbox };
    let path = format!("/filesystem.Filesystem/{method}");
    if method == "WatchDir" {
        return call.watch(&headers, body).await.unwrap_or_else(|wrong| wrong.streamed());
    }
    let answer = match unary::<FileMessage>(&headers, body).await {
        Err(wrong) => Err(wrong),
        Ok(asked) => match method.as_str() {
            "Stat" => call.stat(asked).await,
            "ListDir" => call.list(asked).await,
            "MakeDir" => call.make(asked).await,
            "Move" => call.rename(asked).await,
            "Remove" => call.remove(asked).await,
            "CreateWatcher" => call.create_watcher(asked).await,
            "GetWatcherEvents" => call.watcher_events(asked).await,
            "RemoveWatcher" => call.remove_watcher(&asked),
            _ => Err(Wrong::missing(format_args!("{path:.200}"))),
        },
    };
    answer.unwrap_or_else(|wrong| wrong.answer(&path))
}

/// The fields of all messages.
#[derive(Deserialize, Default)]
#[serde(rename_all = "camelCase", default)]
struct FileMessage {
    path: String,
    source: String,
    destination: String,
    depth: u32,
    recursive: bool,
    include_entry: bool,
    watcher_id: String,
}

struct FileCall {
    api: E2bApi,
    sandbox: Sandbox,
}

impl FileCall {
    async fn entry(&self, place: &SandboxPlace) -> Result<Value, Wrong> {
        // The root is not an entry.
        if place.path.is_root() {
            let begun = self.sandbox.record.started;
            return Ok(shown(place, &place.path, &Node::DIRECTORY, begun));
        }
        let asked = StatEntry { path: place.rooted(), at: None, live: false };
        let found = asked.run(&self.api.context(self.sandbox.name())).await?;
        Ok(shown(place, &found.path, &found.entry.node, found.entry.updated_at))
    }

    async fn stat(&self, asked: FileMessage) -> E2bAnswer {
        answered(json!({ "entry": self.entry(&SandboxPlace::of(&asked.path)?).await? }))
    }

    async fn list(&self, asked: FileMessage) -> E2bAnswer {
        let place = SandboxPlace::of(&asked.path)?;
        let entry = self.entry(&place).await?;
        if entry["type"] != DIRECTORY {
            return Err(Wrong::invalid(format!("path is not a directory: {:.200}", asked.path)));
        }
        let list = ListFiles {
            below: Some(place.rooted()),
            recursive: true,
            depth: Some(asked.depth.max(1)),
            at: None,
            live: false,
        };
        let found = list.run(&self.api.context(self.sandbox.name())).await?;
        let one =
            |EntryDocument { path, entry, .. }: &EntryDocument| shown(&place, path, &entry.node, entry.updated_at);
        answered(json!({ "entries": found.iter().map(one).collect::<Vec<_>>() }))
    }

    async fn change(&self, work: FileWork) -> Result<ToolOutcome, Wrong> {
        Ok(self.api.face.open(self.sandbox.name()).await?.change_files(work).await?)
    }

    async fn make(&self, asked: FileMessage) -> E2bAnswer {
        let place = SandboxPlace::of(&asked.path)?;
        let made = done(self.change(FileWork::MakeDirectory { path: place.rooted() }).await?)?;
        if made.result["created"] != true {
            return Err(Wrong::new(StatusCode::CONFLICT, format!("directory already exists: {:.200}", asked.path)));
        }
        answered(json!({ "entry": self.entry(&place).await? }))
    }

    async fn rename(&self, asked: FileMessage) -> E2bAnswer {
        let (from, to) = (SandboxPlace::of(&asked.source)?, SandboxPlace::of(&asked.destination)?);
        done(self.change(FileWork::Move { from: from.rooted(), to: to.rooted(), replace: true }).await?)?;
        answered(json!({ "entry": self.entry(&to).await? }))
    }

    /// Removes an entry with all below it. A missing entry is not an error, as in `envd`.
    async fn remove(&self, asked: FileMessage) -> E2bAnswer {
        let place = SandboxPlace::of(&asked.path)?;
        let outcome = self.change(FileWork::Remove { path: place.rooted(), recursive: true }).await?;
        if outcome.reason != Some(CallReason::NotFound) {
            done(outcome)?;
        }
        answered(json!({}))
    }

    async fn begin_watch(&self, asked: &FileMessage) -> Result<(SandboxPlace, FileWatch), Wrong> {
        if asked.include_entry {
            return Err(Wrong::missing("entries in the events of a watched directory"));
        }
        let place = SandboxPlace::of(&asked.path)?;
        if self.entry(&place).await?["type"] != DIRECTORY {
            return Err(Wrong::invalid(format!("path is not a directory: {:.200}", asked.path)));
        }
        let which = (place.path.clone(), asked.recursive);
        let watch = FileWatch::begin(&self.api.face, self.sandbox.name(), which, None).await?;
        Ok((place, watch))
    }

    async fn watch(self, headers: &HeaderMap, body: Body) -> E2bAnswer {
        let asked: FileMessage = streamed(headers, body).await?;
        let (place, watch) = self.begin_watch(&asked).await?;
        let (frames, response) = frames::open_as(connect::STREAM, false);
        let (late, keepalive) = (connect::over_limit(headers), connect::keepalive(headers, ALIVE));
        tokio::spawn(async move {
            let gone = Wrong::new(StatusCode::BAD_GATEWAY, "the sandbox was not found: it has been paused or is over");
            let end = tokio::select! {
                wrong = stream(&self.api, (&place, watch), &frames, keepalive) => wrong.end_of_stream(),
                () = late => Wrong::late().end_of_stream(),
                () = self.sandbox.over.cancelled() => gone.end_of_stream(),
                () = self.api.face.shared.ending.cancelled() => connect::end_of_stream(),
                () = frames.gone() => return,
            };
            // The client may be gone.
            let _ = frames.send(end).await;
        });
        Ok(response)
    }

    async fn create_watcher(&self, asked: FileMessage) -> E2bAnswer {
        let (place, watch) = self.begin_watch(&asked).await?;
        let id = E2bApi::fresh_name("watch-")?;
        let watch = Arc::new(AsyncMutex::new(Some(watch)));
        let mut watchers = lock(&self.api.watchers);
        let own = watchers.values().filter(|watcher| watcher.sandbox == self.sandbox.name()).count();
        if watchers.len() >= WATCHERS_MAX || own >= WATCHERS_OF_SANDBOX {
            return Err(Wrong::new(
                StatusCode::TOO_MANY_REQUESTS,
                "too many watched directories; remove some watchers",
            ));
        }
        watchers.insert(id.clone(), DirectoryWatcher { sandbox: self.sandbox.name().to_owned(), place, watch });
        answered(json!({ "watcherId": id }))
    }

    fn no_watcher(asked: &FileMessage) -> Wrong {
        Wrong::not_found(format!("watcher with id {:.100} not found", asked.watcher_id))
    }

    async fn watcher_events(&self, asked: FileMessage) -> E2bAnswer {
        let found = lock(&self.api.watchers)
            .get(&asked.watcher_id)
            .filter(|watcher| watcher.sandbox == self.sandbox.name())
            .map(|watcher| (watcher.place.clone(), Arc::clone(&watcher.watch)));
        let (place, watch) = found.ok_or_else(|| Self::no_watcher(&asked))?;
        let face = self.api.face.clone();
        // A task: the watch returns to its place even if the client disconnects.
        let polled = tokio::spawn(async move {
            let mut slot = watch.lock().await;
            let Some(watch) = slot.as_ref() else { return Ok(None) };
            watch.refresh(&face).await?;
            let Some(watch) = slot.take() else { return Ok(None) };
            let (watch, changes) = watch.recorded().await?;
            *slot = Some(watch);
            Ok::<_, Wrong>(Some(changes))
        });
        let changes = polled.await.map_err(|_| HubError::Panicked)??.ok_or_else(|| Self::no_watcher(&asked))?;
        answered(json!({ "events": changes.iter().map(|change| event(&place, change)).collect::<Vec<_>>() }))
    }

    fn remove_watcher(&self, asked: &FileMessage) -> E2bAnswer {
        let mut watchers = lock(&self.api.watchers);
        match watchers.get(&asked.watcher_id) {
            Some(watcher) if watcher.sandbox == self.sandbox.name() => drop(watchers.remove(&asked.watcher_id)),
            _ => return Err(Self::no_watcher(asked)),
        }
        answered(json!({}))
    }
}

pub(super) fn done(outcome: ToolOutcome) -> Result<ToolOutcome, Wrong> {
    if outcome.is_ok() {
        return Ok(outcome);
    }
    let reason = outcome.reason;
    let wrong = Wrong::from(problem_of(outcome));
    // E2B reports an obstacle to a change as an invalid argument.
    Err(if reason == Some(CallReason::Refused) { Wrong::invalid(wrong.message) } else { wrong })
}

async fn stream(
    api: &E2bApi,
    (place, mut watch): (&SandboxPlace, FileWatch),
    frames: &EventFrames,
    keepalive: std::time::Duration,
) -> Wrong {
    let gone = |_| Wrong::new(StatusCode::SERVICE_UNAVAILABLE, "the client is gone");
    let followed = async {
        frames.send(connect::message(&json!({ "start": {} }))).await.map_err(gone)?;
        let mut spoken = Instant::now();
        loop {
            let (next, changes) = watch.changes(&api.face).await?;
            watch = next;
            for change in &changes {
                spoken = Instant::now();
                let message = json!({ "filesystem": event(place, change) });
                frames.send(connect::message(&message)).await.map_err(gone)?;
            }
            if spoken.elapsed() > keepalive {
                spoken = Instant::now();
                frames.send(connect::message(&json!({ "keepalive": {} }))).await.map_err(gone)?;
            }
            watch.more().await;
        }
    };
    let ended: Result<std::convert::Infallible, Wrong> = followed.await;
    let Err(wrong) = ended;
    wrong
}

fn event(place: &SandboxPlace, change: &WatchedChange) -> Value {
    let kind = match change.kind {
        "create" => "EVENT_TYPE_CREATE",
        "write" => "EVENT_TYPE_WRITE",
        _ => "EVENT_TYPE_REMOVE",
    };
    let below = change.path.relative_to(&place.path);
    let name = below.map(|name| String::from_utf8_lossy(name).into_owned()).unwrap_or_default();
    json!({ "name": name, "type": kind })
}

const DIRECTORY: &str = "FILE_TYPE_DIRECTORY";

fn shown(place: &SandboxPlace, path: &crate::engine::path::EntryPath, node: &Node, changed: Timestamp) -> Value {
    let (kind, mode, letter) = match node {
        Node::Directory { mode } => (DIRECTORY, mode.bits(), 'd'),
        Node::File { mode, .. } => ("FILE_TYPE_FILE", mode.bits(), '-'),
        Node::Symlink { .. } => ("FILE_TYPE_SYMLINK", 0o777, 'L'),
        Node::Special { .. } => ("FILE_TYPE_UNSPECIFIED", 0o644, '-'),
    };
    let may = |at: usize| mode >> (8 - at) & 1 == 1;
    let letters = std::iter::once(letter).chain((0..9).map(|at| if may(at) { ['r', 'w', 'x'][at % 3] } else { '-' }));
    let full = place.name_of(path);
    let size = if let Node::File { size, .. } = node { *size } else { 0 };
    let mut entry = json!({
        "name": full.rsplit('/').next(),
        "type": kind,
        "path": full,
        "size": size.to_string(),
        "mode": mode,
        "permissions": letters.collect::<String>(),
        "owner": "user",
        "group": "user",
        "modifiedTime": changed,
    });
    if let Node::Symlink { target } = node {
        entry["symlinkTarget"] = String::from_utf8_lossy(target).into();
        entry["isSymlink"] = true.into();
    }
    entry
}
