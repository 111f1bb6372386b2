//! Files outside of the workspace: commands in the sandbox read and write them, so that the log shows each access. They
//! live in the container, which pauses, forks and snapshots do not keep.

use std::sync::Arc;

use axum::body::Body;
use axum::http::StatusCode;
use bytes::Bytes;
use futures_util::stream;
use serde_json::{Value, json};

use super::E2bApi;
use super::connect::Wrong;
use super::entries::{EntryFacts, described};
use super::place::{SandboxPath, outside};
use super::sandbox::Sandbox;
use crate::backends::{OutputStream, WorkspaceSpec};
use crate::engine::clock::Timestamp;
use crate::engine::id::Digest;
use crate::http::calls::CallRequest;
use crate::http::processes::launch;
use crate::hub::blocking;
use crate::tools::process_output::{OutputPart, ProcessReader};
use crate::tools::processes::Process;
use crate::tools::{OwnEvent, record_own};

/// The kind of the event that records a written file.
const WRITTEN: &str = "outside.write";
/// The most bytes of a list of entries.
const LIST_MAX: usize = 16 << 20;
/// Exit codes of the scripts.
const NOT_FOUND: i32 = 44;
const NOT_DIRECTORY: i32 = 45;
const EXISTS: i32 = 46;
const IS_DIRECTORY: i32 = 47;

/// Describes entries: the mode, size, time, owner and group; the same of a link's target; the target; and the path.
const SHOW: &str = r#"for f; do t= k=
if [ -L "$f" ]; then t=$(readlink -f -- "$f"); k=$(stat -L -c %f -- "$f" 2>/dev/null); fi
printf '%s\t%s\t%s\t%s\0' "$(stat -c '%f %s %Y %U %G' -- "$f")" "$k" "$t" "$f"; done"#;
const STAT: &str = r#"[ -e "$2" ] || [ -L "$2" ] || exit 44; sh -c "$1" sh "$2""#;
const LIST: &str = r#"[ -e "$2" ] || exit 44; [ -d "$2" ] || exit 45
find "$2" -mindepth 1 -maxdepth "$3" -exec sh -c "$1" sh {} +"#;
const MAKE: &str = r#"[ -d "$1" ] && exit 46; mkdir -p -- "$1""#;
const MOVE: &str =
    r#"[ -e "$1" ] || [ -L "$1" ] || exit 44; mkdir -p -- "$(dirname -- "$2")" && mv -f -T -- "$1" "$2""#;
const REMOVE: &str = r#"rm -rf -- "$1""#;
const READ: &str = r#"[ -e "$1" ] || exit 44; [ -d "$1" ] && exit 47; exec cat -- "$1""#;
const WRITE: &str = r#"[ -d "$1" ] && exit 47; mkdir -p -- "$(dirname -- "$1")" && exec cat > "$1""#;

/// The files of a sandbox outside of its workspace.
pub(super) struct OutsideFiles<'a> {
    api: &'a E2bApi,
    sandbox: &'a Sandbox,
}

impl<'a> OutsideFiles<'a> {
    /// Fails without a container: nothing separates the server's own files from a sandbox's.
    pub(super) fn of(api: &'a E2bApi, sandbox: &'a Sandbox, path: &str) -> Result<Self, Wrong> {
        match api.options.workspace {
            WorkspaceSpec::Podman(_) => Ok(Self { api, sandbox }),
            _ => Err(outside(path)),
        }
    }

    pub(super) async fn entry(&self, path: &str) -> Result<Value, Wrong> {
        let found = self.ran(path, &[STAT, SHOW, path]).await?;
        entries(&found).pop().ok_or_else(|| Wrong::not_found(format!("path not found: {path:.200}")))
    }

    pub(super) async fn list(&self, path: &str, depth: u32) -> Result<Vec<Value>, Wrong> {
        let found = self.ran(path, &[LIST, SHOW, path, &depth.to_string()]).await?;
        Ok(entries(&found))
    }

    pub(super) async fn make(&self, path: &str) -> Result<(), Wrong> {
        self.ran(path, &[MAKE, path]).await.map(drop)
    }

    pub(super) async fn rename(&self, from: &SandboxPath, to: &SandboxPath) -> Result<(), Wrong> {
        let (from, to) = (from.name(), to.name());
        self.ran(&from, &[MOVE, &from, &to]).await.map(drop)
    }

    pub(super) async fn remove(&self, path: &str) -> Result<(), Wrong> {
        self.ran(path, &[REMOVE, path]).await.map(drop)
    }

    /// Writes a file, and records its digest.
    pub(super) async fn write(&self, path: &str, bytes: Bytes) -> Result<(), Wrong> {
        let process = self.begin(&[WRITE, path], true).await?;
        let feeding = (Arc::clone(&process), bytes.clone());
        tokio::spawn(async move {
            feeding.0.input.send(&feeding.1).await;
            feeding.0.input.end();
        });
        self.finished(path, &process, process.read_from(0)).await?;
        let session = self.api.face.session(self.sandbox.name()).await?;
        let data = json!({ "path": path, "size": bytes.len(), "digest": Digest::of(&bytes) });
        let event = OwnEvent { kind: WRITTEN.to_owned(), data };
        Ok(blocking(move || record_own(&session, vec![event], Some(process.number()), None).map(drop)).await??)
    }

    /// Reads a file as it arrives. An error after the first piece breaks the stream.
    pub(super) async fn read(&self, path: &str) -> Result<Body, Wrong> {
        let process = self.begin(&[READ, path], false).await?;
        let mut reader = process.read_from(0);
        let first = match reader.next().await {
            Some(OutputPart::Piece(piece)) if piece.stream == OutputStream::Stdout => piece.bytes,
            // It is empty, or can't be read.
            _ => {
                self.finished(path, &process, reader).await?;
                return Ok(Body::empty());
            }
        };
        let rest = stream::unfold(Some((process, reader)), async |state| {
            let (process, mut reader) = state?;
            match reader.next().await {
                Some(OutputPart::Piece(piece)) => Some((Ok(piece.bytes), Some((process, reader)))),
                Some(OutputPart::Missed(_)) => Some((Err(std::io::Error::other("the client was too slow")), None)),
                None => {
                    process.ended().await;
                    let is_well = process.document().exit_code == Some(0);
                    (!is_well).then(|| (Err(std::io::Error::other("the file can't be read further")), None))
                }
            }
        });
        Ok(Body::from_stream(futures_util::StreamExt::chain(stream::iter([Ok(first)]), rest)))
    }

    /// Starts a script with its arguments.
    async fn begin(&self, script: &[&str], input: bool) -> Result<Arc<Process>, Wrong> {
        let (script, arguments) = script.split_first().unwrap_or((&"", &[]));
        let command = [&["/bin/sh", "-c", script, "sh"], arguments].concat();
        let params = json!({ "command": command, "input": input });
        let rules = CallRequest { auto_confirm: true, ..CallRequest::default() };
        Ok(launch(&self.api.face, self.sandbox.name(), params, rules).await?)
    }

    async fn ran(&self, path: &str, script: &[&str]) -> Result<Vec<u8>, Wrong> {
        let process = self.begin(script, false).await?;
        self.finished(path, &process, process.read_from(0)).await
    }

    /// Waits for the end, and returns what the script has printed.
    async fn finished(&self, path: &str, process: &Process, mut reader: ProcessReader) -> Result<Vec<u8>, Wrong> {
        let (mut printed, mut problem, mut is_over) = (Vec::new(), Vec::new(), false);
        while let Some(part) = reader.next().await {
            match part {
                OutputPart::Piece(piece) => match piece.stream {
                    OutputStream::Stdout if printed.len() < LIST_MAX => printed.extend_from_slice(&piece.bytes),
                    OutputStream::Stderr if problem.len() < 4096 => problem.extend_from_slice(&piece.bytes),
                    _ => is_over = true,
                },
                OutputPart::Missed(_) => is_over = true,
            }
        }
        process.ended().await;
        let end = process.document();
        match end.exit_code {
            Some(0) if is_over => Err(Wrong::invalid(format!("{path:.200} has too many entries; list fewer levels"))),
            Some(0) => Ok(printed),
            Some(NOT_FOUND) => Err(Wrong::not_found(format!("path not found: {path:.200}"))),
            Some(NOT_DIRECTORY) => Err(Wrong::invalid(format!("path is not a directory: {path:.200}"))),
            Some(EXISTS) => Err(Wrong::new(StatusCode::CONFLICT, format!("directory already exists: {path:.200}"))),
            Some(IS_DIRECTORY) => Err(Wrong::invalid(format!("path is a directory: {path:.200}"))),
            _ => {
                let said = String::from_utf8_lossy(&problem).trim().to_owned();
                let problem = end.problem.unwrap_or(said);
                Err(Wrong::new(StatusCode::FORBIDDEN, format!("{path:.200} can't be used: {problem:.500}")))
            }
        }
    }
}

/// Reads the output of [`SHOW`], sorted by path.
fn entries(text: &[u8]) -> Vec<Value> {
    let read = |line: &str| {
        let mut fields = line.splitn(4, '\t');
        let (facts, target_mode, target, path) = (fields.next()?, fields.next()?, fields.next()?, fields.next()?);
        let facts: Vec<&str> = facts.split(' ').collect();
        let &[mode, size, seconds, owner, group] = facts.as_slice() else { return None };
        let mode = u32::from_str_radix(mode, 16).ok()?;
        let target_mode = u32::from_str_radix(target_mode, 16).ok();
        let entry = EntryFacts {
            kind: target_mode.unwrap_or(mode) >> 12,
            mode: mode & 0o7777,
            is_link: mode >> 12 == 0o12,
            size: size.parse().ok()?,
            target: Some(target).filter(|target| !target.is_empty()),
            owner,
            group,
            changed: Timestamp(seconds.parse::<i64>().ok()?.saturating_mul(1000)),
        };
        Some((path.to_owned(), described(path, entry)))
    };
    let text = String::from_utf8_lossy(text);
    let mut entries: Vec<(String, Value)> = text.split('\0').filter_map(read).collect();
    entries.sort_by(|(a, _), (b, _)| a.cmp(b));
    entries.into_iter().map(|(_, entry)| entry).collect()
}
