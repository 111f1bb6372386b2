//! Globs of a policy: the paths that calls may read and write.

use crate::engine::path::directories_above;
use crate::engine::path_glob::PathGlob;
use crate::engine::{EntryPath, ValueError};

/// Maximum number of rules in each list of a policy.
const RULES_MAX: usize = 100;
/// Maximum characters of a glob.
const GLOB_CHARS: usize = 1_000;
/// Maximum characters of the globs in a refusal.
const SHOWN: usize = 200;

/// A compiled list of globs. A path is allowed if a glob matches it and no `!` glob does.
///
/// `docs/` stands for a directory and everything below it. A `!` glob that matches a directory also excludes everything
/// below it.
#[derive(Debug, Clone)]
pub(super) struct PathList {
    name: &'static str,
    globs: Vec<ListedGlob>,
    text: String,
}

#[derive(Debug, Clone)]
struct ListedGlob {
    text: String,
    glob: PathGlob,
    excludes: bool,
    /// True for a glob that also matches everything below the directory that it matches.
    is_deep: bool,
}

impl PathList {
    pub(super) fn new(name: &'static str, globs: &[String]) -> Result<Self, ValueError> {
        within(name, globs.len())?;
        let compiled = (1..).zip(globs).map(|(number, text)| {
            ListedGlob::new(text).map_err(|what| ValueError::new(format!("{name} rule {number} ({text:.100}): {what}")))
        });
        let globs = compiled.collect::<Result<Vec<_>, _>>()?;
        if !globs.is_empty() && globs.iter().all(|glob| glob.excludes) {
            return Err(ValueError::new(format!("{name} only excludes, so it allows nothing; begin with \"**\"")));
        }
        let allowed = globs.iter().filter(|glob| !glob.excludes).map(|glob| glob.text.as_str());
        let text = format!("{:.SHOWN$}", allowed.collect::<Vec<_>>().join(", "));
        Ok(Self { name, globs, text })
    }

    /// Returns the reason that a path is not allowed.
    pub(super) fn refusal(&self, path: &EntryPath) -> Option<String> {
        let (name, shown) = (self.name, path.rooted());
        let found = (1..).zip(&self.globs).find(|(_, glob)| glob.excludes && glob.fits(path));
        if let Some((number, glob)) = found {
            return Some(format!("policy: {name} rule {number} ({}) excludes {shown}", glob.text));
        }
        if self.globs.iter().any(|glob| !glob.excludes && glob.fits(path)) {
            return None;
        }
        Some(match self.text.is_empty() {
            true => format!("policy: {name} allows no path, and so not {shown}"),
            false => format!("policy: no {name} rule allows {shown}; allowed: {}", self.text),
        })
    }
}

impl ListedGlob {
    fn new(text: &str) -> Result<Self, String> {
        let chars = text.chars().count();
        if chars > GLOB_CHARS {
            return Err(format!("the glob has {chars} characters; the limit is {GLOB_CHARS}"));
        }
        let excludes = text.starts_with('!');
        let pattern = text.strip_prefix('!').unwrap_or(text);
        if pattern.chars().all(|c| c == '/' || c.is_whitespace()) {
            return Err("the glob is empty; use ** for every path".to_owned());
        }
        if pattern.strip_prefix("./").unwrap_or(pattern).split('/').any(|part| matches!(part, "." | "..")) {
            return Err("`.` and `..` are not allowed; write the path from the workspace root".to_owned());
        }
        let glob = PathGlob::new(pattern).map_err(|error| format!("the glob is invalid: {}", error.kind()))?;
        Ok(Self { text: text.to_owned(), glob, excludes, is_deep: excludes || pattern.ends_with('/') })
    }

    fn fits(&self, path: &EntryPath) -> bool {
        self.glob.fits(path) || self.is_deep && directories_above(path).any(|above| self.glob.fits(&above))
    }
}

pub(super) fn within(name: &str, count: usize) -> Result<(), ValueError> {
    match count <= RULES_MAX {
        true => Ok(()),
        false => Err(ValueError::new(format!("{name} has {count} rules; the limit is {RULES_MAX}"))),
    }
}
