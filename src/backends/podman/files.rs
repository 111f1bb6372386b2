//! A sandbox's files: an overlay where one can be mounted, else a plain directory.

use super::NAME;
use super::engine::{USER, WORKSPACE};
use super::paths::{self, Paths};
use crate::backends::BackendError;
use crate::backends::containers::OverlayUse;
use crate::backends::disk::locked::OnDisk;
use crate::backends::disk::populate_marker::PopulateMarker;
use crate::backends::disk::{DirTree, OverlayDisk, OverlayOptions, PlainDisk, SealError, overlay};

pub(crate) struct Files {
    pub(super) disk: OnDisk,
    /// Set if what changes lies in a small upper layer. Else it is found by looking at everything.
    is_overlay: bool,
}

impl Files {
    /// The files of a session, and whether they are still to be filled.
    pub(super) fn open(paths: &Paths, overlay: OverlayUse) -> Result<(Self, PopulateMarker), BackendError> {
        let failed = |error: std::io::Error| BackendError { backend: NAME, reason: error.to_string() };
        let owner = rustix::process::geteuid().is_root().then_some(USER);
        let blank = |is_new| PopulateMarker::new(NAME, paths.root.join("filling"), is_new);
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
            return Ok((Self { disk: OnDisk::new(NAME, Box::new(disk)), is_overlay: true }, blank));
        }
        let blank = blank(!paths.files.exists());
        let aside = paths.root.join("aside");
        paths::directory(&paths.files, 0o755).map_err(failed)?;
        paths::directory(&aside, 0o700).map_err(failed)?;
        paths.give_away(&paths.files).map_err(failed)?;
        let tree = DirTree::beneath(NAME, &paths.files, &aside, owner).map_err(failed)?;
        let disk = PlainDisk::new(tree).map_err(failed)?;
        Ok((Self { disk: OnDisk::new(NAME, Box::new(disk)), is_overlay: false }, blank))
    }

    pub(crate) fn is_overlay(&self) -> bool {
        self.is_overlay
    }

    /// Shares the files with the session of that name, which has none yet. Gives false where they can't be shared.
    pub(crate) fn share(&self, name: &str) -> Result<bool, SealError> {
        self.disk.lock().share(name)
    }

    pub(crate) fn attach(&self, pid: i32) -> std::io::Result<()> {
        self.disk.lock().attach(pid, std::path::Path::new(WORKSPACE))
    }

    pub(crate) fn detach(&self, pid: i32) {
        if let Err(error) = self.disk.lock().detach(pid) {
            tracing::debug!(%error, "a container was gone before its files were taken away");
        }
    }

    /// Seals what has changed, when it is much. Gives false when the container does not show the files any more.
    pub(crate) fn tidy(&self) -> bool {
        let sealed = self.disk.lock().seal_if_large();
        if let Err(error) = &sealed {
            tracing::warn!(%error, "the workspace could not get a new layer");
        }
        !matches!(sealed, Err(SealError::Misplaced(_)))
    }
}
