//! The candidates by path, ranked, and the selection and extraction of contents.

use std::collections::{BTreeMap, BTreeSet};

use serde::Serialize;

use super::{Certainty, RescueCandidate, RescuePlaces, RescueScan, text_digest};
use crate::engine::id::Digest;
use crate::engine::path::EntryPath;

/// The limit for candidates in memory. Equal contents of a path count once.
const CANDIDATES_MAX: usize = 200_000;

/// The entry at a path now.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum FileNow {
    Missing,
    /// A plain file with this text.
    File(#[serde(skip)] Digest),
    /// A directory, a link or a special file, or a file that can't be read.
    Other,
}

/// A path with its candidates, newest first.
#[derive(Debug, Clone)]
pub struct RescuedPath {
    /// `None` for contents without a name.
    pub path: Option<EntryPath>,
    pub now: FileNow,
    pub candidates: Vec<RescueCandidate>,
}

impl RescuedPath {
    /// Returns true if a candidate's content is not that of the file. Line ends do not count: git and agents may convert
    /// them.
    pub fn differs(&self, candidate: &RescueCandidate) -> bool {
        match (self.now, candidate.text) {
            (FileNow::File(now), Some(text)) => now != text,
            _ => true,
        }
    }

    /// Returns true if the file is missing, or is not as it was last written.
    pub fn is_lost(&self) -> bool {
        let written = self.candidates.iter().filter(|candidate| !candidate.is_seen);
        let newest = written.clone().find(|candidate| candidate.id.is_some()).or_else(|| self.candidates.first());
        self.now == FileNow::Missing || newest.is_some_and(|newest| self.differs(newest))
    }

    /// Returns the newest candidate with a content and a recorded name.
    pub fn best(&self) -> Option<&RescueCandidate> {
        let sure = |candidate: &&RescueCandidate| candidate.id.is_some() && candidate.sure > Certainty::Inferred;
        self.candidates.iter().find(|candidate| sure(candidate) && self.differs(candidate))
    }
}

/// All candidates of a directory.
#[derive(Debug, Clone)]
pub struct RescueReport {
    /// Sorted by their newest candidates, newest first; contents without a name are last.
    pub paths: Vec<RescuedPath>,
    /// Sources and files that were skipped.
    pub notes: Vec<String>,
}

impl RescueReport {
    /// Searches all sources. Nothing is written.
    pub fn of(places: &RescuePlaces) -> Self {
        let mut found: BTreeMap<(Option<EntryPath>, Option<Digest>), RescueCandidate> = BTreeMap::new();
        let mut is_full = false;
        let mut notes: Vec<String> = RescueScan::run(places, &mut |candidate, _| {
            let key = (candidate.path.clone(), candidate.id);
            is_full |= found.len() >= CANDIDATES_MAX && !found.contains_key(&key);
            if !is_full {
                found.entry(key).and_modify(|known| merge(known, &candidate)).or_insert(candidate);
            }
        })
        .into_iter()
        .collect();
        if is_full {
            notes.push(format!("more than {CANDIDATES_MAX} candidates: name a smaller directory to see the rest"));
        }
        let certain = |candidate: &&RescueCandidate| candidate.sure > Certainty::Inferred;
        let known: BTreeSet<_> = found.values().filter(certain).filter_map(|candidate| candidate.id).collect();
        let is_known = |candidate: &RescueCandidate| candidate.id.is_some_and(|id| known.contains(&id));
        let mut by_path: BTreeMap<Option<EntryPath>, Vec<RescueCandidate>> = BTreeMap::new();
        for candidate in found.into_values().filter(|candidate| certain(&candidate) || !is_known(candidate)) {
            by_path.entry(candidate.path.clone()).or_default().push(candidate);
        }
        let mut paths: Vec<_> =
            by_path.into_iter().map(|(path, found)| RescuedPath::ranked(places, path, found)).collect();
        paths.sort_by_key(|path| {
            let newest = path.candidates.iter().filter_map(|candidate| candidate.time).max();
            (path.path.is_none(), std::cmp::Reverse(newest), path.path.clone())
        });
        Self { paths, notes }
    }

    /// Finds candidates by the first digits of their ids.
    pub fn with_id(&self, start: &str) -> Vec<(&RescuedPath, &RescueCandidate)> {
        let all = self.paths.iter().flat_map(|path| path.candidates.iter().map(move |candidate| (path, candidate)));
        all.filter(|(_, candidate)| candidate.id.is_some_and(|id| id.to_string().starts_with(start))).collect()
    }

    pub fn at(&self, path: &EntryPath) -> Option<&RescuedPath> {
        self.paths.iter().find(|found| found.path.as_ref() == Some(path))
    }
}

impl RescuedPath {
    fn ranked(places: &RescuePlaces, path: Option<EntryPath>, mut candidates: Vec<RescueCandidate>) -> Self {
        candidates.sort_by_key(|candidate| (std::cmp::Reverse((candidate.time, candidate.sure)), candidate.id));
        let now = match &path {
            None => FileNow::Missing,
            Some(path) if places.is_missing(path) => FileNow::Missing,
            Some(path) => places.read(path).map_or(FileNow::Other, |bytes| FileNow::File(text_digest(&bytes))),
        };
        Self { path, now, candidates }
    }
}

/// Keeps the surest of two candidates with one content, and the latest time.
fn merge(known: &mut RescueCandidate, other: &RescueCandidate) {
    let time = known.time.max(other.time);
    let is_seen = known.is_seen && other.is_seen;
    if (other.sure, other.time) > (known.sure, known.time) {
        *known = other.clone();
    }
    (known.time, known.is_seen) = (time, is_seen);
}
