//! The commands and evaluations of a session.

use serde::{Deserialize, Serialize};

use crate::engine::collections::Vector;
use crate::engine::event::{CommandResult, EvalResult, TerminalRecorded};
use crate::engine::{OnRewind, Recorded, Registry, Seq, Slice, Timestamp, ValueError};

/// Commands that the slice lists; the journal has all.
const RECENT_MAX: usize = 200;
const COMMAND_MAX: usize = 200;

/// Commands of a session: counts of all, and the latest.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Commands {
    /// Number of ended commands.
    pub total: u64,
    /// Number of exit codes other than 0.
    pub failed: u64,
    /// Number of time-outs.
    pub timed_out: u64,
    /// Number of cancelled commands.
    pub cancelled: u64,
    /// Their total duration in microseconds.
    pub micros: u64,
    /// Bytes that they printed.
    pub output_bytes: u64,
    recent: Vector<CommandEntry>,
}

/// One command of a session.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct CommandEntry {
    /// Position of its result.
    pub seq: Seq,
    /// Time of its end.
    pub time: Timestamp,
    /// The beginning of the command, or `python` for an evaluation.
    pub command: String,
    /// Exit code.
    pub exit_code: i32,
    /// True if it timed out.
    pub timed_out: bool,
    /// Duration, in microseconds.
    pub micros: u64,
}

impl Commands {
    /// Iterates over the latest commands, oldest first.
    pub fn recent(&self) -> impl DoubleEndedIterator<Item = &CommandEntry> {
        self.recent.iter()
    }

    fn add(mut self, entry: CommandEntry, cancelled: bool, output_bytes: u64) -> Self {
        self.total += 1;
        self.failed += u64::from(entry.exit_code != 0);
        self.timed_out += u64::from(entry.timed_out);
        self.cancelled += u64::from(cancelled);
        self.micros = self.micros.saturating_add(entry.micros);
        self.output_bytes = self.output_bytes.saturating_add(output_bytes);
        self.recent.push_back(entry);
        while self.recent.len() > RECENT_MAX {
            self.recent.pop_front();
        }
        self
    }
}

impl Slice for Commands {
    const NAME: &'static str = "Commands";
    const ON_REWIND: OnRewind = OnRewind::Keep;
}

fn ran(commands: Commands, Recorded { seq, time, event, .. }: &Recorded<CommandResult>) -> Commands {
    let (seq, time, command) = (*seq, *time, event.command.to_string().chars().take(COMMAND_MAX).collect());
    let CommandResult { exit_code, timed_out, micros, .. } = *event;
    let entry = CommandEntry { seq, time, command, exit_code, timed_out, micros };
    commands.add(entry, event.cancelled, event.stdout.bytes.saturating_add(event.stderr.bytes))
}

fn evaluated(commands: Commands, Recorded { seq, time, event, .. }: &Recorded<EvalResult>) -> Commands {
    let (seq, time, command) = (*seq, *time, event.language.chars().take(COMMAND_MAX).collect());
    let EvalResult { exit_code, timed_out, micros, .. } = *event;
    let entry = CommandEntry { seq, time, command, exit_code, timed_out, micros };
    commands.add(entry, event.cancelled, event.stdout.bytes.saturating_add(event.stderr.bytes))
}

pub(super) fn register(registry: Registry) -> Result<Registry, ValueError> {
    let registry = registry.event::<CommandResult>()?.event::<EvalResult>()?.event::<TerminalRecorded>()?;
    registry.slice::<Commands>()?.reducer(ran)?.reducer(evaluated)
}
