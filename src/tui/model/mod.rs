//! The debugger without a terminal: what it shows, and what every action makes of that.
//!
//! Invariant: nothing here can record, run or write anything. A [`SessionHistory`] gives a history's reading side only,
//! and what acts outside is a [`OutsideRequest`], which somebody else may fulfil.

mod action;
pub(crate) mod background_task;
mod condition;
pub(crate) mod error;
pub(crate) mod history;
mod json;
pub(crate) mod leash;
mod moving;
pub(crate) mod panes;
mod prompt;
mod search;
mod seek;
mod sheet;
mod sheets;
#[cfg(test)]
mod tests;
mod timeline;
pub(crate) mod view;

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;

use foldspace::{EntryPath, Seq};

pub(crate) use action::Ask;
pub(crate) use action::{DebuggerAction, Direction, OutsideRequest};
pub(crate) use background_task::{BackgroundTask, TaskDone};
pub(crate) use condition::{ReadPredicate, StopCondition, StopPredicate};
pub(crate) use error::ViewError;
#[cfg(test)]
pub(crate) use history::IsHeld;
pub(crate) use history::SessionHistory;
pub(crate) use json::JsonDifference;
pub(crate) use prompt::InputPrompt;
pub(crate) use sheet::{Sheet, Target, Tone};
pub(crate) use sheets::changed_slices;
pub(crate) use timeline::{TimelineRow, VisibleRows};
pub(crate) use view::{HistoryPosition, ShownStep, Tab, ViewContent};

use background_task::Busy;
use search::SearchQuery;
use seek::Seek;
use timeline::Rows;
use view::ViewTarget;

/// Which pane the keys act on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Focus {
    Timeline,
    Files,
    Detail,
}

/// How many lines each pane has.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Heights {
    pub(crate) timeline: usize,
    pub(crate) files: usize,
    pub(crate) detail: usize,
    /// Whether the files have a pane of their own.
    pub(crate) apart: bool,
}

/// Everything that the debugger shows, and nothing of how.
pub(crate) struct Model {
    pub(crate) past: Arc<SessionHistory>,
    /// The histories from which one went into a child's, with the positions there.
    visits: Vec<(Arc<SessionHistory>, Seq)>,
    read_predicate: ReadPredicate,
    pub(crate) cursor: Seq,
    pub(crate) rows: Rows,
    pub(crate) window: VisibleRows,
    pub(crate) heights: Heights,
    pub(crate) focus: Focus,
    pub(crate) tab: Tab,
    selected: Option<EntryPath>,
    whole_file: bool,
    turned: BTreeSet<EntryPath>,
    slices: BTreeSet<String>,
    compared: Option<(HistoryPosition, HistoryPosition)>,
    /// The line of the files' sheet that is chosen, and the first that is shown.
    pub(crate) file_line: usize,
    pub(crate) file_top: usize,
    /// The same of the detail's sheet.
    pub(crate) detail_line: usize,
    pub(crate) detail_top: usize,
    /// Columns that are out of sight on the left.
    pub(crate) sideways: usize,
    pub(crate) prompt: Option<InputPrompt>,
    pub(crate) help: Option<usize>,
    pub(crate) zoomed: bool,
    search: Option<Arc<SearchQuery>>,
    pub(crate) breakpoints: Vec<Arc<StopCondition>>,
    pub(crate) marks: BTreeMap<char, Seq>,
    pub(crate) message: Option<(Tone, String)>,
    pub(crate) sight: Option<ViewContent>,
    /// Whether what is shown is not of the cursor any more.
    look_due: bool,
    seek_due: Option<Seek>,
    busy: Option<Busy>,
    errands: u64,
    because: String,
    wishes: VecDeque<OutsideRequest>,
}

impl Model {
    /// The debugger on a history, at a position of it: 1 or more, and no more than there are events.
    pub(crate) fn new(past: Arc<SessionHistory>, cursor: Seq, read_predicate: ReadPredicate) -> Self {
        let mut model = Self {
            cursor: cursor.clamp(1, past.head().max(1)),
            past,
            visits: Vec::new(),
            read_predicate,
            rows: Rows::default(),
            window: VisibleRows::default(),
            heights: Heights { timeline: 8, files: 8, detail: 8, apart: false },
            focus: Focus::Timeline,
            tab: Tab::Files,
            selected: None,
            whole_file: false,
            turned: BTreeSet::new(),
            slices: BTreeSet::new(),
            compared: None,
            file_line: 0,
            file_top: 0,
            detail_line: 0,
            detail_top: 0,
            sideways: 0,
            prompt: None,
            help: None,
            zoomed: false,
            search: None,
            breakpoints: Vec::new(),
            marks: BTreeMap::new(),
            message: None,
            sight: None,
            look_due: true,
            seek_due: None,
            busy: None,
            errands: 0,
            because: String::new(),
            wishes: VecDeque::new(),
        };
        model.settle_on(model.cursor);
        model
    }

    /// Does what was asked for. What takes long is left to an [`BackgroundTask`], what acts outside to a [`OutsideRequest`].
    pub(crate) fn apply(&mut self, action: DebuggerAction) {
        if !matches!(action, DebuggerAction::Resize(_) | DebuggerAction::Type(_)) {
            self.message = None;
        }
        if let Err(trouble) = self.act(action) {
            self.tell(Tone::Bad, trouble.to_string());
        }
        self.show_window();
    }

    /// Does what was asked for, long ways included.
    ///
    /// # Errors
    /// Why it could not be done.
    pub(crate) fn attempt(&mut self, action: DebuggerAction) -> Result<(), ViewError> {
        self.because.clear();
        self.act(action)?;
        self.go_long_ways()
    }

    /// Goes before the first event, from where the first is the next.
    pub(crate) fn before_first(&mut self) {
        (self.cursor, self.look_due) = (0, false);
    }

    /// Goes after the last event, from where the last is the one before.
    pub(crate) fn after_last(&mut self) {
        (self.cursor, self.look_due) = (self.past.head() + 1, false);
    }

    /// Whether a file is shown whole, not only its difference.
    pub(crate) fn show_whole_file(&mut self, whole: bool) {
        self.look_due |= self.whole_file != whole;
        self.whole_file = whole;
    }

    /// The condition that was met where the last long way led.
    pub(crate) fn because(&self) -> &str {
        &self.because
    }

    /// The places that are compared, where some are.
    pub(crate) fn compared(&self) -> Option<&(HistoryPosition, HistoryPosition)> {
        self.compared.as_ref()
    }

    /// What was wished for and not yet taken.
    pub(crate) fn take_wish(&mut self) -> Option<OutsideRequest> {
        self.wishes.pop_front()
    }

    /// Tells the person something.
    pub(crate) fn tell(&mut self, tone: Tone, words: impl Into<String>) {
        self.message = Some((tone, words.into()));
    }

    /// The file that was chosen; none while the first that changed is shown.
    pub(crate) fn selected(&self) -> Option<&EntryPath> {
        self.selected.as_ref()
    }

    /// Where the position is named from outside.
    pub(crate) fn position_name(&self) -> String {
        format!("{}@{}", self.past.name(), self.cursor)
    }

    /// The last event of the step at the cursor, as far as it was looked at.
    pub(crate) fn step_end(&self) -> Seq {
        let step = self.sight.as_ref().map(|sight| &sight.step);
        step.filter(|step| step.cursor == self.cursor).map_or(self.cursor, |step| step.after)
    }

    /// Whether one is in a child's history.
    pub(crate) fn is_visiting(&self) -> bool {
        !self.visits.is_empty()
    }

    /// The mark of a position.
    pub(crate) fn mark_at(&self, seq: Seq) -> Option<char> {
        self.marks.iter().find(|(_, marked)| **marked == seq).map(|(mark, _)| *mark)
    }

    fn show_window(&mut self) {
        self.window.height = self.heights.timeline;
        if let Err(trouble) = self.window.show(&self.past, &self.rows, self.cursor) {
            self.tell(Tone::Bad, trouble.to_string());
        }
    }

    fn look(&self) -> ViewTarget {
        ViewTarget {
            cursor: self.cursor,
            whole_call: self.is_on_folded_call(),
            tab: if self.tab == Tab::Files && self.heights.apart { Tab::File } else { self.tab },
            selected: self.selected.clone(),
            whole_file: self.whole_file,
            turned: self.turned.clone(),
            slices: self.slices.clone(),
            compared: self.compared.clone(),
        }
    }

    fn is_on_folded_call(&self) -> bool {
        let brief = self.past.brief(self.cursor).ok().flatten();
        brief.is_some_and(|brief| brief.is_call() && !self.rows.folds.is_open(brief.seq))
    }
}
