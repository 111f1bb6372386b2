//! The directory of an overlay, and its siblings with layers in the same pool.

use std::ffi::OsStr;
use std::fs::File;
use std::io::{self, Read, Write};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use rustix::fs::{AtFlags, CWD, Mode, OFlags, RenameFlags, openat, renameat_with, unlinkat};
use rustix::io::Errno;

use super::manifest::{LayerId, Manifest, boot_id};
use super::pool::LayerPool;
use super::step::step;
use crate::backends::disk::beneath::{failed, open_in};
use crate::backends::disk::entries::{lock_file, make_private, vanished};
use crate::backends::disk::listing::names;
use crate::backends::disk::remove::remove_all;

const LIST: &str = "list";
/// The manifest that will replace it, or that it has replaced.
const NEXT_LIST: &str = "list.next";
pub(super) const WORK: &str = "work";
/// Locked by the process that uses or removes the overlay.
const LOCK: &str = "lock";
/// The store that the overlay belongs to. Processes that use the overlay may write it.
const NOTE: &str = "store";
/// The directory of the pool, next to the overlays' directories.
const POOL: &str = "layers";

const TRIES: u32 = 50;
const PAUSE: Duration = Duration::from_millis(20);

/// The place of an overlay: `all/name/within`. The layers of all overlays are in one pool in `all`.
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

    /// Returns the overlay of another name in the same place.
    pub(crate) fn sibling(&self, name: &str) -> Self {
        self.named(name)
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

    /// Opens the pool, and creates it if missing.
    pub(super) fn pool(&self) -> io::Result<LayerPool> {
        LayerPool::open(&self.all.join(POOL))
    }

    pub(crate) fn note_of_store(&self) -> PathBuf {
        self.home().join(NOTE)
    }

    /// Creates its directory, with parents.
    pub(super) fn make(&self) -> io::Result<OwnedFd> {
        let root = self.root();
        make_private(&root)?;
        open_in(CWD, &root, OFlags::RDONLY | OFlags::DIRECTORY).map_err(failed("open", &root))
    }

    pub(crate) fn has_manifest(&self) -> bool {
        self.root().join(LIST).exists()
    }

    /// Reads its manifest; `None` if it is missing or from an earlier boot.
    pub(super) fn manifest(&self) -> io::Result<Option<Manifest>> {
        let Some(bytes) = self.read_manifest()? else { return Ok(None) };
        Ok(Manifest::decode(&bytes, &boot_id()?))
    }

    /// Returns the layers in its manifest of any boot.
    pub(super) fn named_layers(&self) -> io::Result<Vec<LayerId>> {
        let Some(bytes) = self.read_manifest()? else { return Ok(Vec::new()) };
        Manifest::layers_in(&bytes).ok_or_else(|| {
            let path = self.root().join(LIST);
            io::Error::new(io::ErrorKind::InvalidData, format!("{} is not a list of layers; remove it", path.display()))
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

    /// Replaces its manifest atomically.
    pub(super) fn commit(&self, manifest: &Manifest) -> io::Result<()> {
        let root = self.root();
        let top = self.make()?;
        let bytes = manifest.encode(&boot_id()?);
        let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let file = openat(&top, NEXT_LIST, flags, Mode::RUSR | Mode::WUSR);
        let mut file = File::from(file.map_err(failed("create", &root.join(NEXT_LIST)))?);
        step()?;
        file.write_all(&bytes)?;
        file.set_len(u64::try_from(bytes.len()).unwrap_or(u64::MAX))?;
        step()?;
        // An exchange is faster than removing the previous file.
        let replaced = match renameat_with(&top, NEXT_LIST, &top, LIST, RenameFlags::EXCHANGE) {
            // No list exists yet, or the file system can't exchange.
            Err(Errno::NOENT | Errno::INVAL | Errno::NOSYS) => rustix::fs::renameat(&top, NEXT_LIST, &top, LIST),
            other => other,
        };
        replaced.map_err(failed("replace", &root.join(LIST)))
    }

    /// Removes its manifest and work directory, and thus its files. Returns its layers.
    pub(super) fn reset(&self) -> io::Result<Vec<LayerId>> {
        let root = self.root();
        // If the manifest is damaged, collecting all layers finds them.
        let layers = self.named_layers().unwrap_or_default();
        let top = match open_in(CWD, root.as_path(), OFlags::RDONLY | OFlags::DIRECTORY) {
            // A plain directory, or nothing.
            Err(Errno::NOENT | Errno::NOTDIR) => return Ok(layers),
            other => other.map_err(failed("open", &root))?,
        };
        remove_in(&top, &root, [LIST, NEXT_LIST, WORK])?;
        Ok(layers)
    }

    /// Creates the directory and locks the overlay while the file is open; `None` if another user of it stays for a second.
    pub(crate) fn hold(&self) -> io::Result<Option<File>> {
        for _ in 0..=TRIES {
            make_private(&self.home())?;
            if let Some(lock) = self.try_hold()? {
                return Ok(Some(lock));
            }
            // A process that is releasing it may take a moment.
            std::thread::sleep(PAUSE);
        }
        Ok(None)
    }

    /// Locks the overlay while the file is open; `None` if it is already locked or the directory is missing.
    pub(crate) fn try_hold(&self) -> io::Result<Option<File>> {
        lock_file(&self.home().join(LOCK), OFlags::CREATE)
    }

    /// Removes the overlay, even an open one; layers in other manifests stay.
    pub(crate) fn remove(&self) -> io::Result<()> {
        let _held = self.try_hold()?;
        self.remove_held()
    }

    /// Removes the overlay for a caller that holds its lock.
    pub(crate) fn remove_held(&self) -> io::Result<()> {
        let layers = self.reset()?;
        self.clear()?;
        if layers.is_empty() { Ok(()) } else { self.collect(Some(&layers)) }
    }

    /// Removes layers that are in no manifest: only the given ones, or all for `None`.
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

    /// Removes the layers that interrupted processes left; the overlays are `within` their directories in `all`.
    pub(crate) fn sweep(all: &Path, within: &str) -> io::Result<()> {
        match all.exists() {
            true => Self::new(all, POOL, within).collect(None),
            false => Ok(()),
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
        // Last: without them a killed process would leave files without a known owner, among which others could start.
        for name in [NOTE, LOCK] {
            let removed = step().and_then(|()| vanished(unlinkat(&handle, name, AtFlags::empty())));
            removed.map_err(failed("remove", &home.join(name)))?;
        }
        match rustix::fs::rmdir(&home) {
            // Another process has started to use it.
            Ok(()) | Err(Errno::NOENT | Errno::NOTEMPTY | Errno::EXIST) => Ok(()),
            Err(error) => Err(failed("remove", &home)(error)),
        }
    }
}

/// Removes direct entries of a directory, with everything below them.
fn remove_in(directory: &OwnedFd, path: &Path, names: impl IntoIterator<Item = impl AsRef<OsStr>>) -> io::Result<()> {
    for name in names {
        let removed = step().and_then(|()| remove_all(directory.as_fd(), name.as_ref().as_bytes()));
        removed.map_err(failed("remove", &path.join(name.as_ref())))?;
    }
    Ok(())
}
