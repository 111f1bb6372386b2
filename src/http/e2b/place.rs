//! The paths that E2B's clients use, and their places in a workspace.

use super::connect::Wrong;
use crate::engine::path::EntryPath;

/// The home directory in E2B's sandboxes: an alias of the workspace.
const HOME: &str = "/home/user";
const WORKSPACE: &str = "/workspace";

/// An entry of a workspace, with the client's alias of the workspace.
#[derive(Debug, Clone)]
pub(super) struct SandboxPlace {
    pub(super) path: EntryPath,
    /// The alias of the workspace in the client's path.
    base: &'static str,
}

impl SandboxPlace {
    /// Finds the place of a path: below `/workspace` or `/home/user`, or relative to `/workspace`. Resolves `..`.
    pub(super) fn of(text: &str) -> Result<Self, Wrong> {
        let text = match text.strip_prefix('~') {
            Some(rest) if rest.is_empty() || rest.starts_with('/') => format!("{HOME}{rest}"),
            _ => text.to_owned(),
        };
        let full = if text.starts_with('/') { text.clone() } else { format!("{WORKSPACE}/{text}") };
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
            _ => {
                let shown: String = text.chars().take(200).collect();
                let what = format!("{shown:?} is outside of the workspace; use a path below {WORKSPACE} or {HOME}");
                return Err(Wrong::invalid(what));
            }
        };
        Ok(Self { path: EntryPath::from_bytes(below.join("/").as_bytes())?, base })
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn places_are_the_workspace_under_all_its_names() {
        for (given, path, named) in [
            ("a.txt", "/a.txt", "/workspace/a.txt"),
            ("", "/", "/workspace"),
            (".", "/", "/workspace"),
            ("/workspace", "/", "/workspace"),
            ("/workspace//a/./b/", "/a/b", "/workspace/a/b"),
            ("/home/user/a", "/a", "/home/user/a"),
            ("~", "/", "/home/user"),
            ("~/a", "/a", "/home/user/a"),
            ("~a", "/~a", "/workspace/~a"),
            ("a/../b", "/b", "/workspace/b"),
            ("/etc/../workspace/x", "/x", "/workspace/x"),
        ] {
            let place = SandboxPlace::of(given).unwrap();
            assert_eq!((place.rooted().as_str(), place.name_of(&place.path).as_str()), (path, named), "{given:?}");
        }
        for outside in ["/", "/etc/passwd", "/tmp/x", "..", "/workspace/../etc", "/home/other", "/workspaces/a", "a\0b"]
        {
            assert_eq!(SandboxPlace::of(outside).unwrap_err().status.as_u16(), 400, "{outside:?}");
        }
    }
}
