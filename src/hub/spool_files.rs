//! Files of the spool.

use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::time::{SystemTime, UNIX_EPOCH};

use crate::backends::disk::{entries_in, make_private};

/// The directory of the data with an entry for each attached directory.
pub const ATTACHED: &str = "attached";
/// The directory with the reports, in that of the attached directories.
const SPOOL: &str = "spool";
/// Extension of a report. Files with others are being written, or can't be recorded.
const KEPT: &str = "json";
pub(super) const UNFIT: &str = "unfit";

/// Writes a message to the spool, where it stays until an owner records it.
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
    opened.write_all(message)?;
    std::fs::rename(begun, file.with_extension(KEPT))
}

/// Lists the reports, oldest first.
pub(super) fn files(home: &Path) -> Vec<PathBuf> {
    let entries = entries_in(&home.join(ATTACHED).join(SPOOL)).unwrap_or_default();
    let mut files: Vec<PathBuf> = entries.iter().map(std::fs::DirEntry::path).collect();
    files.retain(|file| file.extension().is_some_and(|extension| extension == KEPT));
    files.sort();
    files
}
