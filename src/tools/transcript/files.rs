//! The files of a run, as far as its transcript states their contents.

use std::collections::BTreeMap;

use bytes::Bytes;

use super::step::{StatedChange, StatedFile};
use crate::engine::path::EntryPath;
use crate::tools::rerun::foreign::path_below;

/// The limit for contents held in memory to apply edits to, in bytes.
const KEPT_MAX: usize = 16 << 20;
/// The limit for all contents that a run writes, in bytes. Each edit writes the whole file.
const MADE_MAX: usize = 4 << 30;
/// The limit for the result of an edit, in bytes. The size estimate counts both the old and the new text.
const EDITED_MAX: usize = 128 << 20;
/// The limit for the files of a run.
const FILES_MAX: usize = 100_000;
/// The limit for the lines of a file, and of a patch to it.
const PATCHED_LINES: usize = 1 << 17;

/// The known contents of files; `None` for a known file without contents in memory.
#[derive(Debug, Default)]
pub(crate) struct StatedFiles {
    directory: Option<String>,
    known: BTreeMap<EntryPath, Option<Bytes>>,
    bytes: usize,
    made: usize,
}

/// A change of a file that can be recorded.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum KnownChange {
    Written {
        path: EntryPath,
        contents: Bytes,
        is_new: bool,
    },
    Removed(EntryPath),
    /// A change of the file at this path with an unknown result.
    Unknown(String),
}

impl StatedFiles {
    pub(crate) fn below(directory: Option<String>) -> Self {
        Self { directory, ..Self::default() }
    }

    /// Returns the changes that a call made below the directory.
    pub(crate) fn changes(&mut self, stated: Vec<StatedFile>) -> Vec<KnownChange> {
        let mut changes: Vec<KnownChange> = Vec::new();
        for change in stated.into_iter().flat_map(|file| self.change(file)) {
            match (changes.last_mut(), change) {
                // Merge successive edits of a file, which saves memory.
                (
                    Some(KnownChange::Written { path: last, contents, .. }),
                    KnownChange::Written { path, contents: next, .. },
                ) if *last == path => *contents = next,
                (_, change) => changes.push(change),
            }
        }
        changes
    }

    fn change(&mut self, StatedFile { path: shown, change }: StatedFile) -> Vec<KnownChange> {
        let Some(path) = self.path(&shown) else { return Vec::new() };
        match change {
            StatedChange::Whole(contents) => vec![self.write(path, shown, contents)],
            StatedChange::Replaced { before, old, new, all } => {
                let before = before.or_else(|| self.text(&path));
                let count = before
                    .as_ref()
                    .map_or(0, |before| before.matches(&old).take(if all { EDITED_MAX } else { 1 }).count());
                let made = |before: &String| before.len().saturating_add(count.saturating_mul(new.len()));
                match before.filter(|before| count > 0 && made(before) <= EDITED_MAX) {
                    Some(before) => vec![self.write(path, shown, before.replacen(&old, &new, count))],
                    None => vec![self.lose(path, shown)],
                }
            }
            StatedChange::Patched { diff, moved_to } => {
                let after = self.text(&path).and_then(|before| patched(&before, &diff));
                let target = moved_to.as_deref().map(|to| (self.path(to), to.to_owned()));
                let mut changes = Vec::new();
                let (to, shown) = match target {
                    Some((to, shown)) => {
                        changes.push(self.remove(path));
                        (to, shown)
                    }
                    None => (Some(path), shown),
                };
                match (to, after) {
                    (Some(to), Some(after)) => changes.push(self.write(to, shown, after)),
                    (Some(to), None) => changes.push(self.lose(to, shown)),
                    (None, _) => {}
                }
                changes
            }
            StatedChange::Removed => vec![self.remove(path)],
        }
    }

    /// Returns the path below the directory. `None` if the path is elsewhere.
    fn path(&self, shown: &str) -> Option<EntryPath> {
        path_below(self.directory.as_deref(), shown).filter(|path| !path.is_root())
    }

    fn text(&self, path: &EntryPath) -> Option<String> {
        let bytes = self.known.get(path)?.as_ref()?;
        String::from_utf8(bytes.to_vec()).ok()
    }

    fn write(&mut self, path: EntryPath, shown: String, contents: String) -> KnownChange {
        self.made = self.made.saturating_add(contents.len());
        if self.made > MADE_MAX || self.known.len() >= FILES_MAX && !self.known.contains_key(&path) {
            return self.lose(path, shown);
        }
        let contents = Bytes::from(contents);
        let keeps = self.bytes + contents.len() <= KEPT_MAX;
        self.bytes += if keeps { contents.len() } else { 0 };
        let before = self.known.insert(path.clone(), keeps.then(|| contents.clone()));
        self.forget(before.as_ref());
        KnownChange::Written { path, contents, is_new: before.is_none() }
    }

    fn remove(&mut self, path: EntryPath) -> KnownChange {
        let before = self.known.remove(&path);
        self.forget(before.as_ref());
        match before {
            Some(_) => KnownChange::Removed(path),
            // The file existed before the run.
            None => KnownChange::Unknown(path.to_string()),
        }
    }

    fn lose(&mut self, path: EntryPath, shown: String) -> KnownChange {
        let before = self.known.remove(&path);
        self.forget(before.as_ref());
        KnownChange::Unknown(shown)
    }

    fn forget(&mut self, before: Option<&Option<Bytes>>) {
        self.bytes -= before.and_then(Option::as_ref).map_or(0, Bytes::len);
    }
}

fn patched(before: &str, diff: &str) -> Option<String> {
    if [before, diff].into_iter().any(|text| text.lines().nth(PATCHED_LINES).is_some()) {
        return None;
    }
    let patch = diffy::Patch::from_str(diff).ok()?;
    diffy::apply(before, &patch).ok()
}
