//! Globs over paths of a workspace, and git's ignore rules.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use globset::{GlobBuilder, GlobMatcher};
use ignore::gitignore::{Gitignore, GitignoreBuilder};

use crate::engine::path::EntryPath;

/// A glob over paths, with the same meaning everywhere.
///
/// `*` and `?` match within a segment, `**` across directories; `[a-z]` and `{a,b}` are alternatives. A glob without a
/// slash matches names at any depth, as in `.gitignore`; with one, it matches the whole path. A leading slash or `./`
/// stands for the root; a trailing slash is ignored.
///
/// ```
/// # mod foldspace {
/// #     pub use foldspace_engine::EntryPath;
/// #     pub use foldspace_engine::engine::path_glob as tools;
/// # }
/// use foldspace::{EntryPath, tools::PathGlob};
/// let fits = |glob: &str| Ok::<bool, Box<dyn std::error::Error>>(PathGlob::new(glob)?.fits(&EntryPath::lookup("src/.env")?));
/// assert_eq!((fits(".env")?, fits("src/*")?, fits("/.env")?), (true, true, false));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug, Clone)]
pub struct PathGlob(GlobMatcher);

impl PathGlob {
    /// Compiles a glob.
    pub fn new(pattern: &str) -> Result<Self, globset::Error> {
        let relative = pattern.strip_prefix("./").unwrap_or(pattern).trim_matches('/');
        let is_name = !relative.is_empty() && !pattern.trim_end_matches('/').contains('/');
        let whole = if is_name { format!("**/{relative}") } else { relative.to_owned() };
        Ok(Self(GlobBuilder::new(&whole).literal_separator(true).build()?.compile_matcher()))
    }

    /// Returns true if a path matches.
    pub fn fits(&self, path: &EntryPath) -> bool {
        self.fits_bytes(path.as_bytes())
    }

    /// Returns true if a path relative to some directory matches.
    #[doc(hidden)]
    pub fn fits_bytes(&self, relative: &[u8]) -> bool {
        self.0.is_match(Path::new(OsStr::from_bytes(relative)))
    }
}

impl PartialEq for PathGlob {
    fn eq(&self, other: &Self) -> bool {
        self.0.glob() == other.0.glob()
    }
}

impl Eq for PathGlob {}

/// Parses git's ignore rules. Invalid lines are skipped, as git does.
pub fn parse_ignore_rules(text: &[u8]) -> Gitignore {
    let mut builder = GitignoreBuilder::new("");
    let text = String::from_utf8_lossy(text.strip_prefix(b"\xef\xbb\xbf").unwrap_or(text));
    for line in text.lines() {
        if let Err(error) = builder.add_line(None, line) {
            tracing::debug!(%error, "skipped an invalid line of ignore rules");
        }
    }
    builder.build().unwrap_or_else(|_| Gitignore::empty())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn path_glob_without_slash_matches_at_any_depth() {
        let fits = |glob: &str, path: &str| PathGlob::new(glob).unwrap().fits_bytes(path.as_bytes());
        for (glob, path) in [
            (".env", ".env"),
            (".env", "a/b/.env"),
            ("*.log", "a/x.log"),
            ("node_modules/", "web/node_modules"),
            ("**", "a/b/c"),
            ("{a,b}.rs", "src/b.rs"),
            ("src/*.rs", "src/a.rs"),
            ("/src/**/*.rs", "src/a.rs"),
            ("./a.rs", "a.rs"),
            ("a/", "a"),
        ] {
            assert!(fits(glob, path), "{glob} {path}");
        }
        for (glob, path) in [
            (".env", "a.env"),
            (".env", ".env/x"),
            ("/.env", "a/.env"),
            ("./a.rs", "src/a.rs"),
            ("src/*.rs", "x/src/a.rs"),
            ("*.rs", "a.rs/b"),
            ("", "a"),
        ] {
            assert!(!fits(glob, path), "{glob} {path}");
        }
        assert!(PathGlob::new("a{").is_err());
    }
}
