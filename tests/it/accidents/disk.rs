//! A tree of files to the byte: kinds, contents, the twelve mode bits, targets of links, and names of one file.

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::{FileTypeExt, MetadataExt, PermissionsExt, symlink};
use std::path::{Path, PathBuf};

/// An entry of a tree.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Entry {
    /// The mode bits; 0 for a link.
    mode: u32,
    kind: Kind,
    /// The first name of the same file, where it has several.
    same: Option<PathBuf>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum Kind {
    Directory,
    File(Vec<u8>),
    Link(PathBuf),
    Fifo,
    Other,
}

/// Entries by their paths. A directory comes before all that it holds.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Tree(pub(super) BTreeMap<PathBuf, Entry>);

/// Returns true for what is git's: the repository, and the file with which a submodule names its own.
fn is_git(path: &Path) -> bool {
    path.components().any(|part| part.as_os_str() == ".git")
}

impl Tree {
    /// Reads everything below a directory.
    pub(super) fn of(root: &Path) -> Self {
        let (mut found, mut first) = (BTreeMap::new(), BTreeMap::<u64, (PathBuf, usize)>::new());
        let mut left = vec![PathBuf::new()];
        while let Some(directory) = left.pop() {
            for entry in fs::read_dir(root.join(&directory)).unwrap() {
                let path = directory.join(entry.unwrap().file_name());
                let place = root.join(&path);
                // What a process in the background has removed since is not there.
                let Ok(stat) = place.symlink_metadata() else { continue };
                let kind = match stat.file_type() {
                    kind if kind.is_dir() => Kind::Directory,
                    kind if kind.is_file() => Kind::File(fs::read(&place).unwrap_or_default()),
                    kind if kind.is_symlink() => Kind::Link(fs::read_link(&place).unwrap()),
                    kind if kind.is_fifo() => Kind::Fifo,
                    _ => Kind::Other,
                };
                match kind {
                    Kind::Directory => left.push(path.clone()),
                    _ if stat.nlink() > 1 => {
                        let (known, names) = first.entry(stat.ino()).or_insert_with(|| (path.clone(), 0));
                        *known = path.clone().min(known.clone());
                        *names += 1;
                    }
                    _ => {}
                }
                // Modes of special files are not recorded.
                let mode = match stat.is_file() || stat.is_dir() {
                    true => stat.permissions().mode() & 0o7777,
                    false => 0o400,
                };
                found.insert(path, (Entry { mode, kind, same: None }, stat.ino()));
            }
        }
        let named = found.into_iter().map(|(path, (entry, inode))| {
            let is_file = entry.kind != Kind::Directory;
            let same = first.get(&inode).filter(|(_, names)| is_file && *names > 1).map(|(first, _)| first.clone());
            (path, Entry { same, ..entry })
        });
        Self(named.collect())
    }

    /// Returns what is git's, or what is not.
    pub(super) fn part(&self, git: bool) -> Self {
        let entries = self.0.iter().filter(|(path, _)| is_git(path) == git);
        Self(entries.map(|(path, entry)| (path.clone(), entry.clone())).collect())
    }

    /// Makes a directory hold this tree, and nothing else. Equal entries are not touched.
    pub(super) fn put(&self, root: &Path) {
        fs::create_dir_all(root).unwrap();
        let now = Self::of(root);
        let is_kept = |path: &PathBuf, entry: &Entry| match self.0.get(path) {
            Some(Entry { kind: Kind::Directory, .. }) => entry.kind == Kind::Directory,
            Some(wanted) => (&wanted.kind, &wanted.same) == (&entry.kind, &entry.same),
            None => false,
        };
        for (path, entry) in now.0.iter().rev().filter(|(path, entry)| !is_kept(path, entry)) {
            match entry.kind {
                Kind::Directory => fs::remove_dir(root.join(path)).unwrap(),
                _ => fs::remove_file(root.join(path)).unwrap(),
            }
        }
        for (path, Entry { kind, same, .. }) in &self.0 {
            let place = root.join(path);
            match (kind, same) {
                _ if now.0.get(path).is_some_and(|entry| is_kept(path, entry)) => {}
                (_, Some(first)) if first != path => fs::hard_link(root.join(first), place).unwrap(),
                (Kind::Directory, _) => fs::create_dir(place).unwrap(),
                (Kind::File(bytes), _) => fs::write(place, bytes).unwrap(),
                (Kind::Link(target), _) => symlink(target, place).unwrap(),
                (Kind::Fifo, _) => {
                    let fifo = rustix::fs::FileType::Fifo;
                    rustix::fs::mknodat(rustix::fs::CWD, place, fifo, rustix::fs::Mode::RUSR, 0).unwrap();
                }
                (Kind::Other, _) => panic!("{} can't be made", path.display()),
            }
        }
        for (path, entry) in self.0.iter().rev().filter(|(_, entry)| !matches!(entry.kind, Kind::Link(_))) {
            let place = root.join(path);
            if place.symlink_metadata().unwrap().permissions().mode() & 0o7777 != entry.mode {
                fs::set_permissions(place, fs::Permissions::from_mode(entry.mode)).unwrap();
            }
        }
    }

    /// Lists the paths at which two trees differ.
    pub(super) fn differing(&self, other: &Self) -> Vec<PathBuf> {
        let all = self.0.keys().chain(other.0.keys().filter(|path| !self.0.contains_key(*path)));
        all.filter(|path| self.0.get(*path) != other.0.get(*path)).cloned().collect()
    }

    /// Describes what stands at a path.
    pub(super) fn word(&self, path: &Path) -> String {
        let Some(Entry { mode, kind, same }) = self.0.get(path) else { return "nothing".to_owned() };
        let kind = match kind {
            Kind::Directory => "a directory".to_owned(),
            Kind::File(bytes) => {
                let start: String = String::from_utf8_lossy(bytes).chars().take(30).collect();
                format!("{} bytes {start:?}", bytes.len())
            }
            Kind::Link(target) => format!("a link to {}", target.display()),
            Kind::Fifo => "a FIFO".to_owned(),
            Kind::Other => "a socket or a device".to_owned(),
        };
        let same = same.as_ref().map_or(String::new(), |same| format!(", the same file as {}", same.display()));
        format!("{kind}, {mode:04o}{same}")
    }
}
