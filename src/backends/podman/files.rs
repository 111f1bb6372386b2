//! A sandbox's files: an overlay if one can be mounted, else a plain directory.

use super::paths::{self, Paths};
use crate::backends::BackendError;
use crate::backends::containers::{OverlayUse, PodmanOptions};
use crate::backends::disk::locked::OnDisk;
use crate::backends::disk::populate_marker::PopulateMarker;
use crate::backends::disk::{DirTree, OverlayDisk, OverlayOptions, PlainDisk, overlay};

/// Opens the files of a session. Also returns the populate marker.
pub(super) fn open(paths: &Paths, options: &PodmanOptions) -> Result<(OnDisk, PopulateMarker), BackendError> {
    let backend = options.engine.name();
    let failed = |error: std::io::Error| BackendError { backend, reason: error.to_string() };
    let owner = rustix::process::geteuid().is_root().then(|| paths::owner(options));
    let blank = |is_new| PopulateMarker::new(backend, paths.root.join("filling"), is_new);
    // An overlay is attached from outside, which needs root and an engine on this machine.
    let possible = || owner.is_some() && !paths.files.exists() && overlay::is_supported(&paths.layers);
    if options.overlay == OverlayUse::Auto && possible() {
        let options = OverlayOptions { owner, ..OverlayOptions::new(backend, paths.overlay.clone()) };
        let open = OverlayDisk::open(options.clone()).map_err(failed)?;
        let blank = blank(open.is_none());
        let disk = match open {
            Some(disk) => disk,
            None => {
                // First, so that a later process does not mistake an empty overlay for the session's files.
                blank.filling()?;
                OverlayDisk::create(options, |_| Ok(()))?
            }
        };
        return Ok((OnDisk::new(backend, Box::new(disk)), blank));
    }
    let blank = blank(!paths.files.exists());
    let aside = paths.root.join("aside");
    paths::directory(&paths.files, 0o755).map_err(failed)?;
    paths::directory(&aside, 0o700).map_err(failed)?;
    paths::give_away(&paths.files, paths::owner(options)).map_err(failed)?;
    let tree = DirTree::beneath(backend, &paths.files, &aside, owner).map_err(failed)?;
    let disk = PlainDisk::new(tree).map_err(failed)?;
    Ok((OnDisk::new(backend, Box::new(disk)), blank))
}
