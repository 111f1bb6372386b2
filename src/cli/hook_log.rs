//! The log of what went wrong in agents' hooks, which print nothing themselves.

use std::fs::{File, OpenOptions};
use std::io::{Read, Seek, SeekFrom, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

use foldspace::backends::{DoctorReport, Finding};
use foldspace::event::{Clock, SystemClock};

use super::text;

const LOG: &str = "hooks.log";
/// Bytes of a log that is continued; a longer one begins anew.
const LOG_MAX: u64 = 1 << 20;
/// Bytes at its end that are looked at.
const TAIL: u64 = 16 << 10;

/// Adds a line. Where that fails, nothing can be told.
#[expect(clippy::disallowed_methods, reason = "the log of hooks is no part of the store")]
pub(super) fn note(data: &Path, agent: &str, words: &str) {
    let log = data.join(LOG);
    let is_long = log.metadata().is_ok_and(|log| log.len() > LOG_MAX);
    let mut options = OpenOptions::new();
    options.create(true).mode(0o600).write(true).append(!is_long).truncate(is_long);
    let line = format!("{} {agent}: {}\n", SystemClock::default().now(), text::one_line(words, 1000));
    drop(options.open(log).and_then(|mut log| log.write_all(line.as_bytes())));
}

/// Returns the last line of the log.
pub(super) fn last(data: &Path) -> Option<String> {
    tail(&data.join(LOG))?.lines().rfind(|line| !line.is_empty()).map(str::to_owned)
}

/// Returns what the log says, if it says anything.
pub(super) fn finding(data: &Path) -> Option<Finding> {
    let tail = tail(&data.join(LOG))?;
    let lines: Vec<&str> = tail.lines().filter(|line| !line.is_empty()).collect();
    let last = lines.last()?;
    let found = format!("{} in {LOG}, the last: {last}", text::count(lines.len() as u64, "fault"));
    let advice = format!("what was not recorded then is found with the next report; remove {LOG} when it is seen to");
    Some(Finding { what: "hooks", state: DoctorReport::Limited, found, advice })
}

#[expect(clippy::disallowed_methods, reason = "the log of hooks is no part of the store")]
fn tail(log: &Path) -> Option<String> {
    let mut log = File::open(log).ok()?;
    let length = log.metadata().ok()?.len();
    log.seek(SeekFrom::Start(length.saturating_sub(TAIL))).ok()?;
    let mut bytes = Vec::new();
    log.take(TAIL).read_to_end(&mut bytes).ok()?;
    Some(String::from_utf8_lossy(&bytes).into_owned())
}
