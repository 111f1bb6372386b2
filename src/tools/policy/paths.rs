//! What a path aims at, as text.

use super::words::{has, marker};

/// Names of device files that begin like this are disks, or the memory.
const DISKS: &str = "sd hd vd xvd nvme mmcblk dm- md mapper/ disk/ loop nbd mem kmem";

/// Bytes of a directory's path; a longer one is unknown.
const PATH_MAX: usize = 256;

/// A directory that holds everything.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Whole {
    /// It is one, or all that is in one.
    Yes,
    /// It is one, should what is unknown be empty.
    Perhaps,
    No,
}

/// Where a command runs: below `/`, below home, or below the workspace's root; and where it ran before.
#[derive(Clone, Debug)]
pub(super) struct Place {
    now: String,
    before: String,
}

impl Place {
    /// A directory below the workspace's root.
    pub(super) fn at(directory: &str) -> Self {
        let now = directory.trim_matches('/').to_owned();
        Self { before: now.clone(), now }
    }

    /// Follows a change of directory.
    pub(super) fn go(&mut self, name: &str, arguments: &[String]) {
        let target = arguments.iter().find(|word| !word.starts_with('-') || *word == "-");
        let next = match (name, target.map(String::as_str)) {
            ("popd" | "pushd", None) | ("cd" | "pushd", Some("-")) => self.before.clone(),
            ("cd", None) => marker::HOME.to_string(),
            ("cd" | "pushd", Some(target)) => tidied(&self.path(target)),
            _ => return,
        };
        let next = if next.len() > PATH_MAX { marker::UNKNOWN.to_string() } else { next };
        self.before = std::mem::replace(&mut self.now, next);
    }

    /// Steps that it takes to look at a path from here.
    pub(super) fn weight(&self) -> usize {
        1 + self.now.len() / 16
    }

    /// A path as it is seen from here.
    pub(super) fn path(&self, path: &str) -> String {
        match path.starts_with(['/', marker::HOME]) || self.now.is_empty() {
            true => path.to_owned(),
            false => format!("{}/{path}", self.now),
        }
    }

    /// Whether a path is a disk's device file.
    pub(super) fn is_disk(&self, path: &str) -> bool {
        let tidied = tidied(&self.path(path));
        let device = tidied.strip_prefix("/dev/");
        device.is_some_and(|device| {
            device.starts_with(marker::is_glob) || DISKS.split(' ').any(|name| device.starts_with(name))
        })
    }

    /// Whether a path is, or holds all of, `/`, the home directory or what is above the workspace.
    pub(super) fn whole(&self, path: &str) -> Whole {
        if path.is_empty() { Whole::No } else { whole_text(&self.path(path)) }
    }
}

/// The same for a path that begins at the workspace's root, unless it says otherwise.
pub(super) fn whole_text(path: &str) -> Whole {
    let known: String = path.chars().filter(|&c| !marker::is_open(c)).collect();
    let unsure = known.len() < path.len();
    let tidied = tidied(&known);
    let rest = match tidied.strip_prefix(['/', marker::HOME]) {
        Some(rest) => rest,
        None if tidied.is_empty() && unsure => return Whole::Perhaps,
        None => return Whole::No,
    };
    match rest.split('/').all(|component| component.is_empty() || matches_all(component)) {
        true if unsure => Whole::Perhaps,
        true => Whole::Yes,
        false => Whole::No,
    }
}

/// A path without its empty and dotted components. One that climbs out of where it begins may end up below `/`.
pub(super) fn tidied(path: &str) -> String {
    let (mut start, rest) = match path.strip_prefix(marker::HOME) {
        Some(rest) => (marker::HOME.to_string(), rest),
        None if path.starts_with('/') => ("/".to_owned(), path),
        None => (String::new(), path),
    };
    let mut components = Vec::new();
    for component in rest.split('/') {
        match component {
            "" | "." => {}
            ".." => {
                if components.pop().is_none() {
                    "/".clone_into(&mut start);
                }
            }
            component => components.push(component),
        }
    }
    let slash = if start.starts_with(marker::HOME) && !components.is_empty() { "/" } else { "" };
    format!("{start}{slash}{}", components.join("/"))
}

/// Whether a pattern matches about every name.
pub(super) fn matches_all(component: &str) -> bool {
    let mut in_brackets = false;
    let mut stars = 0;
    for c in component.chars() {
        match c {
            ']' if in_brackets => in_brackets = false,
            _ if in_brackets => {}
            marker::BRACKET => in_brackets = true,
            marker::STAR | '*' => stars += 1,
            marker::QUERY | '.' => {}
            _ => return false,
        }
    }
    stars > 0
}

/// Whether writing to a path changes nothing.
pub(super) fn is_sink(path: &str) -> bool {
    let tidied = tidied(path);
    let device = tidied.strip_prefix("/dev/").filter(|_| path.starts_with('/'));
    device.is_some_and(|device| device.starts_with("fd/") || has("null zero full tty stdout stderr", device))
}
