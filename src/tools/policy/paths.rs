//! The targets of paths, determined from their text.

use super::words::{has, marker};

/// Prefixes of device files of disks or memory.
const DISKS: &str = "sd hd vd xvd nvme mmcblk dm- md mapper/ disk/ loop nbd mem kmem";
/// Directories below `/` that a system needs as a whole.
const SYSTEM: &str = "Users bin boot dev etc home lib lib32 lib64 root sbin usr var";
/// Files that break a system or lock its users out if a command writes them.
const VITAL: &str = "/etc/fstab /etc/group /etc/gshadow /etc/passwd /etc/shadow /etc/sudoers /proc/sysrq-trigger";
const PATH_MAX: usize = 256;

/// The coverage of protected directories by a path.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Whole {
    /// The path is a protected directory, or covers all of its entries.
    Yes,
    /// The path may cover one, depending on the working directory.
    Perhaps,
    No,
}

/// The working directory of a command: below `/`, below home, or below the workspace's root.
#[derive(Debug, Default)]
pub(super) struct WorkingDirectory {
    directory: String,
    left: bool,
}

impl WorkingDirectory {
    pub(super) fn at(directory: &str) -> Self {
        Self { directory: directory.trim_matches('/').to_owned(), left: false }
    }

    pub(super) fn leave(&mut self) {
        self.left = true;
    }

    /// Follows a change of directory. A long path makes the directory unknown.
    pub(super) fn go(&mut self, target: &str) {
        self.directory = self.tidied(target);
        self.left |= target == "-" || self.directory.contains(marker::is_open);
        if self.directory.len() > PATH_MAX {
            (self.directory, self.left) = (String::new(), true);
        }
    }

    /// Resolves a path from here, without empty and dotted components. A path that climbs above its start may end up
    /// below `/`.
    pub(super) fn tidied(&self, path: &str) -> String {
        let is_full = path.starts_with(['/', marker::HOME]) || self.directory.is_empty();
        let path = if is_full { path.to_owned() } else { format!("{}/{path}", self.directory) };
        let rest = path.trim_start_matches(['/', marker::HOME]);
        let mut start = path.chars().next().filter(|_| rest.len() < path.len());
        let mut components = Vec::new();
        for component in rest.split('/') {
            match component {
                "" | "." => {}
                ".." if components.pop().is_none() => start = Some('/'),
                ".." => {}
                component => components.push(component),
            }
        }
        let slash = if start == Some(marker::HOME) && !components.is_empty() { "/" } else { "" };
        format!("{}{slash}{}", start.map(String::from).unwrap_or_default(), components.join("/"))
    }

    pub(super) fn is_disk(&self, path: &str) -> bool {
        self.tidied(path).strip_prefix("/dev/").is_some_and(|device| {
            device.starts_with(marker::is_glob) || DISKS.split(' ').any(|name| device.starts_with(name))
        })
    }

    /// Returns true if writing to a path destroys the contents of a disk, or a file that the system needs.
    pub(super) fn is_vital(&self, path: &str) -> bool {
        self.is_disk(path) || has(VITAL, &self.tidied(path))
    }

    /// Returns true if a path covers a directory that the system needs: `/etc`, `/home/*`, `/e*`, all of `/proc`.
    pub(super) fn is_system(&self, path: &str) -> bool {
        let is_full = path.starts_with('/') || (self.directory.starts_with('/') && !self.left);
        let tidied = self.tidied(path);
        let Some(rest) = tidied.strip_prefix('/').filter(|_| is_full) else { return false };
        let (top, below) = rest.split_once('/').unwrap_or((rest, ""));
        let is_top = has(SYSTEM, top) || top.contains(marker::is_glob);
        has("proc sys", top)
            || (is_top && below.split('/').all(|part| part.is_empty() || part.starts_with(marker::is_glob)))
    }

    /// Returns the path's coverage of `/`, the home directory and directories above the workspace. `No` for expansions.
    pub(super) fn whole(&self, path: &str) -> Whole {
        let holds_all = |path: &str| {
            let all = |part: &str| part.is_empty() || part.trim_start_matches('.').starts_with(marker::is_glob);
            path.split('/').all(all)
        };
        let is_full = path.starts_with(['/', marker::HOME]);
        let is_whole = self.tidied(path).strip_prefix(['/', marker::HOME]).is_some_and(holds_all);
        match path.is_empty() || path.contains(marker::is_open) {
            true => Whole::No,
            false if is_whole && (is_full || !self.left) => Whole::Yes,
            false if !is_full && self.left && (is_whole || holds_all(path.trim_matches(['.', '/']))) => Whole::Perhaps,
            false => Whole::No,
        }
    }
}

/// Returns true if writing to a path has no effect, judging from its text.
pub(super) fn is_sink(path: &str) -> bool {
    path.strip_prefix("/dev/").is_some_and(|device| has("null zero full tty", device)) || is_stream(path)
}

/// Returns true if a path is an open stream. Writing to it writes any file that the stream reads.
pub(super) fn is_stream(path: &str) -> bool {
    let is_number = |name: &str| !name.is_empty() && name.chars().all(|c| c.is_ascii_digit());
    path.strip_prefix("/dev/")
        .is_some_and(|device| has("stdout stderr", device) || device.strip_prefix("fd/").is_some_and(is_number))
}
