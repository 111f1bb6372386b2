//! Recorded effects outside of the workspace that calls may have again.

use std::collections::BTreeSet;
use std::ops::ControlFlow;

use super::past::{PastRun, RerunStep};
use crate::backends::WorkspaceSpec;
use crate::engine::event::ExternalEffect;
use crate::engine::id::Seq;
use crate::engine::session::error::SessionError;
use crate::reducers::{EffectEntry, Effects};

/// Returns the effects that a rerun of the calls in such a workspace may have again. A failed effect may succeed now.
pub(super) fn repeated(
    past: &PastRun,
    steps: &[RerunStep],
    spec: &WorkspaceSpec,
) -> Result<Vec<EffectEntry>, SessionError> {
    let calls: BTreeSet<Seq> = steps.iter().filter_map(RerunStep::call).map(|call| call.call).collect();
    let mut found = Effects::default();
    let Some(first) = calls.first().filter(|_| spec.has_network()) else { return Ok(found.entries) };
    // The slice has only the last ones.
    past.session.visit(*first, &mut |event| {
        if let Some(effect) = event.decoded::<ExternalEffect>() {
            found.add(&effect, (event.seq, event.time, event.call, event.agent));
        }
        ControlFlow::Continue(())
    })?;
    found.entries.retain(|effect| effect.call.is_some_and(|call| calls.contains(&call)));
    Ok(found.entries)
}
