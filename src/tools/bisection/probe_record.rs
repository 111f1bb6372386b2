//! The record of a probe in a bisection.

use super::algorithm::BisectVerdict;
use crate::backends::{Output, ShellResult};
use crate::engine::id::Seq;
use crate::engine::path::EntryPath;

/// The exit code that skips a position.
const SKIP: i32 = 125;
/// The lowest exit code that ends the search.
const ABORT: i32 = 128;

/// A run of the command at a position.
#[derive(Debug, Clone, PartialEq)]
pub struct ProbeRecord {
    /// The position of the probe.
    pub seq: Seq,
    /// The verdict of the probe.
    pub verdict: BisectVerdict,
    /// The exit code of the command.
    pub exit_code: i32,
    /// True if the command timed out.
    pub timed_out: bool,
    /// The duration, in microseconds.
    pub micros: u64,
    /// The standard output, or its beginning and end if it is long.
    pub stdout: Output,
    /// The standard error, likewise.
    pub stderr: Output,
    /// The entries that the probe lacked: files without stored contents, sockets and devices.
    pub left_out: Vec<EntryPath>,
}

impl ProbeRecord {
    pub(super) fn of(seq: Seq, result: ShellResult, left_out: Vec<EntryPath>) -> Self {
        let verdict = match (result.timed_out, result.exit_code) {
            (true, _) => BisectVerdict::Bad,
            (false, 0) => BisectVerdict::Good,
            (false, SKIP) => BisectVerdict::Skip,
            (false, _) => BisectVerdict::Bad,
        };
        Self {
            seq,
            verdict,
            exit_code: result.exit_code,
            timed_out: result.timed_out,
            micros: u64::try_from(result.duration.as_micros()).unwrap_or(u64::MAX),
            stdout: result.stdout,
            stderr: result.stderr,
            left_out,
        }
    }

    pub(super) fn aborts(&self) -> bool {
        !self.timed_out && !(0..ABORT).contains(&self.exit_code)
    }

    pub(in crate::tools) fn words(&self) -> String {
        match (self.timed_out, self.exit_code) {
            (true, _) => "the command timed out".to_owned(),
            (false, 0) => "the command succeeded".to_owned(),
            (false, SKIP) => "the command exited with 125, which skips it".to_owned(),
            (false, code) => format!("the command exited with {code}"),
        }
    }
}
