//! Who uses the layers of an overlay beside it: a mark for each, beside the layers.
//!
//! A mark is a link with the user's name that leads to the numbers of the layers. It is made before the user's list
//! names them, and taken away when that does no more, so that it may say too much and never too little.

use std::collections::BTreeSet;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::path::{Path, PathBuf};

use rustix::fs::{
    AtFlags, CWD, FlockOperation, Mode, OFlags, flock, openat, readlinkat, renameat, symlinkat, unlinkat,
};
use rustix::io::Errno;

use super::lock::LOCK;
use super::manifest::{LIST, LayerName, List, NEXT_LIST, is_name};
use crate::backends::disk::beneath::{context, open_in};
use crate::backends::disk::entries::{make_directory, remove_all, vanished};
use crate::backends::disk::listing::{look_at, names};

/// The directory with an overlay's own layers, each by its number.
pub(super) const LAYERS: &str = "layers";
const USERS: &str = "users";
/// Says that the overlay itself is nobody's any more: only layers stay that others use.
const GONE: &str = "gone";
/// A mark that is to take another one's place.
const NEXT_MARK: &str = ".next";
/// Nobody else on the machine gets to the files this way.
pub(super) const PRIVATE: u32 = 0o700;

/// An overlay among those that may share layers with it: each has a directory of its name in one that they have in
/// common, and its layers in the same place of that.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct LayerUser {
    all: PathBuf,
    pub(super) name: String,
    within: PathBuf,
}

/// The marks of one overlay, held so that nobody else looks at them or changes them meanwhile.
#[derive(Debug)]
struct Users {
    directory: OwnedFd,
}

impl LayerUser {
    /// The overlay in the directory `within` of the directory `name` of all.
    pub(crate) fn new(all: &Path, name: &str, within: &str) -> Self {
        Self { all: all.to_owned(), name: name.to_owned(), within: PathBuf::from(within) }
    }

    /// One whose directory has nothing but its layers.
    pub(super) fn at(root: &Path) -> Self {
        let name = root.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
        Self::new(root.parent().unwrap_or(root), &name, "")
    }

    pub(crate) fn name(&self) -> &str {
        &self.name
    }

    /// Another one.
    pub(super) fn named(&self, name: &str) -> Self {
        Self { name: name.to_owned(), ..self.clone() }
    }

    /// All that belongs to it.
    pub(crate) fn home(&self) -> PathBuf {
        self.all.join(&self.name)
    }

    /// Where its layers are.
    pub(super) fn root(&self) -> PathBuf {
        if self.within.as_os_str().is_empty() { self.home() } else { self.home().join(&self.within) }
    }

    fn of(&self, owner: Option<&String>) -> Self {
        owner.map_or_else(|| self.clone(), |owner| self.named(owner))
    }

    /// Where a layer is that this overlay's list names.
    pub(super) fn place_of(&self, layer: &LayerName) -> PathBuf {
        self.of(layer.owner.as_ref()).root().join(LAYERS).join(layer.number.to_string())
    }

    /// Notes that an overlay uses the layers of these names, which is all that it uses of others.
    pub(super) fn mark(&self, user: &str, layers: &[LayerName]) -> io::Result<()> {
        for (owner, numbers) in by_owner(layers) {
            let Some(owner) = owner else { continue };
            let root = self.named(owner).root();
            let users = Users::hold(&root, true)?.ok_or_else(|| failed("find", &root)(Errno::NOENT))?;
            users.mark(user, &numbers).map_err(failed("make a mark in", &root.join(USERS)))?;
        }
        Ok(())
    }

    /// Notes that this overlay uses less of others' layers: `left` is what it uses yet, `before` what it has named.
    /// What could not be noted is a waste of space.
    pub(super) fn lessen(&self, before: &[LayerName], left: &[LayerName]) {
        for (owner, _) in by_owner(before) {
            let Some(owner) = owner else { continue };
            let numbers: Vec<u32> =
                left.iter().filter(|name| name.owner.as_ref() == Some(owner)).map(|name| name.number).collect();
            let owner = self.named(owner);
            let noted = owner.note(&self.name, &numbers).and_then(|()| owner.finish_if_gone());
            if let Err(error) = noted {
                tracing::warn!(%error, owner = owner.name, "layers stay that may not be needed any more");
            }
        }
    }

    fn note(&self, user: &str, numbers: &[u32]) -> io::Result<()> {
        let root = self.root();
        let Some(users) = Users::hold(&root, false)? else { return Ok(()) };
        let noted = if numbers.is_empty() { users.unmark(user) } else { users.mark(user, numbers) };
        noted.map_err(failed("change a mark in", &root.join(USERS)))
    }

    /// The numbers of this overlay's layers that others use.
    pub(super) fn used(&self) -> io::Result<BTreeSet<u32>> {
        let root = self.root();
        match Users::hold(&root, false)? {
            Some(users) => users.used().map_err(failed("read", &root.join(USERS))),
            None => Ok(BTreeSet::new()),
        }
    }

    /// The names in this overlay's list, and in the one that was to replace it.
    pub(super) fn listed(&self) -> io::Result<Vec<LayerName>> {
        let mut listed = Vec::new();
        for name in [LIST, NEXT_LIST] {
            let path = self.root().join(name);
            match open_in(CWD, path.as_path(), OFlags::RDONLY) {
                Err(Errno::NOENT | Errno::NOTDIR) => continue,
                Err(error) => return Err(failed("open", &path)(error)),
                Ok(file) => {
                    let mut bytes = Vec::new();
                    io::Read::read_to_end(&mut std::fs::File::from(file), &mut bytes)?;
                    listed.extend(List::names(&bytes));
                }
            }
        }
        Ok(listed)
    }

    /// Removes all that belongs to this overlay, but for layers that others use: those go with the last of them. Who has
    /// it open loses it.
    ///
    /// # Errors
    /// When it can't be removed. What was begun is gone on with by [`LayerUser::sweep`].
    pub(crate) fn remove(&self) -> io::Result<()> {
        // Nobody begins with it meanwhile.
        let _held = self.try_hold()?;
        self.remove_held()
    }

    /// The same for who keeps others from it.
    pub(crate) fn remove_held(&self) -> io::Result<()> {
        let root = self.root();
        let top = match open_in(CWD, root.as_path(), OFlags::RDONLY | OFlags::DIRECTORY) {
            // A plain directory, or nothing.
            Err(Errno::NOENT | Errno::NOTDIR) => return self.clear(),
            other => other.map_err(failed("open", &root))?,
        };
        let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        openat(&top, GONE, flags, Mode::RUSR | Mode::WUSR).map_err(failed("make", &root.join(GONE)))?;
        self.lessen(&self.listed()?, &[]);
        for name in [LIST, NEXT_LIST] {
            remove_all(top.as_fd(), name.as_bytes()).map_err(failed("remove", &root.join(name)))?;
        }
        self.finish()
    }

    fn is_gone(&self) -> bool {
        rustix::fs::access(self.root().join(GONE), rustix::fs::Access::EXISTS).is_ok()
    }

    /// Keeps others from an overlay that is gone. None where it is not, or somebody is making it anew.
    fn hold_gone(&self) -> io::Result<Option<std::fs::File>> {
        if !self.is_gone() {
            return Ok(None);
        }
        let held = self.try_hold()?;
        // It may have been somebody's in between.
        Ok(held.filter(|_| self.is_gone()))
    }

    /// Removes what nobody uses any more of an overlay that is gone.
    fn finish_if_gone(&self) -> io::Result<()> {
        match self.hold_gone()? {
            Some(_held) => self.finish(),
            None => Ok(()),
        }
    }

    fn finish(&self) -> io::Result<()> {
        let root = self.root();
        // Held until all is done, or another user that ends would meet half of it.
        let users = Users::hold(&root, false)?;
        let used = match &users {
            Some(users) => users.used().map_err(failed("read", &root.join(USERS)))?,
            None => BTreeSet::new(),
        };
        if used.is_empty() {
            return self.clear();
        }
        let mut at = self.home();
        for step in &self.within {
            remove_but(&at, |name| name == LOCK || Path::new(name) == Path::new(step))?;
            at = at.join(step);
        }
        remove_but(&root, |name| [LAYERS, USERS, GONE, LOCK].contains(&name))?;
        remove_but(&root.join(LAYERS), |name| name.parse().is_ok_and(|number| used.contains(&number)))?;
        // Last, or somebody could begin in what is being removed.
        let lock = self.home().join(LOCK);
        vanished(unlinkat(CWD, lock.as_path(), AtFlags::empty())).map_err(failed("remove", &lock)).map(drop)
    }

    /// This overlay is somebody's, whatever was noted before. Gives the layers that stay because others use them.
    pub(super) fn revive(&self, top: &OwnedFd) -> io::Result<BTreeSet<u32>> {
        let users = Users::hold(&self.root(), false)?;
        vanished(unlinkat(top, GONE, AtFlags::empty()))?;
        Ok(users.map(|users| users.used()).transpose()?.unwrap_or_default())
    }

    /// Takes away what interrupted processes have left of this overlay: marks of those that do not name its layers, and
    /// what remains of it when it is gone. `is_idle` says of a name whether nobody has that overlay open.
    ///
    /// # Errors
    /// When its place can't be read, or something not be removed.
    pub(crate) fn sweep(&self, is_idle: &dyn Fn(&str) -> bool) -> io::Result<()> {
        let root = self.root();
        let marks = match Users::hold(&root, false)? {
            Some(users) => users.marks().map_err(failed("read", &root.join(USERS)))?,
            None => Vec::new(),
        };
        for (user, _) in marks {
            let is_ours = |name: &LayerName| name.owner.as_ref() == Some(&self.name);
            // Whoever shares layers with it has it open, so that what is not named now will not be.
            if is_idle(&user) && !self.named(&user).listed()?.iter().any(is_ours) {
                self.note(&user, &[])?;
            }
        }
        match self.hold_gone()? {
            // It may have been interrupted before its own marks were taken away.
            Some(_held) => self.remove_held(),
            None => Ok(()),
        }
    }
}

impl Users {
    /// None where there are none; with `make` there are some from now on.
    fn hold(root: &Path, make: bool) -> io::Result<Option<Self>> {
        let path = root.join(USERS);
        if make {
            make_directory(CWD, path.as_path(), PRIVATE).map_err(failed("make", &path))?;
        }
        let directory = match open_in(CWD, path.as_path(), OFlags::RDONLY | OFlags::DIRECTORY) {
            Err(Errno::NOENT | Errno::NOTDIR) => return Ok(None),
            other => other.map_err(failed("open", &path))?,
        };
        flock(&directory, FlockOperation::LockExclusive).map_err(failed("lock", &path))?;
        // Who held it before may have removed it.
        let is_there = look_at(&directory).map_err(failed("look at", &path))?.stx_nlink > 0;
        Ok(is_there.then_some(Self { directory }))
    }

    fn mark(&self, user: &str, numbers: &[u32]) -> Result<(), Errno> {
        let text: Vec<String> = numbers.iter().map(u32::to_string).collect();
        vanished(unlinkat(&self.directory, NEXT_MARK, AtFlags::empty()))?;
        symlinkat(text.join(" "), &self.directory, NEXT_MARK)?;
        renameat(&self.directory, NEXT_MARK, &self.directory, user)
    }

    fn unmark(&self, user: &str) -> Result<(), Errno> {
        vanished(unlinkat(&self.directory, user, AtFlags::empty())).map(drop)
    }

    fn marks(&self) -> Result<Vec<(String, Vec<u32>)>, Errno> {
        let mut marks = Vec::new();
        for name in names(&self.directory)? {
            let Some(user) = name.to_str().ok().filter(|name| is_name(name)) else { continue };
            let target = readlinkat(&self.directory, user, Vec::new())?;
            let numbers = target.to_str().ok().and_then(|text| text.split(' ').map(|word| word.parse().ok()).collect());
            marks.push((user.to_owned(), numbers.ok_or(Errno::INVAL)?));
        }
        Ok(marks)
    }

    fn used(&self) -> Result<BTreeSet<u32>, Errno> {
        Ok(self.marks()?.into_iter().flat_map(|(_, numbers)| numbers).collect())
    }
}

/// Layers by whose they are.
fn by_owner(layers: &[LayerName]) -> Vec<(Option<&String>, Vec<u32>)> {
    let mut owners: Vec<(Option<&String>, Vec<u32>)> = Vec::new();
    for layer in layers {
        match owners.iter_mut().find(|(owner, _)| *owner == layer.owner.as_ref()) {
            Some((_, numbers)) => numbers.push(layer.number),
            None => owners.push((layer.owner.as_ref(), vec![layer.number])),
        }
    }
    owners
}

fn remove_but(directory: &Path, stays: impl Fn(&str) -> bool) -> io::Result<()> {
    let handle = match open_in(CWD, directory, OFlags::RDONLY | OFlags::DIRECTORY) {
        Err(Errno::NOENT) => return Ok(()),
        other => other.map_err(failed("open", directory))?,
    };
    for name in names(&handle).map_err(failed("read", directory))? {
        if !name.to_str().is_ok_and(&stays) {
            remove_all(handle.as_fd(), name.to_bytes()).map_err(failed("remove what is in", directory))?;
        }
    }
    Ok(())
}

pub(super) fn failed(what: &str, path: &Path) -> impl FnOnce(Errno) -> io::Error + use<> {
    context(what, &path.display().to_string())
}
