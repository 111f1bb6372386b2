//! The filter of the timeline.

use std::collections::BTreeSet;
use std::sync::Arc;

use foldspace::Event;
use foldspace::Seq;
use foldspace::event::{
    CallFinished, CallStarted, CommandDecided, CommandResult, DeleteEntry, EvalResult, EventRef, LinkFile, WriteFile,
};
use foldspace::view::{self, StopCondition};

use super::history::ToolSort;
use super::{Brief, Direction, Failure, Leash, Model, SessionHistory, Tone};

/// Result of a search for a row.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Reached {
    Row(Seq),
    End,
    TooFar,
}

/// Maximum rows to examine on the input thread for a wanted row.
const NEAR: usize = 4096;

/// A filter as typed.
pub(crate) struct RowFilter {
    text: String,
    test: FilterTest,
}

enum FilterTest {
    Commands,
    Writes,
    Reads,
    Failed,
    /// Individual events, also inside of calls.
    Kind(String),
    Met(Arc<StopCondition>),
}

const FORMS: &str =
    "failed, commands, writes, reads, tool NAME, agent NAME, path GLOB, kind TEXT or /REGEX/; nothing shows all rows";

impl RowFilter {
    pub(crate) fn read(text: &str, past: &SessionHistory) -> Result<Arc<Self>, Failure> {
        let (word, rest) = text.split_once(char::is_whitespace).map_or((text, ""), |(word, rest)| (word, rest.trim()));
        let test = match (word, rest) {
            ("commands", "") => FilterTest::Commands,
            ("writes", "") => FilterTest::Writes,
            ("reads", "") => FilterTest::Reads,
            ("failed", "") => FilterTest::Failed,
            ("kind", kind) if !kind.is_empty() => FilterTest::Kind(kind.to_lowercase()),
            ("tool" | "agent" | "path", name) if !name.is_empty() => FilterTest::Met(past.condition(text)?),
            _ if text.len() > 2 && text.starts_with('/') && text.ends_with('/') => {
                FilterTest::Met(past.condition(text)?)
            }
            _ => return Err(Failure::usage(format!("a filter is {FORMS}"))),
        };
        Ok(Arc::new(Self { text: text.to_owned(), test }))
    }

    pub(crate) fn text(&self) -> &str {
        &self.text
    }

    /// Lists the rows that it shows: calls, and events outside of calls. Reuses the list for earlier events.
    pub(super) fn list(
        self: &Arc<Self>,
        known: Option<&FilteredRows>,
        past: &SessionHistory,
        leash: &Leash,
    ) -> Result<FilteredRows, Failure> {
        let known = known.filter(|rows| Arc::ptr_eq(&rows.filter, self));
        let mut seqs: BTreeSet<Seq> = known.into_iter().flat_map(|rows| rows.seqs.iter().copied()).collect();
        let (mut unfinished, head) = (BTreeSet::new(), past.head());
        past.visit(known.map_or(0, |rows| rows.head) + 1, head, &mut |event| {
            let row = event.call.filter(|_| !matches!(self.test, FilterTest::Kind(_))).unwrap_or(event.seq);
            if !seqs.contains(&row) && self.is_met(past, event) {
                seqs.insert(row);
            }
            match (event.kind, event.call) {
                (CallStarted::KIND, _) => drop(unfinished.insert(event.seq)),
                (CallFinished::KIND, Some(call)) => drop(unfinished.remove(&call)),
                _ => {}
            }
            leash.at(event.seq)
        })?;
        leash.holds()?;
        if matches!(self.test, FilterTest::Failed) {
            seqs.extend(unfinished.into_iter().filter(|call| !past.is_running(*call)));
        }
        Ok(FilteredRows { filter: Arc::clone(self), seqs: seqs.into_iter().collect(), head })
    }

    fn is_met(&self, past: &SessionHistory, event: &EventRef<'_>) -> bool {
        let is_of = |sort| event.kind == CallStarted::KIND && ToolSort::of_event(event) == sort;
        match &self.test {
            FilterTest::Commands => {
                [CommandResult::KIND, EvalResult::KIND, CommandDecided::KIND].contains(&event.kind)
                    || is_of(ToolSort::Command)
            }
            // Files of a mount belong to no call.
            FilterTest::Writes => {
                [WriteFile::KIND, DeleteEntry::KIND, LinkFile::KIND].contains(&event.kind) && event.call.is_some()
                    || is_of(ToolSort::Write)
            }
            FilterTest::Reads => is_of(ToolSort::Read),
            FilterTest::Failed => view::has_failed(event),
            FilterTest::Kind(kind) => event.kind.to_lowercase().contains(kind.as_str()),
            FilterTest::Met(condition) => past.meets(condition, event),
        }
    }
}

/// The rows that a filter shows, in order.
pub(crate) struct FilteredRows {
    filter: Arc<RowFilter>,
    seqs: Vec<Seq>,
    head: Seq,
}

impl FilteredRows {
    pub(crate) fn text(&self) -> &str {
        self.filter.text()
    }

    pub(crate) fn len(&self) -> usize {
        self.seqs.len()
    }

    pub(super) fn has(&self, seq: Seq) -> bool {
        self.seqs.binary_search(&seq).is_ok()
    }

    /// Returns true if an event is a row, or belongs to one.
    pub(super) fn lists(&self, seq: Seq, call: Option<Seq>) -> bool {
        self.has(seq) || call.is_some_and(|call| self.has(call))
    }

    pub(super) fn end(&self, way: Direction) -> Option<Seq> {
        let end = if way == Direction::Back { self.seqs.first() } else { self.seqs.last() };
        end.copied()
    }

    /// Finds the next row in a direction that is `wanted`.
    pub(super) fn next(
        &self,
        past: &SessionHistory,
        from: Seq,
        way: Direction,
        leash: Option<&Leash>,
        wanted: fn(&Brief) -> bool,
    ) -> Result<Reached, Failure> {
        let mut at = match way {
            Direction::Forward => self.seqs.partition_point(|seq| *seq <= from),
            Direction::Back => self.seqs.partition_point(|seq| *seq < from),
        };
        for _ in 0..leash.map_or(NEAR, |_| usize::MAX) {
            leash.map_or(Ok(()), Leash::holds)?;
            let here = if way == Direction::Back { at.checked_sub(1) } else { Some(at) };
            let Some(seq) = here.and_then(|here| self.seqs.get(here)) else { return Ok(Reached::End) };
            if past.brief(*seq)?.is_some_and(|brief| wanted(&brief)) {
                return Ok(Reached::Row(*seq));
            }
            at = if way == Direction::Back { at - 1 } else { at + 1 };
        }
        Ok(Reached::TooFar)
    }
}

impl Model {
    pub(super) fn filter(&mut self, text: &str) -> Result<(), Failure> {
        if text.is_empty() {
            self.show_all_rows();
        } else {
            self.filter_due = Some(RowFilter::read(text, &self.past)?);
        }
        Ok(())
    }

    /// Removes the filter; false if no filter was set.
    pub(super) fn show_all_rows(&mut self) -> bool {
        self.filter_due = None;
        let was_on = self.rows.filter.take().is_some();
        if was_on {
            self.tell(Tone::Plain, "all rows are shown again");
            self.settle_on(self.cursor);
        }
        was_on
    }

    pub(super) fn take_rows(&mut self, rows: FilteredRows) -> Result<(), Failure> {
        if rows.seqs.is_empty() {
            self.tell(Tone::Odd, format!("no row matches the filter {}; the list is unchanged", rows.text()));
            return Ok(());
        }
        self.rows.filter = Some(Arc::new(rows));
        self.window.forget();
        self.settle_on_shown()
    }

    /// Moves a cursor on a hidden row to the row of its call, or the nearest one.
    pub(super) fn settle_on_shown(&mut self) -> Result<(), Failure> {
        let brief = self.past.brief(self.cursor)?;
        if brief.as_ref().is_none_or(|brief| !self.rows.shows(brief)) {
            let call = brief.and_then(|brief| brief.inner_of()).filter(|call| self.rows.lists(*call, None));
            let near = |way| match self.rows.next(&self.past, self.cursor, way, None, Brief::is_any) {
                Ok(Reached::Row(seq)) => Some(seq),
                _ => None,
            };
            let row = call.or_else(|| near(Direction::Forward)).or_else(|| near(Direction::Back));
            self.settle_on(row.unwrap_or(self.cursor));
        }
        Ok(())
    }

    /// Lists the rows again if there are new events.
    pub(super) fn renew_filter(&mut self) {
        let old = self.rows.filter.as_ref().filter(|rows| rows.head != self.past.head());
        if let Some(rows) = old {
            self.filter_due = Some(Arc::clone(&rows.filter));
        }
    }
}
