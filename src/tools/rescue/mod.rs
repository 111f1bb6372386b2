//! Finds contents of lost files that other programs still have: git, coding agents and editors. It only reads.

mod agent_files;
mod editor_files;
mod git_objects;
mod places;
mod report;
mod rescued_files;

use std::collections::BTreeSet;

use bytes::Bytes;
use serde::Serialize;

pub use places::RescuePlaces;
pub use report::{FileNow, RescueReport, RescuedPath};
pub use rescued_files::{RescuedFiles, rescue_contents, write_rescued};

use crate::engine::clock::Timestamp;
use crate::engine::id::Digest;
use crate::engine::path::EntryPath;

/// The limit for a content, in bytes.
const CONTENT_MAX: u64 = 64 << 20;

/// The certainty that a candidate is the content of its path; the surest is the greatest.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Certainty {
    /// The name is unknown, or a guess.
    Inferred,
    /// The source recorded the path and the text. Line ends, a byte order mark or the encoding may differ.
    Text,
    /// The source recorded the path and the bytes.
    Exact,
}

/// A content that a file may have had.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct RescueCandidate {
    /// The path below the directory; `None` if it is unknown.
    #[serde(skip)]
    pub path: Option<EntryPath>,
    /// The program that has the content: `git`, `claude-code`, `codex`, `gemini-cli`, `local-history` or `editor`.
    pub source: &'static str,
    /// The place in the source, such as a commit and its subject.
    pub detail: String,
    pub time: Option<Timestamp>,
    /// The digest of the content; `None` if only another program can recover it.
    pub id: Option<Digest>,
    pub bytes: Option<u64>,
    pub sure: Certainty,
    pub executable: bool,
    /// True if the source saw the file, and did not write it.
    #[serde(skip)]
    is_seen: bool,
    /// The digest of the text, independent of line ends.
    #[serde(skip)]
    text: Option<Digest>,
}

impl RescueCandidate {
    fn new(source: &'static str, path: Option<EntryPath>, detail: impl Into<String>) -> Self {
        Self {
            path,
            source,
            detail: detail.into(),
            time: None,
            id: None,
            bytes: None,
            sure: Certainty::Exact,
            executable: false,
            is_seen: false,
            text: None,
        }
    }
}

/// A search through all sources.
pub(crate) struct RescueScan<'t> {
    places: &'t RescuePlaces,
    take: &'t mut dyn FnMut(RescueCandidate, Bytes),
    /// Files of the directory that a source names.
    named: BTreeSet<EntryPath>,
    notes: BTreeSet<String>,
}

impl<'t> RescueScan<'t> {
    /// Passes every candidate with its content to `take`, unordered. Returns notes about skipped sources.
    /// Two scans return the same, unless a source changes.
    pub(crate) fn run(places: &'t RescuePlaces, take: &'t mut dyn FnMut(RescueCandidate, Bytes)) -> BTreeSet<String> {
        let mut scan = Self { places, take, named: BTreeSet::new(), notes: BTreeSet::new() };
        for (place, error) in places.unreadable() {
            scan.skipped(place.display(), error);
        }
        scan.git();
        scan.agents();
        scan.local_histories();
        scan.editors();
        scan.notes
    }

    fn found(&mut self, mut candidate: RescueCandidate, content: Bytes) {
        if candidate.path.is_none() {
            let start = String::from_utf8_lossy(&content[..content.len().min(200)]);
            candidate.detail.push_str(&format!(" {}", start.trim_start().lines().next().unwrap_or_default()));
        }
        let is_git = candidate.path.as_ref().is_some_and(|path| path.segments().any(|name| name == b".git"));
        if content.starts_with(b"version https://git-lfs.github.com/spec/") {
            self.notes.insert("pointers of git-lfs are left out: git has their contents in .git/lfs".to_owned());
        } else if !is_git {
            candidate.id = Some(Digest::of(&content));
            candidate.text = Some(text_digest(&content));
            candidate.bytes = Some(content.len() as u64);
            (self.take)(candidate, content);
        }
    }

    fn note(&mut self, note: impl Into<String>) {
        // A damaged source must not fill the memory.
        if self.notes.len() < 100 {
            self.notes.insert(note.into());
        }
    }

    fn skipped(&mut self, what: impl std::fmt::Display, why: impl std::fmt::Display) {
        self.note(format!("skipped {what}: {why}"));
    }
}

/// Returns the digest of a content without a byte order mark, with `\n` as line ends.
fn text_digest(content: &[u8]) -> Digest {
    let text = content.strip_prefix(b"\xef\xbb\xbf").unwrap_or(content);
    let mut plain = Vec::with_capacity(text.len());
    for line in text.split_inclusive(|byte| *byte == b'\n') {
        match line.strip_suffix(b"\r\n") {
            Some(line) => plain.extend([line, b"\n"].concat()),
            None => plain.extend_from_slice(line),
        }
    }
    Digest::of(&plain)
}

#[cfg(test)]
mod tests;
