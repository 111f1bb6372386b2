//! The log of errors in agents' hooks, which print nothing themselves.

use std::fs::{File, OpenOptions};
use std::io::{Read, Seek, SeekFrom, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

use foldspace::backends::{DoctorReport, Finding};
use foldspace::event::{Clock, SystemClock};

use super::text;

const LOG: &str = "hooks.log";
/// The maximum size in bytes; a larger log is truncated first.
const LOG_MAX: u64 = 1 << 20;
/// The number of bytes that are read from its end.
const TAIL: u64 = 16 << 10;

/// Adds a line. Ignores errors, since there is nowhere to report them.
#[expect(clippy::disallowed_methods, reason = "the log of hooks is not part of the store")]
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

/// Returns a finding about the log, if it has any lines.
pub(super) fn finding(data: &Path) -> Option<Finding> {
    let tail = tail(&data.join(LOG))?;
    let lines: Vec<&str> = tail.lines().filter(|line| !line.is_empty()).collect();
    let last = lines.last()?;
    let found = format!("{} in {LOG}, the last: {last}", text::count(lines.len() as u64, "fault"));
    let advice = format!("missed changes are found with the next report; remove {LOG} once this is resolved");
    Some(Finding { what: "hooks", state: DoctorReport::Limited, found, advice })
}

#[expect(clippy::disallowed_methods, reason = "the log of hooks is not part of the store")]
fn tail(log: &Path) -> Option<String> {
    let mut log = File::open(log).ok()?;
    let length = log.metadata().ok()?.len();
    log.seek(SeekFrom::Start(length.saturating_sub(TAIL))).ok()?;
    let mut bytes = Vec::new();
    log.take(TAIL).read_to_end(&mut bytes).ok()?;
    Some(String::from_utf8_lossy(&bytes).into_owned())
}
