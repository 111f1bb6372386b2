//! The workspace's files as a tool sees them: the slice, with the call's own changes on top.

use std::collections::BTreeSet;

use bytes::Bytes;

use super::error::ToolError;
use crate::backends::{FileChange, Workspace};
use crate::engine::commit::CommitError;
use crate::engine::event::{DeleteEntry, FileMode, Node, WriteFile, WriteMode};
use crate::engine::id::Digest;
use crate::engine::path::EntryPath;
use crate::engine::session::Session;
use crate::reducers::{Change, Entry, PathRules, VirtualFileSystem, directories_above};
use crate::tools::error::WorkspaceError;
use crate::tools::workspace::capture::Captured;
use crate::tools::workspace::plan::{ChangePlan, NewContents, PlannedChange};
use crate::tools::workspace::project::project;
use crate::tools::workspace::recording::EventBuffer;

const LINKS_MAX: usize = 40;

/// Files of a workspace, as one call sees and changes them.
///
/// Changes are staged: the call sees them at once, others after success. An error discards all since the last command.
pub struct Filesystem {
    session: Session,
    /// The files when the call began.
    pub(super) begun: VirtualFileSystem,
    tree: VirtualFileSystem,
    pub(super) staged: Vec<PlannedChange>,
    /// Number of staged changes that are already on the disk.
    pub(super) landed: usize,
    fresh: NewContents,
    /// The policy's rules for the call's paths.
    pub(super) rules: PathRules,
    /// Umask of new entries.
    umask: u32,
}

impl Filesystem {
    pub(crate) fn new(session: Session, tree: VirtualFileSystem, umask: u32) -> Self {
        let begun = tree.clone();
        Self {
            session,
            begun,
            tree,
            staged: Vec::new(),
            landed: 0,
            fresh: NewContents::new(),
            rules: PathRules::default(),
            umask,
        }
    }

    /// Returns all entries, including the call's own changes.
    pub fn tree(&self) -> &VirtualFileSystem {
        &self.tree
    }

    /// Follows symbolic links to the actual path. A link never leads out of the workspace.
    ///
    /// # Errors
    /// [`ToolError::Refused`] if a link leads outside, or links form a loop.
    pub fn resolve(&self, path: &EntryPath) -> Result<EntryPath, ToolError> {
        let mut left: Vec<Vec<u8>> = path.segments().map(<[u8]>::to_vec).rev().collect();
        let mut at = EntryPath::root();
        let mut links = 0;
        while let Some(segment) = left.pop() {
            if segment == b".." {
                let outside = || ToolError::new(format!("{} leads out of the workspace", path.rooted()));
                at = at.parent().ok_or_else(outside)?;
                continue;
            }
            let next = at.join(&segment)?;
            let Some(Node::Symlink { target }) = self.tree.node(&next) else {
                at = next;
                continue;
            };
            links += 1;
            if links > LINKS_MAX {
                return Err(ToolError::new(format!("{}: too many symbolic links", path.rooted())));
            }
            if target.first() == Some(&b'/') {
                return Err(ToolError::new(format!("{} is a link that leads out of the workspace", next.rooted())));
            }
            let parts = target.split(|byte| *byte == b'/').filter(|part| !part.is_empty() && *part != b".");
            left.extend(parts.map(<[u8]>::to_vec).rev());
        }
        Ok(at)
    }

    /// Follows symbolic links in the directory of an entry.
    pub(crate) fn beside_links(&self, path: &EntryPath) -> Result<EntryPath, ToolError> {
        let parent = path.parent().ok_or_else(crate::engine::path::root_named)?;
        Ok(self.resolve(&parent)?.join(path.name())?)
    }

    /// Returns the entry at `path`, following links; `None` if it does not exist.
    pub fn entry(&self, path: &EntryPath) -> Result<Option<&Entry>, ToolError> {
        Ok(self.tree.get(&self.resolve(path)?))
    }

    /// Returns true if the path is a directory, following links.
    pub(crate) fn is_directory(&self, path: &EntryPath) -> Result<bool, ToolError> {
        Ok(self.tree.is_directory(&self.resolve(path)?))
    }

    /// Returns the contents of a file, following links.
    ///
    /// # Errors
    /// [`ToolError::Missing`] if the path does not exist, [`ToolError::Refused`] if it is no file, was not stored or may
    /// not be read.
    pub fn read(&self, path: &EntryPath) -> Result<Bytes, ToolError> {
        self.check_read(&self.resolve(path)?)?;
        self.stored(path)
    }

    fn stored(&self, path: &EntryPath) -> Result<Bytes, ToolError> {
        let entry = self.entry(path)?;
        match entry.map(|entry| &entry.node) {
            Some(Node::File { content, size, incomplete: true, .. }) => Err(not_kept(path, content, *size)),
            Some(Node::File { content, .. }) => self.content(content),
            Some(Node::Special { special }) => {
                Err(ToolError::new(format!("{} is a {}; it has no contents", path.rooted(), special.name())))
            }
            Some(_) => Err(ToolError::new(format!("{} is a directory", path.rooted()))),
            None if path.is_root() => Err(ToolError::new("/ is a directory")),
            None => Err(ToolError::Missing(format!("{} does not exist", path.rooted()))),
        }
    }

    /// Returns a content by its digest.
    ///
    /// # Errors
    /// [`ToolError::Session`] if the store does not have it.
    pub fn content(&self, digest: &Digest) -> Result<Bytes, ToolError> {
        match self.fresh.get(digest) {
            Some(bytes) => Ok(bytes.clone()),
            None => Ok(self.session.aside(|| self.session.content(digest))?),
        }
    }

    /// Creates a file, and its missing parent directories.
    ///
    /// # Errors
    /// [`ToolError::Refused`] if the path exists, or a file is in the place of a parent directory.
    pub fn create(&mut self, path: &EntryPath, bytes: impl Into<Bytes>) -> Result<(), ToolError> {
        let path = self.vacant(path)?;
        let mode = self.mode_of_new(false);
        self.put(&path, bytes.into(), mode, WriteMode::Create)
    }

    /// Creates or overwrites a file, following links. An existing file retains its permission bits.
    ///
    /// # Errors
    /// [`ToolError::Refused`] if it is a directory, or a file is in the place of a parent directory.
    pub fn write(&mut self, path: &EntryPath, bytes: impl Into<Bytes>) -> Result<(), ToolError> {
        let path = self.resolve(path)?;
        let (how, mode) = match self.tree.node(&path) {
            None => (WriteMode::Create, self.mode_of_new(false)),
            Some(Node::File { mode, .. }) => (WriteMode::Overwrite, *mode),
            Some(_) => return Err(ToolError::new(format!("{} is a directory", path.rooted()))),
        };
        self.put(&path, bytes.into(), mode, how)
    }

    /// Appends bytes to a file, or creates it.
    pub fn append(&mut self, path: &EntryPath, bytes: &[u8]) -> Result<(), ToolError> {
        let path = self.resolve(path)?;
        let Some(Node::File { mode, .. }) = self.tree.node(&path).cloned() else {
            return self.write(&path, bytes.to_vec());
        };
        let whole = [&self.stored(&path)?[..], bytes].concat();
        self.put(&path, Bytes::from(whole), mode, WriteMode::Append)
    }

    /// Creates a symbolic link. Its target is checked only when the link is followed.
    pub fn link(&mut self, path: &EntryPath, target: &[u8]) -> Result<(), ToolError> {
        self.place(path, Node::Symlink { target: target.to_vec() })
    }

    /// Creates a directory, and its missing parents.
    pub fn make_directory(&mut self, path: &EntryPath) -> Result<(), ToolError> {
        self.place(path, Node::Directory { mode: self.mode_of_new(true) })
    }

    /// Removes an entry and everything below it; does not follow a link.
    ///
    /// # Errors
    /// [`ToolError::Refused`] for the root, and if the path does not exist.
    pub fn remove(&mut self, path: &EntryPath) -> Result<(), ToolError> {
        if path.is_root() {
            return Err(ToolError::new("the workspace root can't be removed; name entries below it"));
        }
        let path = self.beside_links(path)?;
        if self.tree.get(&path).is_none() {
            return Err(ToolError::new(format!("{} does not exist; nothing was removed", path.rooted())));
        }
        let event = DeleteEntry { path };
        self.tree.delete(&event);
        self.staged.push(PlannedChange::Delete(event));
        Ok(())
    }

    pub(crate) fn place(&mut self, path: &EntryPath, node: Node) -> Result<(), ToolError> {
        let path = self.vacant(path)?;
        self.stage(WriteFile { path, mode: WriteMode::Create, node });
        Ok(())
    }

    /// Resolves links in the entry's directory; fails if the entry exists.
    fn vacant(&self, path: &EntryPath) -> Result<EntryPath, ToolError> {
        let path = self.in_directory(path)?;
        match self.tree.get(&path) {
            None => Ok(path),
            Some(_) => Err(ToolError::new(format!("{} already exists", path.rooted()))),
        }
    }

    pub(crate) fn put(
        &mut self,
        path: &EntryPath,
        bytes: Bytes,
        permissions: FileMode,
        mode: WriteMode,
    ) -> Result<(), ToolError> {
        let path = self.in_directory(path)?;
        let node = Node::file_with(&bytes, permissions);
        if let Node::File { content, .. } = &node {
            self.fresh.insert(*content, bytes);
        }
        self.stage(WriteFile { path, mode, node });
        Ok(())
    }

    /// Resolves links in the entry's directory; fails if a file is above the entry.
    fn in_directory(&self, asked: &EntryPath) -> Result<EntryPath, ToolError> {
        let path = self.beside_links(asked)?;
        let nearest = directories_above(&path).find_map(|above| Some((self.tree.get(&above)?.is_directory(), above)));
        match nearest {
            Some((false, file)) => {
                let (asked, file) = (asked.rooted(), file.rooted());
                Err(ToolError::new(format!("{asked} can't be written: {file} is a file, not a directory")))
            }
            _ => Ok(path),
        }
    }

    /// Returns the mode of a new file; a new directory has the mode of an executable file.
    pub(crate) fn mode_of_new(&self, executable: bool) -> FileMode {
        FileMode::of(if executable { 0o777 } else { 0o666 } & !self.umask)
    }

    fn stage(&mut self, event: WriteFile) {
        let mode = self.mode_of_new(true);
        if mode != FileMode::DIRECTORY {
            // Only directories with the usual mode are implied by their entries.
            let missing = directories_above(&event.path).take_while(|above| self.tree.get(above).is_none());
            for path in missing.collect::<Vec<_>>().into_iter().rev() {
                let directory = WriteFile { path, mode: WriteMode::Create, node: Node::Directory { mode } };
                self.tree.write(&directory, self.session.now());
                self.staged.push(PlannedChange::Write(directory));
            }
        }
        self.tree.write(&event, self.session.now());
        self.staged.push(PlannedChange::Write(event));
    }

    pub(crate) fn changes(&self) -> Result<Vec<FileChange>, ToolError> {
        let changes = self.staged[self.landed..].iter();
        let changes = changes.map(|change| change.file_change(|digest| self.content(digest)));
        changes.collect()
    }

    /// Returns the files that this call wrote and that still exist.
    pub(crate) fn written(&self) -> BTreeSet<&EntryPath> {
        let is_file = |path: &&EntryPath| matches!(self.tree.node(path), Some(Node::File { .. }));
        let written = |change: &PlannedChange| matches!(change, PlannedChange::Write(..));
        self.staged.iter().filter(|change| written(change)).map(PlannedChange::path).filter(is_file).collect()
    }

    pub(crate) fn staged_bytes(&self) -> u64 {
        let bytes = |staged: &PlannedChange| match staged {
            PlannedChange::Write(WriteFile { node: Node::File { size, .. }, .. }) => *size,
            _ => 0,
        };
        self.staged[self.landed..].iter().map(bytes).sum()
    }

    pub(crate) fn has_landed(&self) -> bool {
        self.landed > 0
    }

    /// Marks the staged changes as on the disk: they are recorded whatever the outcome.
    pub(crate) fn land(&mut self) {
        self.landed = self.staged.len();
    }

    /// Adopts the captured changes of a command. All staged changes must have landed.
    pub(crate) fn take_captured(&mut self, captured: Captured) {
        let now = self.session.now();
        captured.changes.iter().for_each(|change| change.apply_to(&mut self.tree, now));
        self.staged.extend(captured.changes);
        self.fresh.extend(captured.contents);
        self.land();
    }

    pub(crate) fn record_into(&self, recording: &mut EventBuffer) -> Result<(), CommitError> {
        self.staged.iter().try_for_each(|change| recording.push_change(change, &self.fresh))
    }

    /// Undoes the call's changes that are on the disk, and drops the others. Returns their number; `None` if an entry
    /// can't be restored, so that all stay.
    pub(super) fn take_back(&mut self, workspace: &dyn Workspace) -> Result<Option<usize>, WorkspaceError> {
        self.unstage();
        self.return_to(workspace, &self.begun.clone())
    }

    /// Returns the files on the disk.
    pub(super) fn on_disk(&self) -> VirtualFileSystem {
        let mut now = self.begun.clone();
        self.staged[..self.landed].iter().for_each(|change| change.apply_to(&mut now, self.session.now()));
        now
    }

    /// Returns the disk to other files, and drops the undone changes. Returns their number; `None` if an entry can't be
    /// restored, so that all stay.
    pub(super) fn return_to(
        &mut self,
        workspace: &dyn Workspace,
        target: &VirtualFileSystem,
    ) -> Result<Option<usize>, WorkspaceError> {
        let plan = ChangePlan::kept(&self.session, &self.on_disk(), target, (&self.fresh, false))?;
        if !plan.left.is_empty() {
            return Ok(None);
        }
        project(&self.session, workspace, &plan.steps, &self.fresh, &mut 0)?;
        let (time, waiting) = (self.session.now(), self.staged.split_off(self.landed));
        let undone: BTreeSet<&EntryPath> = plan.changes.iter().map(Change::path).collect();
        let is_begun = self.begun.diff(target).is_empty();
        let stays = |change: &&PlannedChange| !is_begun && !undone.contains(change.path());
        let rest: Vec<PlannedChange> = self.staged.iter().filter(stays).cloned().collect();
        let mut reached = self.begun.clone();
        rest.iter().for_each(|change| change.apply_to(&mut reached, time));
        // The rest may lead elsewhere, such as after a removal of a whole directory: then the undo is recorded, too.
        match reached.diff(target).is_empty() {
            true => self.staged = rest,
            false => self.staged.extend(plan.steps),
        }
        self.landed = self.staged.len();
        self.tree = target.clone();
        waiting.iter().for_each(|change| change.apply_to(&mut self.tree, time));
        self.staged.extend(waiting);
        Ok(Some(plan.changes.len()))
    }

    /// Drops the staged changes that are not on the disk.
    pub(super) fn unstage(&mut self) {
        self.staged.truncate(self.landed);
    }
}

fn not_kept(path: &EntryPath, content: &Digest, size: u64) -> ToolError {
    let why = match *content == Digest::from_bytes([0; 32]) {
        true => "the file could not be read; allow reading it (chmod u+r) with a shell command".to_owned(),
        false => format!("its {size} bytes are over the budget; read it with a shell command"),
    };
    ToolError::new(format!("the contents of {} were not stored: {why}", path.rooted()))
}
