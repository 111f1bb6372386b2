//! The files of reports that wait to be recorded.

use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::time::{SystemTime, UNIX_EPOCH};

use serde::Serialize;

use crate::backends::HostPath;
use crate::backends::disk::{entries_in, make_private};

/// The directory of the data with an entry for each attached directory.
pub const ATTACHED: &str = "attached";
/// The directory with the reports, in that of the attached directories.
const SPOOL: &str = "spool";
/// The extension of a report; others are being written, or can't be recorded.
const KEPT: &str = "json";
pub(super) const UNFIT: &str = "unfit";

/// Keeps a message until an owner records it. What is left of one that can't be written is put aside, so that its loss
/// shows.
///
/// # Errors
/// It can't be written.
#[expect(clippy::disallowed_methods, reason = "a report that can't be recorded is kept, in the order of the clock")]
pub fn keep_report(home: &Path, message: &[u8]) -> io::Result<()> {
    let directory = home.join(ATTACHED).join(SPOOL);
    make_private(&directory)?;
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    let file = directory.join(format!("{:020}-{}", since.as_nanos(), std::process::id()));
    let begun = file.with_extension("new");
    let mut opened = std::fs::OpenOptions::new().create_new(true).write(true).mode(0o600).open(&begun)?;
    let written = opened.write_all(message);
    std::fs::rename(begun, file.with_extension(if written.is_ok() { KEPT } else { UNFIT }))?;
    written
}

/// Lists the reports that wait, in the order in which they were kept.
pub(super) fn files(home: &Path) -> Vec<PathBuf> {
    files_of(home, KEPT)
}

fn files_of(home: &Path, extension: &str) -> Vec<PathBuf> {
    let entries = entries_in(&home.join(ATTACHED).join(SPOOL)).unwrap_or_default();
    let mut files: Vec<PathBuf> = entries.iter().map(std::fs::DirEntry::path).collect();
    files.retain(|file| file.extension().is_some_and(|found| found == extension));
    files.sort();
    files
}

/// Hook reports that are not in the history.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct UnrecordedReports {
    /// The number of those that wait for an owner that can record them.
    pub waiting: usize,
    /// Files of those that no owner can record: they have no meaning, or the disk was full when they came.
    pub refused: Vec<HostPath>,
}

impl UnrecordedReports {
    /// Counts the reports in a data directory.
    pub fn of(home: &Path) -> Self {
        let refused = files_of(home, UNFIT).into_iter().map(HostPath).collect();
        Self { waiting: files(home).len(), refused }
    }
}
