//! The host backend with its files in an overlay that is mounted at their directory: forks share layers, and only
//! changed files are scanned.

use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use rustix::fs::{OFlags, stat};
use rustix::io::Errno;
use rustix::mount::{UnmountFlags, unmount};
use rustix::process::{geteuid, getpid};

use super::command_options::CommandOptions;
use super::commands::{CommandHost, RunnerShell};
use super::disk::locked::OnDisk;
use super::disk::populate_marker::PopulateMarker;
use super::disk::{
    OverlayDir, OverlayDisk, OverlayOptions, SealError, entries_in, lock_file, make_private, overlay, umask,
};
use super::host::{HostPlace, NAME, host_shell};
use super::{BackendError, ChangeDetector, FileChange, HostOptions, MachineNews, Shell, Workspace};
use crate::engine::id::SessionId;
use crate::engine::path::EntryPath;

/// The directory of the layer list in a session's directory.
const LAYERS: &str = "overlay";
const FILES: &str = "files";
/// The ending of the name of a copy for forks.
const BASE: &str = ".base";
const FILLING: &str = "filling";
const LOCK: &str = "lock";
/// Limit for mounts that killed processes left on a directory.
const LEFT_MAX: usize = 64;

/// A host workspace in an overlay mount, which exists as long as this value.
pub(super) struct LayeredWorkspace {
    disk: Arc<OnDisk>,
    place: Arc<HostPlace>,
    shell: Option<Arc<RunnerShell<HostPlace>>>,
    marker: PopulateMarker,
    overlay: OverlayDir,
    directory: PathBuf,
    /// Locked while the workspace is open.
    _lock: File,
}

impl LayeredWorkspace {
    /// Opens the files of a session below `all`, the directory of all workspaces.
    pub(super) fn open(all: &Path, session: SessionId, options: &HostOptions) -> Result<Self, BackendError> {
        Self::open_named(all, &session.to_string(), options)
    }

    /// Opens an empty copy of a session's files, for its forks; removes an earlier process's.
    pub(super) fn open_base(all: &Path, session: SessionId) -> Result<Self, BackendError> {
        Self::remove_base(all, session).map_err(|error| BackendError { backend: NAME, reason: error.to_string() })?;
        Self::open_named(all, &base_of(session), &HostOptions { files_only: true, ..HostOptions::default() })
    }

    fn open_named(all: &Path, name: &str, options: &HostOptions) -> Result<Self, BackendError> {
        let failed = |error: io::Error| BackendError { backend: NAME, reason: error.to_string() };
        make_private(all).map_err(failed)?;
        // Mounts are found by paths without links.
        let overlay = dir_of(&all.canonicalize().map_err(failed)?, name);
        // A disk that is full since the last time fails the check, too.
        if !overlay.has_manifest() {
            check_machine(all)?;
        }
        let lock = hold(&overlay).map_err(failed)?;
        let directory = overlay.home().join(FILES);
        make_private(&directory).map_err(failed)?;
        take_off(&directory).map_err(failed)?;
        let layers = OverlayOptions::new(NAME, overlay.clone());
        let opened = OverlayDisk::open(layers.clone()).map_err(failed)?;
        let marker = PopulateMarker::new(NAME, overlay.home().join(FILLING), opened.is_none());
        let disk = match opened {
            Some(disk) => disk,
            None => {
                // Before the overlay exists: a later process must not mistake an empty overlay for the session's
                // files.
                marker.filling()?;
                OverlayDisk::create(layers, |_| Ok(()))?
            }
        };
        let disk = Arc::new(OnDisk::new(NAME, Box::new(disk)));
        disk.lock().attach(getpid().as_raw_nonzero().get(), &directory).map_err(failed)?;
        let place = Arc::new(HostPlace::new(directory.clone(), options.commands.clone(), None));
        let mounted = Arc::clone(&disk);
        place.check_files(move || mounted.lock().is_seen());
        let shell = (!options.files_only).then(|| Arc::new(host_shell(Arc::clone(&place))));
        Ok(Self { disk, place, shell, marker, overlay, directory, _lock: lock })
    }

    /// Removes the files of a session, except layers that other sessions share.
    pub(super) fn remove(all: &Path, session: SessionId) -> io::Result<()> {
        Self::remove_named(all, &session.to_string())
    }

    /// Removes the copy of a session's files, except layers that its forks share.
    pub(super) fn remove_base(all: &Path, session: SessionId) -> io::Result<()> {
        Self::remove_named(all, &base_of(session))
    }

    /// Unmounts what killed processes left in workspaces that no process has open, and removes unneeded layers.
    pub(super) fn sweep(all: &Path) -> io::Result<()> {
        for entry in entries_in(all)? {
            let files = entry.path().join(FILES);
            // Locked so that nothing opens it meanwhile.
            if let Some(_held) = lock_file(&entry.path().join(LOCK), OFlags::empty())? {
                take_off(&files)?;
                // The copy is made anew by the next fork.
                if let Some(name) = entry.file_name().to_str().filter(|name| name.ends_with(BASE)) {
                    dir_of(all, name).remove_held()?;
                }
            }
        }
        OverlayDir::sweep(all, LAYERS)
    }

    fn remove_named(all: &Path, name: &str) -> io::Result<()> {
        let overlay = dir_of(all, name);
        if !overlay.home().exists() {
            return Ok(());
        }
        take_off(&overlay.home().join(FILES))?;
        overlay.remove()
    }

    /// Refuses further commands: they would change files that no scan visits.
    fn misplaced(&self, error: &io::Error) {
        tracing::error!(%error, directory = %self.directory.display(), "failed to mount the workspace again");
        self.place.end(format!("failed to mount its files again ({error}); close the session and open it again"));
    }

    fn seal(&self, sealed: Result<bool, SealError>) -> Result<bool, BackendError> {
        if let Err(SealError::Misplaced(error)) = &sealed {
            self.misplaced(error);
        }
        sealed.map_err(|error| BackendError { backend: NAME, reason: error.to_string() })
    }
}

fn check_machine(all: &Path) -> Result<(), BackendError> {
    let refused = |reason: String| Err(BackendError { backend: NAME, reason });
    if !geteuid().is_root() {
        return refused("only root can mount a workspace; use the backend host".to_owned());
    }
    if overlay::is_supported(all) {
        return Ok(());
    }
    let why = overlay::supported(all).err().unwrap_or_default();
    refused(format!("this machine can't mount a workspace ({why}); use the backend host"))
}

fn dir_of(all: &Path, name: &str) -> OverlayDir {
    OverlayDir::new(all, name, LAYERS)
}

fn base_of(session: SessionId) -> String {
    format!("{session}{BASE}")
}

fn hold(overlay: &OverlayDir) -> io::Result<File> {
    overlay.hold()?.ok_or_else(|| {
        let words = format!("{} is open in another process; close it there first", overlay.home().display());
        io::Error::new(io::ErrorKind::ResourceBusy, words)
    })
}

/// Unmounts mounts that killed processes left on a directory.
pub(super) fn take_off(directory: &Path) -> io::Result<()> {
    let Some(above) = directory.parent() else { return Ok(()) };
    for _ in 0..LEFT_MAX {
        match (stat(directory), stat(above)) {
            (Ok(here), Ok(above)) if here.st_dev != above.st_dev => {
                unmount(directory, UnmountFlags::DETACH | UnmountFlags::NOFOLLOW)?;
            }
            (Err(Errno::NOENT), _) | (Ok(_), Ok(_)) => return Ok(()),
            (Err(error), _) | (_, Err(error)) => return Err(error.into()),
        }
    }
    Err(io::Error::other(format!("too many mounts at {}", directory.display())))
}

impl Workspace for LayeredWorkspace {
    fn backend_name(&self) -> &'static str {
        NAME
    }

    fn apply(&self, changes: &[FileChange]) -> Result<(), BackendError> {
        self.disk.apply(changes)
    }

    fn populate(&self, changes: &[FileChange]) -> Result<(), BackendError> {
        self.disk.populate(changes)
    }

    fn join_names(&self, names: &dyn Fn() -> Vec<Vec<EntryPath>>) -> Result<(), BackendError> {
        if self.place.is_unused() { self.disk.lock().join_names(names) } else { Ok(()) }
    }

    fn umask(&self) -> u32 {
        umask()
    }

    fn unrecorded_shell(&self) -> Option<Arc<dyn Shell>> {
        self.shell.clone().map(|shell| shell as Arc<dyn Shell>)
    }

    fn capture(&self) -> Option<&dyn ChangeDetector> {
        Some(&*self.disk)
    }

    fn marker(&self) -> Option<&PopulateMarker> {
        Some(&self.marker)
    }

    fn fork_to(&self, child: SessionId) -> Result<bool, BackendError> {
        let child = self.overlay.sibling(&child.to_string());
        if self.marker.is_blank() || !self.place.is_unused() {
            return Ok(false);
        }
        let _held = hold(&child).map_err(|error| BackendError { backend: NAME, reason: error.to_string() })?;
        let shared = self.disk.lock().share(child.name());
        self.seal(shared)
    }

    fn news(&self) -> Vec<MachineNews> {
        // The files may be mounted again only while no command runs.
        if self.place.is_unused() {
            let sealed = self.disk.lock().seal_if_large();
            if let Err(error) = self.seal(sealed.map(|()| true)) {
                tracing::warn!(%error, "failed to add a layer to the workspace");
            }
        }
        Vec::new()
    }

    fn command_options(&self) -> CommandOptions {
        self.place.options().clone()
    }

    fn root(&self) -> Option<String> {
        Some(self.directory.to_string_lossy().into_owned())
    }

    fn description(&self) -> String {
        let shown = self.directory.display();
        format!("Commands run in {shown} on the host itself. They are not sandboxed.")
    }

    fn close(&self) {
        self.place.close();
    }
}

impl Drop for LayeredWorkspace {
    fn drop(&mut self) {
        self.place.close();
        if let Err(error) = self.disk.lock().detach(getpid().as_raw_nonzero().get()) {
            tracing::warn!(%error, directory = %self.directory.display(), "failed to unmount a workspace");
        }
    }
}

crate::engine::debug_by!(LayeredWorkspace, |workspace| directory: workspace.directory);
