//! A tree of files as the standard library shows it, and as the slice has it.

use std::collections::BTreeMap;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{FileTypeExt, PermissionsExt};
use std::path::Path;

use foldspace::event::{Digest, Node};
use foldspace::{EntryPath, VirtualFileSystem};

/// Entries by path.
pub(crate) type Files = BTreeMap<EntryPath, Seen>;

/// What stands at a path.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Seen {
    /// With its permission bits.
    File {
        digest: Digest,
        size: u64,
        mode: u32,
    },
    Symlink(Vec<u8>),
    Directory(u32),
    Special(&'static str),
}

/// Everything below a directory.
pub(crate) fn walk(root: &Path) -> Files {
    let mut files = Files::new();
    let mut left = vec![EntryPath::root()];
    while let Some(directory) = left.pop() {
        let place = root.join(std::ffi::OsStr::from_bytes(directory.as_bytes()));
        for entry in std::fs::read_dir(&place).unwrap() {
            let entry = entry.unwrap();
            let path = directory.join(entry.file_name().as_bytes()).unwrap();
            let seen = seen(&entry.path());
            if matches!(seen, Seen::Directory(_)) {
                left.push(path.clone());
            }
            files.insert(path, seen);
        }
    }
    files
}

fn seen(path: &Path) -> Seen {
    let metadata = path.symlink_metadata().unwrap();
    let kind = metadata.file_type();
    let mode = metadata.permissions().mode() & 0o7777;
    if kind.is_file() {
        return Seen::File { digest: digest(path), size: metadata.len(), mode };
    }
    if kind.is_symlink() {
        return Seen::Symlink(std::fs::read_link(path).unwrap().as_os_str().as_bytes().to_vec());
    }
    match () {
        () if kind.is_dir() => Seen::Directory(mode),
        () if kind.is_fifo() => Seen::Special("fifo"),
        () if kind.is_socket() => Seen::Special("socket"),
        () => Seen::Special("device"),
    }
}

fn digest(path: &Path) -> Digest {
    let mut hasher = blake3::Hasher::new();
    std::io::copy(&mut std::fs::File::open(path).unwrap(), &mut hasher).unwrap();
    Digest::from_bytes(*hasher.finalize().as_bytes())
}

/// The same as a slice has it.
pub(crate) fn known(slice: &VirtualFileSystem) -> Files {
    let seen = |node: &Node| match node {
        Node::File { content, size, mode, .. } => Seen::File { digest: *content, size: *size, mode: mode.bits() },
        Node::Symlink { target } => Seen::Symlink(target.clone()),
        Node::Directory { mode } => Seen::Directory(mode.bits()),
        Node::Special { special } => Seen::Special(special.name()),
    };
    slice.iter().map(|(path, entry)| (path.clone(), seen(&entry.node))).collect()
}

/// What differs, at most twenty of it, in words.
pub(crate) fn differences(known: &Files, real: &Files) -> Vec<String> {
    let gone = known.iter().filter(|(path, _)| !real.contains_key(*path));
    let gone = gone.map(|(path, seen)| format!("{path}: known as {seen:?}, and is not there"));
    let other = real.iter().filter(|(path, seen)| known.get(*path) != Some(*seen));
    let other = other.map(|(path, seen)| format!("{path}: is {seen:?}, known as {:?}", known.get(path)));
    gone.chain(other).take(20).collect()
}
