//! Files as they are on a workspace's disk, read by the process that has the workspace open.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use foldspace::event::Node;
use foldspace::reducers::{Change, Entry};
use foldspace::view::{self, EntryDocument, Patch};
use foldspace::{EntryPath, Seq, Session, State, VirtualFileSystem};
use percent_encoding::{NON_ALPHANUMERIC, utf8_percent_encode};
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::{Map, Value};

use super::{Failure, Globals, open, output, owner, tree};

/// The option that reads the disk.
#[derive(Debug, Clone, Copy, clap::Args)]
pub(super) struct LiveArg {
    /// Reads the files from the disk as they are now, also while a command runs
    #[arg(long, conflicts_with_all = ["at", "before"])]
    live: bool,
}

/// The files of a session: as recorded, or on the disk now.
pub(super) struct ShownFiles<'a> {
    globals: &'a Globals,
    session: &'a Session,
    pub(super) files: VirtualFileSystem,
    live_at: Option<Seq>,
}

#[derive(Deserialize)]
struct LiveEntry {
    path: String,
    live_at: Option<Seq>,
    #[serde(flatten)]
    entry: Map<String, Value>,
}

#[derive(Deserialize)]
struct LiveContents {
    contents_text: Option<String>,
    contents_base64: Option<String>,
}

impl LiveArg {
    /// Returns the files of `state`, or those on the disk.
    pub(super) fn files<'a>(
        self,
        globals: &'a Globals,
        session: &'a Session,
        state: &State,
    ) -> Result<ShownFiles<'a>, Failure> {
        let listed: Option<Vec<LiveEntry>> = if self.live { get(globals, session, "files?live=true")? } else { None };
        let live_at = listed.iter().flatten().find_map(|entry| entry.live_at);
        let files = match listed {
            Some(listed) => {
                let entries = listed.into_iter().map(|LiveEntry { path, entry, .. }| (path, Value::Object(entry)));
                serde_json::from_value(Value::Object(entries.collect())).map_err(|error| unreadable(&error))?
            }
            None => VirtualFileSystem::of(state),
        };
        if self.live {
            note(live_at);
        }
        Ok(ShownFiles { globals, session, files, live_at })
    }
}

impl ShownFiles<'_> {
    pub(super) fn document(&self, path: &EntryPath, entry: &Entry) -> EntryDocument {
        EntryDocument { live_at: self.live_at, ..view::entry(path, entry) }
    }

    pub(super) fn contents(&self, path: &EntryPath, entry: &Entry) -> Result<Bytes, Failure> {
        if self.live_at.is_none() || !matches!(entry.node, Node::File { .. }) {
            return tree::contents(self.session, path, entry);
        }
        let segments = path.to_string();
        let segments = segments.split('/').map(|segment| utf8_percent_encode(segment, NON_ALPHANUMERIC).to_string());
        let place = format!("files/{}?live=true", segments.collect::<Vec<_>>().join("/"));
        let read: Option<LiveContents> = get(self.globals, self.session, &place)?;
        match read {
            Some(LiveContents { contents_text: Some(text), .. }) => Ok(text.into()),
            Some(LiveContents { contents_base64: Some(text), .. }) => {
                Ok(STANDARD.decode(text).map_err(|error| unreadable(&error))?.into())
            }
            _ => tree::contents(self.session, path, entry),
        }
    }
}

/// The unrecorded changes of a session.
#[derive(Deserialize)]
pub(super) struct LiveDiff {
    pub(super) changes: Vec<LiveChange>,
    live_at: Option<Seq>,
}

/// A change that is not recorded yet.
#[derive(Deserialize, serde::Serialize)]
pub(super) struct LiveChange {
    #[serde(flatten)]
    pub(super) change: Change,
    binary: bool,
    lines_added: u64,
    lines_removed: u64,
    pub(super) patch: String,
}

impl LiveChange {
    pub(super) fn into_patch(self) -> Patch {
        let change = match &self.change {
            Change::Added { .. } => "added",
            Change::Removed { .. } => "removed",
            Change::Changed { .. } => "changed",
        };
        let (path, text, binary) = (self.change.path().to_string(), self.patch, self.binary);
        Patch { path, change, text, binary, added: self.lines_added, removed: self.lines_removed }
    }
}

impl LiveDiff {
    pub(super) fn of(globals: &Globals, session: &Session, path: Option<&EntryPath>) -> Result<Self, Failure> {
        let path = path.map(|path| format!("&path={}", utf8_percent_encode(&path.to_string(), NON_ALPHANUMERIC)));
        let found = get(globals, session, &format!("diff?live=true{}", path.unwrap_or_default()))?;
        let found: Self = found.unwrap_or(Self { changes: Vec::new(), live_at: None });
        note(found.live_at);
        Ok(found)
    }
}

/// Asks the process that has the store; `None` if none has, so that no command runs.
fn get<T: DeserializeOwned>(globals: &Globals, session: &Session, what: &str) -> Result<Option<T>, Failure> {
    let directory = open::existing(globals)?;
    super::block_on(async {
        let Some((client, _)) = owner::running(&directory).await? else { return Ok(None) };
        Ok(Some(client.get(&format!("/v1/sessions/{}/{what}", session.id())).await?))
    })?
}

fn note(live_at: Option<Seq>) {
    match live_at {
        Some(at) => output::note(&format!("read from the disk after event {at}; changes may not be recorded yet")),
        None => output::note("no process has the workspace open: this is the recorded state"),
    }
}

fn unreadable(error: &dyn std::fmt::Display) -> Failure {
    Failure::failed(format!("invalid answer of the owner: {error}"))
}
