//! The operations that workspaces need of a disk.

use std::io;
use std::path::Path;

use super::ignore_rules::IgnoreRules;
use super::pending_scan::KnownFiles;
use super::tree::DirTree;
use crate::backends::{BackendError, DirtyPath, FileChange, KeptAt, Walked};
use crate::engine::id::Digest;
use crate::engine::path::EntryPath;

pub(crate) trait WorkspaceDisk: Send {
    fn tree(&self) -> io::Result<&DirTree>;

    /// Finds what may have changed since the last `mark_clean`: too much perhaps, never too little. It only looks; look
    /// at what it names afterwards, not before.
    fn dirty(&mut self) -> io::Result<Vec<DirtyPath>>;

    /// The same by looking at every entry.
    fn walk(&mut self) -> io::Result<Walked> {
        Ok(Walked { dirty: self.dirty()?, late: Vec::new() })
    }

    fn is_walk_due(&self) -> bool {
        false
    }

    /// Takes up what an earlier process kept. `changed_since` gives what the history has changed after that position.
    fn resume(&mut self, changed_since: &dyn Fn(&KeptAt) -> Option<Vec<EntryPath>>) {
        let _ = changed_since;
    }

    fn is_keeping_due(&self) -> bool {
        false
    }

    /// Keeps what is known, which is what the history has at that position.
    fn keep(&mut self, at: &KeptAt) {
        let _ = at;
    }

    /// Ends the keeping: the files may not be those of the history.
    fn distrust(&mut self) {}

    /// Returns true if files may have set-user-ID bits. They may not in a directory of the host's that a container shares.
    fn allows_set_id(&self) -> bool {
        true
    }

    /// Returns the rules by which entries are left out.
    fn rules(&self) -> Option<&IgnoreRules> {
        None
    }

    /// Takes new files for what git has, unread, from the next look at everything on.
    fn borrow_from_git(&mut self) {}

    /// Returns the digest of a file that need not be read.
    fn borrowed(&mut self, path: &EntryPath) -> Option<Digest> {
        let _ = path;
        None
    }

    /// Gives what is known of the files, and the last `dirty`, which takes up what its caller is shown.
    fn known(&mut self) -> &mut KnownFiles;

    /// Takes what `dirty` saw for known. What came after that will be seen by the next.
    fn mark_clean(&mut self) -> io::Result<()> {
        self.known().mark_clean();
        Ok(())
    }

    /// Takes what is there for known, without a look at what would have been named.
    fn adopt(&mut self) -> io::Result<()> {
        self.dirty()?;
        if let Some(pending) = &mut self.known().pending {
            pending.index_mut().trust();
        }
        self.mark_clean()
    }

    /// Applies changes and knows them afterwards, so that the next `dirty` does not name them.
    fn apply(&mut self, changes: &[FileChange]) -> Result<(), BackendError>;

    /// The same where no one else uses the files meanwhile.
    fn populate(&mut self, changes: &[FileChange]) -> Result<(), BackendError>;

    fn is_overlay(&self) -> bool {
        false
    }

    /// Tells whether `attach` shows the files. Else a container is made with their directory.
    fn is_attached(&self) -> bool {
        self.is_overlay()
    }

    /// Shows the files at `at` in the mount namespace of a running process.
    fn attach(&mut self, pid: i32, at: &Path) -> io::Result<()> {
        let _ = (pid, at);
        Ok(())
    }

    /// Takes the files away from everywhere that `attach` has shown them for this process.
    fn detach(&mut self, pid: i32) -> io::Result<()> {
        let _ = pid;
        Ok(())
    }

    /// Keeps a scan fast where much has changed. No command may run meanwhile.
    fn seal_if_large(&mut self) -> Result<(), SealError> {
        Ok(())
    }

    /// Joins the names of each file so that a write through one is seen through the others, where a lower layer has
    /// them. No command may run meanwhile.
    fn join_names(&mut self, names: &dyn Fn() -> Vec<Vec<EntryPath>>) -> Result<(), BackendError> {
        let _ = names;
        Ok(())
    }

    /// Shares the files as they are, copy-on-write, with the disk `name` beside this one, which has none yet. No
    /// command may run, and no one else have that disk. Gives false, and has changed nothing, where that can't be done.
    fn share(&mut self, name: &str) -> Result<bool, SealError> {
        let _ = name;
        Ok(false)
    }
}

#[derive(Debug, thiserror::Error)]
pub(crate) enum SealError {
    /// Something could not be made. All is as it was.
    #[error(transparent)]
    Unmade(#[from] io::Error),
    /// The files could not be put where they are attached: that container shows the old ones and has to go.
    #[error(transparent)]
    Misplaced(io::Error),
}
