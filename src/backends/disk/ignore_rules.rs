//! Rules for a person's directory: what git ignores there, and what is git's own, is not recorded.

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsStr;
use std::fs::File;
use std::io::{self, Read};
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};

use ignore::Match;
use ignore::gitignore::{Gitignore, GitignoreBuilder, gitconfig_excludes_path};
use rustix::fs::{CWD, OFlags};

use super::beneath::{open_directory, open_in};
use super::file_stat::FileStat;
use super::listing::look_at;
use crate::backends::git::{GitPlace, GitRepository};
use crate::engine::lock::lock;
use crate::engine::path::EntryPath;

/// Directories with what programs make, where no repository says what is ignored.
const MADE: [&[u8]; 10] = [
    b"node_modules",
    b"target",
    b".venv",
    b"venv",
    b"__pycache__",
    b".mypy_cache",
    b".pytest_cache",
    b".tox",
    b".gradle",
    b".cache",
];
/// Names of files with keys and passwords.
const KEYS: [&str; 6] = ["id_rsa", "id_dsa", "id_ecdsa", "id_ed25519", ".netrc", ".git-credentials"];
const GIT: &[u8] = b".git";
const RULES: &str = ".gitignore";
/// Bytes of a file of rules that are read.
const RULES_MAX: u64 = 4 << 20;

/// The rules of one directory and everything below it.
///
/// They count for entries that are not known yet: what was recorded once stays recorded, whatever a rule says later.
#[derive(Debug)]
pub(crate) struct IgnoreRules {
    repository: Option<GitRepository>,
    included: Vec<EntryPath>,
    files: Mutex<RuleFiles>,
}

#[derive(Debug, Default)]
struct RuleFiles {
    /// Those of the repository and of the user; an earlier one decides before a later one.
    outer: Vec<Gitignore>,
    outer_stats: Vec<Option<FileStat>>,
    /// Paths that are tracked although a rule ignores them, and the directories that lead to them.
    tracked: BTreeSet<Vec<u8>>,
    index_stat: Option<FileStat>,
    place_stats: Vec<Option<FileStat>>,
    /// Rules by the directory that has them.
    parsed: BTreeMap<Vec<u8>, (FileStat, Arc<Gitignore>)>,
}

/// The rules that count in one directory.
#[derive(Debug, Clone, Default)]
pub(super) struct DirRules {
    level: Option<Arc<RuleLevel>>,
    /// Set if the directory itself is ignored, and with it everything below it.
    is_ignored: bool,
}

impl DirRules {
    /// Returns those of a directory right in this one, before its own.
    pub(super) fn entered(&self, is_ignored: bool) -> Self {
        Self { level: self.level.clone(), is_ignored }
    }
}

#[derive(Debug)]
struct RuleLevel {
    rules: Arc<Gitignore>,
    /// The path from the rules' directory to the root, where they are above it.
    prefix: PathBuf,
    /// Bytes of a path before the part that the rules are about.
    skip: usize,
    above: Option<Arc<RuleLevel>>,
}

impl IgnoreRules {
    /// Reads the rules around a directory. The `included` paths are recorded with everything below them.
    ///
    /// # Errors
    /// The directory is in a repository that git refuses, or can't read.
    pub(crate) fn of(directory: &Path, included: Vec<EntryPath>) -> io::Result<Self> {
        let repository = GitRepository::find(directory)?;
        let rules = Self { repository, included, files: Mutex::default() };
        rules.refresh()?;
        Ok(rules)
    }

    pub(crate) fn repository(&self) -> Option<&GitRepository> {
        self.repository.as_ref()
    }

    /// Returns the worktree's place in its repository's history, if it may be another one than the last time.
    pub(super) fn place(&self) -> io::Result<Option<GitPlace>> {
        let Some(repository) = &self.repository else { return Ok(None) };
        let stats: Vec<_> = repository.signs().iter().map(|path| stat(path)).collect();
        if lock(&self.files).place_stats == stats {
            return Ok(None);
        }
        let place = repository.place()?;
        lock(&self.files).place_stats = stats;
        Ok(Some(place))
    }

    /// Takes up changes of the rules outside of the directory. Returns true if there are any, so that entries may be
    /// recorded from now on that no change shows.
    pub(super) fn refresh(&self) -> io::Result<bool> {
        let Some(repository) = &self.repository else { return Ok(false) };
        let exclude = repository.common_directory.join("info/exclude");
        let places: Vec<PathBuf> = [Some(exclude), gitconfig_excludes_path()].into_iter().flatten().collect();
        let stats: Vec<_> = places.iter().map(|path| stat(path)).collect();
        let index_stat = stat(&repository.git_directory.join("index"));
        let mut files = lock(&self.files);
        let mut is_changed = false;
        if files.outer_stats != stats {
            files.outer = places.iter().map(|path| parse(&read(CWD, path).unwrap_or_default())).collect();
            files.outer_stats = stats;
            is_changed = true;
        }
        if files.index_stat != index_stat {
            let tracked = repository.tracked_though_ignored()?;
            let above = |path: &[u8]| {
                let cuts: Vec<_> = path.iter().enumerate().filter(|(_, byte)| **byte == b'/').collect();
                cuts.into_iter().map(|(at, _)| path[..at].to_vec()).collect::<Vec<_>>()
            };
            let tracked: BTreeSet<_> = tracked.iter().flat_map(|path| above(path)).chain(tracked.clone()).collect();
            is_changed |= !tracked.is_subset(&files.tracked);
            (files.tracked, files.index_stat) = (tracked, index_stat);
        }
        Ok(is_changed)
    }

    /// Returns the rules that count in a directory, before its own.
    pub(super) fn at(&self, root: BorrowedFd<'_>, path: &[u8]) -> DirRules {
        let mut rules = self.above_root();
        let mut walked = 0;
        while walked < path.len() {
            let directory = open_directory(root, &path[..walked], OFlags::PATH);
            if let Ok(directory) = directory {
                rules = self.enter(&rules, directory.as_fd(), &path[..walked]);
            }
            let from = if walked == 0 { 0 } else { walked + 1 };
            let end = path[from..].iter().position(|byte| *byte == b'/').map_or(path.len(), |at| from + at);
            rules.is_ignored = self.is_ignored(&rules, &path[..end], true);
            walked = end;
        }
        rules
    }

    fn above_root(&self) -> DirRules {
        let Some(repository) = &self.repository else { return DirRules::default() };
        let mut rules = DirRules::default();
        let above = repository.directory.ancestors().skip(1).take_while(|above| above.starts_with(&repository.top));
        for directory in above.collect::<Vec<_>>().into_iter().rev() {
            let Some(text) = read(CWD, &directory.join(RULES)) else { continue };
            let prefix = repository.directory.strip_prefix(directory).unwrap_or(Path::new("")).to_owned();
            let level = RuleLevel { rules: Arc::new(parse(&text)), prefix, skip: 0, above: rules.level.take() };
            rules.level = Some(Arc::new(level));
        }
        rules
    }

    /// Adds an open directory's own rules to those that count there.
    pub(super) fn enter(&self, above: &DirRules, directory: BorrowedFd<'_>, path: &[u8]) -> DirRules {
        let mut rules = above.clone();
        let Some(own) = self.own_rules(directory, path) else { return rules };
        let skip = if path.is_empty() { 0 } else { path.len() + 1 };
        rules.level = Some(Arc::new(RuleLevel { rules: own, prefix: PathBuf::new(), skip, above: rules.level.take() }));
        rules
    }

    fn own_rules(&self, directory: BorrowedFd<'_>, path: &[u8]) -> Option<Arc<Gitignore>> {
        let file = open_in(directory, RULES, OFlags::RDONLY).ok()?;
        let stat = FileStat::of(&look_at(&file).ok()?);
        if let Some((known, rules)) = lock(&self.files).parsed.get(path)
            && *known == stat
        {
            return Some(Arc::clone(rules));
        }
        let mut text = Vec::new();
        File::from(file).take(RULES_MAX).read_to_end(&mut text).ok()?;
        let rules = Arc::new(parse(&text));
        lock(&self.files).parsed.insert(path.to_vec(), (stat, Arc::clone(&rules)));
        Some(rules)
    }

    /// Tells whether an entry that is not known is left out. `path` is that below the root.
    pub(super) fn leaves_out(&self, rules: &DirRules, path: &[u8], is_directory: bool) -> bool {
        self.is_ignored(rules, path, is_directory) && !self.is_kept(path, is_directory)
    }

    /// Tells whether a rule ignores an entry, or a directory above it.
    pub(super) fn is_ignored(&self, rules: &DirRules, path: &[u8], is_directory: bool) -> bool {
        if rules.is_ignored {
            return true;
        }
        let Some(_) = &self.repository else { return is_directory && MADE.contains(&name(path)) };
        let mut next = rules.level.as_deref();
        while let Some(level) = next {
            let below = Path::new(OsStr::from_bytes(path.get(level.skip..).unwrap_or_default()));
            match level.rules.matched(level.prefix.join(below), is_directory) {
                Match::None => next = level.above.as_deref(),
                Match::Ignore(_) => return true,
                Match::Whitelist(_) => return false,
            }
        }
        let below_top = self.below_top(path);
        let files = lock(&self.files);
        let decided = files.outer.iter().map(|rules| rules.matched(&below_top, is_directory));
        decided.into_iter().find(|decided| !decided.is_none()).is_some_and(|decided| decided.is_ignore())
    }

    fn below_top(&self, path: &[u8]) -> PathBuf {
        let above = self.repository.as_ref().and_then(|found| found.directory.strip_prefix(&found.top).ok());
        above.unwrap_or(Path::new("")).join(OsStr::from_bytes(path))
    }

    /// Tells whether an ignored entry is recorded all the same.
    fn is_kept(&self, path: &[u8], is_directory: bool) -> bool {
        let leads = |to: &[u8]| is_directory && to.strip_prefix(path).is_some_and(|rest| rest.starts_with(b"/"));
        self.is_included(path)
            || self.included.iter().any(|included| leads(included.as_bytes()))
            || lock(&self.files).tracked.contains(path)
    }

    /// Tells whether a name is one of files with secrets, and the path was not asked for.
    pub(super) fn is_secret(&self, path: &EntryPath) -> bool {
        let name = String::from_utf8_lossy(path.name()).to_ascii_lowercase();
        let (stem, extension) = name.rsplit_once('.').unwrap_or((&name, ""));
        let is_it = match extension {
            "pem" | "key" | "p12" | "pfx" | "jks" => true,
            "example" | "sample" | "template" | "pub" => false,
            "" | "json" | "yaml" | "yml" | "toml" | "ini" | "txt" | "csv" | "xml" if stem.contains("credentials") => {
                true
            }
            _ => name == ".env" || name.starts_with(".env.") || KEYS.contains(&&*name),
        };
        is_it && !self.is_included(path.as_bytes())
    }

    /// Tells whether a path was asked for.
    fn is_included(&self, path: &[u8]) -> bool {
        let is_it = |included: &[u8]| path.strip_prefix(included).is_some_and(|rest| matches!(rest, [] | [b'/', ..]));
        self.included.iter().any(|included| is_it(included.as_bytes()))
    }
}

/// Tells whether a path is git's own, or below that.
pub(super) fn is_git(path: &[u8]) -> bool {
    path.split(|byte| *byte == b'/').any(|segment| segment == GIT)
}

/// Tells whether a change of an entry with this name may change the rules.
pub(super) fn is_rules(name: &[u8]) -> bool {
    name == RULES.as_bytes()
}

fn name(path: &[u8]) -> &[u8] {
    path.rsplit(|byte| *byte == b'/').next().unwrap_or_default()
}

fn stat(path: &Path) -> Option<FileStat> {
    let file = open_in(CWD, path, OFlags::PATH).ok()?;
    Some(FileStat::of(&look_at(&file).ok()?))
}

fn read(directory: impl AsFd, path: &Path) -> Option<Vec<u8>> {
    let mut text = Vec::new();
    File::from(open_in(directory, path, OFlags::RDONLY).ok()?).take(RULES_MAX).read_to_end(&mut text).ok()?;
    Some(text)
}

/// Parses rules. A line that makes no sense ignores nothing, as with git.
fn parse(text: &[u8]) -> Gitignore {
    let mut builder = GitignoreBuilder::new("");
    let text = String::from_utf8_lossy(text.strip_prefix(b"\xef\xbb\xbf").unwrap_or(text));
    for line in text.lines() {
        if let Err(error) = builder.add_line(None, line) {
            tracing::debug!(%error, "a line of ignore rules counts for nothing");
        }
    }
    builder.build().unwrap_or_else(|_| Gitignore::empty())
}
