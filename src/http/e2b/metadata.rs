//! Metadata that clients give files: events of the session, folded by a declared slice.

use std::collections::BTreeMap;

use axum::http::HeaderMap;
use serde_json::{Map, Value, json};

use super::E2bApi;
use super::connect::Wrong;
use crate::engine::path::EntryPath;
use crate::engine::session::Session;
use crate::engine::state::State;
use crate::hub::blocking;
use crate::reducers::DeclaredSlices;
use crate::tools::{OwnEvent, declare_slice, record_own};

/// The slice of the metadata by path, and the kinds of its events.
const SLICE: &str = "E2bMetadata";
const SET: &str = "e2b.metadata";
const CLEARED: &str = "e2b.metadata_cleared";
/// The prefix of the headers with metadata.
const HEADER: &str = "x-metadata-";
/// The most bytes of the metadata of a file.
const BYTES_MAX: usize = 16 << 10;

/// The metadata of a file, by name.
pub(super) type FileMetadata = BTreeMap<String, String>;

/// Reads the metadata in the headers of an upload.
pub(super) fn of_headers(headers: &HeaderMap) -> Result<FileMetadata, Wrong> {
    let mut found = FileMetadata::new();
    for (name, value) in headers {
        let Some(name) = name.as_str().strip_prefix(HEADER) else { continue };
        let text = value.to_str().ok().filter(|_| !name.is_empty());
        let text = text.ok_or_else(|| Wrong::invalid("metadata has names, and values of printable ASCII"))?;
        found.insert(name.to_owned(), text.to_owned());
    }
    match found.iter().map(|(name, value)| name.len() + value.len()).sum::<usize>() {
        0..=BYTES_MAX => Ok(found),
        bytes => Err(Wrong::invalid(format!("the metadata has {bytes} bytes; the limit is {BYTES_MAX}"))),
    }
}

/// The metadata of all files, by path.
pub(super) struct MetadataOfFiles(Map<String, Value>);

impl MetadataOfFiles {
    pub(super) fn of(state: &State) -> Self {
        let slice = state.slice::<DeclaredSlices>().and_then(|slices| slices.get(SLICE).map(|slice| slice.value()));
        Self(match slice {
            Some(Value::Object(files)) => files,
            _ => Map::new(),
        })
    }

    pub(super) fn get(&self, path: &EntryPath) -> Option<&Value> {
        self.0.get(&key(path))
    }
}

/// Returns a path as it is written in events.
fn key(path: &EntryPath) -> String {
    json!(path).as_str().unwrap_or_default().to_owned()
}

fn event(path: &str, metadata: Option<Value>) -> OwnEvent {
    match metadata {
        Some(metadata) => OwnEvent { kind: SET.to_owned(), data: json!({ "path": path, "metadata": metadata }) },
        None => OwnEvent { kind: CLEARED.to_owned(), data: json!({ "path": path }) },
    }
}

impl E2bApi {
    /// Replaces the metadata of written files.
    pub(super) async fn set_metadata(
        &self,
        sandbox: &str,
        paths: Vec<EntryPath>,
        metadata: FileMetadata,
    ) -> Result<(), Wrong> {
        let session = self.face.session(sandbox).await?;
        let work = move || {
            let known = MetadataOfFiles::of(&session.state()?);
            let new = (!metadata.is_empty()).then(|| json!(metadata));
            let changed = paths.iter().filter(|path| new.is_some() || known.get(path).is_some());
            record(&session, changed.map(|path| event(&key(path), new.clone())).collect())
        };
        blocking(work).await?
    }

    /// Returns the events that give the metadata of an entry, and of those below it, to another path.
    pub(super) async fn metadata_moved(
        &self,
        sandbox: &str,
        from: &EntryPath,
        to: &EntryPath,
    ) -> Result<Vec<OwnEvent>, Wrong> {
        let (session, from, to) = (self.face.session(sandbox).await?, key(from), key(to));
        let work = move || {
            let known = MetadataOfFiles::of(&session.state()?).0;
            let moved = known.into_iter().filter_map(|(path, metadata)| {
                let rest = path.strip_prefix(&from).filter(|rest| rest.is_empty() || rest.starts_with('/'))?;
                Some(event(&format!("{to}{rest}"), Some(metadata)))
            });
            Ok(moved.collect())
        };
        blocking(work).await?
    }

    pub(super) async fn record_metadata(&self, sandbox: &str, events: Vec<OwnEvent>) -> Result<(), Wrong> {
        let session = self.face.session(sandbox).await?;
        blocking(move || record(&session, events)).await?
    }
}

fn record(session: &Session, events: Vec<OwnEvent>) -> Result<(), Wrong> {
    if events.is_empty() {
        return Ok(());
    }
    if session.state()?.slice::<DeclaredSlices>().is_none_or(|slices| slices.get(SLICE).is_none()) {
        let declaration = json!({ "name": SLICE, "rules": [
            { "kinds": [SET], "fold": "latest_by", "key": "/path", "value": "/metadata" },
            { "kinds": [CLEARED, "DeleteEntry"], "fold": "remove_by", "key": "/path" },
        ] });
        let declaration = serde_json::from_value(declaration);
        declare_slice(session, declaration.map_err(|error| Wrong::invalid(error.to_string()))?)?;
    }
    Ok(record_own(session, events, None, None).map(drop)?)
}
