//! A session's files in an overlay that is mounted on first use.

use std::io;
use std::os::fd::AsFd;
use std::path::Path;
use std::sync::OnceLock;
use std::thread::JoinHandle;

use rustix::fs::{Gid, Mode, OFlags, Uid, fchmod, fchown};
use rustix::io::Errno;

use super::attach::MountPoint;
use super::flatten::flatten;
use super::manifest::{LayerId, Manifest, own_number};
use super::mount::{Notes, freeze, thaw};
use super::mounted::Mounted;
use super::overlay_dir::{OverlayDir, WORK};
use super::pool::{ASIDE, Layer, TREE, subdirectory};
use crate::backends::disk::beneath::{failed, open_in};
use crate::backends::disk::file_stat::{FileTime, MadeStat};
use crate::backends::disk::index::StatIndex;
use crate::backends::disk::left_out::LeftOut;
use crate::backends::disk::pending_scan::{KnownFiles, ScannedFiles};
use crate::backends::disk::remove::remove_path;
use crate::backends::disk::scan::{ScanOutcome, scan};
use crate::backends::disk::tree::DirTree;
use crate::backends::disk::workspace_disk::{SealError, WorkspaceDisk};
use crate::backends::{BackendError, DirtyPath, FileChange, Observed};
use crate::engine::path::EntryPath;

/// Limits of copying files up to join their names: number of names besides the first ones, and bytes of the files.
const JOINED_MAX: usize = 1024;
const JOINED_BYTES_MAX: u64 = 64 << 20;

#[derive(Debug, Clone)]
pub(crate) struct OverlayOptions {
    pub(crate) backend: &'static str,
    pub(crate) dir: OverlayDir,
    /// The user and group of the entries made through [`DirTree`].
    pub(crate) owner: Option<(u32, u32)>,
    pub(crate) seal_above: usize,
    /// The maximum number of layers before they are merged. The kernel's limit is 500.
    pub(crate) flatten_above: usize,
}

impl OverlayOptions {
    pub(crate) fn new(backend: &'static str, dir: OverlayDir) -> Self {
        Self { backend, dir, owner: None, seal_above: 64, flatten_above: 50 }
    }
}

/// An overlay, mounted only for this process and where it was attached. A fork has only its manifest until its first
/// use. Nothing is synced: after a crash of the machine the journal populates it again.
#[derive(Debug)]
pub(crate) struct OverlayDisk {
    pub(in crate::backends::disk) options: OverlayOptions,
    /// The layers below the upper one, the lowest first.
    lower: Vec<LayerId>,
    /// An earlier process's upper layer, removed when it is no longer in the manifest.
    empty: Option<LayerId>,
    mounted: OnceLock<Mounted>,
    /// Files of the upper layer. The dirty paths of sealed layers are carried.
    known: KnownFiles,
    pub(in crate::backends::disk) places: Vec<MountPoint>,
    /// Removes unneeded layers.
    removing: Option<JoinHandle<()>>,
    /// The maximum number of entries that are in the upper layer only to join names; `None` before joining was tried.
    joined: Option<usize>,
}

struct Replaced {
    dir: OverlayDir,
    mounted: Option<Mounted>,
    layers: Vec<LayerId>,
}

impl OverlayDisk {
    /// Creates an overlay. `fill` writes the first files, which are known, into the lowest layer, not mounted yet.
    pub(crate) fn create(
        options: OverlayOptions,
        fill: impl FnOnce(&DirTree) -> Result<(), BackendError>,
    ) -> Result<Self, BackendError> {
        let backend = options.backend;
        let failed = |error: io::Error| BackendError { backend, reason: error.to_string() };
        let dir = &options.dir;
        dir.make().map_err(failed)?;
        let before = dir.reset().map_err(failed)?;
        let pool = dir.pool().map_err(failed)?;
        let kept = pool.keep().map_err(failed)?;
        let from = before.iter().filter_map(|id| own_number(id, dir.name())).max().map_or(0, |last| last + 1);
        let notes = Notes::on(dir.make().map_err(failed)?.as_fd());
        let base = pool.add(dir.name(), from, notes).map_err(failed)?;
        let filled = base_tree(&options, &base, pool.path_of(&base.id)).map_err(failed).and_then(|tree| fill(&tree));
        let manifest = Manifest { layers: vec![base.id.clone()], dirty: None };
        let made = filled.and_then(|()| dir.commit(&manifest).map_err(failed));
        made.inspect_err(|_| pool.discard(&base.id))?;
        drop(kept);
        if !before.is_empty() {
            dir.collect(Some(&before)).map_err(failed)?;
        }
        Ok(Self::of(options, vec![base.id], Vec::new()))
    }

    /// Opens an overlay: an earlier process's, all dirty, or a fork, as dirty as its parent was. `None` if it is
    /// missing or from an earlier boot: its disk may then be incomplete.
    pub(crate) fn open(options: OverlayOptions) -> io::Result<Option<Self>> {
        let dir = &options.dir;
        let Some(manifest) = dir.manifest()? else { return Ok(None) };
        remove_path(&dir.root().join(WORK))?;
        let pool = dir.pool()?;
        let (mut lower, mut empty) = (Vec::new(), None);
        for id in &manifest.layers {
            let layer = pool.layer(id)?;
            let files = layer.map(|layer| open_in(&layer, TREE, OFlags::RDONLY | OFlags::DIRECTORY).map(drop));
            match files {
                Some(Ok(())) => lower.push(id.clone()),
                // Nothing was changed in it. As the upper layer, it is in no other overlay.
                Some(Err(Errno::NOENT)) if !lower.is_empty() => {
                    let is_upper = manifest.dirty.is_none() && Some(id) == manifest.layers.last();
                    empty = is_upper.then(|| id.clone());
                }
                None | Some(Err(Errno::NOENT)) => {
                    tracing::warn!(id, "a layer is gone; populating the files again");
                    return Ok(None);
                }
                Some(Err(error)) => return Err(failed("open", &pool.path_of(id))(error)),
            }
        }
        if lower.is_empty() {
            return Ok(None);
        }
        let carried = manifest.dirty.unwrap_or_else(|| vec![DirtyPath::Subtree(EntryPath::root())]);
        let mut disk = Self::of(options, lower, carried);
        disk.empty = empty;
        // Each process adds a layer.
        if disk.is_many(disk.lower.len())
            && let Err(error) = disk.seal()
        {
            tracing::warn!(%error, "failed to merge the layers");
        }
        Ok(Some(disk))
    }

    fn of(options: OverlayOptions, lower: Vec<LayerId>, carried: Vec<DirtyPath>) -> Self {
        let known = KnownFiles { carried, ..KnownFiles::default() };
        let (mounted, places) = (OnceLock::new(), Vec::new());
        Self { options, lower, empty: None, mounted, known, places, removing: None, joined: None }
    }

    fn mount_above(&self, lower: &[LayerId]) -> io::Result<Mounted> {
        Mounted::new(&self.options.dir, lower, self.options.backend, self.options.owner)
    }

    pub(super) fn mounted(&self) -> io::Result<&Mounted> {
        if let Some(mounted) = self.mounted.get() {
            return Ok(mounted);
        }
        let mounted = self.mount_above(&self.lower)?;
        if let Some(empty) = &self.empty {
            self.options.dir.pool()?.discard(empty);
        }
        Ok(self.mounted.get_or_init(|| mounted))
    }

    /// Makes the upper layer a lower one, and merges the layers if there are many. No command may run at the same time.
    pub(crate) fn seal(&mut self) -> Result<(), SealError> {
        let (replaced, placed) = self.put_layer_on()?;
        replaced.remove();
        placed.map_err(SealError::Misplaced)
    }

    /// Seals the upper layer. Returns the unneeded layers, and the result of attaching the files again.
    fn put_layer_on(&mut self) -> io::Result<(Replaced, io::Result<()>)> {
        self.wait_for_removal();
        // A process that still uses the old mount would write into a layer that others share.
        freeze(&self.mounted()?.mount)?;
        let put_on = self.put_frozen_layer_on();
        if put_on.is_err()
            && let Some(mounted) = self.mounted.get()
        {
            thaw(&mounted.mount);
        }
        put_on
    }

    fn put_frozen_layer_on(&mut self) -> io::Result<(Replaced, io::Result<()>)> {
        let old = self.mounted()?;
        let (mut lower, mut layers) = (self.lower.clone(), Vec::new());
        let is_changed = old.changed()?.is_some();
        if is_changed {
            lower.push(old.upper.id.clone())
        } else {
            layers.push(old.upper.id.clone())
        }
        // Until the manifest has the new layers.
        let _kept = self.options.dir.pool()?.keep()?;
        if self.is_many(lower.len()) {
            match self.flattened(old, &lower) {
                Ok(one) => layers.append(&mut std::mem::replace(&mut lower, vec![one])),
                Err(error) => tracing::warn!(%error, "failed to merge the layers"),
            }
        }
        let mounted = self.mount_above(&lower)?;
        let placed = self.place_again(&mounted);
        // From here on no process writes to the old layer.
        let late = self.look().map_or_else(|_| vec![DirtyPath::Subtree(EntryPath::root())], |look| look.touched);
        let mut carried = std::mem::take(&mut self.known).carried;
        carried.extend(late);
        (self.known.carried, self.lower, self.joined) = (carried, lower, None);
        let mounted = self.mounted.take().filter(|_| self.mounted.set(mounted).is_ok());
        Ok((Replaced { dir: self.options.dir.clone(), mounted, layers }, placed))
    }

    /// Merges these layers, including the upper one.
    fn flattened(&self, mounted: &Mounted, layers: &[LayerId]) -> io::Result<LayerId> {
        let dir = &self.options.dir;
        let pool = dir.pool()?;
        let last = layers.iter().chain([&mounted.upper.id]).filter_map(|id| own_number(id, dir.name())).max();
        let made = pool.add(dir.name(), last.map_or(0, |last| last + 1), mounted.notes)?;
        let tree = subdirectory(&made.directory, TREE).map_err(failed("create", &pool.path_of(&made.id)))?;
        flatten(&mounted.tree, &tree).inspect_err(|_| pool.discard(&made.id))?;
        Ok(made.id)
    }

    fn is_many(&self, layers: usize) -> bool {
        layers > self.options.flatten_above.max(2)
    }

    fn wait_for_removal(&mut self) {
        if let Some(removing) = self.removing.take() {
            drop(removing.join());
        }
    }

    fn place_again(&mut self, mounted: &Mounted) -> io::Result<()> {
        let mut outcome = Ok(());
        self.places.retain_mut(|place| match place.replace(mounted.mount.as_fd(), TREE) {
            Ok(there) => there,
            Err(error) => {
                outcome = Err(error);
                false
            }
        });
        outcome
    }

    fn look(&self) -> io::Result<ScanOutcome> {
        if let Some(mounted) = self.mounted.get()
            && let Some(upper) = mounted.changed()?
        {
            return scan(upper, &self.known.index, mounted.notes.forms(), &LeftOut::default());
        }
        Ok(ScanOutcome { index: StatIndex::default(), touched: Vec::new(), started: FileTime::now() })
    }

    fn learn(&mut self, made: &[(EntryPath, MadeStat)]) {
        let is_ours = |path: &EntryPath| made.iter().any(|(made, _)| made == path);
        self.known.carried.retain(|carried| !matches!(carried, DirtyPath::Entry(path) if is_ours(path)));
        let Some(mounted) = self.mounted.get() else { return };
        match mounted.changed() {
            Ok(Some(upper)) => self.known.learn(upper, made, mounted.notes.forms()),
            Ok(None) => {}
            Err(error) => tracing::debug!(%error, "the changes made will be scanned again"),
        }
    }

    /// Returns each name of a file but the first, with the first, if the lower layers have all of them as one file.
    fn parted(&self, names: Vec<Vec<EntryPath>>) -> Result<Vec<FileChange>, BackendError> {
        let failed = |error: io::Error| BackendError { backend: self.options.backend, reason: error.to_string() };
        let (mut links, mut bytes) = (Vec::new(), 0);
        for names in names {
            let [to, others @ ..] = &names[..] else { continue };
            let tree = self.mounted_tree()?;
            let file = |path: &EntryPath| match tree.observe(path).map_err(failed)?.map(|found| found.kind) {
                Some(Observed::File { shared: Some(file), size, .. }) if tree.is_in_lower(path) => {
                    Ok(Some((file, size)))
                }
                _ => Ok(None),
            };
            let Some((first, size)) = file(to)? else { continue };
            let mut is_one = true;
            for path in others {
                is_one &= file(path)?.is_some_and(|(file, _)| file == first);
            }
            if is_one && bytes + size <= JOINED_BYTES_MAX && links.len() + others.len() <= JOINED_MAX {
                bytes += size;
                links.extend(others.iter().map(|path| FileChange::Link { path: path.clone(), to: to.clone() }));
            }
        }
        Ok(links)
    }

    fn mounted_tree(&self) -> Result<&DirTree, BackendError> {
        let failed = |error: io::Error| BackendError { backend: self.options.backend, reason: error.to_string() };
        self.tree().map_err(failed)
    }
}

/// Opens the lowest layer as a plain directory, before anything is mounted.
fn base_tree(options: &OverlayOptions, base: &Layer, path: std::path::PathBuf) -> io::Result<DirTree> {
    let top = subdirectory(&base.directory, TREE)?;
    fchmod(&top, Mode::from_raw_mode(0o755))?;
    if let Some((user, group)) = options.owner {
        fchown(&top, Some(Uid::from_raw(user)), Some(Gid::from_raw(group)))?;
    }
    let aside = (subdirectory(&base.directory, ASIDE)?, path.join(ASIDE));
    Ok(DirTree::new(options.backend, top, aside, options.owner))
}

impl Replaced {
    fn remove(self) {
        if let Some(mounted) = self.mounted {
            mounted.unmount();
        }
        if !self.layers.is_empty()
            && let Err(error) = self.dir.collect(Some(&self.layers))
        {
            tracing::warn!(%error, "failed to remove unneeded layers; garbage collection tries again");
        }
    }
}

impl Drop for OverlayDisk {
    fn drop(&mut self) {
        self.wait_for_removal();
    }
}

impl WorkspaceDisk for OverlayDisk {
    fn tree(&self) -> io::Result<&DirTree> {
        Ok(&self.mounted()?.tree)
    }

    fn dirty(&mut self) -> io::Result<Vec<DirtyPath>> {
        if let Some(mounted) = self.mounted.get() {
            mounted.tree.open_root()?;
        }
        let outcome = self.look()?;
        let upper = self.mounted.get().map_or(Ok(None), Mounted::changed)?;
        let upper = upper.map(|upper| upper.try_clone_to_owned()).transpose()?;
        Ok(self.known.scanned(outcome, ScannedFiles::Upper(upper)))
    }

    fn peek(&self) -> io::Result<Vec<DirtyPath>> {
        let mut touched = self.look()?.touched;
        touched.extend(self.known.carried.iter().cloned());
        Ok(touched)
    }

    fn known(&mut self) -> &mut KnownFiles {
        &mut self.known
    }

    fn apply(&mut self, changes: &[FileChange]) -> Result<(), BackendError> {
        let made = self.mounted_tree()?.apply(changes)?;
        self.learn(&made);
        Ok(())
    }

    fn populate(&mut self, changes: &[FileChange]) -> Result<(), BackendError> {
        let (made, _) = self.mounted_tree()?.populate(changes)?;
        self.learn(&made);
        Ok(())
    }

    fn is_overlay(&self) -> bool {
        true
    }

    fn attach(&mut self, pid: i32, at: &Path) -> io::Result<()> {
        let place = MountPoint::attach(pid, at, self.mounted()?.mount.as_fd(), TREE)?;
        self.places.push(place);
        Ok(())
    }

    fn detach(&mut self, pid: i32) -> io::Result<()> {
        let (gone, kept) = self.places.drain(..).partition(|place| place.pid == pid);
        self.places = kept;
        gone.into_iter().try_for_each(MountPoint::detach)
    }

    fn is_seen(&self) -> bool {
        self.places.iter().all(MountPoint::is_seen)
    }

    fn seal_if_large(&mut self) -> Result<(), SealError> {
        let is_large = self.known.index.len() > self.options.seal_above + self.joined.unwrap_or(0);
        if is_large { self.seal() } else { Ok(()) }
    }

    fn join_names(&mut self, names: &dyn Fn() -> Vec<Vec<EntryPath>>) -> Result<(), BackendError> {
        if self.joined.is_none() {
            // Once per upper layer, even if it fails.
            self.joined = Some(0);
            let links = self.parted(names())?;
            let parents = links.iter().filter_map(|link| link.path().parent()).collect();
            let times = self.mounted_tree()?.directory_times(parents);
            self.apply(&links)?;
            self.mounted_tree()?.set_directory_times(times);
            self.joined = Some(links.iter().flat_map(FileChange::paths).map(|path| path.segments().count()).sum());
        }
        Ok(())
    }

    fn share(&mut self, name: &str) -> Result<bool, SealError> {
        let fork = self.options.dir.named(name);
        if fork.has_manifest() {
            return Ok(false);
        }
        fork.make()?;
        if let Some(mounted) = self.mounted.get()
            && mounted.changed().map_err(io::Error::from)?.is_some()
        {
            let (replaced, placed) = self.put_layer_on()?;
            // Removing a directory may take longer than the rest; an interrupted removal is completed on opening.
            let thread = std::thread::Builder::new().name("foldspace-layers".to_owned());
            self.removing = thread.spawn(move || replaced.remove()).ok();
            placed.map_err(SealError::Misplaced)?;
        }
        // Until the fork's manifest is committed, this overlay's manifest has the layers.
        fork.commit(&Manifest { layers: self.lower.clone(), dirty: Some(self.known.carried.clone()) })?;
        Ok(true)
    }
}
