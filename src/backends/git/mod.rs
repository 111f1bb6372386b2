//! The git repository of a workspace's directory, as reported by git. It is never written, except for notes.

mod baseline;
mod commit_files;
mod lost;

use std::ffi::{OsStr, OsString};
use std::io::{self, Write};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

pub(crate) use baseline::CleanFiles;
pub use commit_files::{commit_in, write_commit};
pub use lost::GitFile;

use crate::engine::id::Digest;
use crate::engine::store::git_command;

/// The place of a worktree in its repository's history.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct GitPlace {
    /// The id of the commit; empty before the first one.
    pub head: String,
    /// The name of the branch; empty if no branch is checked out.
    pub branch: String,
    /// The digest of the index listing.
    pub index: Digest,
    /// The ids of the listed blobs, sorted; empty unless they are SHA-1 ids.
    #[doc(hidden)]
    pub blobs: Vec<[u8; 20]>,
}

/// A repository, seen from a directory of its worktree.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct GitRepository {
    /// The directory.
    pub(crate) directory: PathBuf,
    /// The top of its worktree.
    pub top: PathBuf,
    /// The git directory of the worktree.
    pub(crate) git_directory: PathBuf,
    /// The git directory with the objects, shared by all worktrees.
    pub(crate) common_directory: PathBuf,
    /// True if its objects have SHA-1 ids.
    is_sha1: bool,
}

impl GitRepository {
    /// Finds the repository of a directory; `None` if it is in none.
    ///
    /// # Errors
    /// The error of git, for example that the directory belongs to another user; or the directory is not in the
    /// repository's own worktree.
    pub fn find(directory: &Path) -> io::Result<Option<Self>> {
        let asked = ["rev-parse", "--show-toplevel", "--absolute-git-dir", "--git-common-dir", "--show-object-format"];
        if !is_below_git(directory) {
            return Ok(None);
        }
        let printed = run(directory, &asked, None)?;
        let line = |printed: &[u8]| printed.strip_suffix(b"\n").unwrap_or(printed).to_vec();
        let mut lines: Vec<Vec<u8>> = line(&printed).split(|byte| *byte == b'\n').map(<[u8]>::to_vec).collect();
        if lines.len() != asked.len() - 1 {
            // A path has a line break, so ask for each one separately.
            let alone = asked[1..].iter().map(|what| Ok(line(&run(directory, &["rev-parse", what], None)?)));
            lines = alone.collect::<io::Result<_>>()?;
        }
        let path = |at: usize| directory.join(OsStr::from_bytes(&lines[at]));
        let top = path(0);
        // A repository from elsewhere must not lead to other files.
        if !directory.canonicalize()?.starts_with(&top) {
            let top = top.display();
            let detail =
                format!("git has it in the worktree {top}, which is elsewhere (core.worktree); use {top} itself");
            return Err(io::Error::other(detail));
        }
        Ok(Some(Self {
            directory: directory.to_owned(),
            top,
            git_directory: path(1),
            common_directory: path(2).canonicalize()?,
            is_sha1: lines[3] == b"sha1",
        }))
    }

    /// Returns the commit, the branch and the index listing.
    pub(crate) fn place(&self) -> io::Result<GitPlace> {
        // The commit is missing before the first one, and the branch if HEAD is detached.
        let said = |arguments: &[&str]| {
            let printed = run(&self.directory, arguments, None).unwrap_or_default();
            String::from_utf8_lossy(printed.trim_ascii()).into_owned()
        };
        let head = said(&["rev-parse", "--verify", "--quiet", "HEAD"]);
        let branch = said(&["symbolic-ref", "--short", "--quiet", "HEAD"]);
        let listed = run(&self.directory, &["ls-files", "-s", "-z", "--full-name", ":/"], None)?;
        let id = |line: &[u8]| blob_id(line.split(|byte| *byte == b' ').nth(1)?);
        let mut blobs: Vec<_> = listed.split(|byte| *byte == 0).filter_map(id).collect();
        blobs.sort_unstable();
        Ok(GitPlace { head, branch, index: Digest::of(&listed), blobs })
    }

    /// Returns the id of a commit.
    pub fn commit(&self, revision: &str) -> io::Result<String> {
        commit_in(&self.directory, revision)
    }

    /// Lists the files of a commit, with the ids of their blobs.
    pub fn blobs(&self, commit: &str) -> io::Result<Vec<(Vec<u8>, String)>> {
        let printed = run(&self.directory, &["ls-tree", "-r", "-z", "--full-tree", commit], None)?;
        let file = |line: &[u8]| {
            let tab = line.iter().position(|byte| *byte == b'\t')?;
            let mut words = std::str::from_utf8(&line[..tab]).ok()?.split(' ');
            let ("100644" | "100755", "blob", id) = (words.next()?, words.next()?, words.next()?) else { return None };
            Some((line[tab + 1..].to_vec(), id.to_owned()))
        };
        Ok(printed.split(|byte| *byte == 0).filter_map(file).collect())
    }

    pub fn blob(&self, id: &str) -> io::Result<Vec<u8>> {
        run(&self.directory, &["cat-file", "blob", id], None)
    }

    /// Writes a note of a commit, replacing an existing one.
    pub fn write_note(&self, reference: &str, commit: &str, note: &str) -> io::Result<()> {
        let reference = format!("--ref={reference}");
        let arguments = ["notes", &reference, "add", "-f", "-F", "-", commit];
        run(&self.directory, &arguments, Some(note.as_bytes().to_vec())).map(drop)
    }

    /// Returns the files that change with the place.
    pub(crate) fn signs(&self) -> [PathBuf; 3] {
        ["HEAD", "index", "logs/HEAD"].map(|name| self.git_directory.join(name))
    }

    /// Lists the tracked files below the directory that are ignored by git's own rules or by these rule files.
    pub(crate) fn tracked_though_ignored(&self, more: &[PathBuf]) -> io::Result<Vec<Vec<u8>>> {
        let more: Vec<String> = more.iter().map(|path| format!("--exclude-from={}", path.display())).collect();
        let arguments = ["ls-files", "-z", "-c", "-i", "--exclude-standard"];
        let arguments: Vec<&str> = arguments.into_iter().chain(more.iter().map(String::as_str)).collect();
        Ok(paths(&run(&self.directory, &arguments, None)?))
    }
}

/// Returns true if a directory, or one above it, has a `.git` entry.
fn is_below_git(directory: &Path) -> bool {
    directory.ancestors().any(|above| above.join(".git").exists())
}

/// Parses a SHA-1 id.
fn blob_id(written: &[u8]) -> Option<[u8; 20]> {
    let digits = std::str::from_utf8(written).ok().filter(|digits| digits.len() == 40)?;
    let mut id = [0; 20];
    for (place, byte) in id.iter_mut().enumerate() {
        *byte = u8::from_str_radix(digits.get(place * 2..place * 2 + 2)?, 16).ok()?;
    }
    Some(id)
}

fn paths(printed: &[u8]) -> Vec<Vec<u8>> {
    printed.split(|byte| *byte == 0).filter(|path| !path.is_empty()).map(<[u8]>::to_vec).collect()
}

/// Runs git in a directory, and returns its output.
fn run(directory: &Path, arguments: &[&str], input: Option<Vec<u8>>) -> io::Result<Vec<u8>> {
    output_of(git_in(directory, arguments), input)
}

fn git_in(directory: &Path, arguments: &[&str]) -> Command {
    let mut git = git_command();
    git.arg("-C").arg(directory).args(arguments);
    git
}

fn output_of(git: Command, input: Option<Vec<u8>>) -> io::Result<Vec<u8>> {
    let output = outcome(git, input)?;
    match output.status.success() {
        true => Ok(output.stdout),
        false => {
            let said = OsString::from_vec(output.stderr);
            Err(io::Error::other(said.to_string_lossy().trim().to_owned()))
        }
    }
}

fn outcome(mut git: Command, input: Option<Vec<u8>>) -> io::Result<Output> {
    git.stdin(if input.is_some() { Stdio::piped() } else { Stdio::null() });
    let mut process = git.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn()?;
    let writer = process.stdin.take().zip(input);
    // A separate thread, because git may print before it has read all input.
    let writer = writer.map(|(mut ask, input)| std::thread::spawn(move || ask.write_all(&input)));
    let output = process.wait_with_output()?;
    drop(writer.map(std::thread::JoinHandle::join));
    Ok(output)
}

#[cfg(test)]
mod tests;
