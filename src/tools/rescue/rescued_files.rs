//! The contents of chosen candidates, and a new directory for them.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::path::Path;

use bytes::Bytes;

use super::places::listed;
use super::{RescueCandidate, RescuePlaces, RescueScan};
use crate::backends::{FileChange, HostOptions, HostWorkspace, Workspace};
use crate::engine::clock::Timestamp;
use crate::engine::event::{FileMode, Node};
use crate::engine::id::Digest;
use crate::engine::path::EntryPath;
use crate::tools::error::WorkspaceError;

/// The files that were written.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct RescuedFiles {
    pub written: Vec<EntryPath>,
    pub bytes: u64,
    /// Files below another chosen file, and files whose source has changed since the search.
    pub left: Vec<EntryPath>,
}

/// Reads the contents with these digests, each once. Returns the digests that no source has any more.
pub fn rescue_contents(
    places: &RescuePlaces,
    mut wanted: BTreeSet<Digest>,
    mut take: impl FnMut(Digest, Bytes),
) -> BTreeSet<Digest> {
    RescueScan::run(places, &mut |candidate, content| {
        if let Some(id) = candidate.id.filter(|id| wanted.remove(id)) {
            take(id, content);
        }
    });
    wanted
}

/// Writes candidates into a directory that is new or empty. Only its owner can read the files.
///
/// # Errors
/// [`WorkspaceError::NotEmpty`], also for a link, and errors of the disk.
pub fn write_rescued(
    places: &RescuePlaces,
    into: &Path,
    chosen: &BTreeMap<EntryPath, RescueCandidate>,
) -> Result<RescuedFiles, WorkspaceError> {
    let is_fit = match into.symlink_metadata() {
        Ok(metadata) => metadata.is_dir() && listed(into).is_empty(),
        Err(error) => error.kind() == io::ErrorKind::NotFound,
    };
    if !is_fit {
        return Err(WorkspaceError::NotEmpty(into.to_owned()));
    }
    let is_below_file = |path: &EntryPath| chosen.keys().any(|other| path.is_below(other));
    let mut by_id: BTreeMap<Digest, Vec<(&EntryPath, &RescueCandidate)>> = BTreeMap::new();
    for (path, candidate) in chosen.iter().filter(|(path, _)| !is_below_file(path)) {
        by_id.entry(candidate.id.unwrap_or_else(|| Digest::of(b""))).or_default().push((path, candidate));
    }
    let workspace = HostWorkspace::open(into, &HostOptions { files_only: true, ..HostOptions::default() })?;
    let (mut rescued, mut failed) = (RescuedFiles::default(), Ok(()));
    rescue_contents(places, by_id.keys().copied().collect(), |id, content| {
        for (path, candidate) in by_id.get(&id).into_iter().flatten() {
            if failed.is_ok() {
                failed = workspace.populate(&[write(path, candidate, &content)]);
                rescued.written.push((*path).clone());
                rescued.bytes += content.len() as u64;
            }
        }
    });
    failed?;
    rescued.written.sort();
    rescued.left = chosen.keys().filter(|path| rescued.written.binary_search(path).is_err()).cloned().collect();
    Ok(rescued)
}

fn write(path: &EntryPath, candidate: &RescueCandidate, content: &Bytes) -> FileChange {
    let mode = FileMode::of(if candidate.executable { 0o700 } else { 0o600 });
    let modified: Option<Timestamp> = candidate.time;
    FileChange::Write { path: path.clone(), node: Node::file_with(content, mode), bytes: content.clone(), modified }
}
