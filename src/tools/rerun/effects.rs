//! Recorded effects outside of the workspace that calls may have again.

use std::collections::BTreeSet;
use std::ops::ControlFlow;

use super::past::{PastRun, RerunStep};
use crate::backends::{Workspace, WorkspaceSpec};
use crate::engine::event::ExternalEffect;
use crate::engine::id::Seq;
use crate::engine::session::error::SessionError;
use crate::reducers::{EffectEntry, Effects};
use crate::tools::error::WorkspaceError;
use crate::tools::workspace::http_record::answers;

/// Replays the responses that the session has recorded after `start`.
pub(super) fn go_offline(past: &PastRun, start: Seq, workspace: &dyn Workspace) -> Result<(), WorkspaceError> {
    let spec = past.session.started().and_then(|started| WorkspaceSpec::of_session(started).ok());
    let mask = spec.map(|spec| spec.http_masks()).unwrap_or_default();
    let answers = answers(&past.session, start.saturating_add(1), Seq::MAX, &mask)?;
    let is_offline = workspace.container().is_some_and(|container| container.answer_from(answers));
    if is_offline { Ok(()) } else { Err(WorkspaceError::NotOffline) }
}

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
