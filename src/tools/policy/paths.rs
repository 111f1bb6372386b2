//! What a path aims at, as text.

use super::words::{has, marker};

/// Names of device files that begin like this are disks, or the memory.
const DISKS: &str = "sd hd vd xvd nvme mmcblk dm- md mapper/ disk/ loop nbd mem kmem";

/// A directory that holds everything.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Whole {
    /// It is one, or all that is in one.
    Yes,
    /// It is one, should what is unknown be empty.
    Perhaps,
    No,
}

/// Directory in which a command runs: below `/`, below home, or below the workspace's root.
#[derive(Clone, Debug)]
pub(super) struct Place {
    directory: String,
    /// The directory was left for one that is not known.
    left: bool,
}

impl Place {
    /// A directory below the workspace's root.
    pub(super) fn at(directory: &str) -> Self {
        Self { directory: directory.trim_matches('/').to_owned(), left: false }
    }

    /// Leaves the directory for one that is not known.
    pub(super) fn leave(&mut self) {
        self.left = true;
    }

    /// Follows a change of directory. Long paths are not followed.
    pub(super) fn go(&mut self, target: Option<&str>) {
        const PATH_MAX: usize = 256;
        self.directory = tidied(&self.path(target.unwrap_or("\u{f0001}")));
        self.left |= target == Some("-") || self.directory.contains(marker::is_open);
        if self.directory.len() > PATH_MAX {
            (self.directory, self.left) = (String::new(), true);
        }
    }

    /// A path as it is seen from here.
    pub(super) fn path(&self, path: &str) -> String {
        match path.starts_with(['/', marker::HOME]) || self.directory.is_empty() {
            true => path.to_owned(),
            false => format!("{}/{path}", self.directory),
        }
    }

    /// A path as it is seen from here, without its empty and dotted components.
    pub(super) fn tidied(&self, path: &str) -> String {
        tidied(&self.path(path))
    }

    /// Tells whether a path is a disk's device file.
    pub(super) fn is_disk(&self, path: &str) -> bool {
        self.tidied(path).strip_prefix("/dev/").is_some_and(|device| {
            device.starts_with(marker::is_glob) || DISKS.split(' ').any(|name| device.starts_with(name))
        })
    }

    /// Tells whether a path is, or holds all of, `/`, the home directory or what is above the workspace.
    pub(super) fn whole(&self, path: &str) -> Whole {
        if path.is_empty() {
            return Whole::No;
        }
        let known: String = path.chars().filter(|&c| !marker::is_open(c)).collect();
        let tidied = tidied(&self.path(&known));
        let holds_all = |path: &str| {
            let all = |part: &str| part.is_empty() || part.trim_start_matches('.').starts_with(marker::is_glob);
            path.split('/').all(all)
        };
        let below = tidied.strip_prefix(['/', marker::HOME]);
        let is_unsure = known.len() < path.len();
        match below.map(holds_all) {
            Some(true) if !is_unsure && (!self.left || path.starts_with(['/', marker::HOME])) => Whole::Yes,
            Some(true) => Whole::Perhaps,
            _ if is_unsure && (tidied.is_empty() || known.is_empty()) => Whole::Perhaps,
            _ if self.left && !path.starts_with('/') && holds_all(known.trim_matches(['.', '/'])) => Whole::Perhaps,
            _ => Whole::No,
        }
    }
}

/// A path without its empty and dotted components. One that climbs out of where it begins may end up below `/`.
fn tidied(path: &str) -> String {
    let (mut start, rest) = match path.strip_prefix(marker::HOME) {
        Some(rest) => (marker::HOME.to_string(), rest),
        None if path.starts_with('/') => ("/".to_owned(), path),
        None => (String::new(), path),
    };
    let mut components = Vec::new();
    for component in rest.split('/') {
        match component {
            "" | "." => {}
            ".." if components.pop().is_none() => "/".clone_into(&mut start),
            ".." => {}
            component => components.push(component),
        }
    }
    let slash = if start.starts_with(marker::HOME) && !components.is_empty() { "/" } else { "" };
    format!("{start}{slash}{}", components.join("/"))
}

/// Whether writing to a path changes nothing.
pub(super) fn is_sink(path: &str) -> bool {
    let device = path.strip_prefix("/dev/");
    device.is_some_and(|device| device.starts_with("fd/") || has("null zero full tty stdout stderr", device))
}
