//! The workspace, as used by the checks of files.

use std::io::Read;
use std::sync::Arc;

use bytes::Bytes;

use super::Means;
use super::rig::{CheckFinding, Fault, PLACE, Rig, ensure, path, seen};
use crate::backends::{BackendError, ChangeDetector, DirtyPath, FileChange, Observed, Workspace};
use crate::engine::event::{FileMode, Node};
use crate::engine::path::EntryPath;

#[derive(Clone)]
pub(super) struct FileRig {
    workspace: Arc<dyn Workspace>,
    pub(super) means: Means,
}

pub(super) fn at(name: &str) -> CheckFinding<EntryPath> {
    path(&format!("{PLACE}/{name}"))
}

pub(super) fn put(name: &str, node: Node, bytes: Bytes) -> CheckFinding<FileChange> {
    Ok(FileChange::Write { path: at(name)?, node, bytes, modified: None })
}

pub(super) fn file(name: &str, bytes: impl Into<Bytes>, executable: bool) -> CheckFinding<FileChange> {
    let bytes = bytes.into();
    put(name, Node::file(&bytes, executable), bytes)
}

pub(super) fn link(name: &str, target: &[u8]) -> CheckFinding<FileChange> {
    put(name, Node::Symlink { target: target.to_vec() }, Bytes::new())
}

pub(super) fn directory(name: &str) -> CheckFinding<FileChange> {
    put(name, Node::DIRECTORY, Bytes::new())
}

pub(super) fn delete(name: &str) -> CheckFinding<FileChange> {
    Ok(FileChange::Delete { path: at(name)? })
}

impl FileRig {
    pub(super) fn new(workspace: Arc<dyn Workspace>, means: Means) -> Self {
        Self { workspace, means }
    }

    pub(super) fn workspace(&self) -> &Arc<dyn Workspace> {
        &self.workspace
    }

    pub(super) fn visible(&self) -> CheckFinding {
        match self.workspace.capture() {
            Some(_) => Ok(()),
            None => Err(Fault::NotApplicable("its files are only in the journal".to_owned())),
        }
    }

    pub(super) fn shell(&self) -> CheckFinding<Rig> {
        match self.workspace.unrecorded_shell() {
            None => Err(Fault::NotApplicable("it has no shell".to_owned())),
            Some(shell) => {
                let rig = Rig::new(shell, self.means);
                rig.processes().map(|()| rig)
            }
        }
    }

    pub(super) async fn sh(&self, text: &str) -> CheckFinding<String> {
        self.shell()?.sh(&format!("mkdir -p {PLACE} && cd {PLACE} && {text}")).await
    }

    pub(super) async fn blocking<T: Send + 'static>(
        &self,
        work: impl FnOnce(&dyn Workspace) -> Result<T, BackendError> + Send + 'static,
    ) -> CheckFinding<Result<T, BackendError>> {
        let workspace = Arc::clone(&self.workspace);
        let done = tokio::task::spawn_blocking(move || work(&*workspace)).await;
        done.or_else(|error| seen(format!("it panicked: {error}")))
    }

    async fn looking<T: Send + 'static>(
        &self,
        action: &str,
        work: impl FnOnce(&dyn ChangeDetector) -> Result<T, BackendError> + Send + 'static,
    ) -> CheckFinding<T> {
        self.visible()?;
        let looked = self.blocking(move |workspace| workspace.capture().map(work).transpose()).await?;
        match looked {
            Ok(Some(found)) => Ok(found),
            Ok(None) => seen("its capture is gone"),
            Err(error) => seen(format!("{action}: {error}")),
        }
    }

    pub(super) async fn project(&self, changes: Vec<FileChange>) -> CheckFinding {
        let projected = self.blocking(move |workspace| workspace.apply(&changes)).await?;
        projected.or_else(|error| seen(format!("changes failed: {error}")))
    }

    pub(super) async fn refuse(&self, what: &str, changes: Vec<FileChange>) -> CheckFinding {
        let projected = self.blocking(move |workspace| workspace.apply(&changes)).await?;
        ensure(projected.is_err(), || format!("{what} was not an error"))
    }

    pub(super) async fn dirty(&self) -> CheckFinding<Vec<DirtyPath>> {
        self.looking("scanning for changes", |disk| disk.dirty()).await
    }

    pub(super) async fn mark_clean(&self) -> CheckFinding {
        self.dirty().await?;
        self.settle_only().await
    }

    pub(super) async fn settle_only(&self) -> CheckFinding {
        self.looking("settling", |disk| disk.mark_clean()).await
    }

    pub(super) async fn observe(&self, path: EntryPath) -> CheckFinding<Option<Observed>> {
        self.looking("reading an entry", move |disk| disk.observe(&path)).await
    }

    pub(super) async fn below(&self, path: EntryPath) -> CheckFinding<Vec<(EntryPath, Observed)>> {
        let mut below = self.looking("listing a directory", move |disk| disk.below(&path)).await?;
        below.entries.sort_by(|a, b| a.0.cmp(&b.0));
        Ok(below.entries)
    }

    /// Reads a file; if it can't be opened or read, returns the reason.
    pub(super) async fn read(&self, path: EntryPath) -> CheckFinding<Result<Vec<u8>, String>> {
        self.looking("reading", move |disk| {
            let mut bytes = Vec::new();
            let read = disk.open(&path).map_err(|error| error.to_string()).and_then(|file| {
                let mut file = file.ok_or_else(|| "it may not be read".to_owned())?;
                let read = file.read_to_end(&mut bytes).map(drop);
                read.map_err(|error| error.to_string())
            });
            Ok(read.map(|()| bytes))
        })
        .await
    }

    pub(super) async fn ensure_file(&self, name: &str, bytes: &[u8], executable: bool) -> CheckFinding {
        let expected = Observed::File { size: bytes.len() as u64, mode: FileMode::usual(executable), shared: None };
        self.ensure_observed(name, Some(expected)).await?;
        match self.read(at(name)?).await? {
            Ok(read) => ensure(read == bytes, || {
                let show = |bytes: &[u8]| super::rig::short(&String::from_utf8_lossy(bytes));
                format!("{name} has {:?} instead of {:?}", show(&read), show(bytes))
            }),
            Err(error) => seen(format!("{name} can't be read: {error}")),
        }
    }

    pub(super) async fn ensure_observed(&self, name: &str, expected: Option<Observed>) -> CheckFinding {
        let found = self.observe(at(name)?).await?;
        ensure(found == expected, || format!("{name} is {found:?} instead of {expected:?}"))
    }

    pub(super) async fn clear(&self) {
        if let Ok(path) = path(PLACE) {
            // Remains show up in the checks.
            drop(self.project(vec![FileChange::Delete { path }]).await);
        }
        if let Ok(rig) = self.shell() {
            rig.clear().await;
        }
    }
}
