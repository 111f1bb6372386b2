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
use super::entries::{DIRECTORY, EntryFacts, described, shown};
use super::files::done;
use super::metadata::MetadataOfFiles;
use super::outside::OutsideFiles;
use super::place::{SandboxPath, SandboxPlace};
use super::sandbox::Sandbox;
use super::{Api, DirectoryWatcher, E2bAnswer, E2bApi, Within};
use crate::engine::event::CallReason;
use crate::engine::lock::lock;
use crate::engine::path::EntryPath;
use crate::http::frames::{self, ALIVE, EventFrames};
use crate::http::watch::{FileWatch, WatchedChange};
use crate::hub::operations::{ListFiles, Operation, StatEntry};
use crate::hub::{HubError, blocking};
use crate::reducers::{Entry, VirtualFileSystem};
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
    fn outside(&self, path: &str) -> Result<OutsideFiles<'_>, Wrong> {
        OutsideFiles::of(&self.api, &self.sandbox, path)
    }

    async fn entry(&self, path: &SandboxPath) -> Result<Value, Wrong> {
        let place = match path {
            SandboxPath::Workspace(place) => place.clone(),
            SandboxPath::Outside(path) => return self.outside(path)?.entry(path).await,
        };
        // The root is not an entry.
        if place.path.is_root() {
            return Ok(described(
                &place.name_of(&place.path),
                EntryFacts::directory(0o755, self.sandbox.record.started),
            ));
        }
        let asked = StatEntry { path: place.rooted(), at: None, live: false };
        let found = asked.run(&self.api.context(self.sandbox.name())).await?;
        self.shown(place, vec![(found.path, found.entry)])
            .await?
            .pop()
            .ok_or_else(|| Wrong::not_found("path not found"))
    }

    /// Describes entries of the workspace.
    async fn shown(&self, place: SandboxPlace, entries: Vec<(EntryPath, Entry)>) -> Result<Vec<Value>, Wrong> {
        let session = self.api.face.session(self.sandbox.name()).await?;
        let describe = move || {
            let state = session.state()?;
            let (files, metadata) = (VirtualFileSystem::of(&state), MetadataOfFiles::of(&state));
            let one = |(path, entry): &(EntryPath, Entry)| {
                let mut shown = shown(&place, path, entry, &files);
                if let Some(metadata) = metadata.get(path) {
                    shown["metadata"] = metadata.clone();
                }
                shown
            };
            Ok(entries.iter().map(one).collect())
        };
        blocking(describe).await?
    }

    async fn stat(&self, asked: FileMessage) -> E2bAnswer {
        answered(json!({ "entry": self.entry(&SandboxPath::of(&asked.path)?).await? }))
    }

    async fn list(&self, asked: FileMessage) -> E2bAnswer {
        let (path, depth) = (SandboxPath::of(&asked.path)?, asked.depth.max(1));
        let place = match &path {
            SandboxPath::Workspace(place) => place.clone(),
            SandboxPath::Outside(path) => {
                return answered(json!({ "entries": self.outside(path)?.list(path, depth).await? }));
            }
        };
        if self.entry(&path).await?["type"] != DIRECTORY {
            return Err(Wrong::invalid(format!("path is not a directory: {:.200}", asked.path)));
        }
        let below = Some(place.rooted());
        let list = ListFiles { below, recursive: true, depth: Some(depth), at: None, live: false };
        let found = list.run(&self.api.context(self.sandbox.name())).await?;
        let found = found.iter().map(|EntryDocument { path, entry, .. }| (path.clone(), entry.clone())).collect();
        answered(json!({ "entries": self.shown(place, found).await? }))
    }

    async fn change(&self, work: FileWork) -> Result<ToolOutcome, Wrong> {
        Ok(self.api.face.open(self.sandbox.name()).await?.change_files(work).await?)
    }

    async fn make(&self, asked: FileMessage) -> E2bAnswer {
        let path = SandboxPath::of(&asked.path)?;
        match &path {
            SandboxPath::Outside(path) => self.outside(path)?.make(path).await?,
            SandboxPath::Workspace(place) => {
                let made = done(self.change(FileWork::MakeDirectory { path: place.rooted() }).await?)?;
                if made.result["created"] != true {
                    let what = format!("directory already exists: {:.200}", asked.path);
                    return Err(Wrong::new(StatusCode::CONFLICT, what));
                }
            }
        }
        answered(json!({ "entry": self.entry(&path).await? }))
    }

    async fn rename(&self, asked: FileMessage) -> E2bAnswer {
        let (from, to) = (SandboxPath::of(&asked.source)?, SandboxPath::of(&asked.destination)?);
        if let (SandboxPath::Workspace(from), SandboxPath::Workspace(to)) = (&from, &to) {
            let metadata = self.api.metadata_moved(self.sandbox.name(), &from.path, &to.path).await?;
            done(self.change(FileWork::Move { from: from.rooted(), to: to.rooted(), replace: true }).await?)?;
            self.api.record_metadata(self.sandbox.name(), metadata).await?;
        } else {
            self.outside(&from.name())?.rename(&from, &to).await?;
        }
        answered(json!({ "entry": self.entry(&to).await? }))
    }

    /// Removes an entry with all below it. A missing entry is not an error, as in `envd`.
    async fn remove(&self, asked: FileMessage) -> E2bAnswer {
        match SandboxPath::of(&asked.path)? {
            SandboxPath::Outside(path) => self.outside(&path)?.remove(&path).await?,
            SandboxPath::Workspace(place) => {
                let outcome = self.change(FileWork::Remove { path: place.rooted(), recursive: true }).await?;
                if outcome.reason != Some(CallReason::NotFound) {
                    done(outcome)?;
                }
            }
        }
        answered(json!({}))
    }

    async fn begin_watch(&self, asked: &FileMessage) -> Result<(SandboxPlace, FileWatch), Wrong> {
        let place = SandboxPlace::of(&asked.path)?;
        if self.entry(&SandboxPath::Workspace(place.clone())).await?["type"] != DIRECTORY {
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
        let include_entry = asked.include_entry;
        tokio::spawn(async move {
            let gone = Wrong::new(StatusCode::BAD_GATEWAY, "the sandbox was not found: it has been paused or is over");
            let end = tokio::select! {
                wrong = self.stream((&place, watch, include_entry), &frames, keepalive) => wrong.end_of_stream(),
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

    async fn stream(
        &self,
        (place, mut watch, include_entry): (&SandboxPlace, FileWatch, bool),
        frames: &EventFrames,
        keepalive: std::time::Duration,
    ) -> Wrong {
        let gone = |_| Wrong::new(StatusCode::SERVICE_UNAVAILABLE, "the client is gone");
        let followed = async {
            frames.send(connect::message(&json!({ "start": {} }))).await.map_err(gone)?;
            let mut spoken = Instant::now();
            loop {
                let (next, changes) = watch.changes(&self.api.face).await?;
                watch = next;
                for event in self.events(place, &changes, include_entry).await {
                    spoken = Instant::now();
                    frames.send(connect::message(&json!({ "filesystem": event }))).await.map_err(gone)?;
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

    /// Returns the events of changes, with the present entries if they are wanted and still exist.
    async fn events(&self, place: &SandboxPlace, changes: &[WatchedChange], include_entry: bool) -> Vec<Value> {
        let mut all = Vec::new();
        for change in changes {
            let path = SandboxPath::Workspace(place.with(change.path.clone()));
            let entry = if include_entry { self.entry(&path).await.ok() } else { None };
            all.extend(events(place, change, entry.as_ref()));
        }
        all
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
        watchers.insert(
            id.clone(),
            DirectoryWatcher {
                sandbox: self.sandbox.name().to_owned(),
                place,
                include_entry: asked.include_entry,
                watch,
            },
        );
        answered(json!({ "watcherId": id }))
    }

    fn no_watcher(asked: &FileMessage) -> Wrong {
        Wrong::not_found(format!("watcher with id {:.100} not found", asked.watcher_id))
    }

    async fn watcher_events(&self, asked: FileMessage) -> E2bAnswer {
        let found = lock(&self.api.watchers)
            .get(&asked.watcher_id)
            .filter(|watcher| watcher.sandbox == self.sandbox.name())
            .map(|watcher| (watcher.place.clone(), watcher.include_entry, Arc::clone(&watcher.watch)));
        let (place, include_entry, watch) = found.ok_or_else(|| Self::no_watcher(&asked))?;
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
        answered(json!({ "events": self.events(&place, &changes, include_entry).await }))
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

/// Returns the events of a change. `envd` reports a new file as created, then with its mode, then as written.
fn events(place: &SandboxPlace, change: &WatchedChange, entry: Option<&Value>) -> Vec<Value> {
    let kinds: &[&str] = match change.kind {
        "create" if change.is_file => &["CREATE", "CHMOD", "WRITE"],
        "create" => &["CREATE"],
        "write" => &["WRITE"],
        _ => &["REMOVE"],
    };
    let below = change.path.relative_to(&place.path);
    let name = below.map(|name| String::from_utf8_lossy(name).into_owned()).unwrap_or_default();
    let one = |kind: &&str| {
        let mut event = json!({ "name": name, "type": format!("EVENT_TYPE_{kind}") });
        if let Some(entry) = entry {
            event["entry"] = entry.clone();
        }
        event
    };
    kinds.iter().map(one).collect()
}
