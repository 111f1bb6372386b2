//! The processes of this machine, by their command lines.

use std::path::{Path, PathBuf};

use super::eventually;

#[path = "../../rig/stopped.rs"]
mod stopped;
pub(crate) use stopped::{resume, stop};

/// Returns what is in a folder, which may be gone.
fn entries(folder: &Path) -> impl Iterator<Item = PathBuf> {
    std::fs::read_dir(folder).into_iter().flatten().map_while(Result::ok).map(|entry| entry.path())
}

/// Returns the processes whose command line contains a text, as folders of `/proc`.
fn processes(text: &str) -> impl Iterator<Item = PathBuf> {
    entries(Path::new("/proc")).filter(move |folder| {
        let line = std::fs::read(folder.join("cmdline")).unwrap_or_default();
        String::from_utf8_lossy(&line).replace('\0', " ").contains(text)
    })
}

/// Returns whether a process runs whose command line contains a text.
pub(crate) fn is_running(text: &str) -> bool {
    processes(text).next().is_some()
}

/// Returns whether a command has written `begun` and a newline to a file: the file alone is there earlier.
pub(crate) fn has_begun(file: &Path) -> bool {
    std::fs::read(file).is_ok_and(|text| text == b"begun\n")
}

/// Waits until a thread of such a process waits in a write, as nothing takes what it prints.
pub(crate) fn eventually_stuck(text: &str) {
    let write = if cfg!(target_arch = "x86_64") { "1 " } else { "64 " };
    let is_writing =
        |thread: PathBuf| std::fs::read_to_string(thread.join("syscall")).is_ok_and(|call| call.starts_with(write));
    eventually("nothing takes what the command prints", || {
        processes(text).any(|folder| entries(&folder.join("task")).any(is_writing))
    });
}
