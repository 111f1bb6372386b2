//! Workspace roots that commands of a session saw.

use std::ops::ControlFlow;
use std::path::Path;

use crate::backends::{HostOptions, WorkspaceSpec};
use crate::engine::event::SessionStarted;
use crate::engine::id::SessionId;
use crate::engine::session::Session;
use crate::engine::session::error::SessionError;

/// Returns the workspace roots that the session's commands saw; for a fork, its ancestors' roots, too.
pub fn roots_of(session: &Session, home: &Path) -> Result<Vec<String>, SessionError> {
    let own_from = session.origin().map_or(0, |origin| origin.at);
    let mut started = Vec::new();
    session.visit(1, &mut |event| {
        started.extend(event.decoded::<SessionStarted>());
        if event.seq > own_from { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
    })?;
    // Each child names its parent, which began before it.
    let children = started.iter().skip(1).map(|started| started.origin.as_ref().map(|origin| origin.parent));
    let ids = children.chain([Some(session.id())]);
    let roots = started.iter().zip(ids).filter_map(|(started, id)| root_of(home, started, id?));
    Ok(roots.collect())
}

fn root_of(home: &Path, started: &SessionStarted, id: SessionId) -> Option<String> {
    match WorkspaceSpec::of_session(started).ok()? {
        WorkspaceSpec::Host(HostOptions { directory, .. }) => {
            let directory = directory.unwrap_or_else(|| WorkspaceSpec::directory(id, home));
            let known = directory.canonicalize().or_else(|_| std::path::absolute(&directory));
            known.ok().map(|directory| directory.to_string_lossy().into_owned())
        }
        WorkspaceSpec::Podman(_) => Some("/workspace".to_owned()),
        WorkspaceSpec::Memory | WorkspaceSpec::Mock(_) => None,
    }
}
