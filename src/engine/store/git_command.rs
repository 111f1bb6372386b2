//! The git command that the whole program uses.

use std::os::unix::ffi::OsStrExt;
use std::process::Command;

/// Settings of every call: git starts no file system monitor and no hook that a repository configures.
const QUIET: [&str; 6] = ["-c", "core.fsmonitor=false", "-c", "core.hooksPath=/dev/null", "-c", "core.quotePath=false"];

/// Returns git without this process's `GIT_*` variables for another repository. It takes no locks and fetches nothing.
#[expect(clippy::disallowed_methods, reason = "git reads its own formats")]
pub fn git_command() -> Command {
    let mut git = Command::new("git");
    let is_identity = |name: &[u8]| name.starts_with(b"GIT_AUTHOR_") || name.starts_with(b"GIT_COMMITTER_");
    let is_other = |name: &[u8]| name.starts_with(b"GIT_") && !is_identity(name);
    for (name, _) in std::env::vars_os().filter(|(name, _)| is_other(name.as_bytes())) {
        git.env_remove(name);
    }
    // Git before 2.45 ignores the first variable; the second one then blocks every fetch of missing objects.
    git.env("GIT_NO_LAZY_FETCH", "1").env("GIT_ALLOW_PROTOCOL", "none");
    git.env("GIT_OPTIONAL_LOCKS", "0").env("LC_ALL", "C").args(QUIET);
    git
}
