//! Files as they are on a workspace's disk, read by the process that has the workspace open.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use foldspace::event::Node;
use foldspace::reducers::Entry;
use foldspace::view::{self, EntryDocument};
use foldspace::{EntryPath, Seq, Session, State, VirtualFileSystem};
use percent_encoding::{NON_ALPHANUMERIC, utf8_percent_encode};
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::{Map, Value};

use super::{Failure, Globals, Out, diffs, open, output, owner, tree};

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
        let (mut files, mut live_at) = (VirtualFileSystem::of(state), None);
        if self.live {
            let listed: Option<Vec<Map<String, Value>>> = get(globals, session, "files?live=true")?;
            if let Some(mut listed) = listed {
                let mut take = |entry: &mut Map<String, Value>| {
                    live_at = entry.remove("live_at").and_then(|at| at.as_u64());
                    entry.remove("path").and_then(|path| path.as_str().map(str::to_owned)).unwrap_or_default()
                };
                let entries = listed.iter_mut().map(|entry| (take(entry), Value::Object(std::mem::take(entry))));
                files = serde_json::from_value(Value::Object(entries.collect())).map_err(|error| unreadable(&error))?;
            }
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

/// Shows the changes on the disk that are not recorded yet.
pub(super) fn show_diff(globals: &Globals, session: &Session, out: &mut Out) -> Result<(), Failure> {
    let found: Value = get(globals, session, "diff?live=true")?.unwrap_or_default();
    note(found["live_at"].as_u64());
    let changes = found["changes"].as_array().cloned().unwrap_or_default();
    if out.is_json() {
        return out.document(&changes);
    }
    let mut patches = changes.iter().filter_map(|change| change["patch"].as_str());
    patches.try_for_each(|patch| diffs::show(patch, out))
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
