//! Where commands may run, as text.

use super::paths::{Whole, whole_text};
use super::shell::marker;

/// Directories that are followed at a time.
const DIRECTORIES_MAX: usize = 8;
/// Bytes of a directory's path; a longer one is unknown.
const PATH_MAX: usize = 512;

/// The directories in which a command may run: below `/`, below home, or below the workspace's root.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Places {
    now: Vec<String>,
    before: Vec<String>,
}

impl Places {
    /// A directory below the workspace's root.
    pub(super) fn at(directory: &str) -> Self {
        let now = vec![directory.trim_matches('/').to_owned()];
        Self { before: now.clone(), now }
    }

    /// Follows a change of directory.
    pub(super) fn go(&mut self, target: &str) {
        let mut next = Self { now: Vec::new(), before: Vec::new() };
        self.now.iter().for_each(|directory| next.add(joined(directory, target)));
        self.before = std::mem::replace(&mut self.now, next.now);
    }

    /// Steps that it takes to look at a path from each directory.
    pub(super) fn weight(&self) -> usize {
        1 + self.now.iter().map(String::len).sum::<usize>() / 16
    }

    /// Goes back to where it was before.
    pub(super) fn back(&mut self) {
        std::mem::swap(&mut self.now, &mut self.before);
    }

    /// Adds the directories of others.
    pub(super) fn merge(&mut self, others: &Self) {
        others.now.iter().for_each(|directory| self.add(directory.clone()));
    }

    fn add(&mut self, directory: String) {
        let directory = if directory.len() > PATH_MAX { marker::UNKNOWN.to_string() } else { directory };
        if self.now.contains(&directory) {
            return;
        }
        match whole_text(&directory) {
            Whole::No => self.now.push(directory),
            _ => self.now.insert(0, directory),
        }
        self.now.truncate(DIRECTORIES_MAX);
    }

    /// What a path may be, seen from each directory. What is unknown in it stays marked.
    pub(super) fn paths<'p>(&'p self, path: &'p str) -> impl Iterator<Item = String> + 'p {
        self.now.iter().map(move |directory| joined(directory, path))
    }
}

fn joined(directory: &str, path: &str) -> String {
    match path.starts_with(['/', marker::HOME]) || directory.is_empty() {
        true => path.to_owned(),
        false => format!("{directory}/{path}"),
    }
}
