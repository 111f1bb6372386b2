//! A step: the states before and after, and the contents of one pane.

use std::collections::BTreeSet;
use std::sync::Arc;

use foldspace::reducers::Change;
use foldspace::{EntryPath, Seq, State, Timestamp, VirtualFileSystem};

use super::{Failure, Leash, SessionHistory, Sheet, sheets};

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
    pub(crate) const ALL: [Self; 6] = [Self::Files, Self::File, Self::Slices, Self::Event, Self::Output, Self::Diff];

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

#[derive(Clone)]
pub(crate) struct HistoryPosition {
    pub(crate) past: Arc<SessionHistory>,
    pub(crate) seq: Seq,
}

impl HistoryPosition {
    pub(crate) fn state(&self) -> Result<State, Failure> {
        self.past.state(self.seq, &Leash::default())
    }
}

/// A person's choices for the contents of the panes.
#[derive(Clone, Default)]
pub(crate) struct ViewChoice {
    pub(crate) selected: Option<EntryPath>,
    pub(crate) whole_file: bool,
    pub(crate) turned: BTreeSet<EntryPath>,
    pub(crate) slices: BTreeSet<String>,
    pub(crate) compared: Option<(HistoryPosition, HistoryPosition)>,
}

#[derive(Clone)]
pub(crate) struct ViewTarget {
    pub(crate) cursor: Seq,
    /// True for all events of a folded row.
    pub(crate) whole_row: bool,
    pub(crate) tab: Tab,
    /// The columns of the detail pane.
    pub(crate) columns: usize,
    pub(crate) choice: ViewChoice,
}

#[derive(Clone)]
pub(crate) struct ShownStep {
    pub(crate) cursor: Seq,
    pub(crate) before: Seq,
    pub(crate) after: Seq,
    pub(crate) call: bool,
    pub(crate) old: State,
    pub(crate) new: State,
    pub(crate) changes: Arc<[Change]>,
}

pub(crate) struct ViewContent {
    pub(crate) step: ShownStep,
    pub(crate) time: Timestamp,
    pub(crate) tab: Tab,
    pub(crate) file: Option<EntryPath>,
    pub(crate) files: Sheet,
    pub(crate) detail: Sheet,
}

impl ViewTarget {
    pub(crate) fn run(&self, past: &SessionHistory, leash: &Leash) -> Result<ViewContent, Failure> {
        let step = self.step(past, leash)?;
        let file = self.choice.selected.clone().or_else(|| step.first_file());
        let files = sheets::files(&step, &self.choice.turned);
        leash.holds()?;
        let detail = match self.tab {
            Tab::Files => Sheet::default(),
            Tab::File => sheets::file(past, &step, file.as_ref(), self.choice.whole_file)?,
            Tab::Slices => sheets::slices(&step, &self.choice.slices)?,
            Tab::Event if step.call => sheets::call(past, &step, leash)?.wrapped(self.columns),
            Tab::Event => sheets::event(past, step.cursor)?.wrapped(self.columns),
            Tab::Output => sheets::output(past, &step, leash)?.wrapped(self.columns),
            Tab::Diff => sheets::diff(past, &step, self.choice.compared.as_ref(), leash)?,
        };
        Ok(ViewContent { time: step.new.time(), step, tab: self.tab, file, files, detail })
    }

    fn step(&self, past: &SessionHistory, leash: &Leash) -> Result<ShownStep, Failure> {
        let call = self.whole_row && past.brief(self.cursor)?.is_some_and(|brief| brief.is_call());
        let end = if self.whole_row { past.end_of(self.cursor, leash)?.last } else { self.cursor };
        let before = self.cursor.saturating_sub(1);
        let old = past.state(before, leash)?;
        let new = past.state(end, leash)?;
        let changes = VirtualFileSystem::of(&old).diff(&VirtualFileSystem::of(&new)).into();
        Ok(ShownStep { cursor: self.cursor, before, after: end, call, old, new, changes })
    }
}

impl ShownStep {
    pub(crate) fn change(&self, path: &EntryPath) -> Option<&Change> {
        self.changes.iter().find(|change| change.path() == path)
    }

    fn first_file(&self) -> Option<EntryPath> {
        let file = |change: &&Change| {
            let (before, after) = change.sides();
            after.or(before).is_some_and(|entry| !entry.is_directory())
        };
        self.changes.iter().find(file).map(|change| change.path().clone())
    }
}
