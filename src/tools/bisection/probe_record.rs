//! Record of a probe in a bisection.

use super::algorithm::BisectVerdict;
use crate::backends::{Output, ShellResult};
use crate::engine::id::Seq;
use crate::engine::path::EntryPath;

/// Exit code that skips a position.
const SKIP: i32 = 125;
/// Lowest exit code that ends the search.
const ABORT: i32 = 128;

/// Run of the command at a position.
#[derive(Debug, Clone, PartialEq)]
pub struct ProbeRecord {
    /// Position of the probe.
    pub seq: Seq,
    /// Verdict of the probe.
    pub verdict: BisectVerdict,
    /// Exit code of the command.
    pub exit_code: i32,
    /// Set when the command timed out.
    pub timed_out: bool,
    /// Duration, in microseconds.
    pub micros: u64,
    /// Standard output; of a long one, the beginning and the end.
    pub stdout: Output,
    /// Standard error, likewise.
    pub stderr: Output,
    /// Entries that the probe lacked: files whose contents were never kept, sockets and devices.
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
            (true, _) => "the command took too long".to_owned(),
            (false, 0) => "the command succeeds".to_owned(),
            (false, SKIP) => "the command ends with 125, it can't tell".to_owned(),
            (false, code) => format!("the command ends with {code}"),
        }
    }
}
