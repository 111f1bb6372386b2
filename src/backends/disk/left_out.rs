//! Entries of a directory that do not belong to the workspace.

use std::os::fd::BorrowedFd;
use std::sync::Arc;

use super::ignore_rules::{DirRules, IgnoreRules, is_git, is_rules};

/// Entries that no scan finds and no change touches.
#[derive(Debug, Clone, Default)]
pub(super) struct LeftOut {
    /// A direct entry of the root.
    pub(super) hidden: Option<&'static str>,
    pub(super) rules: Option<Arc<IgnoreRules>>,
}

impl LeftOut {
    pub(super) fn is_nothing(&self) -> bool {
        self.hidden.is_none() && self.rules.is_none()
    }

    /// Returns true if no entry may exist at a path, not even a known one.
    pub(super) fn hides(&self, path: &[u8]) -> bool {
        let is_first = |hidden: &str| path.split(|byte| *byte == b'/').next() == Some(hidden.as_bytes());
        self.hidden.is_some_and(is_first) || self.rules.is_some() && is_git(path)
    }

    /// Returns the rules that a directory inherits.
    pub(super) fn at(&self, root: BorrowedFd<'_>, path: &[u8]) -> DirRules {
        self.rules.as_ref().map_or_else(DirRules::default, |rules| rules.at(root, path))
    }

    /// Adds an open directory's own rules to the inherited ones.
    pub(super) fn enter(&self, above: &DirRules, directory: BorrowedFd<'_>, path: &[u8]) -> DirRules {
        self.rules.as_ref().map_or_else(DirRules::default, |rules| rules.enter(above, directory, path))
    }

    /// Returns true if a new entry is left out. A directory has no size.
    pub(super) fn skips(&self, rules: &DirRules, path: &[u8], size: Option<u64>) -> bool {
        self.hides(path) || self.rules.as_ref().is_some_and(|all| all.leaves_out(rules, path, size))
    }

    /// Returns the rules that an entered subdirectory inherits.
    pub(super) fn below(&self, rules: &DirRules, path: &[u8]) -> DirRules {
        let is_ignored = self.rules.as_ref().is_some_and(|all| all.is_ignored(rules, path, true));
        rules.entered(is_ignored)
    }

    /// Returns true if a change of an entry with this name may change what is left out.
    pub(super) fn depends_on(&self, name: &[u8]) -> bool {
        self.rules.is_some() && is_rules(name)
    }
}
