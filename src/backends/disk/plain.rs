//! A session's files in a plain directory, with their stats from the last scan.

use std::collections::BTreeSet;
use std::io;
use std::os::fd::AsFd;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use rustix::time::{ClockId, clock_gettime};

use super::dir_xattrs::Forms;
use super::file_stat::{FileTime, MadeStat};
use super::ignore_rules::IgnoreRules;
use super::index::StatIndex;
use super::kept_index::KeptIndex;
use super::mapped_mount::MappedMount;
use super::pending_scan::{KnownFiles, PendingScan, ScannedFiles};
use super::scan::{ScanOutcome, scan, scan_watched};
use super::told_look::look_at_told;
use super::tree::DirTree;
use super::watch::{Told, Watch};
use super::workspace_disk::WorkspaceDisk;
use crate::backends::git::CleanFiles;
use crate::backends::{BackendError, DirtyPath, FileChange, KeptAt, Walked};
use crate::engine::id::Digest;
use crate::engine::path::EntryPath;

/// The minimum time between stores of a changed index.
const KEEP_EVERY: Duration = Duration::from_secs(60);
/// The number of events between two stores of an index; a later process has to read all newer events.
const EVENTS_BEHIND: u64 = 1000;

/// Options that reduce scanning and reading.
#[derive(Debug)]
pub(crate) struct PlainOptions {
    pub(crate) kept: Option<KeptIndex>,
    /// True if the kernel may be asked to report changes.
    pub(crate) may_watch: bool,
    /// The interval of full scans, regardless of kernel reports.
    pub(crate) walk_every: Duration,
    /// The mount that shows the files in containers; `None` if containers are created with the directory.
    pub(crate) shown: Option<MappedMount>,
    /// True if commands in a container change the files, so that set-user-ID bits could serve other users.
    pub(crate) is_in_container: bool,
    /// The rules for leaving entries out.
    pub(crate) rules: Option<Arc<IgnoreRules>>,
}

impl Default for PlainOptions {
    fn default() -> Self {
        Self {
            kept: None,
            may_watch: false,
            walk_every: Duration::from_secs(60),
            shown: None,
            is_in_container: false,
            rules: None,
        }
    }
}

/// A plain directory. Its changes are reported by the kernel, or found by reading the stat of every entry, as git does.
#[derive(Debug)]
pub(crate) struct PlainDisk {
    tree: DirTree,
    known: KnownFiles,
    /// Changes made in place since the last scan, which are not in the index yet.
    laid_out: Vec<(EntryPath, MadeStat)>,
    /// Changes in the index that the kernel may still report.
    made: BTreeSet<EntryPath>,
    options: PlainOptions,
    /// While it is set, only the pending scan has the index, and reported paths are carried until it is settled.
    watching: Option<WatchState>,
    keeping: Keeping,
    borrowing: Borrowing,
}

/// Files that need not be read because git has their contents.
#[derive(Debug, Default)]
enum Borrowing {
    #[default]
    Nothing,
    /// They are requested with the first scan.
    Due,
    /// The files that were unchanged from git's contents at that moment.
    Since(FileTime, CleanFiles),
}

#[derive(Debug)]
struct WatchState {
    watch: Watch,
    told: Told,
    /// The time of the last full scan.
    walked: Duration,
}

#[derive(Debug, Default)]
struct Keeping {
    /// True if the index has changed since it was stored.
    is_changed: bool,
    is_ended: bool,
    last: Option<(Duration, u64)>,
}

impl PlainDisk {
    /// A disk with an empty index: the first `dirty` reports everything.
    pub(crate) fn new(tree: DirTree) -> io::Result<Self> {
        Self::with_options(tree, PlainOptions::default())
    }

    pub(crate) fn with_options(tree: DirTree, options: PlainOptions) -> io::Result<Self> {
        tree.empty_aside()?;
        let tree = match options.rules.clone() {
            Some(rules) => tree.ruled_by(rules),
            None => tree,
        };
        Ok(Self {
            tree,
            known: KnownFiles::default(),
            laid_out: Vec::new(),
            made: BTreeSet::new(),
            options,
            watching: None,
            keeping: Keeping::default(),
            borrowing: Borrowing::Nothing,
        })
    }

    /// Starts watching with the next full scan.
    pub(super) fn watch_with(&mut self, watch: Watch) {
        self.watching =
            Some(WatchState { watch, told: Told { is_everything: true, ..Told::default() }, walked: now() });
    }

    #[cfg(test)]
    pub(super) fn is_watching(&self) -> bool {
        self.watching.is_some()
    }

    fn learn(&mut self, made: &[(EntryPath, MadeStat)]) {
        self.keeping.is_changed = true;
        self.known.learn(self.tree.root.as_fd(), made, Forms::Plain);
    }

    fn learn_laid_out(&mut self) {
        let laid_out = std::mem::take(&mut self.laid_out);
        if !laid_out.is_empty() {
            self.learn(&laid_out);
            self.made.extend(laid_out.into_iter().map(|(path, _)| path));
        }
    }

    fn check_anchor(&self) -> Result<(), BackendError> {
        let failed = |error: io::Error| BackendError { backend: self.tree.backend, reason: error.to_string() };
        self.tree.check_anchor().map_err(failed)
    }

    fn begin_look(&mut self) -> io::Result<()> {
        self.tree.check_anchor()?;
        self.tree.open_root()?;
        self.learn_laid_out();
        if self.options.may_watch && self.watching.is_none() {
            self.options.may_watch = false;
            if let Some(watch) = Watch::new() {
                self.watch_with(watch);
            }
        }
        let made = std::mem::take(&mut self.made);
        let are_rules_changed = self.rules().is_some_and(IgnoreRules::refresh);
        if let Some(watching) = &mut self.watching {
            watching.told.is_everything |= are_rules_changed;
            watching.watch.drain(&mut watching.told);
            if let Some(unsettled) = self.known.pending.take() {
                unsettled.doubted.iter().for_each(|path| watching.told.tell_of(path.as_bytes()));
                self.known.index = unsettled.index;
            }
            watching.told.leave_out_made(&made, &self.known.index);
        }
        Ok(())
    }

    /// Makes the index pending until it is settled, to compare it with the caller's reads.
    fn await_settling(&mut self, started: FileTime) {
        let index = std::mem::take(&mut self.known.index);
        self.known.pending = Some(PendingScan::of(index, ScannedFiles::Tree, started));
    }

    /// Scans the reported paths. `None` if a full scan is needed.
    fn look_at_told(&mut self) -> Option<Vec<DirtyPath>> {
        let watching = self.watching.as_mut()?;
        let index = &mut self.known.index;
        let is_odd = index.listings.is_empty() || index.listings.iter().any(|listing| listing.doubtful);
        if is_odd || watching.told.is_everything || watching.watch.is_broken {
            return None;
        }
        let (root, started) = (self.tree.root.as_fd(), FileTime::now());
        let outcome = look_at_told(root, &self.tree.left_out, index, &mut watching.watch, &watching.told);
        self.keeping.is_changed |= !outcome.touched.is_empty();
        self.known.carried.extend(outcome.touched);
        if outcome.is_partial {
            return None;
        }
        watching.told = Told::default();
        self.await_settling(started);
        Some(self.known.carried.clone())
    }

    fn look_at_all(&mut self) -> io::Result<Walked> {
        let is_first = self.known.index.listings.is_empty();
        if is_first {
            self.ask_git();
        }
        let root = self.tree.root.as_fd();
        let outcome = match &mut self.watching {
            None => scan(root, &self.known.index, Forms::Plain, &self.tree.left_out)?,
            Some(watching) => {
                watching.watch.begin();
                scan_watched(root, &self.known.index, &self.tree.left_out, &mut watching.watch)?
            }
        };
        self.keeping.is_changed |= is_first || !outcome.touched.is_empty();
        let walked = match self.watching.take() {
            None => {
                let dirty = self.known.scanned(outcome, ScannedFiles::Tree);
                Walked { dirty, late: Vec::new() }
            }
            Some(watching) => self.take_up(watching, outcome, is_first),
        };
        // Others may still know removed entries.
        let all = || vec![DirtyPath::Subtree(EntryPath::root())];
        Ok(if is_first { Walked { dirty: all(), late: Vec::new() } } else { walked })
    }

    fn ask_git(&mut self) {
        let (now, repository) = (FileTime::now(), self.rules().and_then(IgnoreRules::repository));
        let (Borrowing::Due, Some(repository)) = (&self.borrowing, repository) else { return };
        self.borrowing = match CleanFiles::of(repository) {
            Ok(files) => Borrowing::Since(now, files),
            Err(error) => {
                tracing::warn!(%error, "git failed to list unchanged files; reading every file");
                Borrowing::Nothing
            }
        };
    }

    fn take_up(&mut self, mut watching: WatchState, mut outcome: ScanOutcome, is_first: bool) -> Walked {
        let mut after = Told::default();
        watching.watch.drain(&mut after);
        let is_told = |dirty: &DirtyPath| {
            let (DirtyPath::Entry(path) | DirtyPath::Subtree(path)) = dirty;
            watching.told.covers(path) || after.covers(path)
        };
        let is_late = |dirty: &&DirtyPath| !is_first && !is_told(dirty) && !self.known.carried.contains(dirty);
        let late = outcome.touched.iter().filter(is_late).cloned().collect();
        if is_first {
            outcome.touched = vec![DirtyPath::Subtree(EntryPath::root())];
        }
        self.known.carried.extend(watching.told.written());
        let dirty = self.known.scanned(outcome, ScannedFiles::Tree);
        watching.watch.drop_unseen(|_| true);
        if !watching.watch.is_broken {
            self.known.index = StatIndex::default();
            self.known.carried.clone_from(&dirty);
            self.watching = Some(WatchState { watch: watching.watch, told: after, walked: now() });
        }
        Walked { dirty, late }
    }
}

/// Returns the time of the monotonic clock.
fn now() -> Duration {
    let now = clock_gettime(ClockId::Monotonic);
    Duration::new(now.tv_sec.unsigned_abs(), u32::try_from(now.tv_nsec).unwrap_or(0))
}

impl WorkspaceDisk for PlainDisk {
    fn tree(&self) -> io::Result<&DirTree> {
        Ok(&self.tree)
    }

    fn dirty(&mut self) -> io::Result<Vec<DirtyPath>> {
        self.begin_look()?;
        match self.look_at_told() {
            Some(dirty) => Ok(dirty),
            None => Ok(self.look_at_all()?.dirty),
        }
    }

    fn peek(&self) -> io::Result<Vec<DirtyPath>> {
        self.tree.check_anchor()?;
        let pending = self.known.pending.as_ref().map(|pending| &pending.index);
        // Only one of them has the index.
        let index = pending.filter(|_| self.watching.is_some()).unwrap_or(&self.known.index);
        let mut touched = scan(self.tree.root.as_fd(), index, Forms::Plain, &self.tree.left_out)?.touched;
        touched.extend(self.known.carried.iter().cloned());
        Ok(if index.listings.is_empty() { vec![DirtyPath::Subtree(EntryPath::root())] } else { touched })
    }

    fn walk(&mut self) -> io::Result<Walked> {
        self.begin_look()?;
        self.look_at_all()
    }

    fn is_walk_due(&self) -> bool {
        let walked = self.watching.as_ref().map(|watching| watching.walked);
        walked.is_some_and(|walked| now().saturating_sub(walked) >= self.options.walk_every)
    }

    fn known(&mut self) -> &mut KnownFiles {
        &mut self.known
    }

    fn rules(&self) -> Option<&IgnoreRules> {
        self.options.rules.as_deref()
    }

    fn allows_set_id(&self) -> bool {
        !self.options.is_in_container
    }

    fn borrow_from_git(&mut self) {
        self.borrowing = Borrowing::Due;
    }

    fn borrowed(&mut self, path: &EntryPath) -> Option<Digest> {
        let Borrowing::Since(moment, files) = &self.borrowing else { return None };
        let digest = files.digest(path.as_bytes())?;
        let is_older = |pending: &mut PendingScan| pending.is_older(path, *moment);
        self.known.pending.as_mut().is_some_and(is_older).then_some(digest)
    }

    fn mark_clean(&mut self) -> io::Result<()> {
        if let (Some(watching), Some(pending)) = (&mut self.watching, &self.known.pending) {
            pending.doubted.iter().for_each(|path| watching.told.tell_of(path.as_bytes()));
        }
        self.known.mark_clean();
        self.borrowing = Borrowing::Nothing;
        Ok(())
    }

    fn apply(&mut self, changes: &[FileChange]) -> Result<(), BackendError> {
        self.check_anchor()?;
        self.learn_laid_out();
        let made = self.tree.apply(changes)?;
        self.learn(&made);
        // A process that another thread starts may briefly hold such a file open, so its closing is reported late.
        self.made.extend(made.into_iter().map(|(path, _)| path));
        Ok(())
    }

    fn populate(&mut self, changes: &[FileChange]) -> Result<(), BackendError> {
        self.check_anchor()?;
        let (made, removed) = self.tree.populate(changes)?;
        self.laid_out.extend(made);
        // A replacement, perhaps with the same inode, would be mistaken for the old entry.
        if removed {
            self.learn_laid_out();
        }
        Ok(())
    }

    fn resume(&mut self, changed_since: &dyn Fn(&KeptAt) -> Option<Vec<EntryPath>>) {
        let is_unknown = self.known.index.listings.is_empty() && self.known.pending.is_none();
        let Some(kept) = self.options.kept.as_ref().filter(|_| is_unknown && self.laid_out.is_empty()) else { return };
        let Some((at, index)) = kept.read(&self.tree.root) else { return };
        let Some(changed) = changed_since(&at) else { return };
        self.known.index = index;
        changed.iter().for_each(|path| self.known.index.doubt(path, true));
        self.keeping.last = Some((now(), at.seq));
        self.keeping.is_changed = !changed.is_empty();
    }

    fn is_keeping_due(&self) -> bool {
        let last = self.keeping.last.map(|(last, _)| last);
        self.keeping.is_changed && last.is_none_or(|last| now().saturating_sub(last) >= KEEP_EVERY)
    }

    fn keep(&mut self, at: &KeptAt) {
        self.learn_laid_out();
        let is_old = self.keeping.last.is_some_and(|(_, last)| at.seq.saturating_sub(last) >= EVENTS_BEHIND);
        let is_settled = self.known.pending.is_none() && self.known.carried.is_empty();
        let is_known = is_settled && !self.known.index.listings.is_empty() && !self.keeping.is_ended;
        let Some(kept) = self.options.kept.as_ref().filter(|_| is_known && (self.keeping.is_changed || is_old)) else {
            return;
        };
        if let Some(watching) = &mut self.watching {
            watching.watch.drain(&mut watching.told);
            if watching.told.is_everything || watching.watch.is_broken {
                return;
            }
            // Stat may not show writes through a mapping.
            let written: Vec<EntryPath> = watching.told.paths(|change| change.is_written).collect();
            written.iter().for_each(|path| self.known.index.doubt(path, false));
        }
        match kept.write(&self.tree.root, at, &self.known.index) {
            Ok(()) => (self.keeping.last, self.keeping.is_changed) = (Some((now(), at.seq)), false),
            Err(error) => tracing::warn!(%error, "failed to store the stat index; the next process reads every file"),
        }
    }

    fn distrust(&mut self) {
        self.keeping.is_ended = true;
    }

    fn is_attached(&self) -> bool {
        self.options.shown.is_some()
    }

    fn attach(&mut self, pid: i32, at: &Path) -> io::Result<()> {
        self.tree.check_anchor()?;
        self.options.shown.as_mut().map_or(Ok(()), |shown| shown.attach(&self.tree.root, pid, at))
    }

    fn detach(&mut self, pid: i32) -> io::Result<()> {
        self.options.shown.as_mut().map_or(Ok(()), |shown| shown.detach(pid))
    }
}
