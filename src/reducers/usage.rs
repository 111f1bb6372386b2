//! Usage of a session.

use serde::{Deserialize, Serialize};

use crate::engine::event::{CallStatus, CodecError, Common};
use crate::engine::reducer::Folding;
use crate::engine::{EventRef, OnRewind, Registry, Slice, ValueError};

/// Counts of what happened in a session; they only grow.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Usage {
    /// Events.
    pub events: u64,
    /// Calls begun.
    pub calls: u64,
    /// Calls that succeeded.
    pub calls_ok: u64,
    /// Calls that failed.
    pub calls_failed: u64,
    /// Calls that were interrupted.
    pub calls_interrupted: u64,
    /// Microseconds spent in calls.
    pub call_micros: u64,
    /// Entries written.
    pub writes: u64,
    /// Bytes of the files written.
    pub bytes_written: u64,
    /// Entries removed; a directory counts once.
    pub deletes: u64,
}

impl Slice for Usage {
    const NAME: &'static str = "Usage";
    const ON_REWIND: OnRewind = OnRewind::Keep;
}

pub(super) fn register(registry: Registry) -> Result<Registry, ValueError> {
    let open = |usage: Usage, _| Box::new(UsageFold(usage)) as Box<dyn Folding<Usage>>;
    registry.folded_slice::<Usage>(None, open)
}

struct UsageFold(Usage);

impl Folding<Usage> for UsageFold {
    fn apply(&mut self, event: &EventRef<'_>) -> Result<(), CodecError> {
        let usage = &mut self.0;
        usage.events += 1;
        match event.common {
            Common::WriteFile => {
                let size = event.written()?.size();
                usage.writes += 1;
                usage.bytes_written = usage.bytes_written.saturating_add(size);
            }
            Common::DeleteEntry => usage.deletes += 1,
            Common::CallStarted => usage.calls += 1,
            Common::CallFinished => {
                let outcome = event.finished()?;
                usage.call_micros = usage.call_micros.saturating_add(outcome.micros);
                match outcome.status {
                    CallStatus::Ok => usage.calls_ok += 1,
                    CallStatus::Error => usage.calls_failed += 1,
                    CallStatus::Interrupted => usage.calls_interrupted += 1,
                }
            }
            Common::Other => {}
        }
        Ok(())
    }

    fn finish(self: Box<Self>) -> Usage {
        self.0
    }
}
