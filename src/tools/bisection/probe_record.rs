//! A probe of a bisection, and how it went.

use super::algorithm::BisectVerdict;
use crate::backends::{Output, ShellResult};
use crate::engine::id::Seq;
use crate::engine::path::EntryPath;

/// The exit code with which a command says that it can't tell.
const SKIP: i32 = 125;
/// From here on an exit code says that something else is wrong than what is looked for.
const ABORT: i32 = 128;

/// A command's run at a position.
#[derive(Debug, Clone, PartialEq)]
pub struct ProbeRecord {
    /// The position.
    pub seq: Seq,
    /// What it says.
    pub verdict: BisectVerdict,
    /// How the command ended.
    pub exit_code: i32,
    /// Whether it took too long.
    pub timed_out: bool,
    /// How long it ran, in microseconds.
    pub micros: u64,
    /// What it printed, or the beginning and the end of it.
    pub stdout: Output,
    /// What it complained of, likewise.
    pub stderr: Output,
    /// What the probe had not though it was there then: files whose contents were never kept, special files.
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
