//! The files of a commit, apart from its repository's worktree.

use std::ffi::OsStr;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use super::{git_in, output_of, run};

/// Returns the id of a commit in the repository that a directory is in.
///
/// # Errors
/// There is no such commit, or no repository.
pub fn commit_in(directory: &Path, revision: &str) -> io::Result<String> {
    let wanted = format!("{revision}^{{commit}}");
    let printed = run(directory, &["rev-parse", "--verify", "--quiet", "--end-of-options", &wanted], None);
    let printed = printed.map_err(|_| io::Error::other(format!("there is no commit {revision}")))?;
    Ok(String::from_utf8_lossy(printed.trim_ascii()).into_owned())
}

/// Writes the files of a commit into an empty directory, as a checkout does. The repository stays as it is.
///
/// # Errors
/// git's words.
pub fn write_commit(directory: &Path, commit: &str, into: &Path) -> io::Result<()> {
    let home = tempfile::tempdir()?;
    // A bare repository has no top.
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
