//! Which pane is where.

use ratatui::layout::Rect;

use crate::tui::model::{Focus, Heights, Model, Tab};

pub(super) const WIDTH_MIN: u16 = 40;
pub(super) const HEIGHT_MIN: u16 = 10;
const WIDE: u16 = 140;

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
        let middle = Rect { y: area.y + 1, height: area.height.saturating_sub(2), ..area };
        let none = Rect { height: 0, ..middle };
        let row = |y: u16| Rect { y, height: 1.min(area.height), ..area };
        let apart = area.width >= WIDE;
        let mut areas = Self {
            title: row(area.y),
            timeline: none,
            tabs: none,
            files: none,
            detail: none,
            bottom: row(area.y + area.height.saturating_sub(1)),
            apart,
        };
        match (model.zoomed, model.focus) {
            (true, Focus::Timeline) => areas.timeline = middle,
            (true, Focus::Files) if apart => areas.files = middle,
            (true, _) => areas.lower(middle),
            (false, _) if apart => areas.side_by_side(middle),
            (false, _) => areas.stacked(middle),
        }
        if !apart && model.tab == Tab::Files {
            areas.files = std::mem::replace(&mut areas.detail, none);
        }
        areas
    }

    fn stacked(&mut self, middle: Rect) {
        let upper = (middle.height.saturating_mul(2) / 5).max(3).min(middle.height);
        self.timeline = Rect { height: upper, ..middle };
        self.lower(Rect { y: middle.y + upper, height: middle.height - upper, ..middle });
    }

    fn side_by_side(&mut self, middle: Rect) {
        let (left, between) = (middle.width * 2 / 5, middle.width / 5);
        self.timeline = Rect { width: left, ..middle };
        self.files = Rect { x: middle.x + left + 1, width: between, ..middle };
        let x = middle.x + left + between + 2;
        self.lower(Rect { x, width: middle.width - left - between - 2, ..middle });
    }

    fn lower(&mut self, area: Rect) {
        self.tabs = Rect { height: 1.min(area.height), ..area };
        self.detail = Rect { y: area.y + 1, height: area.height.saturating_sub(1), ..area };
    }

    pub(super) fn heights(&self) -> Heights {
        let lines = |area: Rect| usize::from(area.height.saturating_sub(1));
        Heights {
            timeline: lines(self.timeline),
            files: lines(self.files),
            detail: lines(self.detail),
            apart: self.apart,
        }
    }
}
