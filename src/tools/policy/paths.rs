//! What a path aims at, as text.

use super::places::Places;
use super::shell::marker;

/// A directory that holds everything.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Whole {
    /// It is one, or all that is in one.
    Yes,
    /// It is one, should what is unknown be empty.
    Perhaps,
    No,
}

/// Names of device files that begin like this are disks, or the memory.
const DISKS: [&str; 14] =
    ["sd", "hd", "vd", "xvd", "nvme", "mmcblk", "dm-", "md", "mapper/", "disk/", "loop", "nbd", "mem", "kmem"];

/// Whether a path is `/`, the home directory or what is above the workspace, or everything in one.
pub(super) fn whole(path: &str, places: &Places) -> Whole {
    let mut aim = if starts_unknown(path) { whole_text(path) } else { Whole::No };
    for path in places.paths(path).filter(|_| !path.is_empty()) {
        match whole_text(&path) {
            Whole::Yes => return Whole::Yes,
            Whole::Perhaps => aim = Whole::Perhaps,
            Whole::No => {}
        }
    }
    aim
}

/// The same for a path that begins at the workspace's root, unless it says otherwise.
pub(super) fn whole_text(path: &str) -> Whole {
    let is_unknown = |c: char| matches!(c, marker::UNKNOWN | marker::FETCHED);
    let known: String = path.chars().filter(|&c| !is_unknown(c)).collect();
    let unsure = known.len() < path.len();
    let tidied = tidied(&known);
    let rest = match tidied.strip_prefix(['/', marker::HOME]) {
        Some(rest) => rest,
        None if known.is_empty() && unsure => return Whole::Perhaps,
        None => return Whole::No,
    };
    match rest.split('/').all(|component| component.is_empty() || matches_all(component)) {
        true if unsure => Whole::Perhaps,
        true => Whole::Yes,
        false => Whole::No,
    }
}

fn starts_unknown(path: &str) -> bool {
    path.starts_with([marker::UNKNOWN, marker::FETCHED])
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

/// Whether a path is a disk's device file.
pub(super) fn is_disk(path: &str, places: &Places) -> bool {
    places.paths(path).any(|path| {
        let tidied = tidied(&path);
        let device = tidied.strip_prefix("/dev/");
        device.is_some_and(|device| {
            device.starts_with(marker::is_glob) || DISKS.iter().any(|name| device.starts_with(name))
        })
    })
}

/// Whether a path may be this one.
pub(super) fn may_be(path: &str, other: &str, places: &Places) -> bool {
    places.paths(path).any(|path| tidied(&path) == other)
}

/// Whether writing to a path changes nothing.
pub(super) fn is_sink(path: &str) -> bool {
    let tidied = tidied(path);
    let device = tidied.strip_prefix("/dev/").filter(|_| path.starts_with('/'));
    device.is_some_and(|device| {
        device.starts_with("fd/") || matches!(device, "null" | "zero" | "full" | "tty" | "stdout" | "stderr")
    })
}
