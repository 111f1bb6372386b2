//! Persistence of a workspace's stat index for a later process, with the position of its files.

use std::ops::ControlFlow;
use std::sync::Arc;

use crate::backends::{ChangeDetector, KeptAt, KnownFilesKeeper, Workspace};
use crate::engine::event::{Event, EventsLost};
use crate::engine::path::EntryPath;
use crate::engine::recorded::EventRef;
use crate::engine::session::Session;
use crate::engine::session::error::SessionError;
use crate::tools::workspace::plan::PlannedChange;
use crate::tools::workspace::runtime::SessionRuntime;

/// Maximum number of events after a stored index; with more, reading every file is as fast.
const EVENTS_MAX: usize = 20_000;

/// Resumes from the index of an earlier process. Files that the history has changed since are read.
pub(super) fn resume(session: &Session, disk: &dyn ChangeDetector) {
    let Some(keeper) = disk.keeper() else { return };
    keeper.resume(&|at| match changed_since(session, at) {
        Ok(changed) => changed,
        Err(error) => {
            tracing::debug!(%error, "reading every file: the changes since the stored index are unknown");
            None
        }
    });
}

/// Lists the paths that the history has changed since `at`; `None` if it lacks that position, or a change is unknown.
fn changed_since(session: &Session, at: &KeptAt) -> Result<Option<Vec<EntryPath>>, SessionError> {
    if at.session != session.id() || at.seq > session.head()? {
        return Ok(None);
    }
    let (mut changed, mut is_same, mut seen) = (Vec::new(), false, 0);
    session.visit(at.seq, &mut |event| {
        seen += 1;
        is_same = match event.seq == at.seq {
            true => event.time == at.time,
            false => seen <= EVENTS_MAX && note(event, &mut changed).is_some(),
        };
        if is_same { ControlFlow::Continue(()) } else { ControlFlow::Break(()) }
    })?;
    Ok(is_same.then_some(changed))
}

/// Adds the path that an event has changed. Returns `None` for an event that may have changed any path.
fn note(event: &EventRef<'_>, changed: &mut Vec<EntryPath>) -> Option<()> {
    if PlannedChange::KINDS.contains(&event.kind) {
        let change = PlannedChange::of(event)?;
        changed.extend(change.link().map(|link| link.to.clone()));
        changed.push(change.path().clone());
    }
    (event.kind != EventsLost::KIND).then_some(())
}

/// Persists the index if that is due. The caller holds the workspace lock and has recorded all that it found.
pub(super) async fn keep_if_due(session: &Session, workspace: &Arc<dyn Workspace>) {
    if !workspace.capture().and_then(ChangeDetector::keeper).is_some_and(KnownFilesKeeper::is_due) {
        return;
    }
    let looking = SessionRuntime::of(session).lock_scan().await;
    let (session, workspace) = (session.clone(), Arc::clone(workspace));
    let kept = tokio::task::spawn_blocking(move || {
        keep(&session, workspace.as_ref());
        drop(looking);
    });
    if kept.await.is_err() {
        tracing::debug!("failed to persist the stat index");
    }
}

/// Persists the index for the next process, unless a call or a scan is in progress.
pub(crate) fn keep_at_end(session: &Session, workspace: &dyn Workspace) {
    let runtime = SessionRuntime::of(session);
    if let (Some(_turn), Some(_looking)) = (runtime.try_lock_workspace(), runtime.try_lock_scan()) {
        keep(session, workspace);
    }
}

/// Persists the index. The caller excludes other changes of the files, and all findings are recorded.
pub(super) fn keep(session: &Session, workspace: &dyn Workspace) {
    let Some(keeper) = workspace.capture().and_then(ChangeDetector::keeper) else { return };
    // The files may be in transition to another state.
    if workspace.is_blank() {
        return;
    }
    let last = session.head().and_then(|head| session.event(head));
    match last {
        Ok(last) => keeper.keep(&KeptAt { session: session.id(), seq: last.seq, time: last.time }),
        Err(error) => tracing::debug!(%error, "failed to persist the stat index"),
    }
}

/// Stops persisting the index, since changes on the disk could not be recorded.
pub(crate) fn distrust(workspace: &dyn Workspace) {
    if let Some(keeper) = workspace.capture().and_then(ChangeDetector::keeper) {
        keeper.distrust();
    }
}
