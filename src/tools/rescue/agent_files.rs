//! The records of coding agents: transcripts, Claude Code's file history, and Gemini CLI's snapshots.

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use sha2::{Digest as _, Sha256};

use super::places::{files_below, listed, name, read};
use super::{CONTENT_MAX, Certainty, RescueCandidate, RescueScan};
use crate::engine::clock::Timestamp;
use crate::engine::path::EntryPath;
use crate::tools::transcript::stated::{StatedBy, StatedContents, stated_contents};

/// The limit for a transcript, in bytes. One line at a time is in memory.
const TRANSCRIPT_MAX: u64 = 1 << 30;
/// The length at which Claude Code cuts the name of a project's directory.
const PROJECT_NAME: usize = 200;

impl RescueScan<'_> {
    pub(super) fn agents(&mut self) {
        if let Some(claude) = &self.places.claude {
            for transcript in self.claude_transcripts(claude) {
                self.transcript("claude-code", &transcript);
            }
            self.claude_file_history(claude);
        }
        for below in ["sessions", "archived_sessions"] {
            let directory = self.places.codex.as_ref().map(|codex| codex.join(below));
            for rollout in directory.iter().flat_map(|directory| files_below(directory, 4)) {
                self.transcript("codex", &rollout);
            }
        }
        if let Some(gemini) = &self.places.gemini {
            for (project, _) in self.of_project(&gemini.join("tmp")) {
                let chats = files_below(&project.join("chats"), 2);
                chats.iter().for_each(|chat| self.transcript("gemini-cli", chat));
            }
            for (shadow, prefix) in self.of_project(&gemini.join("history")) {
                self.shadow_repository(&shadow, &prefix);
            }
        }
    }

    /// Lists the transcripts of conversations in the directory, above it, and below it.
    fn claude_transcripts(&self, claude: &Path) -> Vec<PathBuf> {
        let written = |name: &String| -> String {
            let plain = name.chars().map(|c| if c.is_ascii_alphanumeric() { c } else { '-' });
            plain.take(PROJECT_NAME).collect()
        };
        let directories: Vec<String> = self.places.names.iter().map(written).collect();
        let is_related = |project: &PathBuf| {
            let project = name(project);
            directories.iter().any(|own| own.starts_with(&project) || project.starts_with(own))
        };
        let projects = listed(&claude.join("projects")).into_iter().filter(is_related);
        projects.flat_map(|project| files_below(&project, 1)).collect()
    }

    fn transcript(&mut self, source: &'static str, path: &Path) {
        if !path.extension().is_some_and(|extension| extension == "jsonl" || extension == "json") {
            return;
        }
        if path.metadata().is_ok_and(|metadata| metadata.len() > TRANSCRIPT_MAX) {
            return self.skipped(path.display(), "more than 1 GiB");
        }
        let places = self.places;
        let read = stated_contents(path, &places.names, &mut |stated| self.stated(source, path, stated));
        match read {
            Ok(0) => {}
            Ok(lines) => self.note(format!("{}: skipped {lines} lines that are not JSON", path.display())),
            Err(error) => self.skipped(path.display(), error),
        }
    }

    fn stated(&mut self, source: &'static str, transcript: &Path, stated: StatedContents) {
        let StatedContents { path, at, contents, how } = stated;
        self.named.insert(path.clone());
        let Some(content) = contents else { return };
        if content.len() as u64 > CONTENT_MAX {
            return self.skipped(format_args!("{path} in {}", transcript.display()), "more than 64 MiB");
        }
        let how_said = match how {
            StatedBy::BeforeEdit => "before an edit",
            StatedBy::Write => "written",
            StatedBy::Read => "read",
        };
        let candidate = RescueCandidate::new(source, Some(path), how_said);
        let is_seen = how == StatedBy::Read;
        // Both states of an edit have the time of its end.
        let at = at.map(|at| Timestamp(if how == StatedBy::BeforeEdit { at.0.saturating_sub(1) } else { at.0 }));
        self.found(RescueCandidate { time: at, sure: Certainty::Text, is_seen, ..candidate }, content);
    }

    /// Reads the copies that Claude Code makes before edits. Their names have a digest of the path, so that a copy belongs
    /// to a path of the directory if a transcript or git names that path.
    fn claude_file_history(&mut self, claude: &Path) {
        let digest =
            |name: &str, path: &EntryPath| hex(&Sha256::digest([name.as_bytes(), b"/", path.as_bytes()].concat())[..8]);
        let named = self.named.iter();
        let names = &self.places.names;
        let paths: BTreeMap<String, EntryPath> =
            named.flat_map(|path| names.iter().map(move |name| (digest(name, path), path.clone()))).collect();
        for copy in files_below(&claude.join("file-history"), 2) {
            let Some(path) = name(&copy).split_once("@v").and_then(|(digest, _)| paths.get(digest).cloned()) else {
                continue;
            };
            match read(&copy) {
                Ok((content, time)) => {
                    let candidate = RescueCandidate::new("claude-code", Some(path), "file history");
                    self.found(RescueCandidate { time, ..candidate }, content);
                }
                Err(error) => self.skipped(copy.display(), error),
            }
        }
    }

    /// Lists the directories of Gemini CLI for projects that contain the directory, each with the directory's path in the
    /// project. They name the project's root or its digest.
    fn of_project(&self, above: &Path) -> Vec<(PathBuf, Vec<u8>)> {
        let names = &self.places.names;
        let inside = |place: PathBuf| {
            let hash = name(&place);
            if names.iter().any(|name| hex(&Sha256::digest(name)) == hash) {
                return Some((place, Vec::new()));
            }
            let (root, _) = read(&place.join(".project_root")).ok()?;
            let root = Path::new(OsStr::from_bytes(root.trim_ascii()));
            let below = names.iter().find_map(|name| Path::new(name).strip_prefix(root).ok())?;
            Some((place, below.as_os_str().as_bytes().to_vec()))
        };
        listed(above).into_iter().filter_map(inside).collect()
    }
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}
