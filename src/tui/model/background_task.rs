//! Work that takes too long for the input thread.

use std::sync::Arc;

use super::filter::{FilteredRows, RowFilter};
use super::view::ViewTarget;
use super::{Direction, Failure, Leash, Model, Rows, Scroll, Seek, SessionHistory, Tone, ViewContent};
use foldspace::view::Sought;

pub(crate) struct BackgroundTask {
    number: u64,
    past: Arc<SessionHistory>,
    work: TaskWork,
    leash: Leash,
}

enum TaskWork {
    Look(Box<ViewTarget>),
    Seek(Seek),
    Filter(Arc<RowFilter>, Rows),
}

pub(crate) struct TaskDone {
    number: u64,
    way: Direction,
    found: Result<SearchHit, Failure>,
}

enum SearchHit {
    Sight(Box<ViewContent>),
    Place(Option<Sought>),
    Rows(FilteredRows),
}

pub(super) struct Busy {
    number: u64,
    leash: Leash,
    /// True if it runs until it ends or is stopped.
    is_seek: bool,
}

impl BackgroundTask {
    pub(crate) fn run(self) -> TaskDone {
        let (way, found) = match &self.work {
            // A later task has replaced it.
            _ if self.leash.is_cancelled() => (Direction::Forward, Err(Failure::stopped())),
            TaskWork::Look(look) => {
                (Direction::Forward, look.run(&self.past, &self.leash).map(|sight| SearchHit::Sight(Box::new(sight))))
            }
            TaskWork::Seek(seek) => (seek.way, seek.run(&self.past, &self.leash).map(SearchHit::Place)),
            TaskWork::Filter(filter, rows) => {
                (Direction::Forward, filter.list(rows.filter.as_deref(), &self.past, &self.leash).map(SearchHit::Rows))
            }
        };
        TaskDone { number: self.number, way, found }
    }
}

impl Model {
    pub(crate) fn next_errand(&mut self) -> Option<BackgroundTask> {
        let is_due = self.filter_due.is_some() || self.seek_due.is_some() || self.look_due;
        if !is_due || self.busy.as_ref().is_some_and(|busy| busy.is_seek) {
            return None;
        }
        // The result of the current one is not wanted any more.
        self.stop();
        let work = if let Some(filter) = self.filter_due.take() {
            TaskWork::Filter(filter, self.rows.clone())
        } else if let Some(seek) = self.seek_due.take() {
            TaskWork::Seek(seek)
        } else {
            self.look_due = false;
            TaskWork::Look(Box::new(self.look()))
        };
        self.errands += 1;
        let (number, leash) = (self.errands, Leash::default());
        self.busy = Some(Busy { number, leash: leash.clone(), is_seek: !matches!(work, TaskWork::Look(_)) });
        Some(BackgroundTask { number, past: Arc::clone(&self.past), work, leash })
    }

    pub(crate) fn take(&mut self, done: TaskDone) {
        if self.busy.as_ref().is_none_or(|busy| busy.number != done.number) {
            return;
        }
        self.busy = None;
        if let Err(trouble) = self.take_found(done) {
            self.tell(Tone::Bad, trouble.to_string());
        }
        self.show_window();
    }

    fn take_found(&mut self, done: TaskDone) -> Result<(), Failure> {
        match done.found? {
            SearchHit::Sight(sight) => self.take_sight(*sight),
            SearchHit::Place(Some(sought)) => {
                let was_filtered = self.rows.filter.is_some();
                self.go_to(sought.seq)?;
                let unhidden =
                    if was_filtered && self.rows.filter.is_none() { "; all rows are shown again" } else { "" };
                if !sought.because.is_empty() {
                    self.tell(Tone::Noted, format!("stopped at {}: {}{unhidden}", sought.seq, sought.because));
                }
                self.because = sought.because;
            }
            SearchHit::Rows(rows) => self.take_rows(rows)?,
            SearchHit::Place(None) if self.rows.filter.is_some() => {
                self.tell(Tone::Odd, format!("{}; Esc shows the hidden rows", done.way.nothing_found()));
            }
            SearchHit::Place(None) => self.tell(Tone::Odd, done.way.nothing_found()),
        }
        Ok(())
    }

    fn take_sight(&mut self, sight: ViewContent) {
        let is_same = self.sight.as_ref().is_some_and(|known| {
            (known.step.cursor, known.tab, &known.file) == (sight.step.cursor, sight.tab, &sight.file)
                && known.step.after == sight.step.after
        });
        if !is_same {
            let center = |line: usize, height: usize| Scroll { line, top: line.saturating_sub(height / 3) };
            self.file_scroll = center(sight.files.first, self.heights.files);
            self.detail_scroll = center(sight.detail.first, self.heights.detail);
            self.sideways = 0;
        }
        self.file_scroll.line = self.file_scroll.line.min(sight.files.lines.len().saturating_sub(1));
        self.detail_scroll.line = self.detail_scroll.line.min(sight.detail.lines.len().saturating_sub(1));
        self.widest_file = self.widest_file.max(sight.files.columns());
        self.sight = Some(sight);
    }

    /// Runs all due work synchronously.
    pub(crate) fn settle_or_fail(&mut self) -> Result<(), Failure> {
        self.run_while(|_| true)
    }

    /// Runs the due search, and leaves views for later.
    pub(super) fn go_long_ways(&mut self) -> Result<(), Failure> {
        self.run_while(|model| model.seek_due.is_some())
    }

    fn run_while(&mut self, is_wanted: fn(&Self) -> bool) -> Result<(), Failure> {
        while is_wanted(self)
            && let Some(errand) = self.next_errand()
        {
            let done = errand.run();
            self.busy = None;
            self.take_found(done)?;
        }
        Ok(())
    }

    pub(crate) fn seeking(&self) -> Option<u64> {
        self.busy.as_ref().filter(|busy| busy.is_seek).map(|busy| busy.leash.reached())
    }

    pub(crate) fn is_busy(&self) -> bool {
        self.busy.is_some()
    }

    pub(super) fn stop_seek(&mut self) -> bool {
        let is_seek = self.busy.as_ref().is_some_and(|busy| busy.is_seek);
        if is_seek {
            self.stop();
        }
        is_seek
    }

    pub(super) fn stop(&mut self) {
        if let Some(busy) = self.busy.take() {
            busy.leash.cancel();
        }
    }
}
