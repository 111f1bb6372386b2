//! What a path aims at, as text.

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

/// Whether a path is `/` or the home directory, or everything in one. `at_whole` says that relative paths begin there.
pub(super) fn whole(path: &str, at_whole: bool) -> Whole {
    let is_unknown = |c: char| matches!(c, marker::UNKNOWN | marker::FETCHED);
    let known: String = path.chars().filter(|&c| !is_unknown(c)).collect();
    let unsure = known.len() < path.len();
    let rest = match known.strip_prefix(marker::HOME) {
        Some(rest) => rest,
        None if known.starts_with('/') || at_whole => known.as_str(),
        None if known.is_empty() && unsure => return Whole::Perhaps,
        None => return Whole::No,
    };
    match components(rest).iter().all(|component| matches_all(component)) {
        true if unsure => Whole::Perhaps,
        true => Whole::Yes,
        false => Whole::No,
    }
}

/// A path's components without `.`, `..` and empty ones.
fn components(path: &str) -> Vec<&str> {
    let mut components = Vec::new();
    for component in path.split('/') {
        match component {
            "" | "." => {}
            ".." => {
                components.pop();
            }
            component => components.push(component),
        }
    }
    components
}

/// Whether a pattern matches about every name.
fn matches_all(component: &str) -> bool {
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

/// A path without its empty and dotted components.
pub(super) fn tidied(path: &str) -> String {
    match path.starts_with('/') {
        true => format!("/{}", components(path).join("/")),
        false => components(path).join("/"),
    }
}

/// Whether a path is a disk's device file.
pub(super) fn is_disk(path: &str) -> bool {
    let tidied = tidied(path);
    let Some(device) = tidied.strip_prefix("/dev/") else { return false };
    device.starts_with(marker::is_glob) || DISKS.iter().any(|name| device.starts_with(name))
}

/// Whether writing to a path changes nothing.
pub(super) fn is_sink(path: &str) -> bool {
    let tidied = tidied(path);
    tidied.starts_with("/dev/fd/")
        || matches!(
            tidied.as_str(),
            "/dev/null" | "/dev/zero" | "/dev/full" | "/dev/tty" | "/dev/stdout" | "/dev/stderr"
        )
}
