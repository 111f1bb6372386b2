//! Entries as `envd` describes them.

use serde_json::{Value, json};

use super::connect::Wrong;
use super::place::{HOME, SandboxPath, SandboxPlace};
use crate::engine::clock::Timestamp;
use crate::engine::event::Node;
use crate::engine::path::EntryPath;
use crate::reducers::{Entry, VirtualFileSystem};

/// The most links to follow in a row.
const LINKS_MAX: usize = 40;
pub(super) const DIRECTORY: &str = "FILE_TYPE_DIRECTORY";
/// The size that directories have on ext4.
const DIRECTORY_SIZE: u64 = 4096;

/// An entry as `envd` describes it.
pub(super) struct EntryFacts<'a> {
    /// The type in a mode; of a link, that of its target.
    pub(super) kind: u32,
    pub(super) mode: u32,
    pub(super) is_link: bool,
    pub(super) size: u64,
    pub(super) target: Option<&'a str>,
    pub(super) owner: &'a str,
    pub(super) group: &'a str,
    pub(super) changed: Timestamp,
}

/// The types of entries in a mode.
const OF_DIRECTORY: u32 = 0o4;
const OF_FILE: u32 = 0o10;
const OF_LINK: u32 = 0o12;

impl EntryFacts<'_> {
    pub(super) fn directory(mode: u32, changed: Timestamp) -> Self {
        let (size, target) = (DIRECTORY_SIZE, None);
        Self { kind: OF_DIRECTORY, mode, is_link: false, size, target, owner: "user", group: "user", changed }
    }
}

/// Describes an entry of the workspace. A link has the type of its target.
pub(super) fn shown(place: &SandboxPlace, path: &EntryPath, entry: &Entry, files: &VirtualFileSystem) -> Value {
    let kind = |node: &Node| match node {
        Node::Directory { .. } => OF_DIRECTORY,
        Node::File { .. } => OF_FILE,
        Node::Symlink { .. } => OF_LINK,
        Node::Special { .. } => 0,
    };
    let facts = EntryFacts { kind: kind(&entry.node), ..EntryFacts::directory(0o644, entry.updated_at) };
    let name = place.name_of(path);
    match &entry.node {
        Node::Directory { mode } => described(&name, EntryFacts { mode: mode.bits(), ..facts }),
        Node::File { mode, size, .. } => described(&name, EntryFacts { mode: mode.bits(), size: *size, ..facts }),
        Node::Special { .. } => described(&name, EntryFacts { size: 0, ..facts }),
        Node::Symlink { target } => {
            let end = followed(files, path).ok();
            let kind = match &end {
                Some(SandboxPath::Workspace(end)) => files.get(&end.path).map_or(OF_LINK, |entry| kind(&entry.node)),
                _ => OF_LINK,
            };
            let end = end.map_or_else(|| String::from_utf8_lossy(target).into_owned(), |end| end.name());
            described(&name, EntryFacts { kind, mode: 0o777, is_link: true, size: 0, target: Some(&end), ..facts })
        }
    }
}

pub(super) fn described(path: &str, facts: EntryFacts<'_>) -> Value {
    let (kind, letter) = match facts.kind {
        OF_DIRECTORY => (DIRECTORY, 'd'),
        OF_FILE => ("FILE_TYPE_FILE", '-'),
        OF_LINK => ("FILE_TYPE_SYMLINK", 'L'),
        _ => ("FILE_TYPE_UNSPECIFIED", '-'),
    };
    let letter = if facts.is_link { 'L' } else { letter };
    let may = |at: usize| facts.mode >> (8 - at) & 1 == 1;
    let letters = std::iter::once(letter).chain((0..9).map(|at| if may(at) { ['r', 'w', 'x'][at % 3] } else { '-' }));
    let mut entry = json!({
        "name": path.rsplit('/').next(),
        "type": kind,
        "path": path,
        "size": facts.size.to_string(),
        "mode": facts.mode,
        "permissions": letters.collect::<String>(),
        "owner": facts.owner,
        "group": facts.group,
        "modifiedTime": facts.changed,
    });
    if facts.is_link {
        entry["isSymlink"] = true.into();
        entry["symlinkTarget"] = facts.target.into();
    }
    entry
}

/// Follows links from a path to another entry, which need not exist.
pub(super) fn followed(files: &VirtualFileSystem, path: &EntryPath) -> Result<SandboxPath, Wrong> {
    let mut path = path.clone();
    for _ in 0..LINKS_MAX {
        let Some(Node::Symlink { target }) = files.get(&path).map(|entry| &entry.node) else {
            return Ok(SandboxPath::Workspace(SandboxPlace::at_home(path)));
        };
        let target = String::from_utf8_lossy(target);
        let above = path.parent().unwrap_or_else(EntryPath::root);
        let full =
            if target.starts_with('/') { target.into_owned() } else { format!("{HOME}{}/{target}", above.rooted()) };
        match SandboxPath::of(&full)? {
            SandboxPath::Workspace(place) => path = place.path,
            outside => return Ok(outside),
        }
    }
    Err(Wrong::invalid(format!("{path:.200} leads through too many links")))
}
