//! A sandbox's files: an overlay where one can be mounted, else a plain directory.

use std::io::Read;

use super::NAME;
use super::engine::{USER, WORKSPACE};
use super::options::OverlayUse;
use super::paths::{self, Paths};
use crate::backends::disk::locked::OnDisk;
use crate::backends::disk::populate_marker::Blank;
use crate::backends::disk::{DirTree, OverlayDisk, OverlayOptions, PlainDisk, SealError, overlay};
use crate::backends::{BackendError, Below, ChangeDetector, DirtyPath, FileChange, Observed};
use crate::engine::path::EntryPath;

/// The files of a session with a container.
pub(crate) enum Files {
    /// What changes lies in a small upper layer.
    Overlay(OnDisk<OverlayDisk>),
    /// What changes is found by looking at everything.
    Plain(OnDisk<PlainDisk>),
}

impl Files {
    /// The files of a session, and whether they are still to be filled.
    pub(super) fn open(paths: &Paths, overlay: OverlayUse) -> Result<(Self, Blank), BackendError> {
        let failed = |error: std::io::Error| BackendError { backend: NAME, reason: error.to_string() };
        let owner = rustix::process::geteuid().is_root().then_some(USER);
        let blank = |is_new| Blank::new(NAME, paths.root.join("filling"), is_new);
        // An overlay is attached from outside, which takes root and an engine of this machine.
        let possible = || owner.is_some() && !paths.files.exists() && overlay::is_supported(&paths.layers);
        if overlay == OverlayUse::Auto && possible() {
            let options = OverlayOptions { owner, ..OverlayOptions::new(NAME, paths.overlay.clone()) };
            let open = OverlayDisk::open(options.clone()).map_err(failed)?;
            let blank = blank(open.is_none());
            let disk = match open {
                Some(disk) => disk,
                None => {
                    // Before there is an overlay, which a later process would take for the session's files.
                    blank.filling()?;
                    OverlayDisk::create(options, |_| Ok(()))?
                }
            };
            return Ok((Self::Overlay(OnDisk::new(NAME, Box::new(disk))), blank));
        }
        let blank = blank(!paths.files.exists());
        let aside = paths.root.join("aside");
        paths::directory(&paths.files, 0o755).map_err(failed)?;
        paths::directory(&aside, 0o700).map_err(failed)?;
        paths.give_away(&paths.files).map_err(failed)?;
        let tree = DirTree::beneath(NAME, &paths.files, &aside, owner).map_err(failed)?;
        let disk = PlainDisk::new(tree).map_err(failed)?;
        Ok((Self::Plain(OnDisk::new(NAME, Box::new(disk))), blank))
    }

    pub(crate) fn is_overlay(&self) -> bool {
        matches!(self, Self::Overlay(_))
    }

    /// Shares the files with the session of that name, which has none yet. Gives false where they can't be shared.
    pub(crate) fn share(&self, name: &str) -> Result<bool, SealError> {
        match self {
            Self::Overlay(disk) => disk.lock().share(name),
            Self::Plain(_) => Ok(false),
        }
    }

    pub(crate) fn project(&self, changes: &[FileChange]) -> Result<(), BackendError> {
        match self {
            Self::Overlay(disk) => disk.project(changes),
            Self::Plain(disk) => disk.project(changes),
        }
    }

    pub(crate) fn lay_out(&self, changes: &[FileChange]) -> Result<(), BackendError> {
        match self {
            Self::Overlay(disk) => disk.lay_out(changes),
            Self::Plain(disk) => disk.lay_out(changes),
        }
    }

    /// Shows the files in a container that has just been started. A plain directory is there already.
    pub(crate) fn attach(&self, pid: i32) -> std::io::Result<()> {
        match self {
            Self::Overlay(disk) => disk.lock().attach(pid, std::path::Path::new(WORKSPACE)),
            Self::Plain(_) => Ok(()),
        }
    }

    /// Forgets a container; its mounts went with it.
    pub(crate) fn detach(&self, pid: i32) {
        if let Self::Overlay(disk) = self
            && let Err(error) = disk.lock().detach(pid)
        {
            tracing::debug!(%error, "a container was gone before its files were taken away");
        }
    }

    /// Makes what has changed so far a layer of its own, when it is much. Gives false when the container
    /// does not show the files any more.
    pub(crate) fn tidy(&self) -> bool {
        match self {
            Self::Plain(_) => true,
            Self::Overlay(disk) => match disk.lock().seal_if_large() {
                Ok(_) => true,
                Err(error) => {
                    tracing::warn!(%error, "the workspace could not get a new layer");
                    !matches!(error, SealError::Misplaced(_))
                }
            },
        }
    }

    fn inner(&self) -> &dyn ChangeDetector {
        match self {
            Self::Overlay(disk) => disk,
            Self::Plain(disk) => disk,
        }
    }
}

impl ChangeDetector for Files {
    fn touched(&self) -> Result<Vec<DirtyPath>, BackendError> {
        self.inner().touched()
    }

    fn is_quick(&self) -> bool {
        self.is_overlay()
    }

    fn settle(&self) -> Result<(), BackendError> {
        self.inner().settle()
    }

    fn adopt(&self) -> Result<(), BackendError> {
        self.inner().adopt()
    }

    fn observe(&self, path: &EntryPath) -> Result<Option<Observed>, BackendError> {
        self.inner().observe(path)
    }

    fn below(&self, path: &EntryPath) -> Result<Below, BackendError> {
        self.inner().below(path)
    }

    fn open(&self, path: &EntryPath) -> Result<Option<Box<dyn Read + Send>>, BackendError> {
        self.inner().open(path)
    }
}
