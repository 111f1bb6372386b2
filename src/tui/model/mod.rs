//! The debugger without a terminal. Nothing here can record, run or write: a [`SessionHistory`] only reads, and the
//! host fulfils each [`OutsideRequest`].

mod action;
pub(crate) mod background_task;
#[cfg(test)]
mod conversation_tests;
mod direction;
mod filter;
pub(crate) mod history;
mod json;
pub(crate) mod leash;
#[cfg(test)]
mod list_tests;
pub(crate) mod menu;
mod moving;
pub(crate) mod panes;
mod pointer;
mod prompt;
mod seek;
mod sheet;
mod sheets;
#[cfg(test)]
mod tests;
mod timeline;
pub(crate) mod view;

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use foldspace::Seq;
use foldspace::view::{SearchQuery, StopCondition};

use crate::terminal::exit::Failure;
use crate::terminal::style::Tone;
pub(crate) use action::{Ask, DebuggerAction, MenuKind, OutsideCommand, OutsideRequest, OutsideVerb, ScreenPlace};
pub(crate) use background_task::{BackgroundTask, TaskDone};
pub(crate) use direction::Direction;
#[cfg(test)]
pub(crate) use history::FindRunning;
pub(crate) use history::{SessionHistory, ToolSort};
pub(crate) use menu::Menu;
pub(crate) use prompt::InputPrompt;
pub(crate) use sheet::{Sheet, Target};
pub(crate) use sheets::{changed_slices, changes_of};
pub(crate) use timeline::{TimelineRow, VisibleRows};
pub(crate) use view::{HistoryPosition, ShownStep, Tab, ViewContent};

use background_task::Busy;
use filter::{Reached, RowFilter};
use history::{Brief, CHUNK};
use json::{JsonDifference, differences, pointer_to};
use leash::Leash;
use seek::{Seek, SeekTarget};
use timeline::Rows;
use view::{ViewChoice, ViewTarget};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Focus {
    Timeline,
    Files,
    Detail,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Heights {
    pub(crate) timeline: usize,
    pub(crate) files: usize,
    pub(crate) detail: usize,
    pub(crate) apart: bool,
    /// The columns of the detail pane.
    pub(crate) columns: usize,
}

/// The selected line of a sheet, and the first line on the screen.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Scroll {
    pub(crate) line: usize,
    pub(crate) top: usize,
}

/// The state of the debugger, independent of its drawing.
pub(crate) struct Model {
    pub(crate) past: Arc<SessionHistory>,
    visits: Vec<(Arc<SessionHistory>, Seq)>,
    pub(crate) cursor: Seq,
    pub(crate) rows: Rows,
    pub(crate) window: VisibleRows,
    pub(crate) heights: Heights,
    pub(crate) focus: Focus,
    pub(crate) tab: Tab,
    pub(crate) choice: ViewChoice,
    pub(crate) file_scroll: Scroll,
    pub(crate) detail_scroll: Scroll,
    /// The columns of the widest tree of files so far.
    pub(crate) widest_file: usize,
    pub(crate) sideways: usize,
    pub(crate) prompt: Option<InputPrompt>,
    pub(crate) help: Option<usize>,
    pub(crate) menu: Option<Menu>,
    /// True if the debugger has the mouse, not the terminal.
    pub(crate) mouse: bool,
    answers: Vec<(Ask, String)>,
    pub(crate) zoomed: bool,
    search: Option<Arc<SearchQuery>>,
    pub(crate) breakpoints: Vec<Arc<StopCondition>>,
    pub(crate) marks: BTreeMap<char, Seq>,
    pub(crate) message: Option<(Tone, String)>,
    pub(crate) sight: Option<ViewContent>,
    look_due: bool,
    seek_due: Option<Seek>,
    filter_due: Option<Arc<RowFilter>>,
    busy: Option<Busy>,
    errands: u64,
    pub(crate) because: String,
    wishes: VecDeque<OutsideRequest>,
}

impl Model {
    pub(crate) fn new(past: Arc<SessionHistory>, cursor: Seq) -> Self {
        let mut model = Self {
            cursor: cursor.clamp(1, past.head().max(1)),
            past,
            visits: Vec::new(),
            rows: Rows::default(),
            window: VisibleRows::default(),
            heights: Heights { timeline: 8, files: 8, detail: 8, apart: false, columns: 80 },
            focus: Focus::Timeline,
            tab: Tab::Files,
            choice: ViewChoice::default(),
            file_scroll: Scroll::default(),
            detail_scroll: Scroll::default(),
            widest_file: 0,
            sideways: 0,
            prompt: None,
            help: None,
            menu: None,
            mouse: true,
            answers: Vec::new(),
            zoomed: false,
            search: None,
            breakpoints: Vec::new(),
            marks: BTreeMap::new(),
            message: None,
            sight: None,
            look_due: true,
            seek_due: None,
            filter_due: None,
            busy: None,
            errands: 0,
            because: String::new(),
            wishes: VecDeque::new(),
        };
        model.settle_on(model.cursor);
        model
    }

    /// Applies an action. Long work becomes a [`BackgroundTask`], external work an [`OutsideRequest`].
    pub(crate) fn apply(&mut self, action: DebuggerAction) {
        if !matches!(action, DebuggerAction::Resize(_) | DebuggerAction::Type(_)) {
            self.message = None;
        }
        if let Err(trouble) = self.act(action) {
            self.tell(Tone::Bad, trouble.to_string());
        }
        self.show_window();
    }

    /// Applies an action and runs the search that it requests.
    pub(crate) fn attempt(&mut self, action: DebuggerAction) -> Result<(), Failure> {
        self.because.clear();
        self.act(action)?;
        self.go_long_ways()
    }

    /// Puts the cursor before the first event or after the last one, where there is nothing to show.
    pub(crate) fn stand_outside(&mut self, cursor: Seq) {
        (self.cursor, self.look_due) = (cursor, false);
    }

    pub(crate) fn show_whole_file(&mut self, whole: bool) {
        self.look_due |= self.choice.whole_file != whole;
        self.choice.whole_file = whole;
    }

    pub(crate) fn take_wish(&mut self) -> Option<OutsideRequest> {
        self.wishes.pop_front()
    }

    pub(crate) fn tell(&mut self, tone: Tone, words: impl Into<String>) {
        self.message = Some((tone, words.into()));
    }

    pub(crate) fn step_end(&self) -> Seq {
        let step = self.sight.as_ref().map(|sight| &sight.step);
        match step.filter(|step| step.cursor == self.cursor) {
            Some(step) => step.after,
            // Its view is not loaded yet.
            None if self.is_on_folded_row() => self.past.end_near(self.cursor).map_or(self.cursor, |end| end.last),
            None => self.cursor,
        }
    }

    pub(crate) fn is_visiting(&self) -> bool {
        !self.visits.is_empty()
    }

    pub(crate) fn mark_at(&self, seq: Seq) -> Option<char> {
        self.marks.iter().find(|(_, marked)| **marked == seq).map(|(mark, _)| *mark)
    }

    fn show_window(&mut self) {
        self.window.height = self.heights.timeline;
        let shown = self.window.show_rolled(&self.past, &self.rows);
        let shown = shown.and_then(|is_rolled| match is_rolled {
            true => Ok(()),
            false => self.window.show(&self.past, &self.rows, self.cursor),
        });
        if let Err(trouble) = shown {
            self.tell(Tone::Bad, trouble.to_string());
        }
    }

    fn look(&self) -> ViewTarget {
        let is_message = self.past.brief(self.cursor).ok().flatten().is_some_and(|brief| brief.is_conversation());
        let tab = match self.tab {
            // A message has neither files nor output.
            Tab::Files if self.heights.apart && is_message => Tab::Event,
            Tab::Output if is_message => Tab::Event,
            Tab::Files if self.heights.apart => Tab::File,
            tab => tab,
        };
        ViewTarget {
            cursor: self.cursor,
            whole_row: self.is_on_folded_row(),
            tab,
            columns: self.heights.columns,
            choice: self.choice.clone(),
        }
    }

    fn is_on_folded_row(&self) -> bool {
        let brief = self.past.brief(self.cursor).ok().flatten();
        brief.is_some_and(|brief| brief.folds() && !self.rows.folds.is_open(brief.seq))
    }
}
