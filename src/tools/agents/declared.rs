//! The files that a call says to change.

use serde_json::Value;

use crate::tools::transcript::edits::{edits_of, spelled};
use crate::tools::transcript::files::{KnownChange, StatedFiles};
use crate::tools::transcript::gemini::changed;
use crate::tools::transcript::step::text;

/// A file that a call says to change.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct DeclaredFile {
    /// Its path as the agent gave it: absolute, or relative to its directory.
    pub(crate) path: String,
    pub(crate) change: DeclaredChange,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum DeclaredChange {
    /// The file has these contents after the call.
    Written(String),
    /// The file is gone after the call.
    Removed,
    /// The contents after the call are not stated.
    Unknown,
}

const PATCHES: [&str; 4] = ["command", "patchText", "patch", "input"];

/// Returns the files in the parameters of a tool that edits. The answer says more where it has their contents.
pub(super) fn declared_files(tool: &str, params: &Value, answer: &Value) -> Vec<DeclaredFile> {
    if let Some(patch) = PATCHES.iter().find_map(|name| params[*name].as_str()?.strip_prefix("*** Begin Patch")) {
        return patched(patch);
    }
    let common = spelled(params);
    let path = text(&common, "file_path").to_owned();
    if path.is_empty() {
        return Vec::new();
    }
    let shown = changed(&answer["returnDisplay"]);
    let stated = if shown.is_empty() { edits_of(&common, answer) } else { shown };
    if stated.is_empty() && tool == "Delete" {
        return vec![DeclaredFile { path, change: DeclaredChange::Removed }];
    }
    let change = match StatedFiles::default().changes(stated).pop() {
        Some(KnownChange::Written { contents, .. }) => String::from_utf8(contents.into()).ok(),
        _ => None,
    };
    vec![DeclaredFile { path, change: change.map_or(DeclaredChange::Unknown, DeclaredChange::Written) }]
}

/// Returns the files of a patch in the format of the tool `apply_patch`.
fn patched(patch: &str) -> Vec<DeclaredFile> {
    let mut files: Vec<DeclaredFile> = Vec::new();
    for line in patch.lines() {
        let header = |name: &str| Some(line.strip_prefix("*** ")?.strip_prefix(name)?.strip_prefix(": ")?.to_owned());
        let mut declare = |path, change| files.push(DeclaredFile { path, change });
        if let Some(path) = header("Add File") {
            declare(path, DeclaredChange::Written(String::new()));
        } else if let Some(path) = header("Delete File") {
            declare(path, DeclaredChange::Removed);
        } else if let Some(path) = header("Update File") {
            declare(path, DeclaredChange::Unknown);
        } else if let Some(path) = header("Move to") {
            if let Some(moved) = files.last_mut() {
                moved.change = DeclaredChange::Removed;
            }
            files.push(DeclaredFile { path, change: DeclaredChange::Unknown });
        } else if let Some(DeclaredFile { change: DeclaredChange::Written(contents), .. }) = files.last_mut()
            && let Some(added) = line.strip_prefix('+')
        {
            contents.push_str(added);
            contents.push('\n');
        }
    }
    files
}
