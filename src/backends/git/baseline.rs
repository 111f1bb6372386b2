//! Files of a worktree that are unchanged from the repository's contents, so that they need not be read.

use std::collections::BTreeSet;
use std::io;

use super::{GitRepository, blob_id, paths, run};
use crate::engine::id::Digest;

/// Attributes that make a file in the worktree differ from its blob.
const CONVERTING: [&str; 6] = ["text", "crlf", "eol", "filter", "ident", "working-tree-encoding"];

/// Tracked files with the same bytes as their blobs, as of a read of the index.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct CleanFiles {
    /// Paths below the directory with the ids of their blobs, sorted.
    files: Vec<(Vec<u8>, [u8; 20])>,
}

impl CleanFiles {
    /// Lists them. A file that is written later may no longer be clean.
    ///
    /// # Errors
    /// The error of git.
    pub(crate) fn of(repository: &GitRepository) -> io::Result<Self> {
        let directory = &repository.directory;
        // If it is unset, git converts nothing.
        let converts = run(directory, &["config", "--type=bool-or-str", "--get", "core.autocrlf"], None);
        if !repository.is_sha1 || converts.is_ok_and(|value| value.trim_ascii() != b"false") {
            return Ok(Self::default());
        }
        let changed = ["diff", "--name-only", "-z", "--relative", "--no-renames", "--ignore-submodules=all"];
        let changed = [&changed[..], &["--no-ext-diff", "--no-textconv"]].concat();
        let (listed, changed) = std::thread::scope(|scope| {
            let changed = scope.spawn(|| run(directory, &changed, None));
            let listed = run(directory, &["ls-files", "-s", "-v", "-z"], None);
            (listed, changed.join().unwrap_or_else(|_| Err(io::Error::other("comparing with the index panicked"))))
        });
        let changed: BTreeSet<Vec<u8>> = paths(&changed?).into_iter().collect();
        let listed = listed?;
        let entries = listed.split(|byte| *byte == 0).filter_map(plain_file);
        let mut files: Vec<_> = entries.filter(|(path, _)| !changed.contains(path)).collect();
        files.sort_unstable();
        let converted = converted(repository, &files)?;
        files.retain(|(path, _)| !converted.contains(path));
        Ok(Self { files })
    }

    /// Returns the digest of a file's contents; `None` if the file has to be read.
    pub(crate) fn digest(&self, path: &[u8]) -> Option<Digest> {
        let found = self.files.binary_search_by(|(known, _)| known[..].cmp(path)).ok()?;
        Some(Digest::of_git_blob(self.files[found].1))
    }

    #[cfg(test)]
    pub(super) fn is_empty(&self) -> bool {
        self.files.is_empty()
    }
}

/// Parses a line of `ls-files -s -v`: tag, mode, id, stage, path. `None` unless it is a plain tracked file: for links,
/// submodules, conflicts, and entries that git does not check for changes.
fn plain_file(line: &[u8]) -> Option<(Vec<u8>, [u8; 20])> {
    let tab = line.iter().position(|byte| *byte == b'\t')?;
    let mut words = std::str::from_utf8(&line[..tab]).ok()?.split(' ');
    let ("H", "100644" | "100755", id, "0") = (words.next()?, words.next()?, words.next()?, words.next()?) else {
        return None;
    };
    Some((line[tab + 1..].to_vec(), blob_id(id.as_bytes())?))
}

/// Returns the files with an attribute that makes git convert them.
fn converted(repository: &GitRepository, files: &[(Vec<u8>, [u8; 20])]) -> io::Result<BTreeSet<Vec<u8>>> {
    let has_attributes = || {
        let named = files.iter().any(|(path, _)| path.ends_with(b".gitattributes"));
        let above = repository.directory.ancestors().take_while(|above| above.starts_with(&repository.top));
        let elsewhere = run(&repository.directory, &["config", "--get", "core.attributesFile"], None);
        let homes = [std::env::var_os("XDG_CONFIG_HOME"), std::env::var_os("HOME")];
        let [xdg, home] = homes.map(|home| home.map(std::path::PathBuf::from));
        named
            || above.map(|above| above.join(".gitattributes")).any(|path| path.exists())
            || repository.common_directory.join("info/attributes").exists()
            || elsewhere.is_ok()
            || xdg.is_some_and(|home| home.join("git/attributes").exists())
            || home.is_some_and(|home| home.join(".config/git/attributes").exists())
            || std::path::Path::new("/etc/gitattributes").exists()
    };
    if !has_attributes() {
        return Ok(BTreeSet::new());
    }
    let asked = files.iter().flat_map(|(path, _)| [&path[..], b"\0"].concat()).collect();
    let arguments = [&["check-attr", "-z", "--stdin"][..], &CONVERTING].concat();
    let printed = run(&repository.directory, &arguments, Some(asked))?;
    let fields: Vec<&[u8]> = printed.split(|byte| *byte == 0).collect();
    let told = fields.chunks_exact(3).filter(|told| !matches!(told[2], b"unspecified" | b"unset"));
    Ok(told.map(|told| told[0].to_vec()).collect())
}
