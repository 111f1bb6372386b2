//! The paths that E2B's clients use, and their places in a sandbox.

use super::connect::Wrong;
use crate::engine::path::EntryPath;

/// The home directory in E2B's sandboxes: the workspace.
pub(super) const HOME: &str = "/home/user";
const WORKSPACE: &str = "/workspace";

/// An entry of a workspace, with the client's alias of the workspace.
#[derive(Debug, Clone)]
pub(super) struct SandboxPlace {
    pub(super) path: EntryPath,
    /// The alias of the workspace in the client's path.
    base: &'static str,
}

/// The place of a path.
#[derive(Debug, Clone)]
pub(super) enum SandboxPath {
    Workspace(SandboxPlace),
    /// An absolute path outside of the workspace, without `..`.
    Outside(String),
}

impl SandboxPath {
    /// Finds the place of a path: the workspace is `/home/user` and `/workspace`, and relative paths begin there.
    /// Resolves `..`.
    pub(super) fn of(text: &str) -> Result<Self, Wrong> {
        let text = match text.strip_prefix('~') {
            Some(rest) if rest.is_empty() || rest.starts_with('/') => format!("{HOME}{rest}"),
            _ => text.to_owned(),
        };
        let full = if text.starts_with('/') { text } else { format!("{HOME}/{text}") };
        let mut parts: Vec<&str> = Vec::new();
        for part in full.split('/').filter(|part| !matches!(*part, "" | ".")) {
            match part {
                ".." => drop(parts.pop()),
                part => parts.push(part),
            }
        }
        let (base, below) = match parts.as_slice() {
            ["workspace", below @ ..] => (WORKSPACE, below),
            ["home", "user", below @ ..] => (HOME, below),
            _ if full.contains('\0') => return Err(Wrong::invalid("a path has no NUL")),
            parts => return Ok(Self::Outside(format!("/{}", parts.join("/")))),
        };
        Ok(Self::Workspace(SandboxPlace { path: EntryPath::from_bytes(below.join("/").as_bytes())?, base }))
    }

    /// Returns the client's path, absolute. Commands in a container know it, too.
    pub(super) fn name(&self) -> String {
        match self {
            Self::Workspace(place) => place.name_of(&place.path),
            Self::Outside(path) => path.clone(),
        }
    }
}

impl SandboxPlace {
    /// Finds the place of a path in the workspace.
    pub(super) fn of(text: &str) -> Result<Self, Wrong> {
        match SandboxPath::of(text)? {
            SandboxPath::Workspace(place) => Ok(place),
            SandboxPath::Outside(_) => Err(outside(text)),
        }
    }

    /// Returns the place of an entry below the home directory.
    pub(super) fn at_home(path: EntryPath) -> Self {
        Self { path, base: HOME }
    }

    /// Returns another place with the same alias.
    pub(super) fn with(&self, path: EntryPath) -> Self {
        Self { path, base: self.base }
    }

    /// Returns the client's path of another entry.
    pub(super) fn name_of(&self, path: &EntryPath) -> String {
        if path.is_root() { self.base.to_owned() } else { format!("{}{}", self.base, path.rooted()) }
    }

    /// Returns the place as a path for the hub's verbs.
    pub(super) fn rooted(&self) -> String {
        self.path.rooted()
    }
}

pub(super) fn outside(text: &str) -> Wrong {
    let shown: String = text.chars().take(200).collect();
    Wrong::invalid(format!("{shown:?} is outside of the workspace; use a path below {HOME} or {WORKSPACE}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn places_are_the_workspace_under_all_its_names() {
        for (given, path, named) in [
            ("a.txt", "/a.txt", "/home/user/a.txt"),
            ("", "/", "/home/user"),
            (".", "/", "/home/user"),
            ("/workspace", "/", "/workspace"),
            ("/workspace//a/./b/", "/a/b", "/workspace/a/b"),
            ("/home/user/a", "/a", "/home/user/a"),
            ("~", "/", "/home/user"),
            ("~/a", "/a", "/home/user/a"),
            ("~a", "/~a", "/home/user/~a"),
            ("a/../b", "/b", "/home/user/b"),
            ("/etc/../workspace/x", "/x", "/workspace/x"),
        ] {
            let place = SandboxPlace::of(given).unwrap();
            assert_eq!((place.rooted().as_str(), place.name_of(&place.path).as_str()), (path, named), "{given:?}");
        }
        for (given, path) in [
            ("/", "/"),
            ("/etc/passwd", "/etc/passwd"),
            ("/tmp//x/", "/tmp/x"),
            ("..", "/home"),
            ("/workspace/../etc", "/etc"),
            ("/home/other", "/home/other"),
            ("/workspaces/a", "/workspaces/a"),
        ] {
            assert_eq!(SandboxPath::of(given).unwrap().name(), path, "{given:?}");
            assert_eq!(SandboxPlace::of(given).unwrap_err().status.as_u16(), 400, "{given:?}");
        }
        for wrong in ["a\0b", "/tmp/a\0b"] {
            assert_eq!(SandboxPath::of(wrong).unwrap_err().status.as_u16(), 400, "{wrong:?}");
        }
    }
}
