//! Files of the spool and of attached directories.

use std::fs::{self, DirEntry, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use serde::Serialize;

use super::hook_message::ReportId;
use crate::backends::HostPath;
use crate::backends::disk::{entries_in, make_private};

/// The subdirectory of the data directory with an entry per attached directory.
pub const ATTACHED: &str = "attached";
/// The subdirectory of [`ATTACHED`] with the reports.
const SPOOL: &str = "spool";
/// Extension of a report. Files with other extensions are being written or can't be recorded.
const KEPT: &str = "json";
pub(super) const UNFIT: &str = "unfit";

/// Writes a message to the spool, where it stays until an owner records it. If that fails, a file with the `unfit`
/// extension shows the loss.
///
/// # Errors
/// The message can't be written.
#[expect(clippy::disallowed_methods, reason = "reports are the hub's")]
pub fn keep_report(home: &Path, id: ReportId, message: &[u8]) -> io::Result<()> {
    let file = file_of(home, id);
    put(&file, message).inspect_err(|_| drop(fs::rename(file.with_extension("new"), file.with_extension(UNFIT))))
}

/// Returns the path of a report's file.
pub(super) fn file_of(home: &Path, id: ReportId) -> PathBuf {
    home.join(ATTACHED).join(SPOOL).join(format!("{id}.{KEPT}"))
}

/// Writes a private file atomically.
#[expect(clippy::disallowed_methods, reason = "reports and entries of directories are the hub's")]
pub(super) fn put(file: &Path, bytes: &[u8]) -> io::Result<()> {
    make_private(file.parent().unwrap_or(file))?;
    let unfinished = file.with_extension("new");
    let mut opened = OpenOptions::new().create(true).truncate(true).write(true).mode(0o600).open(&unfinished)?;
    opened.write_all(bytes)?;
    opened.sync_all()?;
    fs::rename(&unfinished, file)
}

/// Lists the reports, oldest first.
pub(super) fn files(home: &Path) -> Vec<PathBuf> {
    files_of(home, KEPT)
}

fn files_of(home: &Path, extension: &str) -> Vec<PathBuf> {
    let entries = entries_in(&home.join(ATTACHED).join(SPOOL)).unwrap_or_default();
    let mut files: Vec<PathBuf> = entries.iter().map(DirEntry::path).collect();
    files.retain(|file| file.extension().is_some_and(|found| found == extension));
    files.sort();
    files
}

/// Hook reports that are not in the history.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct UnrecordedReports {
    /// The number of reports that wait for an owner to record them.
    pub waiting: usize,
    /// Files of reports that can't be recorded: they are malformed, or the disk was full when they arrived.
    pub refused: Vec<HostPath>,
}

impl UnrecordedReports {
    /// Counts the reports in a data directory.
    pub fn of(home: &Path) -> Self {
        let refused = files_of(home, UNFIT).into_iter().map(HostPath).collect();
        Self { waiting: files(home).len(), refused }
    }
}
