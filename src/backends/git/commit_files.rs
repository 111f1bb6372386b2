//! The files of a commit, independent of its repository's worktree.

use std::ffi::OsStr;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use super::{git_in, output_of, run};

/// Returns the id of a commit in the repository of a directory.
///
/// # Errors
/// The commit or the repository does not exist.
pub fn commit_in(directory: &Path, revision: &str) -> io::Result<String> {
    let wanted = format!("{revision}^{{commit}}");
    let printed = run(directory, &["rev-parse", "--verify", "--quiet", "--end-of-options", &wanted], None);
    let printed = printed.map_err(|_| io::Error::other(format!("commit {revision} not found")))?;
    Ok(String::from_utf8_lossy(printed.trim_ascii()).into_owned())
}

/// Writes the files of a commit into an empty directory, like a checkout. The repository is not changed.
///
/// # Errors
/// The error of git.
pub fn write_commit(directory: &Path, commit: &str, into: &Path) -> io::Result<()> {
    let home = tempfile::tempdir()?;
    // A bare repository has no worktree.
    let top = ["--show-toplevel", "--absolute-git-dir"].map(|which| run(directory, &["rev-parse", which], None));
    let [top, git_directory] = top;
    let top = top.or(git_directory)?;
    let top = Path::new(OsStr::from_bytes(top.strip_suffix(b"\n").unwrap_or(&top)));
    let prefix = format!("--prefix={}/", into.display());
    for arguments in [&["read-tree", commit][..], &["checkout-index", "--all", "--quiet", &prefix]] {
        let mut git = git_in(top, arguments);
        git.env("GIT_INDEX_FILE", home.path().join("index"));
        output_of(git, None)?;
    }
    Ok(())
}
