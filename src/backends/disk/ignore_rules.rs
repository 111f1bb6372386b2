//! Rules for a person's directory: what git ignores there, and what is git's own, is not recorded.

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::fs::File;
use std::io::{self, Read};
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};

use ignore::Match;
use ignore::gitignore::{Gitignore, gitconfig_excludes_path};
use rustix::fs::{CWD, OFlags};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::beneath::{open_directory, open_in};
use super::file_stat::FileStat;
use super::listing::look_at;
use super::watch::joined;
use crate::backends::git::{GitPlace, GitRepository};
use crate::engine::lock::lock;
use crate::engine::path::EntryPath;
use crate::engine::path_glob::parse_ignore_rules;

/// Directories with what programs make, where no repository says what is ignored.
const MADE: &str = "node_modules target .venv venv __pycache__ .mypy_cache .pytest_cache .tox .gradle .cache";
/// Directories of products and downloads, whose ignored files are not recorded. So is any with `cache` in its name.
const BUILT: &str = "build dist out bin obj _build deps vendor coverage htmlcov logs tmp temp Pods DerivedData \
    bower_components .next .nuxt .output .svelte-kit .turbo .terraform .eggs dist-newstyle";
/// Extensions of products that are made beside their sources.
const PRODUCTS: &str = "o obj a lo so dylib dll class pyc pyo log swp tmp tsbuildinfo";
/// The size that an ignored file stays below if it is recorded, in bytes.
const IGNORED_BYTES: u64 = 1 << 20;
/// Limits of the ignored entries that are recorded: their number and their bytes. One half is for files outside of
/// ignored directories.
const IGNORED_MAX: (usize, u64) = (4000, 128 << 20);
/// Names of files with keys and passwords.
const KEYS: [&str; 8] =
    ["id_rsa", "id_dsa", "id_ecdsa", "id_ed25519", ".netrc", ".git-credentials", "shadow", "gshadow"];
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
    directory: PathBuf,
    asked: RecordedBeyond,
    files: Mutex<RuleFiles>,
}

/// The limits of what is recorded although a rule ignores it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct IgnoredLimits {
    /// Bytes of a file, which it stays below.
    pub file_bytes: u64,
    /// Files and directories; at most half of them are directories or in ignored directories.
    pub entries: u64,
    /// Bytes of the files together, half of them in ignored directories.
    pub bytes: u64,
}

impl Default for IgnoredLimits {
    fn default() -> Self {
        Self { file_bytes: IGNORED_BYTES, entries: IGNORED_MAX.0 as u64, bytes: IGNORED_MAX.1 }
    }
}

/// Entries that are recorded beyond the rules.
#[derive(Debug, Clone, Default)]
pub(crate) struct RecordedBeyond {
    /// Paths with everything below them.
    pub(crate) included: Vec<EntryPath>,
    /// Small files that a rule ignores.
    pub(crate) ignored: bool,
    /// Contents of files that look like secrets, and those files where a rule ignores them.
    pub(crate) secrets: bool,
}

#[derive(Debug, Default)]
struct RuleFiles {
    /// Those of the repository and of the user; an earlier one decides before a later one.
    outer: Vec<Gitignore>,
    outer_stats: Vec<Option<FileStat>>,
    /// Tracked files that a rule ignores, by the path of their repository: the root's own and nested ones.
    tracked: BTreeMap<Vec<u8>, TrackedFiles>,
    place_stats: Vec<Option<FileStat>>,
    /// Ignored entries that are recorded because they are small, with their sizes.
    small: BTreeMap<Vec<u8>, u64>,
    /// Rules by the directory that has them.
    parsed: BTreeMap<Vec<u8>, (FileStat, Arc<Gitignore>)>,
}

/// Tracked files of a repository that a rule ignores.
#[derive(Debug, Default)]
struct TrackedFiles {
    /// State of the entry `.git` when they were listed.
    git: Option<FileStat>,
    repository: Option<GitRepository>,
    index: Option<FileStat>,
    /// Their paths below the root, in order.
    files: Vec<Vec<u8>>,
}

impl TrackedFiles {
    /// Lists them again if the index changed. Returns true if some are new. If git fails, the last list stays.
    fn refresh(&mut self, above: &[u8], rules: &[PathBuf]) -> bool {
        let Some(repository) = &self.repository else { return false };
        let index = stat(&repository.git_directory.join("index"));
        if self.index == index {
            return false;
        }
        self.index = index;
        let listed = match repository.tracked_though_ignored(rules) {
            Ok(listed) => listed,
            Err(error) => {
                let directory = repository.directory.display();
                tracing::warn!(%error, %directory, "can't list the tracked files that are ignored");
                return false;
            }
        };
        let mut files: Vec<_> = listed.iter().map(|path| joined(above, path)).collect();
        files.sort_unstable();
        let is_new = files.iter().any(|path| self.files.binary_search(path).is_err());
        self.files = files;
        is_new
    }

    /// Returns true if they include a path, or one below it.
    fn include(&self, path: &[u8], is_directory: bool) -> bool {
        let at = self.files.partition_point(|file| &file[..] < path);
        let leads = |file: &Vec<u8>| file.strip_prefix(path).is_some_and(|rest| rest.starts_with(b"/"));
        self.files.get(at).is_some_and(|file| file == path)
            || is_directory && self.files[at..].iter().take_while(|file| file.starts_with(path)).any(leads)
    }
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
    /// Reads the rules around a directory.
    ///
    /// If git refuses the repository or can't read it, the rules are those of a plain directory.
    pub(crate) fn of(directory: &Path, asked: RecordedBeyond) -> Self {
        let found = GitRepository::find(directory);
        let found = found.inspect_err(|error| tracing::warn!(%error, "git can't read the repository of a directory"));
        let (repository, directory) = (found.ok().flatten(), directory.to_owned());
        let rules = Self { repository, directory, asked, files: Mutex::default() };
        rules.refresh();
        rules
    }

    pub(crate) fn repository(&self) -> Option<&GitRepository> {
        self.repository.as_ref()
    }

    /// Returns the worktree's place in its repository's history, if it may be another one than the last time.
    pub(super) fn place(&self) -> io::Result<Option<GitPlace>> {
        let Some(repository) = self.repository.as_ref().filter(|known| known.git_directory.exists()) else {
            return Ok(None);
        };
        let stats: Vec<_> = repository.signs().iter().map(|path| stat(path)).collect();
        if lock(&self.files).place_stats == stats {
            return Ok(None);
        }
        let place = repository.place()?;
        lock(&self.files).place_stats = stats;
        Ok(Some(place))
    }

    /// Takes up changes of the rules outside of the directory. Returns true if there are any, so that entries may be
    /// recorded from now on that no change shows. If git's directory is gone, the last known rules stay.
    pub(super) fn refresh(&self) -> bool {
        self.forget_small();
        let Some(repository) = self.repository.as_ref().filter(|known| known.git_directory.exists()) else {
            return false;
        };
        let exclude = repository.common_directory.join("info/exclude");
        let places: Vec<PathBuf> = [Some(exclude), gitconfig_excludes_path()].into_iter().flatten().collect();
        let stats: Vec<_> = places.iter().map(|path| stat(path)).collect();
        let mut files = lock(&self.files);
        let mut is_changed = false;
        if files.outer_stats != stats {
            files.outer = places.iter().map(|path| parse_ignore_rules(&read(CWD, path).unwrap_or_default())).collect();
            files.outer_stats = stats;
            is_changed = true;
        }
        let own = || TrackedFiles { repository: Some(repository.clone()), ..TrackedFiles::default() };
        files.tracked.entry(Vec::new()).or_insert_with(own);
        for (path, tracked) in &mut files.tracked {
            is_changed |= tracked.refresh(path, &self.rules_above(path));
        }
        is_changed
    }

    /// Lists the outer repository's rule files that apply in a nested repository.
    fn rules_above(&self, path: &[u8]) -> Vec<PathBuf> {
        let Some(outer) = self.repository.as_ref().filter(|_| !path.is_empty()) else { return Vec::new() };
        let place = outer.directory.join(OsStr::from_bytes(path));
        let above = place.ancestors().skip(1).take_while(|above| above.starts_with(&outer.top));
        let rules = above.map(|above| above.join(RULES)).chain([outer.common_directory.join("info/exclude")]);
        rules.filter(|path| path.exists()).collect()
    }

    /// Lists the tracked files of a directory below the root if it is the top of a repository.
    fn ask_nested(&self, directory: BorrowedFd<'_>, path: &[u8]) {
        let git = open_in(directory, GIT, OFlags::PATH).ok().and_then(|git| look_at(&git).ok());
        let git = git.map(|stat| FileStat::of(&stat));
        let (Some(outer), Some(stamp)) = (&self.repository, &git) else { return };
        // A repository that could not be read is read again after a change.
        let is_known = |known: &TrackedFiles| match (&known.git, &known.repository) {
            (Some(known), Some(_)) => known.is_same_entry(stamp),
            (known, _) => *known == git,
        };
        if lock(&self.files).tracked.get(path).is_some_and(is_known) {
            return;
        }
        let found = GitRepository::find(&outer.directory.join(OsStr::from_bytes(path)));
        let found = found.inspect_err(|error| tracing::warn!(%error, "can't read a nested repository"));
        let repository = found.ok().flatten();
        let mut tracked = TrackedFiles { git, repository, ..TrackedFiles::default() };
        tracked.refresh(path, &self.rules_above(path));
        lock(&self.files).tracked.insert(path.to_vec(), tracked);
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

    /// Returns the directory.
    pub(super) fn directory(&self) -> &Path {
        &self.directory
    }

    /// Returns the rules that count at the root, before its own.
    pub(super) fn above_root(&self) -> DirRules {
        let Some(repository) = &self.repository else { return DirRules::default() };
        let mut rules = DirRules::default();
        let above = repository.directory.ancestors().skip(1).take_while(|above| above.starts_with(&repository.top));
        for directory in above.collect::<Vec<_>>().into_iter().rev() {
            let Some(text) = read(CWD, &directory.join(RULES)) else { continue };
            let prefix = repository.directory.strip_prefix(directory).unwrap_or(Path::new("")).to_owned();
            let level =
                RuleLevel { rules: Arc::new(parse_ignore_rules(&text)), prefix, skip: 0, above: rules.level.take() };
            rules.level = Some(Arc::new(level));
        }
        rules
    }

    /// Adds an open directory's own rules to those that count there.
    pub(super) fn enter(&self, above: &DirRules, directory: BorrowedFd<'_>, path: &[u8]) -> DirRules {
        let mut rules = above.clone();
        if !path.is_empty() && !rules.is_ignored {
            self.ask_nested(directory, path);
        }
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
        let rules = Arc::new(parse_ignore_rules(&text));
        lock(&self.files).parsed.insert(path.to_vec(), (stat, Arc::clone(&rules)));
        Some(rules)
    }

    /// Returns true if a new entry is left out. `path` is relative to the root; a directory has no size.
    pub(super) fn leaves_out(&self, rules: &DirRules, path: &[u8], size: Option<u64>) -> bool {
        let is_directory = size.is_none();
        self.is_ignored(rules, path, is_directory)
            && !self.is_kept(path, is_directory)
            && !self.is_small(path, size, rules.is_ignored)
    }

    /// Returns true if an ignored entry is recorded within the limits: a file that is not a product, or a secret.
    pub(super) fn is_wanted(&self, path: &[u8], is_directory: bool) -> bool {
        let name = name(path);
        if is_directory {
            let is_made = has(MADE, name) || has(BUILT, name) || name.windows(5).any(|part| part == b"cache");
            return self.asked.ignored && !is_made && !self.is_repository(path);
        }
        if EntryPath::from_bytes(path).is_ok_and(|path| self.is_secret(&path)) {
            return self.asked.secrets;
        }
        let extension = Path::new(OsStr::from_bytes(name)).extension().unwrap_or_default();
        self.asked.ignored && !has(PRODUCTS, extension.as_bytes())
    }

    /// Returns true if an ignored entry is recorded. It takes up room.
    fn is_small(&self, path: &[u8], size: Option<u64>, is_in_ignored: bool) -> bool {
        if size.is_some_and(|size| size >= IGNORED_BYTES) || !self.is_wanted(path, size.is_none()) {
            return false;
        }
        let small = &mut lock(&self.files).small;
        if small.contains_key(path) {
            return true;
        }
        let part = if is_in_ignored || size.is_none() { 2 } else { 1 };
        let size = size.unwrap_or_default();
        let bytes = small.values().sum::<u64>() + size;
        let has_room = small.len() < IGNORED_MAX.0 / part && bytes <= IGNORED_MAX.1 / part as u64;
        if has_room {
            small.insert(path.to_vec(), size);
        }
        has_room
    }

    /// Returns true if a directory is the top of a repository or worktree, which has its own files.
    fn is_repository(&self, path: &[u8]) -> bool {
        self.directory.join(OsStr::from_bytes(path)).join(".git").symlink_metadata().is_ok()
    }

    /// Frees the room of ignored entries that are gone, if much is taken.
    fn forget_small(&self) {
        let small = &mut lock(&self.files).small;
        if small.len() >= IGNORED_MAX.0 / 2 {
            small.retain(|path, _| self.directory.join(OsStr::from_bytes(path)).symlink_metadata().is_ok());
        }
    }

    /// Returns true if the contents of files that look like secrets are kept.
    pub(super) fn keeps_secrets(&self) -> bool {
        self.asked.secrets
    }

    /// Tells whether a rule ignores an entry, or a directory above it.
    pub(super) fn is_ignored(&self, rules: &DirRules, path: &[u8], is_directory: bool) -> bool {
        if rules.is_ignored {
            return true;
        }
        if self.repository.is_none() && is_directory && has(MADE, name(path)) {
            return true;
        }
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
    pub(super) fn is_kept(&self, path: &[u8], is_directory: bool) -> bool {
        let leads = |to: &[u8]| is_directory && to.strip_prefix(path).is_some_and(|rest| rest.starts_with(b"/"));
        self.is_included(path)
            || self.asked.included.iter().any(|included| leads(included.as_bytes()))
            || self.is_tracked(path, is_directory)
    }

    fn is_tracked(&self, path: &[u8], is_directory: bool) -> bool {
        let files = lock(&self.files);
        let above = path.iter().enumerate().filter(|(_, byte)| **byte == b'/').map(|(at, _)| &path[..at]);
        let mut repositories = std::iter::once(&b""[..]).chain(above).chain([path]);
        repositories.any(|above| files.tracked.get(above).is_some_and(|tracked| tracked.include(path, is_directory)))
    }

    /// Tells whether a name is one of files with secrets, and the path was not asked for.
    pub(super) fn is_secret(&self, path: &EntryPath) -> bool {
        is_secret_name(path.name()) && !self.is_included(path.as_bytes())
    }

    /// Tells whether a path was asked for.
    fn is_included(&self, path: &[u8]) -> bool {
        let is_it = |included: &[u8]| path.strip_prefix(included).is_some_and(|rest| matches!(rest, [] | [b'/', ..]));
        self.asked.included.iter().any(|included| is_it(included.as_bytes()))
    }
}

/// Returns true if a name is one of files with keys or passwords.
pub fn is_secret_name(name: &[u8]) -> bool {
    let name = String::from_utf8_lossy(name).to_ascii_lowercase();
    let (stem, extension) = name.rsplit_once('.').unwrap_or((&name, ""));
    match extension {
        "pem" | "key" | "p12" | "pfx" | "jks" => true,
        "example" | "sample" | "template" | "pub" => false,
        "" | "json" | "yaml" | "yml" | "toml" | "ini" | "txt" | "csv" | "xml" if stem.contains("credentials") => true,
        _ => name == ".env" || name.starts_with(".env.") || KEYS.contains(&&*name),
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

/// Returns true if a list of words has a name.
fn has(words: &str, name: &[u8]) -> bool {
    words.split(' ').any(|word| word.as_bytes() == name)
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
