//! The directory of one overlay, among others that name layers of the same pool.

use std::ffi::OsStr;
use std::fs::File;
use std::io::{self, Read, Write};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use rustix::fs::{AtFlags, CWD, Mode, OFlags, RenameFlags, openat, renameat_with, unlinkat};
use rustix::io::Errno;

use super::manifest::{LayerId, Manifest, boot_id, layer_id};
use super::pool::LayerPool;
use super::step::step;
use crate::backends::disk::beneath::{failed, open_in};
use crate::backends::disk::entries::{lock_file, make_private, vanished};
use crate::backends::disk::listing::names;
use crate::backends::disk::remove::remove_all;

const LIST: &str = "list";
/// The manifest that is to replace it, or that it has replaced.
const NEXT_LIST: &str = "list.next";
pub(super) const WORK: &str = "work";
/// Locked by the process that has the overlay, or removes it.
const LOCK: &str = "lock";
/// Names the store that the overlay belongs to. Processes that have the overlay may write there.
const NOTE: &str = "store";
/// The directory of a pool, beside those of the overlays.
const POOL: &str = "layers";
/// Names that earlier programs have left: an overlay's own layers by their numbers, and their users.
const OLD_LAYERS: &str = "layers";
const OLD_USERS: &str = "users";
const OLD_GONE: &str = "gone";

/// The place of an overlay: `all/name/within`. The layers of all overlays lie in one pool in `all`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct OverlayDir {
    all: PathBuf,
    name: String,
    within: PathBuf,
}

impl OverlayDir {
    pub(crate) fn new(all: &Path, name: &str, within: &str) -> Self {
        Self { all: all.to_owned(), name: name.to_owned(), within: PathBuf::from(within) }
    }

    pub(crate) fn name(&self) -> &str {
        &self.name
    }

    pub(super) fn named(&self, name: &str) -> Self {
        Self { name: name.to_owned(), ..self.clone() }
    }

    pub(crate) fn home(&self) -> PathBuf {
        self.all.join(&self.name)
    }

    pub(super) fn root(&self) -> PathBuf {
        if self.within.as_os_str().is_empty() { self.home() } else { self.home().join(&self.within) }
    }

    /// Opens the pool, which is made where it is not there yet.
    pub(super) fn pool(&self) -> io::Result<LayerPool> {
        LayerPool::open(&self.all.join(POOL))
    }

    pub(crate) fn note_of_store(&self) -> PathBuf {
        self.home().join(NOTE)
    }

    /// Makes its directory, and those above it.
    pub(super) fn make(&self) -> io::Result<OwnedFd> {
        let root = self.root();
        make_private(&root)?;
        open_in(CWD, &root, OFlags::RDONLY | OFlags::DIRECTORY).map_err(failed("open", &root))
    }

    pub(super) fn has_manifest(&self) -> bool {
        self.root().join(LIST).exists()
    }

    /// Reads its manifest; none where there is none, or one of an earlier start of the machine.
    pub(super) fn manifest(&self) -> io::Result<Option<Manifest>> {
        let Some(bytes) = self.read_manifest()? else { return Ok(None) };
        Ok(Manifest::decode(&bytes, &self.name, &boot_id()?))
    }

    /// Gives the layers that its manifest names, whenever that was written.
    pub(super) fn named_layers(&self) -> io::Result<Vec<LayerId>> {
        let Some(bytes) = self.read_manifest()? else { return Ok(Vec::new()) };
        Manifest::layers_in(&bytes, &self.name).ok_or_else(|| {
            let path = self.root().join(LIST);
            io::Error::new(io::ErrorKind::InvalidData, format!("{} is no list of layers; remove it", path.display()))
        })
    }

    fn read_manifest(&self) -> io::Result<Option<Vec<u8>>> {
        let path = self.root().join(LIST);
        let mut bytes = Vec::new();
        match open_in(CWD, path.as_path(), OFlags::RDONLY) {
            Err(Errno::NOENT | Errno::NOTDIR) => return Ok(None),
            other => File::from(other.map_err(failed("open", &path))?).read_to_end(&mut bytes)?,
        };
        Ok(Some(bytes))
    }

    /// Replaces its manifest: all of it counts from then on, or none.
    pub(super) fn commit(&self, manifest: &Manifest) -> io::Result<()> {
        let root = self.root();
        let top = self.make()?;
        let bytes = manifest.encode(&boot_id()?);
        let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let file = openat(&top, NEXT_LIST, flags, Mode::RUSR | Mode::WUSR);
        let mut file = File::from(file.map_err(failed("make", &root.join(NEXT_LIST)))?);
        step()?;
        file.write_all(&bytes)?;
        file.set_len(u64::try_from(bytes.len()).unwrap_or(u64::MAX))?;
        step()?;
        // Both change places: to remove the file that was there takes longer.
        let replaced = match renameat_with(&top, NEXT_LIST, &top, LIST, RenameFlags::EXCHANGE) {
            // There is none yet, or the file system can't.
            Err(Errno::NOENT | Errno::INVAL | Errno::NOSYS) => rustix::fs::renameat(&top, NEXT_LIST, &top, LIST),
            other => other,
        };
        replaced.map_err(failed("replace", &root.join(LIST)))
    }

    /// Removes its manifest and work directory, which leaves it no files. Gives the layers that it had.
    pub(super) fn reset(&self) -> io::Result<Vec<LayerId>> {
        let root = self.root();
        let mut layers = self.adopt_old_layers()?;
        // What a damaged one names, a collection of all layers finds.
        layers.extend(self.named_layers().unwrap_or_default());
        let top = match open_in(CWD, root.as_path(), OFlags::RDONLY | OFlags::DIRECTORY) {
            // A plain directory, or nothing.
            Err(Errno::NOENT | Errno::NOTDIR) => return Ok(layers),
            other => other.map_err(failed("open", &root))?,
        };
        remove_in(&top, &root, [LIST, NEXT_LIST, WORK])?;
        Ok(layers)
    }

    /// Moves the layers that earlier programs kept here into the pool, and removes their notes of who used them. Lists
    /// that name them there are read as naming them in the pool. Gives the layers that were moved.
    pub(super) fn adopt_old_layers(&self) -> io::Result<Vec<LayerId>> {
        let root = self.root();
        let flags = OFlags::RDONLY | OFlags::DIRECTORY;
        let opened = open_in(CWD, root.as_path(), flags).and_then(|top| Ok((open_in(&top, OLD_LAYERS, flags)?, top)));
        let (old, top) = match opened {
            Err(Errno::NOENT | Errno::NOTDIR) => return Ok(Vec::new()),
            other => other.map_err(failed("open", &root.join(OLD_LAYERS)))?,
        };
        let pool = self.pool()?;
        let mut moved = Vec::new();
        for name in names(&old).map_err(failed("read", &root.join(OLD_LAYERS)))? {
            let Some(number) = name.to_str().ok().and_then(|name| name.parse().ok()) else { continue };
            let id = layer_id(&self.name, number);
            pool.take_in(&old, &name, &id)?;
            moved.push(id);
        }
        remove_in(&top, &root, [OLD_LAYERS, OLD_USERS, OLD_GONE])?;
        Ok(moved)
    }

    pub(super) fn layer(&self, pool: &LayerPool, id: &LayerId) -> io::Result<Option<OwnedFd>> {
        if let Some(layer) = pool.layer(id)? {
            return Ok(Some(layer));
        }
        // One of an overlay that was not opened since an earlier program has left it.
        let Some((owner, _)) = id.rsplit_once('.') else { return Ok(None) };
        self.named(owner).adopt_old_layers()?;
        pool.layer(id)
    }

    /// Locks the overlay while the file is open; none where another has it, or there is no directory.
    pub(crate) fn try_hold(&self) -> io::Result<Option<File>> {
        lock_file(&self.home().join(LOCK), OFlags::CREATE)
    }

    /// Removes the overlay, also one that is open; layers that other manifests name stay.
    pub(crate) fn remove(&self) -> io::Result<()> {
        let _held = self.try_hold()?;
        self.remove_held()
    }

    /// The same for a caller that holds it.
    pub(crate) fn remove_held(&self) -> io::Result<()> {
        let layers = self.reset()?;
        self.clear()?;
        if layers.is_empty() { Ok(()) } else { self.collect(Some(&layers)) }
    }

    /// Removes those of these layers, or of all, that no manifest names.
    pub(super) fn collect(&self, layers: Option<&[LayerId]>) -> io::Result<()> {
        self.pool()?.collect(layers, || {
            let all = open_in(CWD, self.all.join(".").as_path(), OFlags::RDONLY | OFlags::DIRECTORY);
            let mut named = std::collections::BTreeSet::new();
            for name in all.and_then(|all| names(&all)).map_err(failed("read", &self.all))? {
                if let Ok(name) = name.to_str() {
                    named.extend(self.named(name).named_layers()?);
                }
            }
            Ok(named)
        })
    }

    /// Removes what interrupted processes left of overlays and layers, each overlay `within` its directory. Gives the
    /// failures.
    pub(crate) fn sweep(all: &Path, within: &str) -> Vec<io::Error> {
        let Ok(directory) = open_in(CWD, all.join(".").as_path(), OFlags::RDONLY | OFlags::DIRECTORY) else {
            return Vec::new();
        };
        let mut errors = Vec::new();
        for name in names(&directory).unwrap_or_default() {
            let Ok(name) = name.to_str() else { continue };
            errors.extend(Self::new(all, name, within).finish_removal().err());
        }
        errors.extend(Self::new(all, POOL, within).collect(None).err());
        errors
    }

    /// Removes an overlay that an earlier program has removed but for layers that others used.
    fn finish_removal(&self) -> io::Result<()> {
        let is_gone = || self.root().join(OLD_GONE).exists();
        match if is_gone() { self.try_hold()? } else { None } {
            // Another process may have used it in between.
            Some(_held) if is_gone() => self.remove_held(),
            _ => Ok(()),
        }
    }

    fn clear(&self) -> io::Result<()> {
        let home = self.home();
        let handle = match open_in(CWD, home.as_path(), OFlags::RDONLY | OFlags::DIRECTORY) {
            Err(Errno::NOENT) => return Ok(()),
            other => other.map_err(failed("open", &home))?,
        };
        for name in names(&handle).map_err(failed("read", &home))? {
            let name = name.to_bytes();
            if ![LOCK.as_bytes(), NOTE.as_bytes()].contains(&name) {
                remove_in(&handle, &home, [OsStr::from_bytes(name)])?;
            }
        }
        // Last: without them a killed process would leave files of no known owner, in which others could begin.
        for name in [NOTE, LOCK] {
            let removed = step().and_then(|()| vanished(unlinkat(&handle, name, AtFlags::empty())));
            removed.map_err(failed("remove", &home.join(name)))?;
        }
        match rustix::fs::rmdir(&home) {
            // Another process has begun there.
            Ok(()) | Err(Errno::NOENT | Errno::NOTEMPTY | Errno::EXIST) => Ok(()),
            Err(error) => Err(failed("remove", &home)(error)),
        }
    }
}

/// Removes entries right in a directory, with all below them.
fn remove_in(directory: &OwnedFd, path: &Path, names: impl IntoIterator<Item = impl AsRef<OsStr>>) -> io::Result<()> {
    for name in names {
        let removed = step().and_then(|()| remove_all(directory.as_fd(), name.as_ref().as_bytes()));
        removed.map_err(failed("remove", &path.join(name.as_ref())))?;
    }
    Ok(())
}
