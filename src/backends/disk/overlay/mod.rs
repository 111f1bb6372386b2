//! A session's files in an overlay, whose small upper layer is what has changed.

mod attach;
mod copy;
pub(crate) mod dir_xattrs;
pub(crate) mod fork;
mod layers;
mod lazy;
pub(crate) mod lock;
pub(crate) mod manifest;
mod mount;
mod probe;
pub(crate) mod refs;
mod squash;

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::Path;
use std::sync::OnceLock;
use std::thread::JoinHandle;

use rustix::fs::OFlags;
use rustix::io::Errno;

use super::beneath::open_in;
use super::file_stat::{FileStat, MadeStat};
use super::index::{StatIndex, with_paths};
use super::scan::{ScanOutcome, scan};
use super::seen::{self, UnsettledScan, Unsure};
use super::{DirTree, DirtyPath, TreeEntry, WorkspaceDisk};
use crate::backends::{BackendError, FileChange};
use crate::engine::path::EntryPath;
use attach::MountPoint;
use fork::ForkedOverlay;
use layers::{Layer, Stack};
pub(crate) use lazy::LazyOverlay;
use manifest::LayerName;
pub(crate) use refs::LayerUser;

/// The directory of a layer that holds the session's files.
const TREE: &str = "tree";
/// The one that holds what is made ready or kept for a while. It is never attached.
const ASIDE: &str = "aside";

/// Where and how an overlay is kept.
#[derive(Debug, Clone)]
pub(crate) struct OverlayOptions {
    /// Who is named in errors.
    pub(crate) backend: &'static str,
    /// Where the layers are: a directory of its own, among others of which each may share its layers with the others.
    pub(crate) kin: LayerUser,
    /// What is made through [`DirTree`] belongs to this user and group.
    pub(crate) owner: Option<(u32, u32)>,
    /// Entries of the upper layer above which it is sealed.
    pub(crate) seal_above: usize,
    /// Layers above which they are made one.
    pub(crate) squash_above: usize,
}

impl OverlayOptions {
    /// The options that fit most sessions, for an overlay that has a directory to itself.
    pub(crate) fn new(backend: &'static str, root: &Path) -> Self {
        Self::among(backend, LayerUser::at(root))
    }

    /// The same for one that may share layers with others.
    pub(crate) fn among(backend: &'static str, kin: LayerUser) -> Self {
        Self { backend, kin, owner: None, seal_above: 64, squash_above: 50 }
    }
}

/// An overlay, mounted where only this process reaches it, and wherever it was attached.
///
/// Nothing in it is synced: after the machine has gone down it has to be made again from the journal.
#[derive(Debug)]
pub(crate) struct OverlayDisk {
    pub(super) options: OverlayOptions,
    stack: Stack,
    mounted: Mounted,
    known: StatIndex,
    pending: Option<PendingOverlay>,
    /// What was touched in layers that are sealed by now.
    carried: Vec<DirtyPath>,
    unsure: Unsure,
    /// Whether the upper layer was copied since the last change to it that is known.
    is_copied: bool,
    pub(super) places: Vec<MountPoint>,
    /// Removes what is not needed any more.
    removing: Option<JoinHandle<()>>,
}

/// Why an upper layer could not be sealed, or shared.
#[derive(Debug, thiserror::Error)]
pub(crate) enum SealError {
    /// Something could not be made. All is as it was.
    #[error(transparent)]
    Unmade(#[from] io::Error),
    /// The files could not be put where they are attached. That container still shows the old ones and has to be given
    /// up.
    #[error(transparent)]
    Misplaced(io::Error),
}

/// What a seal has put another in the place of.
struct Replaced {
    mounted: Mounted,
    layers: Vec<LayerName>,
    /// What there is now.
    stack: Stack,
}

#[derive(Debug)]
struct Mounted {
    tree: DirTree,
    mount: OwnedFd,
    upper: Layer,
    /// The files of the upper layer, once there are any.
    changed: OnceLock<OwnedFd>,
}

#[derive(Debug)]
struct PendingOverlay {
    seen: UnsettledScan,
    /// Whether anything was touched.
    news: bool,
}

impl OverlayDisk {
    /// Whether overlays can be mounted with layers in this directory, and attached to containers. Says why not.
    pub(crate) fn supported(directory: &Path) -> Result<(), String> {
        probe::probe(directory)
    }

    /// Whether [`OverlayDisk::supported`] says that they can. Where they once could it does not try again.
    pub(crate) fn is_supported(directory: &Path) -> bool {
        probe::is_known_to_work(directory)
    }

    /// Makes an overlay anew. What was in its directory is removed. `fill` puts the first files into the
    /// lowest layer, which is a plain directory as yet; they are known.
    pub(crate) fn create(
        options: OverlayOptions,
        fill: impl FnOnce(&DirTree) -> Result<(), BackendError>,
    ) -> Result<Self, BackendError> {
        let backend = options.backend;
        let failed = |error: io::Error| BackendError { backend, reason: error.to_string() };
        let mut stack = Stack::create(&options.kin).map_err(failed)?;
        let base = stack.add().map_err(failed)?;
        let tree = base.base_tree(&options).map_err(failed)?;
        fill(&tree)?;
        drop(tree);
        stack.push(&base);
        Self::start(options, stack).map_err(failed)
    }

    /// Opens an overlay that an earlier process has left; everything counts as touched. Or one that another overlay has
    /// shared its files with: then only that counts as touched that did there.
    ///
    /// None when there is none, or when the machine has been started since: it may not have all on its disk then.
    pub(crate) fn open(options: OverlayOptions) -> io::Result<Option<Self>> {
        let Some((stack, touched)) = Stack::open(&options.kin)? else { return Ok(None) };
        let mut disk = Self::start(options, stack)?;
        disk.carried = touched.unwrap_or_else(|| vec![DirtyPath::Subtree(EntryPath::root())]);
        // Each process adds a layer, and the kernel takes 500.
        if disk.stack.is_many(disk.options.squash_above)
            && let Err(error) = disk.seal()
        {
            tracing::warn!(%error, "the layers stay many");
        }
        Ok(Some(disk))
    }

    fn start(options: OverlayOptions, mut stack: Stack) -> io::Result<Self> {
        let upper = stack.add()?;
        let mounted = Mounted::new(&options, &stack, upper)?;
        stack.commit(&mounted.upper)?;
        let (known, pending, carried, places) = (StatIndex::default(), None, Vec::new(), Vec::new());
        let (unsure, is_copied, removing) = (Unsure::default(), false, None);
        Ok(Self { options, stack, mounted, known, pending, carried, unsure, is_copied, places, removing })
    }

    /// Shows the files at `at` in the mount namespace of a running process, on top of what is there.
    ///
    /// # Errors
    /// When there is no such process or directory, or the process may not be reached.
    pub(crate) fn attach(&mut self, pid: i32, at: &Path) -> io::Result<()> {
        self.places.push(MountPoint::attach(pid, at, self.mounted.mount.as_fd(), TREE)?);
        Ok(())
    }

    /// Takes the files away from everywhere that `attach` has shown them for this process.
    pub(crate) fn detach(&mut self, pid: i32) -> io::Result<()> {
        let (gone, kept) = self.places.drain(..).partition(|place| place.pid == pid);
        self.places = kept;
        gone.into_iter().try_for_each(MountPoint::detach)
    }

    /// Makes a large upper layer a lower one, so that looking at what has changed stays fast; where the layers are
    /// many, makes one of them. Gives whether it did. No command may run meanwhile.
    ///
    /// # Errors
    /// [`SealError`].
    pub(crate) fn seal_if_large(&mut self) -> Result<bool, SealError> {
        if self.known.len() <= self.options.seal_above {
            return Ok(false);
        }
        self.seal()?;
        Ok(true)
    }

    /// As [`OverlayDisk::seal_if_large`], whatever the size.
    pub(crate) fn seal(&mut self) -> Result<(), SealError> {
        let (replaced, placed) = self.put_layer_on()?;
        replaced.remove();
        placed.map_err(SealError::Misplaced)
    }

    /// Seals the upper layer. Gives what is not needed any more, and whether the files are shown where they were.
    fn put_layer_on(&mut self) -> io::Result<(Replaced, io::Result<()>)> {
        self.wait_for_removal();
        let mut late = self.look()?.touched;
        let mut stack = self.stack.with(&self.mounted.upper);
        let replaced = match stack.squash_if_many(self.options.squash_above, &self.mounted.tree) {
            Ok(replaced) => replaced,
            Err(error) => {
                tracing::warn!(%error, "the layers stay many");
                Vec::new()
            }
        };
        let added = stack.add().and_then(|upper| {
            let mounted = Mounted::new(&self.options, &stack, upper)?;
            stack.commit(&mounted.upper)?;
            Ok(mounted)
        });
        let mounted = added.inspect_err(|_| stack.abandon(&self.stack))?;
        let placed = self.place_again(&mounted);
        if replaced.is_empty() {
            // Nothing is written to the old layer any more. After a squash every file in it has another link.
            late = self.look().map_or_else(|_| vec![DirtyPath::Subtree(EntryPath::root())], |look| look.touched);
        }
        self.carried.extend(late);
        self.known = StatIndex::default();
        (self.pending, self.is_copied) = (None, false);
        self.stack = stack;
        let mounted = std::mem::replace(&mut self.mounted, mounted);
        Ok((Replaced { mounted, layers: replaced, stack: self.stack.clone() }, placed))
    }

    fn wait_for_removal(&mut self) {
        if let Some(removing) = self.removing.take() {
            // A panic there has been printed.
            drop(removing.join());
        }
    }

    /// Makes the files, as they are now, those of the overlay of that name, which is none yet: both share what is there,
    /// and what either changes from now on the other does not see. It is to be opened later. No command may run
    /// meanwhile, nor may anybody else have that overlay.
    ///
    /// That costs the same however many files there are. Gives false, and has changed nothing for anybody, when there is
    /// an overlay of that name.
    ///
    /// # Errors
    /// [`SealError`]; the other one is none then.
    pub(crate) fn share(&mut self, name: &str) -> Result<bool, SealError> {
        let kin = self.options.kin.clone();
        let Some(mut heir) = ForkedOverlay::begin(&kin, name)? else { return Ok(false) };
        let (mut has_copy, mut unseen) = (false, Vec::new());
        if let Some(upper) = self.mounted.changed().map_err(io::Error::from)? {
            // What is forked again as it is would be copied again, and again.
            let is_small = !self.is_copied && self.known.len() <= copy::ENTRIES_MAX;
            has_copy = is_small && heir.copy(upper, self.stack.notes).unwrap_or_else(cannot_copy);
            match has_copy {
                true => unseen = self.look()?.touched,
                false => self.seal_soon()?,
            }
        }
        let touched = self.carried.iter().cloned().chain(self.unsure.places()).chain(unseen).collect();
        heir.give(&self.stack.lower, touched)?;
        self.is_copied |= has_copy;
        Ok(true)
    }

    /// As [`OverlayDisk::seal`]; what is not needed any more goes later.
    fn seal_soon(&mut self) -> Result<(), SealError> {
        let (replaced, placed) = self.put_layer_on()?;
        // To remove a directory may take longer than all the rest; what is not removed is when it is opened again.
        let thread = std::thread::Builder::new().name("foldspace-layers".to_owned());
        self.removing = thread.spawn(move || replaced.remove()).ok();
        placed.map_err(SealError::Misplaced)
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
        let Some(upper) = self.mounted.changed()? else {
            return Ok(ScanOutcome { index: StatIndex::default(), touched: Vec::new() });
        };
        scan(upper, &self.known, self.stack.notes.forms(), None)
    }

    fn learn(&mut self, made: &[(EntryPath, MadeStat)]) {
        self.is_copied = false;
        let is_ours = |path: &EntryPath| made.iter().any(|(made, _)| made == path);
        self.carried.retain(|carried| !matches!(carried, DirtyPath::Entry(path) if is_ours(path)));
        if let Err(error) = self.try_learn(made) {
            tracing::debug!(%error, "what was made will be looked at again");
        }
    }

    fn try_learn(&mut self, made: &[(EntryPath, MadeStat)]) -> Result<(), Errno> {
        let Some(upper) = self.mounted.changed()? else { return Ok(()) };
        let seen = self.pending.as_mut().map(|pending| pending.seen.index_mut());
        for index in std::iter::once(&mut self.known).chain(seen) {
            let missing = index.learn(upper, made, self.stack.notes.forms())?;
            self.unsure.add(missing.into_iter().map(DirtyPath::Entry));
        }
        Ok(())
    }
}

fn cannot_copy(error: io::Error) -> bool {
    tracing::debug!(%error, "a layer is sealed that could not be copied");
    false
}

impl Replaced {
    fn remove(self) {
        let Mounted { tree, mount, upper, changed } = self.mounted;
        drop((tree, mount, changed));
        self.stack.retire(&upper);
        self.stack.remove(&self.layers);
    }
}

impl Drop for OverlayDisk {
    fn drop(&mut self) {
        self.wait_for_removal();
    }
}

impl Mounted {
    fn new(options: &OverlayOptions, stack: &Stack, upper: Layer) -> io::Result<Self> {
        let mount = stack.mount(&upper)?;
        let open = |name| open_in(&mount, name, OFlags::RDONLY | OFlags::DIRECTORY);
        let aside = (open(ASIDE)?, upper.aside_place(options));
        let tree = DirTree::new(options.backend, open(TREE)?, aside, options.owner);
        let tree = tree.above(rustix::io::fcntl_dupfd_cloexec(&upper.directory, 0)?, TREE);
        tree.empty_aside()?;
        Ok(Self { tree, mount, upper, changed: OnceLock::new() })
    }

    /// The files of the upper layer; none before anything has changed.
    fn changed(&self) -> Result<Option<BorrowedFd<'_>>, Errno> {
        if let Some(directory) = self.changed.get() {
            return Ok(Some(directory.as_fd()));
        }
        match open_in(&self.upper.directory, TREE, OFlags::RDONLY | OFlags::DIRECTORY) {
            Ok(directory) => Ok(Some(self.changed.get_or_init(|| directory).as_fd())),
            Err(Errno::NOENT) => Ok(None),
            Err(error) => Err(error),
        }
    }
}

impl WorkspaceDisk for OverlayDisk {
    fn tree(&self) -> io::Result<&DirTree> {
        Ok(&self.mounted.tree)
    }

    fn touched(&mut self) -> io::Result<Vec<DirtyPath>> {
        self.mounted.tree.open_root()?;
        let ScanOutcome { index, mut touched } = self.look()?;
        self.pending = Some(PendingOverlay {
            seen: UnsettledScan::new(index, seen::ScannedEntry::Upper),
            news: !touched.is_empty(),
        });
        touched.extend(self.carried.iter().cloned());
        self.unsure.name(&mut touched);
        Ok(touched)
    }

    fn found(&mut self, path: &EntryPath, found: Option<&FileStat>) {
        let is_below = || self.mounted.tree.is_in_lower(path);
        let differing = self.pending.as_mut().and_then(|pending| pending.seen.differs(path, found, is_below));
        self.unsure.add(differing);
    }

    fn found_below(&mut self, path: &EntryPath, found: &[(EntryPath, TreeEntry)], closed: &[EntryPath]) {
        let differing = self.pending.as_mut().map(|pending| pending.seen.differ_below(path, found, closed));
        self.unsure.add(differing.unwrap_or_default());
    }

    fn settle(&mut self) -> io::Result<()> {
        let Some(PendingOverlay { seen, news }) = self.pending.take() else { return Ok(()) };
        self.known = seen.index;
        self.is_copied &= !news;
        self.unsure.settle();
        // Who looked at a subtree of a sealed layer may have seen entries there that have come and gone since.
        self.carried.retain(|carried| news && matches!(carried, DirtyPath::Subtree(_)));
        Ok(())
    }

    fn adopt(&mut self) -> io::Result<()> {
        self.touched()?;
        if let Some(pending) = &mut self.pending {
            pending.seen.index_mut().trust();
        }
        self.settle()?;
        self.carried.clear();
        Ok(())
    }

    fn apply(&mut self, changes: &[FileChange]) -> Result<(), BackendError> {
        let made = self.mounted.tree.apply(changes)?;
        self.learn(&with_paths(changes, made));
        Ok(())
    }

    fn lay_out(&mut self, changes: &[FileChange]) -> Result<(), BackendError> {
        let (made, _) = self.mounted.tree.lay_out(changes)?;
        self.learn(&with_paths(changes, made));
        Ok(())
    }
}
