//! Changes below a directory: a batch is applied in full or not at all.

use std::fs::File;
use std::io::Read;
use std::os::fd::{AsFd, OwnedFd};

use rustix::fs::{
    AtFlags, FileType, Gid, Mode, OFlags, RenameFlags, Statx, Timestamps, Uid, fchmod, fchown, renameat, renameat_with,
    unlinkat,
};
use rustix::io::Errno;

use super::beneath::open_in;
use super::copying::copy_file;
use super::entries::{kind_of, make_directory, set_bits, vanished};
use super::file_stat::MadeStat;
use super::limits::PATH_BYTES_MAX;
use super::listing::{is_linked, look, look_at};
use super::making::{MakingError, ParentDir, errno, set_mode, times, times_of};
use super::remove::remove_all;
use super::shut_dirs::{ShutDirs, opened};
use super::tree::{DirTree, read_again};
use crate::backends::{BackendError, FileChange, Observed};
use crate::engine::event::{FileMode, Node};
use crate::engine::path::EntryPath;

/// The maximum number of attempts at putting an entry in place while others create and remove entries there.
const RACES_MAX: usize = 16;
/// The maximum number of replaced lower-layer files that a batch keeps open.
const COVERED_MAX: usize = 128;

impl DirTree {
    /// Makes the changes in order, all or none; readers see old or new contents. Returns the stats of changed paths.
    pub(crate) fn apply(&self, changes: &[FileChange]) -> Result<Vec<(EntryPath, MadeStat)>, BackendError> {
        let mut batch = ApplyBatch::of(self);
        let mut made = Vec::with_capacity(changes.len());
        for change in changes {
            match batch.make(change) {
                Ok(done) => {
                    made.push((change.path().clone(), done));
                    made.extend(change.linked().map(|to| (to.clone(), done)));
                }
                Err(failure) => return Err(batch.give_up(failure)),
            }
        }
        if let Err(failure) = batch.shut.shut(self) {
            return Err(batch.give_up(failure));
        }
        batch.clear();
        Ok(made)
    }
}

/// A change that was made at a path, with the data to undo it.
struct UndoStep {
    path: EntryPath,
    made: Made,
}

enum Made {
    /// An entry was placed at a free path.
    Placed,
    /// An entry was exchanged with the staged one.
    Swapped(String),
    /// An entry replaced a file of a lower layer, which is now unreachable by path.
    Covered(OwnedFd),
    /// An entry was moved to the staging directory.
    Taken(String),
    /// The permission bits were changed from these.
    Moded(u32),
    /// An empty directory with these bits and owner was removed, because it could not be moved.
    Emptied(u32, (u32, u32)),
}

struct ApplyBatch<'a> {
    tree: &'a DirTree,
    steps: Vec<UndoStep>,
    leftovers: Vec<String>,
    covered: usize,
    parent: ParentDir,
    shut: ShutDirs,
}

impl<'a> ApplyBatch<'a> {
    fn of(tree: &'a DirTree) -> Self {
        let (steps, leftovers) = (Vec::new(), Vec::new());
        Self { tree, steps, leftovers, covered: 0, parent: ParentDir::default(), shut: ShutDirs::default() }
    }

    /// Makes a change. Directories that block it because their owner may not enter or write them are opened.
    fn make(&mut self, change: &FileChange) -> Result<MadeStat, MakingError> {
        change.check(self.tree)?;
        match self.attempt(change) {
            Err(failure) if failure.is_denied() && self.open_to(change) => self.attempt(change),
            made => made,
        }
    }

    /// Returns true if it opened a directory.
    fn open_to(&mut self, change: &FileChange) -> bool {
        let opened = self.shut.open_for(self.tree, change);
        let has_opened = !opened.is_empty();
        self.steps.extend(opened.into_iter().map(|(path, bits)| UndoStep { path, made: Made::Moded(bits) }));
        has_opened
    }

    fn attempt(&mut self, change: &FileChange) -> Result<MadeStat, MakingError> {
        if !matches!(change, FileChange::Delete { .. }) {
            let Self { tree, steps, parent, .. } = self;
            let placed = |path| steps.push(UndoStep { path, made: Made::Placed });
            parent.lead_to(tree, change.path(), placed)?;
        }
        let made = match change {
            FileChange::Write { path, node, bytes, modified } => self.write(path, node, bytes, times(*modified)),
            FileChange::Mode { path, mode } => self.mode(path, *mode),
            FileChange::Link { path, to } => self.link(path, to),
            FileChange::Delete { path } => {
                self.parent.forget();
                self.take(path).map(|()| MadeStat::Nothing)
            }
        };
        made.map_err(|error| change.failed(error))
    }

    fn note(&mut self, path: &EntryPath, made: Made) {
        self.steps.push(UndoStep { path: path.clone(), made });
    }

    fn write(&mut self, path: &EntryPath, node: &Node, bytes: &[u8], times: Timestamps) -> Result<MadeStat, Errno> {
        let present = self.present(path)?;
        let is_directory = present.as_ref().is_some_and(|stat| kind_of(stat) == FileType::Directory);
        if let (true, Node::Directory { mode }, Some(stat)) = (is_directory, node, &present) {
            self.set_mode(path, stat, mode.bits())?;
            self.shut.forget(path);
            return Ok(MadeStat::Directory);
        }
        let mut times = times;
        if let (Node::File { mode, .. }, Some(stat)) = (node, &present)
            && (mode.bits() != u32::from(stat.stx_mode) & 0o7777 || is_linked(stat))
            && self.holds(path, stat, bytes)?
        {
            // Unchanged contents keep their times. Another name of the file keeps its mode.
            if !is_linked(stat) {
                return self.mode(path, *mode);
            }
            times = times_of(stat);
        }
        if is_directory && self.tree.left_out.rules.is_some() {
            self.take_apart(path)?;
            if self.present(path)?.is_some() {
                return Err(Errno::NOTEMPTY);
            }
        }
        let aside = self.tree.next_aside();
        self.leftovers.push(aside.clone());
        let place = (self.tree.aside.as_fd(), aside.as_bytes());
        let opened = opened(node);
        let made = self.tree.make(place, (opened.as_ref().unwrap_or(node), bytes), times)?;
        if !(present.is_some() && !node.is_directory() && self.cover(path, &aside)?) {
            self.place(path, aside, present.is_some())?;
        }
        self.shut.made(self.tree, path, node)?;
        Ok(made)
    }

    fn link(&mut self, path: &EntryPath, to: &EntryPath) -> Result<MadeStat, Errno> {
        let present = self.present(path)?;
        let aside = self.tree.next_aside();
        if self.tree.link((path, to), present.as_ref(), (self.tree.aside.as_fd(), aside.as_bytes()))? {
            self.leftovers.push(aside.clone());
            if !self.cover(path, &aside)? {
                self.place(path, aside, true)?;
            }
        }
        Ok(self.present(path)?.map_or(MadeStat::Nothing, |stat| MadeStat::as_it_is(&stat)))
    }

    fn mode(&mut self, path: &EntryPath, mode: FileMode) -> Result<MadeStat, Errno> {
        let stat = self.present(path)?.ok_or(Errno::NOENT)?;
        if kind_of(&stat) == FileType::Symlink {
            return Err(Errno::LOOP);
        }
        self.set_mode(path, &stat, mode.bits())?;
        self.shut.forget(path);
        Ok(MadeStat::as_it_is(&stat))
    }

    /// Sets the bits of the entry at a path, if they differ.
    fn set_mode(&mut self, path: &EntryPath, present: &Statx, bits: u32) -> Result<(), Errno> {
        let mode = u32::from(present.stx_mode) & 0o7777;
        if mode != bits {
            set_mode(self.parent.handle()?, path.name(), bits)?;
            self.note(path, Made::Moded(mode));
        }
        Ok(())
    }

    /// Returns true if the path holds a regular file with these contents.
    fn holds(&self, path: &EntryPath, present: &Statx, bytes: &[u8]) -> Result<bool, Errno> {
        if kind_of(present) != FileType::RegularFile || present.stx_size != bytes.len() as u64 {
            return Ok(false);
        }
        let mut found = Vec::new();
        let file = match open_in(self.parent.handle()?, path.name(), OFlags::RDONLY | OFlags::NONBLOCK) {
            Ok(file) => File::from(file),
            Err(Errno::ACCESS) => return Ok(false),
            Err(error) => return Err(error),
        };
        file.take(present.stx_size).read_to_end(&mut found).map_err(errno)?;
        Ok(found == bytes)
    }

    /// Renames the staged entry over a file of a lower layer, because an exchange would copy the file up first. Returns
    /// false without any change if the path is not such a file, or too many are open.
    fn cover(&mut self, path: &EntryPath, aside: &str) -> Result<bool, Errno> {
        if self.covered >= COVERED_MAX || !self.tree.is_in_lower(path) {
            return Ok(false);
        }
        let parent = self.parent.handle()?;
        let old = match open_in(parent, path.name(), OFlags::PATH) {
            Ok(old) if kind_of(&look_at(&old)?) == FileType::RegularFile => old,
            // Not a file, or it has just changed.
            Ok(_) | Err(Errno::NOENT | Errno::MFILE | Errno::NFILE) => return Ok(false),
            Err(error) => return Err(error),
        };
        match renameat(&self.tree.aside, aside, parent, path.name()) {
            Ok(()) => {
                self.leftovers.pop_if(|last| last == aside);
                self.covered += 1;
                self.note(path, Made::Covered(old));
                Ok(true)
            }
            Err(Errno::ISDIR) => Ok(false),
            Err(error) => Err(error),
        }
    }

    fn present(&self, path: &EntryPath) -> Result<Option<Statx>, Errno> {
        vanished(look(self.parent.handle()?, path.name()))
    }

    /// Moves the staged entry to its path, and keeps the previous one if `present`.
    fn place(&mut self, path: &EntryPath, aside: String, mut present: bool) -> Result<(), Errno> {
        for _ in 0..RACES_MAX {
            let parent = self.parent.handle()?;
            let rename = |flags| renameat_with(&self.tree.aside, aside.as_str(), parent, path.name(), flags);
            match rename(if present { RenameFlags::EXCHANGE } else { RenameFlags::NOREPLACE }) {
                Ok(()) if present => {
                    self.note(path, Made::Swapped(aside));
                    return Ok(());
                }
                Ok(()) => {
                    self.leftovers.pop_if(|last| *last == aside);
                    self.note(path, Made::Placed);
                    return Ok(());
                }
                Err(Errno::NOENT | Errno::EXIST) => {}
                // The file system can't exchange, or a directory of an overlay can't be moved.
                Err(Errno::INVAL | Errno::XDEV | Errno::NOSYS) if present => {
                    self.take(path)?;
                }
                Err(Errno::INVAL | Errno::NOSYS) => {
                    renameat(&self.tree.aside, aside.as_str(), parent, path.name())?;
                    self.note(path, Made::Placed);
                    return Ok(());
                }
                Err(error) => return Err(error),
            }
            present = self.present(path)?.is_some();
        }
        Err(Errno::BUSY)
    }

    /// Moves an entry to the staging directory; a missing entry is not an error.
    fn take(&mut self, path: &EntryPath) -> Result<(), Errno> {
        let parent = match self.tree.parent(path) {
            Err(error) if super::beneath::leads_nowhere(error) => return Ok(()),
            other => other?,
        };
        if self.tree.left_out.rules.is_some()
            && look(&parent, path.name()).is_ok_and(|stat| kind_of(&stat) == FileType::Directory)
        {
            return self.take_apart(path);
        }
        let aside = self.tree.next_aside();
        match renameat(&parent, path.name(), &self.tree.aside, aside.as_str()) {
            Ok(()) => {
                self.leftovers.push(aside.clone());
                self.note(path, Made::Taken(aside));
                Ok(())
            }
            Err(Errno::NOENT) => Ok(()),
            Err(Errno::XDEV) if kind_of(&look(&parent, path.name())?) == FileType::Directory => self.take_apart(path),
            Err(error) => Err(error),
        }
    }

    /// Moves a directory to the staging directory piece by piece: not every system can rename a directory of an
    /// overlay's lower layer. Ignored entries stay, and so do their parent directories.
    fn take_apart(&mut self, top: &EntryPath) -> Result<(), Errno> {
        let (mut files, mut directories) = (Vec::new(), Vec::new());
        let walked = self.tree.walk(top, &mut |path, entry| match entry.kind {
            Observed::Directory { .. } => directories.push(path),
            _ => files.push(path),
        });
        let may_stay = self.tree.left_out.rules.is_some();
        if let Some(closed) = walked.map_err(errno)?.first().filter(|_| !may_stay) {
            let is_deep = closed.as_bytes().len() > PATH_BYTES_MAX;
            return Err(if is_deep { Errno::NAMETOOLONG } else { Errno::ACCESS });
        }
        for path in &directories {
            if let Some(bits) = self.shut.open(self.tree, path) {
                self.note(path, Made::Moded(bits));
            }
        }
        for file in files {
            self.take(&file)?;
        }
        for path in directories.into_iter().rev() {
            let parent = self.tree.parent(&path)?;
            let stat = look(&parent, path.name())?;
            match unlinkat(&parent, path.name(), AtFlags::REMOVEDIR) {
                Ok(()) => {
                    let mode = u32::from(stat.stx_mode) & 0o7777;
                    self.note(&path, Made::Emptied(mode, (stat.stx_uid, stat.stx_gid)));
                    self.shut.forget(&path);
                }
                Err(Errno::NOTEMPTY | Errno::EXIST) if may_stay => {}
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    /// Undoes all changes after a failure, and describes the failure.
    fn give_up(mut self, failure: MakingError) -> BackendError {
        let mut reason = failure.words();
        if let Err(undo) = self.undo() {
            reason = format!("{reason}; earlier changes could not be undone: {}", undo.words());
        }
        self.clear();
        BackendError { backend: self.tree.backend, reason }
    }

    /// Undoes all steps, the last one first. A failed step does not stop the others.
    fn undo(&mut self) -> Result<(), MakingError> {
        self.parent.forget();
        let mut first = None;
        while let Some(step) = self.steps.pop() {
            if let Err(mut failure) = self.undo_step(&step) {
                // An entry that could not be restored must not be removed with the rest.
                if let Made::Taken(aside) | Made::Swapped(aside) = &step.made {
                    self.leftovers.retain(|name| name != aside);
                    failure.kept = Some(self.tree.keep_aside(aside));
                }
                first.get_or_insert(failure);
            }
        }
        first.map_or(Ok(()), Err)
    }

    fn undo_step(&mut self, step: &UndoStep) -> Result<(), MakingError> {
        let UndoStep { path, made } = step;
        let failed = MakingError::at("put back", path);
        let parent = self.tree.parent(path).map_err(&failed)?;
        let name = path.name();
        let undone = match made {
            // If others have added entries to a directory that was created here, it stays.
            Made::Placed => match unlinkat(&parent, name, AtFlags::empty()) {
                Err(Errno::ISDIR | Errno::PERM) => unlinkat(&parent, name, AtFlags::REMOVEDIR),
                other => other,
            },
            Made::Swapped(aside) => {
                let swap = |flags| renameat_with(&self.tree.aside, aside.as_str(), &parent, name, flags);
                match swap(RenameFlags::EXCHANGE) {
                    Err(Errno::NOENT) => swap(RenameFlags::NOREPLACE),
                    other => other,
                }
            }
            Made::Covered(old) => {
                let aside = self.tree.next_aside();
                self.leftovers.push(aside.clone());
                let copied = copy_file(
                    read_again(old).map_err(&failed)?,
                    &look_at(old).map_err(&failed)?,
                    &self.tree.aside,
                    aside.as_bytes(),
                );
                copied.map_err(errno).and_then(|()| renameat(&self.tree.aside, aside, &parent, name))
            }
            Made::Taken(aside) => {
                renameat_with(&self.tree.aside, aside.as_str(), &parent, name, RenameFlags::NOREPLACE)
            }
            Made::Moded(mode) => self.tree.handle(path).and_then(|handle| set_bits(&handle, *mode)),
            Made::Emptied(mode, owner) => make_directory(&parent, name, *mode).and_then(|_| {
                let handle = open_in(&parent, name, OFlags::DIRECTORY)?;
                fchown(&handle, Some(Uid::from_raw(owner.0)), Some(Gid::from_raw(owner.1)))?;
                fchmod(&handle, Mode::from_raw_mode(*mode))
            }),
        };
        undone.map_err(failed)
    }

    /// Removes the staged entries. If that fails, they are removed when the tree is opened again.
    fn clear(&mut self) {
        for name in self.leftovers.drain(..) {
            if let Err(error) = remove_all(self.tree.aside.as_fd(), name.as_bytes()) {
                tracing::debug!(%error, name, "failed to remove a replaced entry; it is removed later");
            }
        }
    }
}

#[cfg(test)]
mod tests {
    #![expect(clippy::disallowed_methods, reason = "the test reads files directly")]

    use super::*;

    #[test]
    fn apply_failed_undo_keeps_file_at_named_path() {
        let directory = tempfile::tempdir().unwrap();
        let at = |name: &str| directory.path().join(name);
        for made in ["files", "aside"] {
            std::fs::create_dir(at(made)).unwrap();
        }
        std::fs::write(at("files/a"), "old").unwrap();
        let tree = DirTree::beneath("host", &at("files"), &at("aside"), None).unwrap();
        let mut batch = ApplyBatch::of(&tree);
        let delete = FileChange::Delete { path: EntryPath::lookup("a").unwrap() };
        assert!(batch.make(&delete).is_ok());
        std::fs::write(at("files/a"), "by another meanwhile").unwrap();
        let words = batch.undo().map_err(|failure| failure.words()).unwrap_err();
        batch.clear();
        let kept = words.split_once("it was saved as ").unwrap().1;
        tree.empty_aside().unwrap();
        assert_eq!(std::fs::read(kept).unwrap(), b"old", "{words}");
        assert_eq!(std::fs::read(at("files/a")).unwrap(), b"by another meanwhile");
    }
}
