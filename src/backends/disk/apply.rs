//! Changing what is beneath one directory: all changes of a batch, or none.

use std::fs::File;
use std::io::Write;
use std::os::fd::{AsFd, OwnedFd};
use std::path::PathBuf;

use rustix::fs::{
    AtFlags, FileType, Gid, Mode, OFlags, RenameFlags, Statx, Timestamps, Uid, chownat, fchmod, fchown, futimens,
    openat, renameat, renameat_with, symlinkat, unlinkat, utimensat,
};
use rustix::io::Errno;
use rustix::time::{ClockId, Timespec, clock_gettime};

use super::PATH_BYTES_MAX;
use super::beneath::{open_directory, open_in};
use super::entries::{kind_of, make_directory, remove_all};
use super::listing::{Lister, look, look_at};
use super::stamp::Made;
use super::tree::Tree;
use crate::backends::{BackendError, FileChange};
use crate::engine::clock::Timestamp;
use crate::engine::event::Node;
use crate::engine::path::EntryPath;

const FILE_MODE: u32 = 0o644;
const EXECUTABLE_MODE: u32 = 0o755;
const DIRECTORY_MODE: u32 = 0o755;
/// Attempts at putting an entry in place while somebody else makes and removes one there.
const RACES_MAX: usize = 16;

impl Tree {
    /// Makes the changes in order, all or none. Readers see each file's old contents or the new ones. Gives what is
    /// then at each change's path, if nobody else has changed it since.
    ///
    /// # Errors
    /// [`BackendError`]; the entries are then as before, or the error says that they could not be put back.
    pub(crate) fn apply(&self, changes: &[FileChange]) -> Result<Vec<Made>, BackendError> {
        let mut batch = Batch { tree: self, steps: Vec::new(), leftovers: Vec::new(), parent: None };
        let mut made = Vec::with_capacity(changes.len());
        for change in changes {
            let failure = match batch.make(change) {
                Ok(done) => {
                    made.push(done);
                    continue;
                }
                Err(failure) => failure,
            };
            let mut reason = failure.words();
            if let Err(undo) = batch.undo() {
                reason = format!("{reason}; what was done before could not be undone: {}", undo.words());
            }
            batch.clear();
            return Err(BackendError { backend: self.backend, reason });
        }
        batch.clear();
        Ok(made)
    }
}

/// What was done, so that it can be undone.
enum Step {
    /// Something was put where nothing was.
    Placed { path: EntryPath },
    /// Something was put, and what was there is aside.
    Swapped { path: EntryPath, aside: String },
    /// Something was taken away, and is aside.
    Taken { path: EntryPath, aside: String },
    /// An empty directory was removed that could not be taken away whole.
    Emptied { path: EntryPath, mode: u32, owner: (u32, u32) },
}

struct Failure {
    what: &'static str,
    path: EntryPath,
    error: Errno,
    /// Where that is which could not be put back.
    kept: Option<PathBuf>,
}

impl Failure {
    fn at<'a>(what: &'static str, path: &'a EntryPath) -> impl Fn(Errno) -> Self + use<'a> {
        move |error| Self { what, path: path.clone(), error, kept: None }
    }

    fn words(&self) -> String {
        let error = match self.error {
            Errno::NOTDIR | Errno::LOOP => "a parent of it is no directory".to_owned(),
            Errno::XDEV => "it is in another mount or volume than the workspace's root".to_owned(),
            _ if self.path.is_root() => "the root stays a directory; name an entry below it".to_owned(),
            error => std::io::Error::from(error).to_string(),
        };
        let kept = self.kept.as_ref().map(|kept| format!("; it is kept as {}", kept.display())).unwrap_or_default();
        format!("cannot {} {}: {error}{kept}", self.what, self.path.rooted())
    }
}

struct Batch<'a> {
    tree: &'a Tree,
    steps: Vec<Step>,
    /// Names aside that nobody needs.
    leftovers: Vec<String>,
    /// The last parent, opened: files mostly come directory by directory.
    parent: Option<(EntryPath, OwnedFd)>,
}

impl Batch<'_> {
    fn make(&mut self, change: &FileChange) -> Result<Made, Failure> {
        match change {
            FileChange::Write { path, node, bytes, modified } => {
                let failed = Failure::at("write", path);
                if path.is_root() {
                    return Err(failed(Errno::INVAL));
                }
                if self.tree.is_hidden(path) {
                    return Err(failed(Errno::PERM));
                }
                self.make_parents(path)?;
                self.write(path, node, bytes, times(*modified)).map_err(failed)
            }
            FileChange::Delete { path } if path.is_root() => Err(Failure::at("delete", path)(Errno::INVAL)),
            FileChange::Delete { path } => {
                self.parent = None;
                if self.tree.is_hidden(path) {
                    return Err(Failure::at("delete", path)(Errno::PERM));
                }
                self.take(path).map(|()| Made::Nothing).map_err(Failure::at("delete", path))
            }
        }
    }

    fn make_parents(&mut self, path: &EntryPath) -> Result<(), Failure> {
        let Some(parent) = path.parent() else { return Ok(()) };
        if self.parent.as_ref().is_some_and(|(known, _)| *known == parent) {
            return Ok(());
        }
        let mut handle = match open_directory(self.tree.root.as_fd(), parent.as_bytes(), OFlags::PATH) {
            Ok(handle) => {
                self.parent = Some((parent, handle));
                return Ok(());
            }
            Err(Errno::NOENT) => open_in(&self.tree.root, ".", OFlags::PATH).map_err(Failure::at("open", &parent))?,
            Err(error) => return Err(Failure::at("write", path)(error)),
        };
        let mut at = EntryPath::root();
        for segment in parent.segments() {
            at = at.join(segment).map_err(|_| Failure::at("write", path)(Errno::INVAL))?;
            let failed = Failure::at("make the directory", &at);
            let made = make_directory(&handle, segment, DIRECTORY_MODE).map_err(&failed)?;
            if made {
                self.steps.push(Step::Placed { path: at.clone() });
            }
            let flags = if made { OFlags::RDONLY } else { OFlags::PATH };
            handle = open_in(&handle, segment, flags | OFlags::DIRECTORY).map_err(&failed)?;
            if made {
                fchmod(&handle, Mode::from_raw_mode(DIRECTORY_MODE)).map_err(&failed)?;
                self.tree.own(&handle).map_err(&failed)?;
            }
        }
        self.parent = Some((parent, handle));
        Ok(())
    }

    fn write(&mut self, path: &EntryPath, node: &Node, bytes: &[u8], times: Timestamps) -> Result<Made, Errno> {
        let present = self.present(path)?;
        let is_directory = present.as_ref().is_some_and(|stat| kind_of(stat) == FileType::Directory);
        if is_directory && *node == Node::Directory {
            return Ok(Made::Directory);
        }
        let aside = self.tree.next_aside();
        self.leftovers.push(aside.clone());
        let made = self.tree.prepare(&aside, node, bytes, present.as_ref(), times)?;
        self.place(path, aside, present.is_some()).map(|()| made)
    }

    fn present(&self, path: &EntryPath) -> Result<Option<Statx>, Errno> {
        let Some((_, parent)) = &self.parent else { return Err(Errno::BADF) };
        match look(parent, path.name()) {
            Ok(stat) => Ok(Some(stat)),
            Err(Errno::NOENT) => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Puts what is ready aside at its path, and keeps what was there; as far as is known, there is something if
    /// `present`.
    fn place(&mut self, path: &EntryPath, aside: String, mut present: bool) -> Result<(), Errno> {
        for _ in 0..RACES_MAX {
            let Some((_, parent)) = &self.parent else { return Err(Errno::BADF) };
            let rename = |flags| renameat_with(&self.tree.aside, aside.as_str(), parent, path.name(), flags);
            match rename(if present { RenameFlags::EXCHANGE } else { RenameFlags::NOREPLACE }) {
                Ok(()) if present => {
                    self.steps.push(Step::Swapped { path: path.clone(), aside });
                    return Ok(());
                }
                Ok(()) => {
                    self.leftovers.pop_if(|last| *last == aside);
                    self.steps.push(Step::Placed { path: path.clone() });
                    return Ok(());
                }
                Err(Errno::NOENT | Errno::EXIST) => {}
                // A file system that can't exchange, or a directory of an overlay that can't be moved.
                Err(Errno::INVAL | Errno::XDEV | Errno::NOSYS) if present => {
                    self.take(path)?;
                }
                Err(Errno::INVAL | Errno::NOSYS) => {
                    renameat(&self.tree.aside, aside.as_str(), parent, path.name())?;
                    self.steps.push(Step::Placed { path: path.clone() });
                    return Ok(());
                }
                Err(error) => return Err(error),
            }
            present = self.present(path)?.is_some();
        }
        Err(Errno::BUSY)
    }

    /// Moves an entry aside; nothing there is no matter.
    fn take(&mut self, path: &EntryPath) -> Result<(), Errno> {
        let parent = match self.tree.parent(path) {
            Err(error) if super::beneath::leads_nowhere(error) => return Ok(()),
            other => other?,
        };
        let aside = self.tree.next_aside();
        match renameat(&parent, path.name(), &self.tree.aside, aside.as_str()) {
            Ok(()) => {
                self.leftovers.push(aside.clone());
                self.steps.push(Step::Taken { path: path.clone(), aside });
                Ok(())
            }
            Err(Errno::NOENT) => Ok(()),
            Err(Errno::XDEV) if kind_of(&look(&parent, path.name())?) == FileType::Directory => self.take_apart(path),
            Err(error) => Err(error),
        }
    }

    /// Moves a directory aside piece by piece: one of an overlay's lower layer may not be renamed everywhere.
    fn take_apart(&mut self, top: &EntryPath) -> Result<(), Errno> {
        let mut directories = Vec::new();
        let mut left = vec![top.clone()];
        let mut lister = Lister::new();
        while let Some(path) = left.pop() {
            let handle = open_directory(self.tree.root.as_fd(), path.as_bytes(), OFlags::RDONLY)?;
            let mut files = Vec::new();
            lister.each(handle.as_fd(), |name, stat| {
                let child = path.join(name.to_bytes()).map_err(|_| Errno::INVAL)?;
                if child.as_bytes().len() > PATH_BYTES_MAX {
                    return Err(Errno::NAMETOOLONG);
                }
                if kind_of(stat) == FileType::Directory {
                    left.push(child)
                } else {
                    files.push(child)
                }
                Ok(())
            })?;
            for file in files {
                self.take(&file)?;
            }
            directories.push((path, look_at(&handle)?));
        }
        for (path, stat) in directories.into_iter().rev() {
            unlinkat(self.tree.parent(&path)?, path.name(), AtFlags::REMOVEDIR)?;
            let (mode, owner) = (u32::from(stat.stx_mode) & 0o7777, (stat.stx_uid, stat.stx_gid));
            self.steps.push(Step::Emptied { path, mode, owner });
        }
        Ok(())
    }

    /// Puts everything back, the last step first. A step that fails does not stop the others.
    fn undo(&mut self) -> Result<(), Failure> {
        self.parent = None;
        let mut first = None;
        while let Some(step) = self.steps.pop() {
            if let Err(mut failure) = self.undo_step(&step) {
                // What could not be put back is at least not thrown away.
                if let Step::Taken { aside, .. } | Step::Swapped { aside, .. } = &step {
                    self.leftovers.retain(|name| name != aside);
                    failure.kept = Some(self.tree.keep_aside(aside));
                }
                first.get_or_insert(failure);
            }
        }
        first.map_or(Ok(()), Err)
    }

    fn undo_step(&mut self, step: &Step) -> Result<(), Failure> {
        let (Step::Placed { path }
        | Step::Swapped { path, .. }
        | Step::Taken { path, .. }
        | Step::Emptied { path, .. }) = step;
        let failed = Failure::at("put back", path);
        let parent = self.tree.parent(path).map_err(&failed)?;
        let name = path.name();
        let undone = match step {
            // Somebody else may have put entries below a directory that was made here; those stay.
            Step::Placed { .. } => match unlinkat(&parent, name, AtFlags::empty()) {
                Err(Errno::ISDIR | Errno::PERM) => unlinkat(&parent, name, AtFlags::REMOVEDIR),
                other => other,
            },
            Step::Swapped { aside, .. } => {
                let swap = |flags| renameat_with(&self.tree.aside, aside.as_str(), &parent, name, flags);
                match swap(RenameFlags::EXCHANGE) {
                    Err(Errno::NOENT) => swap(RenameFlags::NOREPLACE),
                    other => other,
                }
            }
            Step::Taken { aside, .. } => {
                renameat_with(&self.tree.aside, aside.as_str(), &parent, name, RenameFlags::NOREPLACE)
            }
            Step::Emptied { mode, owner, .. } => make_directory(&parent, name, *mode).and_then(|_| {
                let handle = open_in(&parent, name, OFlags::DIRECTORY)?;
                fchown(&handle, Some(Uid::from_raw(owner.0)), Some(Gid::from_raw(owner.1)))?;
                fchmod(&handle, Mode::from_raw_mode(*mode))
            }),
        };
        undone.map_err(failed)
    }

    /// Removes what is left aside. What can't be removed now is when the tree is opened again.
    fn clear(&mut self) {
        for name in self.leftovers.drain(..) {
            if let Err(error) = remove_all(self.tree.aside.as_fd(), name.as_bytes()) {
                tracing::debug!(%error, name, "an entry that was replaced could not be removed yet");
            }
        }
    }
}

impl Tree {
    /// Makes an entry ready aside, complete but for its place.
    fn prepare(
        &self,
        aside: &str,
        node: &Node,
        bytes: &[u8],
        present: Option<&Statx>,
        times: Timestamps,
    ) -> Result<Made, Errno> {
        let leaf = |bytes: &[u8]| Made::Leaf { bytes: bytes.len() as u64, modified: times.last_modification };
        match node {
            Node::File { executable, .. } => {
                let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
                let handle = openat(&self.aside, aside, flags, Mode::RUSR | Mode::WUSR)?;
                let mut file = File::from(handle);
                file.write_all(bytes).map_err(|error| Errno::from_io_error(&error).unwrap_or(Errno::IO))?;
                self.own(&file)?;
                fchmod(&file, Mode::from_raw_mode(mode_of(*executable, present)))?;
                futimens(&file, &times)?;
                Ok(leaf(bytes))
            }
            Node::Symlink { target } => {
                symlinkat(target.as_slice(), &self.aside, aside)?;
                if let Some((user, group)) = self.owner {
                    let (user, group) = (Some(Uid::from_raw(user)), Some(Gid::from_raw(group)));
                    chownat(&self.aside, aside, user, group, AtFlags::SYMLINK_NOFOLLOW)?;
                }
                utimensat(&self.aside, aside, &times, AtFlags::SYMLINK_NOFOLLOW)?;
                Ok(leaf(target))
            }
            Node::Directory => {
                make_directory(&self.aside, aside, DIRECTORY_MODE)?;
                let handle = open_in(&self.aside, aside, OFlags::DIRECTORY)?;
                fchmod(&handle, Mode::from_raw_mode(DIRECTORY_MODE))?;
                self.own(&handle)?;
                Ok(Made::Directory)
            }
            // What a command left is noted; it is not made again.
            Node::Special { .. } => Err(Errno::OPNOTSUPP),
        }
    }

    fn own(&self, handle: impl AsFd) -> Result<(), Errno> {
        match self.owner {
            Some((user, group)) => fchown(handle, Some(Uid::from_raw(user)), Some(Gid::from_raw(group))),
            None => Ok(()),
        }
    }
}

/// A file that stays a file keeps its permissions, but for those to execute it.
fn mode_of(executable: bool, present: Option<&Statx>) -> u32 {
    match present.filter(|stat| kind_of(stat) == FileType::RegularFile) {
        Some(stat) => {
            let mode = u32::from(stat.stx_mode) & 0o777;
            match executable {
                true if mode & 0o100 != 0 => mode,
                true => mode | 0o100 | (mode & 0o444) >> 2,
                false => mode & !0o111,
            }
        }
        None if executable => EXECUTABLE_MODE,
        None => FILE_MODE,
    }
}

/// The modification time that is wanted, else now to the nanosecond. The kernel's own move in ticks, so that a change by
/// somebody else shows as another time, and who finds this one finds what was made here.
fn times(modified: Option<Timestamp>) -> Timestamps {
    let wanted = |Timestamp(millis): Timestamp| Timespec {
        tv_sec: millis.div_euclid(1000),
        tv_nsec: millis.rem_euclid(1000) * 1_000_000,
    };
    let omit = Timespec { tv_sec: 0, tv_nsec: rustix::fs::UTIME_OMIT };
    let last_modification = modified.map_or_else(|| clock_gettime(ClockId::Realtime), wanted);
    Timestamps { last_access: omit, last_modification }
}

#[cfg(test)]
#[expect(clippy::disallowed_methods, reason = "the test looks at files by itself")]
mod tests {
    use super::*;

    #[test]
    fn what_can_not_be_put_back_is_kept_where_the_error_says() {
        let directory = tempfile::tempdir().unwrap();
        let at = |name: &str| directory.path().join(name);
        for made in ["files", "aside"] {
            std::fs::create_dir(at(made)).unwrap();
        }
        std::fs::write(at("files/a"), "old").unwrap();
        let tree = Tree::beneath("host", &at("files"), &at("aside"), None).unwrap();
        let mut batch = Batch { tree: &tree, steps: Vec::new(), leftovers: Vec::new(), parent: None };
        let delete = FileChange::Delete { path: EntryPath::lookup("a").unwrap() };
        assert!(batch.make(&delete).is_ok());
        std::fs::write(at("files/a"), "by somebody meanwhile").unwrap();
        let words = batch.undo().map_err(|failure| failure.words()).unwrap_err();
        batch.clear();
        let kept = words.split_once("it is kept as ").unwrap().1;
        tree.empty_aside().unwrap();
        assert_eq!(std::fs::read(kept).unwrap(), b"old", "{words}");
        assert_eq!(std::fs::read(at("files/a")).unwrap(), b"by somebody meanwhile");
    }
}
