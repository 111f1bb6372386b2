//! Looking at a step: what was before, what is after, and what one pane shows of it.

use std::collections::BTreeSet;
use std::sync::Arc;

use foldspace::reducers::Change;
use foldspace::{EntryPath, Seq, State, Timestamp, VirtualFileSystem};

use super::ViewError;
use super::history::SessionHistory;
use super::leash::Leash;
use super::sheet::Sheet;
use super::sheets;

/// The panes of a step.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Tab {
    Files,
    File,
    Slices,
    Event,
    Output,
    Diff,
}

impl Tab {
    /// All, in order.
    pub(crate) const ALL: [Self; 6] = [Self::Files, Self::File, Self::Slices, Self::Event, Self::Output, Self::Diff];

    /// Its name.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Files => "files",
            Self::File => "file",
            Self::Slices => "slices",
            Self::Event => "event",
            Self::Output => "output",
            Self::Diff => "diff",
        }
    }
}

/// A position of a history.
#[derive(Clone)]
pub(crate) struct HistoryPosition {
    pub(crate) past: Arc<SessionHistory>,
    pub(crate) seq: Seq,
}

impl HistoryPosition {
    /// The state there.
    pub(crate) fn state(&self) -> Result<State, ViewError> {
        self.past.state(self.seq, &Leash::default())
    }
}

/// What is to be looked at.
#[derive(Clone)]
pub(crate) struct ViewTarget {
    pub(crate) cursor: Seq,
    /// Whether the step is the whole call that begins there.
    pub(crate) whole_call: bool,
    pub(crate) tab: Tab,
    /// The file that was chosen; else the first that changed is shown.
    pub(crate) selected: Option<EntryPath>,
    /// Whether a file is shown whole, not only its difference.
    pub(crate) whole_file: bool,
    /// Directories and slices that were opened or closed by hand.
    pub(crate) turned: BTreeSet<EntryPath>,
    pub(crate) slices: BTreeSet<String>,
    /// Two places to compare, where the pane of differences is not to show the step's.
    pub(crate) compared: Option<(HistoryPosition, HistoryPosition)>,
}

/// A step: everything from one position to another.
#[derive(Clone)]
pub(crate) struct ShownStep {
    pub(crate) cursor: Seq,
    /// The position before it; what changed is told against that.
    pub(crate) before: Seq,
    pub(crate) after: Seq,
    /// Whether it is the call that begins at the cursor.
    pub(crate) call: bool,
    pub(crate) old: State,
    pub(crate) new: State,
    pub(crate) changes: Arc<[Change]>,
}

/// What was seen.
pub(crate) struct ViewContent {
    pub(crate) step: ShownStep,
    pub(crate) time: Timestamp,
    pub(crate) tab: Tab,
    /// The file that the file's pane is about.
    pub(crate) file: Option<EntryPath>,
    pub(crate) files: Sheet,
    pub(crate) detail: Sheet,
}

impl ViewTarget {
    /// Looks.
    pub(crate) fn run(&self, past: &SessionHistory, leash: &Leash) -> Result<ViewContent, ViewError> {
        let step = self.step(past, leash)?;
        past.learn_ends(&step.new);
        let file = self.selected.clone().or_else(|| step.first_file());
        let files = sheets::files(&step, &self.turned);
        leash.holds()?;
        let detail = match self.tab {
            Tab::Files => Sheet::default(),
            Tab::File => sheets::file(past, &step, file.as_ref(), self.whole_file)?,
            Tab::Slices => sheets::slices(&step, &self.slices)?,
            Tab::Event if step.call => sheets::call(past, &step, leash)?,
            Tab::Event => sheets::event(past, step.cursor)?,
            Tab::Output => sheets::output(past, &step, leash)?,
            Tab::Diff => sheets::diff(past, &step, self.compared.as_ref(), leash)?,
        };
        Ok(ViewContent { time: step.new.time(), step, tab: self.tab, file, files, detail })
    }

    /// The step alone.
    fn step(&self, past: &SessionHistory, leash: &Leash) -> Result<ShownStep, ViewError> {
        let end = if self.whole_call { past.end_of(self.cursor, leash)?.last } else { self.cursor };
        let before = self.cursor.saturating_sub(1);
        let old = past.state(before, leash)?;
        let new = past.state(end, leash)?;
        let changes = VirtualFileSystem::of(&old).diff(&VirtualFileSystem::of(&new)).into();
        Ok(ShownStep { cursor: self.cursor, before, after: end, call: self.whole_call, old, new, changes })
    }
}

impl ShownStep {
    /// What became of a path.
    pub(crate) fn change(&self, path: &EntryPath) -> Option<&Change> {
        self.changes.iter().find(|change| change.path() == path)
    }

    /// The first file that changed.
    fn first_file(&self) -> Option<EntryPath> {
        let file = |change: &&Change| match change {
            Change::Added { after: entry, .. } | Change::Changed { after: entry, .. } => !entry.is_directory(),
            Change::Removed { before: entry, .. } => !entry.is_directory(),
        };
        self.changes.iter().find(file).map(|change| change.path().clone())
    }
}
