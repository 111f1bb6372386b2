//! A copy of a session's files in layers, which its forks in mounts share: the session's own directory can change.

use std::path::Path;
use std::sync::{Arc, Mutex};

use crate::backends::{Workspace, WorkspaceSpec};
use crate::engine::id::{Seq, SessionId};
use crate::engine::lock::lock;
use crate::engine::session::Session;
use crate::reducers::VirtualFileSystem;
use crate::tools::error::WorkspaceError;
use crate::tools::workspace::plan::{ChangePlan, NewContents};
use crate::tools::workspace::populate::fill;
use crate::tools::workspace::project::project;

/// The copy, and the position that it is at. The first fork of a process makes it; later ones change it.
#[derive(Default)]
struct ForkBase(Mutex<Option<(Seq, Arc<dyn Workspace>)>>);

/// Shares a session's files at a position with a fork in a mount. Returns false if that is impossible.
pub(super) fn share_copy(session: &Session, fork: SessionId, at: Seq, home: &Path) -> Result<bool, WorkspaceError> {
    let base = session.extension::<ForkBase>();
    let mut known = lock(&base.0);
    let wanted = VirtualFileSystem::of(&session.state_at(at)?);
    // After an error the next fork makes it again.
    let workspace = match known.take() {
        Some((from, workspace)) => changed(session, workspace, from, &wanted)?,
        None => None,
    };
    let workspace = match workspace {
        Some(workspace) => workspace,
        None => {
            let workspace = WorkspaceSpec::open_base(session.id(), home)?;
            fill(session, &wanted, workspace.as_ref())?;
            workspace
        }
    };
    if let Some(files) = workspace.capture() {
        files.adopt()?;
    }
    workspace.filled()?;
    let is_shared = workspace.fork_to(fork)?;
    *known = Some((at, workspace));
    Ok(is_shared)
}

/// Changes the copy to other files; `None` if it has files that can't be restored.
fn changed(
    session: &Session,
    workspace: Arc<dyn Workspace>,
    from: Seq,
    wanted: &VirtualFileSystem,
) -> Result<Option<Arc<dyn Workspace>>, WorkspaceError> {
    let plan = ChangePlan::between(&VirtualFileSystem::of(&session.state_at(from)?), wanted);
    if !plan.left.is_empty() {
        return Ok(None);
    }
    project(session, workspace.as_ref(), &plan.steps, &NewContents::new(), &mut 0)?;
    Ok(Some(workspace))
}
