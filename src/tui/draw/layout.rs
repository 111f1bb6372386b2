//! The places of the panes.

use ratatui::layout::Constraint::{Length, Min};
use ratatui::layout::{Layout, Rect};

use super::timeline;
use crate::tui::model::{Focus, Heights, Model, Tab};

pub(super) const WIDTH_MIN: u16 = 40;
pub(super) const HEIGHT_MIN: u16 = 10;
const WIDE: u16 = 140;
const TIMELINE_MIN: u16 = 48;
const FILES_MIN: u16 = 28;
const FILES_MAX: u16 = 50;
const DETAIL_MIN: u16 = 54;

/// Returns the width that the names of files need.
fn names_width(model: &Model) -> u16 {
    u16::try_from(model.widest_file + 1).unwrap_or(u16::MAX)
}

/// Returns the width that the rows need, as far as the other panes have enough.
fn timeline_width(model: &Model, width: u16) -> u16 {
    let files = names_width(model).clamp(FILES_MIN, FILES_MAX);
    let most = width.saturating_sub(files + DETAIL_MIN + 2).clamp(width * 2 / 5, width * 11 / 20).max(TIMELINE_MIN);
    u16::try_from(timeline::columns(model)).unwrap_or(u16::MAX).clamp(TIMELINE_MIN, most)
}

pub(super) struct Areas {
    pub(super) title: Rect,
    pub(super) timeline: Rect,
    pub(super) tabs: Rect,
    pub(super) files: Rect,
    pub(super) detail: Rect,
    pub(super) bottom: Rect,
    apart: bool,
}

impl Areas {
    pub(super) fn of(model: &Model, area: Rect) -> Self {
        let [title, middle, bottom] = Layout::vertical([Length(1), Min(0), Length(1)]).areas(area);
        let none = Rect { height: 0, ..middle };
        let apart = area.width >= WIDE;
        let [timeline, files, lower] = match (model.zoomed, model.focus) {
            (true, Focus::Timeline) => [middle, none, none],
            (true, Focus::Files) if apart => [none, middle, none],
            (true, _) => [none, none, middle],
            (false, _) if apart => {
                let timeline = timeline_width(model, middle.width);
                let rest = middle.width - timeline;
                let files = (rest / 3).clamp(FILES_MIN, FILES_MAX);
                // Names take more, as far as the detail has enough.
                let files = names_width(model).clamp(files, rest.saturating_sub(DETAIL_MIN + 2).max(files));
                let widths = [Length(timeline), Length(files), Min(0)];
                Layout::horizontal(widths).spacing(1).areas(middle)
            }
            (false, _) => {
                let upper = (middle.height / 2).max(3);
                let [timeline, lower] = Layout::vertical([Length(upper), Min(0)]).areas(middle);
                [timeline, none, lower]
            }
        };
        let [tabs, detail] = Layout::vertical([Length(1), Min(0)]).areas(lower);
        let (files, detail) = if !apart && model.tab == Tab::Files { (detail, none) } else { (files, detail) };
        Self { title, timeline, tabs, files, detail, bottom, apart }
    }

    pub(super) fn heights(&self) -> Heights {
        let lines = |area: Rect| usize::from(area.height.saturating_sub(1));
        Heights {
            timeline: lines(self.timeline),
            files: lines(self.files),
            detail: lines(self.detail),
            apart: self.apart,
            columns: usize::from(self.detail.width.saturating_sub(1)),
        }
    }
}
