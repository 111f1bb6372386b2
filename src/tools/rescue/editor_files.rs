//! Copies of editors: VS Code's local history, and backup, auto-save and swap files.

use std::path::{Path, PathBuf};

use bytes::Bytes;
use serde_json::Value;

use super::places::{files_below, listed, moment, name, read};
use super::{Certainty, RescueCandidate, RescueScan};
use crate::engine::clock::Timestamp;
use crate::engine::path::EntryPath;
use crate::tools::transcript::stated::unescaped;

/// Programs with VS Code's local history, below the directory of settings and below the home.
const CONFIGS: [&str; 5] = ["Code", "Code - Insiders", "VSCodium", "Cursor", "Windsurf"];
const SERVERS: [&str; 3] = [".vscode-server/data", ".cursor-server/data", ".windsurf-server/data"];
/// Directories without files of editors.
const PASSED_OVER: [&str; 5] = [".git", "node_modules", "target", ".venv", "__pycache__"];
/// The limit for the directories that are searched for files of editors.
const DIRECTORIES_MAX: usize = 50_000;

impl RescueScan<'_> {
    pub(super) fn local_histories(&mut self) {
        let config = self.places.config.iter().flat_map(|config| CONFIGS.map(|program| config.join(program)));
        let servers = self.places.home.iter().flat_map(|home| SERVERS.map(|server| home.join(server)));
        for program in config.chain(servers).collect::<Vec<_>>() {
            for file in listed(&program.join("User/History")) {
                self.local_history(&file);
            }
        }
    }

    /// Reads the versions of one file: `entries.json` names the file and its versions.
    fn local_history(&mut self, directory: &Path) {
        let list = directory.join("entries.json");
        if !list.exists() {
            return;
        }
        let parsed = read(&list).and_then(|(text, _)| Ok(serde_json::from_slice::<Value>(&text)?));
        let entries = match &parsed {
            Ok(entries) => entries,
            Err(error) => return self.skipped(list.display(), error),
        };
        let Some(path) = entries["resource"].as_str().and_then(path_of).and_then(|path| self.places.below(&path))
        else {
            return;
        };
        self.named.insert(path.clone());
        for entry in entries["entries"].as_array().into_iter().flatten() {
            let Some(id) = entry["id"].as_str().filter(|id| !id.contains('/')) else { continue };
            match read(&directory.join(id)) {
                Ok((content, _)) => {
                    let detail = entry["source"].as_str().unwrap_or("saved");
                    let candidate = RescueCandidate::new("local-history", Some(path.clone()), detail);
                    let time = entry["timestamp"].as_i64().map(Timestamp);
                    self.found(RescueCandidate { time, ..candidate }, content);
                }
                Err(error) => self.skipped(directory.join(id).display(), error),
            }
        }
    }

    pub(super) fn editors(&mut self) {
        let (mut waiting, mut count) = (vec![EntryPath::root()], 0);
        while let Some(directory) = waiting.pop() {
            count += 1;
            if count > DIRECTORIES_MAX {
                return self.note(format!("searched {DIRECTORIES_MAX} directories for files of editors, not all"));
            }
            for entry in listed(&self.places.place(&directory)) {
                let (Some(path), Ok(metadata)) = (self.places.below(&entry), entry.symlink_metadata()) else {
                    continue;
                };
                let name = std::str::from_utf8(path.name()).unwrap_or_default();
                if metadata.is_dir() {
                    waiting.extend((!PASSED_OVER.contains(&name)).then(|| path.clone()));
                } else if let Some(copy) = edited(name) {
                    self.editor_copy(copy, &path, metadata.modified().ok().and_then(moment));
                }
            }
        }
        // Neovim has the swap files of all directories in one, with `%` for `/`.
        let swaps = self.places.state.as_ref().map(|state| state.join("nvim/swap"));
        for swap in swaps.iter().flat_map(|swaps| files_below(swaps, 1)) {
            let edited = name(&swap).rsplit_once('.').map(|(path, _)| PathBuf::from(path.replace('%', "/")));
            if let Some(path) = edited.and_then(|edited| self.places.below(&edited)) {
                let written = swap.metadata().ok().and_then(|metadata| moment(metadata.modified().ok()?));
                self.unreadable(path, format!("swap file; recover with `nvim -r {}`", swap.display()), written);
            }
        }
    }

    fn editor_copy(&mut self, (name, kind): (&str, CopyKind), path: &EntryPath, time: Option<Timestamp>) {
        let Ok(original) = path.parent().unwrap_or_else(EntryPath::root).join(name.as_bytes()) else { return };
        match kind {
            CopyKind::Swap => {
                self.unreadable(original.clone(), format!("swap file; recover with `vim -r {original}`"), time)
            }
            CopyKind::Lock => self.unreadable(original, "Emacs had unsaved changes".to_owned(), time),
            CopyKind::Whole(sure, what) => match self.places.read(path) {
                Ok(content) => {
                    let candidate = RescueCandidate::new("editor", Some(original), what);
                    self.found(RescueCandidate { time, sure, ..candidate }, content);
                }
                Err(error) => self.skipped(path, error),
            },
        }
    }

    /// Passes on a copy that only its editor can read.
    fn unreadable(&mut self, path: EntryPath, detail: String, time: Option<Timestamp>) {
        let candidate = RescueCandidate::new("editor", Some(path), detail);
        (self.take)(RescueCandidate { time, ..candidate }, Bytes::new());
    }
}

/// A file that an editor leaves next to the edited file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum CopyKind {
    /// A copy of the contents.
    Whole(Certainty, &'static str),
    /// Vim's swap file.
    Swap,
    /// Emacs' lock, a link.
    Lock,
}

/// Returns the name of the edited file, for the name of a file that an editor leaves.
pub(super) fn edited(name: &str) -> Option<(&str, CopyKind)> {
    let swap = [".swp", ".swo", ".swn"].into_iter().find_map(|end| name.strip_prefix('.')?.strip_suffix(end));
    // Vim's undo files and numbered backups look like backups.
    let backup = name.strip_suffix('~').filter(|rest| !rest.ends_with(".un") && !rest.contains('~'));
    let kinds = [
        (swap, CopyKind::Swap),
        (name.strip_prefix(".#"), CopyKind::Lock),
        (
            name.strip_prefix('#').and_then(|rest| rest.strip_suffix('#')),
            CopyKind::Whole(Certainty::Exact, "Emacs auto-save"),
        ),
        (backup, CopyKind::Whole(Certainty::Exact, "backup file")),
        // Other files have such names, too.
        (name.strip_suffix(".save"), CopyKind::Whole(Certainty::Inferred, "nano's emergency file")),
    ];
    let found = kinds.into_iter().find_map(|(original, kind)| Some((original?, kind)));
    found.filter(|(original, _)| !original.is_empty())
}

/// Returns the path in a URI of a file, also of a file that another machine edits here.
pub(super) fn path_of(resource: &str) -> Option<PathBuf> {
    let rest = resource.strip_prefix("file://").or_else(|| resource.strip_prefix("vscode-remote://"))?;
    let path = &rest[rest.find('/')?..];
    unescaped(path).map(PathBuf::from)
}
