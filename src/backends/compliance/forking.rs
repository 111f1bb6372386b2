//! Checks that a child has a workspace's files, and that neither sees the other's changes.

use std::sync::Arc;
use std::time::Duration;

use super::files::{FileRig, delete, file, link};
use super::rig::{CheckFinding, Fault, ensure, seen};
use crate::backends::{BackendError, Observed, Workspace};

/// The maximum number of scans until nothing is dirty any more, and the pause between two.
const LOOKS: (u32, Duration) = (200, Duration::from_millis(5));

/// Forks a workspace's files to a new session, and opens the workspace of that session. `None` if
/// [`Workspace::fork_to`] reports that it is not supported.
pub type Fork = Arc<dyn Fn(&dyn Workspace) -> Result<Option<Arc<dyn Workspace>>, BackendError> + Send + Sync>;

#[derive(Clone)]
pub(super) struct ForkRig {
    pub(super) files: FileRig,
    pub(super) fork: Fork,
}

impl ForkRig {
    async fn child(&self, of: &FileRig) -> CheckFinding<FileRig> {
        rest(of).await?;
        let fork = Arc::clone(&self.fork);
        match of.blocking(move |workspace| fork(workspace)).await? {
            Ok(Some(child)) => Ok(FileRig::new(child, of.means)),
            Ok(None) => Err(Fault::NotApplicable("its children are populated from their history".to_owned())),
            Err(error) => seen(format!("failed to fork its files: {error}")),
        }
    }
}

async fn rest(files: &FileRig) -> CheckFinding {
    for _ in 0..LOOKS.0 {
        let touched = files.dirty().await?;
        files.settle_only().await?;
        if touched.is_empty() {
            return Ok(());
        }
        tokio::time::sleep(LOOKS.1).await;
    }
    seen("every scan finds possible changes")
}

async fn close(child: FileRig) -> CheckFinding {
    child
        .blocking(|workspace| {
            workspace.close();
            Ok(())
        })
        .await?
        .or_else(|error| seen(error.to_string()))
}

pub(super) async fn files(rig: ForkRig) -> CheckFinding {
    let parent = &rig.files;
    parent.visible()?;
    let changes = vec![file("f/a", "a", false)?, file("f/x", "x", true)?, file("f/gone", "", false)?];
    parent.project(changes).await?;
    parent.project(vec![link("f/link", b"a")?, delete("f/gone")?]).await?;
    let child = rig.child(parent).await?;
    ensure(!child.workspace().is_blank(), || "the child's workspace is blank".to_owned())?;
    let touched = child.dirty().await?;
    ensure(touched.is_empty(), || format!("{touched:?} may differ in the child"))?;
    child.ensure_file("f/a", b"a", false).await?;
    child.ensure_file("f/x", b"x", true).await?;
    child.ensure_observed("f/link", Some(Observed::Symlink { target: b"a".to_vec() })).await?;
    child.ensure_observed("f/gone", None).await?;
    close(child).await
}

pub(super) async fn apart(rig: ForkRig) -> CheckFinding {
    let parent = &rig.files;
    parent.visible()?;
    parent.project(vec![file("g/a", "a", false)?, file("g/b", "b", false)?]).await?;
    let child = rig.child(parent).await?;
    child.project(vec![file("g/a", "child", false)?, delete("g/b")?]).await?;
    parent.ensure_file("g/a", b"a", false).await?;
    parent.ensure_file("g/b", b"b", false).await?;
    parent.project(vec![file("g/a", "parent", false)?, file("g/new", "new", false)?]).await?;
    child.ensure_file("g/a", b"child", false).await?;
    child.ensure_observed("g/new", None).await?;
    if parent.shell().is_ok() {
        child.sh("echo command > g/c && rm g/a").await?;
        parent.sh("test ! -e g/c && echo more >> g/a && echo x > g/d").await?;
        let seen = child.sh("cat g/c && ls g").await?;
        ensure(seen == "command\nc\n", || format!("the child's commands see {seen:?}"))?;
        parent.ensure_file("g/a", b"parentmore\n", false).await?;
    }
    close(child).await
}

pub(super) async fn nested(rig: ForkRig) -> CheckFinding {
    rig.files.visible()?;
    rig.files.project(vec![file("h/depth", "0", false)?, file("h/kept", "kept", false)?]).await?;
    let child = rig.child(&rig.files).await?;
    child.project(vec![file("h/depth", "1", false)?]).await?;
    let grandchild = rig.child(&child).await?;
    close(child).await?;
    grandchild.ensure_file("h/depth", b"1", false).await?;
    grandchild.ensure_file("h/kept", b"kept", false).await?;
    grandchild.project(vec![file("h/kept", "2", false)?]).await?;
    rig.files.ensure_file("h/kept", b"kept", false).await?;
    rig.files.ensure_file("h/depth", b"0", false).await?;
    close(grandchild).await
}
