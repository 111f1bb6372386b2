//! The rows of the timeline, and the movements between them.

use std::collections::BTreeSet;
use std::sync::Arc;

use foldspace::Seq;

use super::filter::{FilteredRows, Reached};
use super::history::ToolSort;
use super::{Brief, CHUNK, Direction, Failure, Leash, SessionHistory, Tone};
use crate::terminal::text;
use crate::tui::clean::columns;

/// Maximum chunks to search on the input thread for one row.
const NEAR: u64 = 32;
/// Same with a filter, which knows the rows: only the events of an open call are searched.
const NEAR_FILTERED: u64 = 4;
/// Maximum lanes; later agents share the last one.
pub(crate) const LANES: usize = 6;

#[derive(Debug, Clone, Default)]
pub(crate) struct Folds {
    all: bool,
    turned: BTreeSet<Seq>,
}

impl Folds {
    pub(crate) fn is_open(&self, call: Seq) -> bool {
        self.all != self.turned.contains(&call)
    }

    pub(crate) fn turn(&mut self, call: Seq) {
        if !self.turned.remove(&call) {
            self.turned.insert(call);
        }
    }

    pub(crate) fn open(&mut self, call: Seq) {
        if !self.is_open(call) {
            self.turn(call);
        }
    }

    pub(crate) fn turn_all(&mut self) {
        *self = Self { all: !self.all, turned: BTreeSet::new() };
    }

    fn has_open(&self) -> bool {
        self.all || !self.turned.is_empty()
    }

    fn shows(&self, brief: &Brief) -> bool {
        brief.inner_of().is_none_or(|call| self.is_open(call))
    }
}

#[derive(Clone, Default)]
pub(crate) struct Rows {
    pub(crate) folds: Folds,
    /// True if the records of conversations are hidden.
    pub(crate) is_quiet: bool,
    pub(crate) filter: Option<Arc<FilteredRows>>,
}

impl Rows {
    pub(crate) fn shows(&self, brief: &Brief) -> bool {
        match &self.filter {
            None => !self.hides(brief) && self.folds.shows(brief),
            Some(rows) => {
                let is_open = |call| rows.has(call) && self.folds.is_open(call);
                rows.has(brief.seq) || brief.inner_of().is_some_and(is_open)
            }
        }
    }

    /// Returns true for a hidden record of a conversation.
    pub(super) fn hides(&self, brief: &Brief) -> bool {
        self.is_quiet && self.filter.is_none() && brief.is_conversation()
    }

    /// Returns true if no filter hides an event, or its call.
    pub(super) fn lists(&self, seq: Seq, call: Option<Seq>) -> bool {
        self.filter.as_ref().is_none_or(|rows| rows.lists(seq, call))
    }

    /// Finds the next row in a direction that is `wanted`; without a leash only as far as the input thread may search.
    pub(crate) fn next(
        &self,
        past: &SessionHistory,
        from: Seq,
        way: Direction,
        leash: Option<&Leash>,
        wanted: fn(&Brief) -> bool,
    ) -> Result<Reached, Failure> {
        let filter = self.filter.as_deref();
        if let Some(rows) = filter.filter(|_| !self.folds.has_open()) {
            return rows.next(past, from, way, leash, wanted);
        }
        let fits = |brief: &&Brief| self.shows(brief) && wanted(brief);
        let head = past.head();
        let start = match way {
            Direction::Forward if from >= head => return Ok(Reached::End),
            Direction::Forward => from / CHUNK,
            Direction::Back if from <= 1 => return Ok(Reached::End),
            Direction::Back => (from - 2) / CHUNK,
        };
        let far = if filter.is_some() { NEAR_FILTERED } else { leash.map_or(NEAR, |_| u64::MAX) };
        for step in 0..=far {
            leash.map_or(Ok(()), Leash::holds)?;
            let found = match way {
                Direction::Forward => {
                    let number = start.saturating_add(step);
                    if number > (head - 1) / CHUNK {
                        return Ok(Reached::End);
                    }
                    past.chunk(number)?.iter().filter(|brief| brief.seq > from).find(fits).map(|brief| brief.seq)
                }
                Direction::Back => {
                    let Some(number) = start.checked_sub(step) else { return Ok(Reached::End) };
                    past.chunk(number)?.iter().rev().filter(|brief| brief.seq < from).find(fits).map(|brief| brief.seq)
                }
            };
            if let Some(seq) = found {
                return Ok(Reached::Row(seq));
            }
        }
        filter.map_or(Ok(Reached::TooFar), |rows| rows.next(past, from, way, leash, wanted))
    }
}

#[derive(Debug, Clone)]
pub(crate) struct TimelineRow {
    pub(crate) seq: Seq,
    pub(crate) lane: usize,
    pub(crate) is_call: bool,
    pub(crate) open: Option<bool>,
    pub(crate) inner: bool,
    pub(crate) kind: Arc<str>,
    pub(crate) sort: ToolSort,
    pub(crate) text: String,
    pub(crate) end: String,
    pub(crate) tone: Tone,
}

impl TimelineRow {
    /// Returns the columns of its text and its status.
    fn columns(&self) -> usize {
        match self.is_call {
            true => columns(&self.text) + columns(&self.end) + 7,
            // The beginning of an event's text mostly suffices.
            false => (columns(&self.text) + 19).min(EVENT_MAX),
        }
    }
}

const EVENT_MAX: usize = 64;

#[derive(Debug, Default)]
pub(crate) struct VisibleRows {
    pub(crate) height: usize,
    /// Columns of the widest row shown so far.
    pub(crate) widest: usize,
    /// True if the wheel has moved the rows away from the cursor.
    rolled: bool,
    top: Seq,
    pub(crate) rows: Vec<TimelineRow>,
    pub(crate) lanes: Vec<String>,
}

impl VisibleRows {
    /// Shows the rows around the cursor, and scrolls as little as possible.
    pub(crate) fn show(&mut self, past: &SessionHistory, rows: &Rows, cursor: Seq) -> Result<(), Failure> {
        let height = self.height.max(1);
        let found = |way| {
            let (mut found, mut at) = (Vec::new(), cursor);
            while found.len() + 1 < height
                && let Reached::Row(seq) = rows.next(past, at, way, None, Brief::is_any)?
            {
                found.push(seq);
                at = seq;
            }
            Ok::<_, Failure>(found)
        };
        let (above, mut below) = (found(Direction::Back)?, found(Direction::Forward)?);
        let margin = (height / 4).min(3);
        let first = match above.iter().position(|seq| *seq == self.top) {
            Some(before) if before + 1 + margin <= height => before + 1,
            Some(_) => height.saturating_sub(margin),
            None if self.top > cursor || self.top == 0 => margin,
            None if self.top == cursor => 0,
            None => height.saturating_sub(margin + 1),
        };
        // If the cursor is near the top, rows above it become visible; no line is left empty below the last row.
        let first = first.max(margin).max(height.saturating_sub(1 + below.len())).min(above.len());
        below.truncate(height.saturating_sub(first + 1));
        let seqs: Vec<Seq> = above[..first].iter().rev().copied().chain([cursor]).chain(below).collect();
        self.top = seqs.first().copied().unwrap_or(cursor);
        self.fill(past, rows, seqs)
    }

    fn fill(&mut self, past: &SessionHistory, rows: &Rows, seqs: Vec<Seq>) -> Result<(), Failure> {
        self.rows = Vec::new();
        for seq in seqs {
            if let Some(brief) = past.brief(seq)? {
                let row = self.row(past, rows, &brief)?;
                self.widest = self.widest.max(row.columns());
                self.rows.push(row);
            }
        }
        Ok(())
    }

    /// Shows the rows where the wheel has left them; false if it has not moved them.
    pub(super) fn show_rolled(&mut self, past: &SessionHistory, rows: &Rows) -> Result<bool, Failure> {
        if !self.rolled {
            return Ok(false);
        }
        let mut seqs = vec![self.top];
        while seqs.len() < self.height.max(1)
            && let Some(last) = seqs.last()
            && let Reached::Row(seq) = rows.next(past, *last, Direction::Forward, None, Brief::is_any)?
        {
            seqs.push(seq);
        }
        self.fill(past, rows, seqs)?;
        Ok(true)
    }

    /// Moves the rows by one, unless the last one is visible.
    pub(super) fn roll(&mut self, past: &SessionHistory, rows: &Rows, way: Direction) -> Result<(), Failure> {
        let edge = if way == Direction::Back { self.rows.first() } else { self.rows.last() };
        let Some(edge) = edge.map(|row| row.seq) else { return Ok(()) };
        let Reached::Row(seq) = rows.next(past, edge, way, None, Brief::is_any)? else { return Ok(()) };
        self.top = match way {
            Direction::Back => seq,
            Direction::Forward => self.rows.get(1).map_or(seq, |row| row.seq),
        };
        self.rolled = true;
        self.show_rolled(past, rows).map(drop)
    }

    pub(super) fn come_back(&mut self) {
        self.rolled = false;
    }

    /// Resets the position, for other rows.
    pub(super) fn forget(&mut self) {
        (self.top, self.rolled) = (0, false);
    }

    fn row(&mut self, past: &SessionHistory, rows: &Rows, brief: &Brief) -> Result<TimelineRow, Failure> {
        let gist = past.gist(brief.seq)?;
        let owner = match &gist.child {
            Some(child) => format!("+{child}"),
            None if brief.agent.is_empty() => "-".to_owned(),
            None => brief.agent.to_string(),
        };
        let (end, tone) = match brief.is_call() {
            true => ending(past, brief.seq)?,
            false => (String::new(), gist.tone),
        };
        Ok(TimelineRow {
            seq: brief.seq,
            lane: self.lane(owner),
            is_call: brief.is_call(),
            open: brief.folds().then(|| rows.folds.is_open(brief.seq)),
            inner: brief.inner_of().is_some(),
            kind: gist.role.map_or_else(|| Arc::clone(&brief.kind), Arc::from),
            sort: gist.sort,
            text: gist.text.clone(),
            end,
            tone,
        })
    }

    fn lane(&mut self, owner: String) -> usize {
        if let Some(at) = self.lanes.iter().position(|known| *known == owner) {
            return at;
        }
        if self.lanes.len() < LANES {
            self.lanes.push(owner);
        } else if let Some(last) = self.lanes.last_mut() {
            *last = "others".to_owned();
        }
        self.lanes.len() - 1
    }
}

fn ending(past: &SessionHistory, call: Seq) -> Result<(String, Tone), Failure> {
    let end = past.end_near(call)?;
    Ok(match end.outcome {
        Some(outcome) => (format!("{} {}", outcome.ending, text::duration(outcome.micros)), outcome.tone),
        None if end.is_known && past.is_running(call) => (past.unfinished(call).to_owned(), Tone::Noted),
        None if end.is_known => (past.unfinished(call).to_owned(), Tone::Odd),
        // Its end is beyond the search for a row; the view of the call shows it.
        None => ("...".to_owned(), Tone::Dim),
    })
}
