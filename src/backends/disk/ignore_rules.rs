//! Rules for a person's directory: git's own files, and files that git ignores, are not recorded.

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

/// Directories with generated files, used where no repository has ignore rules.
const MADE: &str = "node_modules target .venv venv __pycache__ .mypy_cache .pytest_cache .tox .gradle .cache";
/// Build and download directories. Ignored files are not recorded there, nor in directories with `cache` in the name.
const BUILT: &str = "build dist out bin obj _build deps vendor coverage htmlcov logs tmp temp Pods DerivedData \
    bower_components .next .nuxt .output .svelte-kit .turbo .terraform .eggs dist-newstyle";
/// Extensions of build products that are created next to their sources.
const PRODUCTS: &str = "o obj a lo so dylib dll class pyc pyo log swp tmp tsbuildinfo";
/// The size limit of a recorded ignored file, in bytes (exclusive).
const IGNORED_BYTES: u64 = 1 << 20;
/// Limits of the recorded ignored entries: their number and their total bytes. One half is reserved for files outside
/// of ignored directories.
const IGNORED_MAX: (usize, u64) = (4000, 128 << 20);
/// Names of files with keys and passwords.
const KEYS: [&str; 8] =
    ["id_rsa", "id_dsa", "id_ecdsa", "id_ed25519", ".netrc", ".git-credentials", "shadow", "gshadow"];
const GIT: &[u8] = b".git";
const RULES: &str = ".gitignore";
/// The number of bytes that are read of a rule file.
const RULES_MAX: u64 = 4 << 20;

/// The rules of one directory and everything below it.
///
/// They apply only to unknown entries: an entry that was once recorded stays recorded, even if a later rule ignores it.
#[derive(Debug)]
pub struct IgnoreRules {
    repository: Option<GitRepository>,
    directory: PathBuf,
    asked: RecordedBeyond,
    files: Mutex<RuleFiles>,
}

/// The limits of recording ignored files.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct IgnoredLimits {
    /// Bytes of a file (exclusive).
    pub file_bytes: u64,
    /// Files and directories; at most half of them are directories or in ignored directories.
    pub entries: u64,
    /// Total bytes of the files; at most half of them in ignored directories.
    pub bytes: u64,
}

impl Default for IgnoredLimits {
    fn default() -> Self {
        Self { file_bytes: IGNORED_BYTES, entries: IGNORED_MAX.0 as u64, bytes: IGNORED_MAX.1 }
    }
}

/// Entries that are recorded despite the rules.
#[derive(Debug, Clone, Default)]
pub struct RecordedBeyond {
    /// Paths, with everything below them.
    pub included: Vec<EntryPath>,
    /// True to record small files that a rule ignores.
    pub ignored: bool,
    /// True to store the contents of files that look like secrets, also of ignored ones.
    pub secrets: bool,
}

#[derive(Debug, Default)]
struct RuleFiles {
    /// Rules of the repository and of the user, in order of precedence.
    outer: Vec<Gitignore>,
    outer_stats: Vec<Option<FileStat>>,
    /// Tracked files that a rule ignores, by the paths of their repositories: the root's and nested ones.
    tracked: BTreeMap<Vec<u8>, TrackedFiles>,
    place_stats: Vec<Option<FileStat>>,
    /// Ignored entries that are recorded because they are small, with their sizes.
    small: BTreeMap<Vec<u8>, u64>,
    /// Rules by their directory.
    parsed: BTreeMap<Vec<u8>, (FileStat, Arc<Gitignore>)>,
}

/// The tracked files of a repository that a rule ignores.
#[derive(Debug, Default)]
struct TrackedFiles {
    /// The stat of the entry `.git` when they were listed.
    git: Option<FileStat>,
    repository: Option<GitRepository>,
    index: Option<FileStat>,
    /// Their paths below the root, sorted.
    files: Vec<Vec<u8>>,
}

impl TrackedFiles {
    /// Lists them again if the index changed. Returns true if any are new. If git fails, the previous list stays.
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
                tracing::warn!(%error, %directory, "failed to list tracked files that are ignored");
                return false;
            }
        };
        let mut files: Vec<_> = listed.iter().map(|path| joined(above, path)).collect();
        files.sort_unstable();
        let is_new = files.iter().any(|path| self.files.binary_search(path).is_err());
        self.files = files;
        is_new
    }

    /// Returns true if they include a path, or an entry below it.
    fn include(&self, path: &[u8], is_directory: bool) -> bool {
        let at = self.files.partition_point(|file| &file[..] < path);
        let leads = |file: &Vec<u8>| file.strip_prefix(path).is_some_and(|rest| rest.starts_with(b"/"));
        self.files.get(at).is_some_and(|file| file == path)
            || is_directory && self.files[at..].iter().take_while(|file| file.starts_with(path)).any(leads)
    }
}

/// The rules that apply in one directory.
#[derive(Debug, Clone, Default)]
pub(super) struct DirRules {
    level: Option<Arc<RuleLevel>>,
    /// True if the directory itself, and thus everything below it, is ignored.
    is_ignored: bool,
}

impl DirRules {
    /// Returns the inherited rules of a direct subdirectory.
    pub(super) fn entered(&self, is_ignored: bool) -> Self {
        Self { level: self.level.clone(), is_ignored }
    }
}

#[derive(Debug)]
struct RuleLevel {
    rules: Arc<Gitignore>,
    /// The path from the rules' directory to the root, if it is above the root.
    prefix: PathBuf,
    /// The number of path bytes before the part that the rules match.
    skip: usize,
    above: Option<Arc<RuleLevel>>,
}

impl IgnoreRules {
    /// Reads the rules of a directory.
    ///
    /// If git rejects the repository or can't read it, the directory is treated as a plain one.
    pub fn of(directory: &Path, asked: RecordedBeyond) -> Self {
        let found = GitRepository::find(directory);
        let found = found.inspect_err(|error| tracing::warn!(%error, "git failed to read a directory's repository"));
        let (repository, directory) = (found.ok().flatten(), directory.to_owned());
        let rules = Self { repository, directory, asked, files: Mutex::default() };
        rules.refresh();
        rules
    }

    pub(crate) fn repository(&self) -> Option<&GitRepository> {
        self.repository.as_ref()
    }

    /// Returns the worktree's place in its repository's history, if it may have changed since the last call.
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

    /// Loads changes of the rules outside of the directory. Returns true if there are any, since unchanged entries may
    /// then become recorded. If git's directory is missing, the last rules stay.
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
        // An unreadable repository is read again after a change.
        let is_known = |known: &TrackedFiles| match (&known.git, &known.repository) {
            (Some(known), Some(_)) => known.is_same_entry(stamp),
            (known, _) => *known == git,
        };
        if lock(&self.files).tracked.get(path).is_some_and(is_known) {
            return;
        }
        let found = GitRepository::find(&outer.directory.join(OsStr::from_bytes(path)));
        let found = found.inspect_err(|error| tracing::warn!(%error, "failed to read a nested repository"));
        let repository = found.ok().flatten();
        let mut tracked = TrackedFiles { git, repository, ..TrackedFiles::default() };
        tracked.refresh(path, &self.rules_above(path));
        lock(&self.files).tracked.insert(path.to_vec(), tracked);
    }

    /// Returns the rules that a directory inherits.
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

    pub(super) fn directory(&self) -> &Path {
        &self.directory
    }

    /// Returns the rules that the root inherits.
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

    /// Adds an open directory's own rules to the inherited ones.
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

    /// Returns true if an ignored entry is recorded within the limits: a requested secret, or not a build product.
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

    /// Returns true if an ignored entry is recorded, and counts it.
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

    /// Returns true if a directory is the top of a separate repository or worktree.
    fn is_repository(&self, path: &[u8]) -> bool {
        self.directory.join(OsStr::from_bytes(path)).join(".git").symlink_metadata().is_ok()
    }

    /// Stops counting removed ignored entries, if many are counted.
    fn forget_small(&self) {
        let small = &mut lock(&self.files).small;
        if small.len() >= IGNORED_MAX.0 / 2 {
            small.retain(|path, _| self.directory.join(OsStr::from_bytes(path)).symlink_metadata().is_ok());
        }
    }

    /// Returns true if the contents of files that look like secrets are stored.
    pub(super) fn keeps_secrets(&self) -> bool {
        self.asked.secrets
    }

    /// Returns true if a rule ignores an entry, or a directory above it.
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

    /// Returns true if an ignored entry is recorded anyway.
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

    /// Returns true if the name is typical of a secret, and the path was not included explicitly.
    pub(super) fn is_secret(&self, path: &EntryPath) -> bool {
        is_secret_name(path.name()) && !self.is_included(path.as_bytes())
    }

    /// Returns true if a path was included explicitly.
    fn is_included(&self, path: &[u8]) -> bool {
        let is_it = |included: &[u8]| path.strip_prefix(included).is_some_and(|rest| matches!(rest, [] | [b'/', ..]));
        self.asked.included.iter().any(|included| is_it(included.as_bytes()))
    }
}

/// Returns true if a name is typical of files with keys or passwords.
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

/// Returns true if a path is a `.git` entry, or below one.
pub(super) fn is_git(path: &[u8]) -> bool {
    path.split(|byte| *byte == b'/').any(|segment| segment == GIT)
}

/// Returns true if a change of an entry with this name may change the rules.
pub(super) fn is_rules(name: &[u8]) -> bool {
    name == RULES.as_bytes()
}

/// Returns true if a space-separated list contains a name.
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
