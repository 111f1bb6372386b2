//! Finds the place under the mouse.

use crossterm::event::{MouseButton, MouseEvent, MouseEventKind};
use ratatui::layout::{Position, Rect};

use super::layout::{Areas, HEIGHT_MIN, WIDTH_MIN};
use super::menu;
use crate::tui::clean::columns;
use crate::tui::model::{DebuggerAction, Direction, Focus, Model, ScreenPlace, Tab};

/// Returns the action of a mouse event on a screen of that size.
pub(crate) fn pointed(event: MouseEvent, model: &Model, width: u16, height: u16) -> Option<DebuggerAction> {
    let area = Rect::new(0, 0, width, height);
    if width < WIDTH_MIN || height < HEIGHT_MIN {
        return None;
    }
    let place = place(Position::new(event.column, event.row), model, area);
    match event.kind {
        MouseEventKind::Down(MouseButton::Left) => Some(DebuggerAction::Click(place)),
        MouseEventKind::ScrollDown => Some(DebuggerAction::Wheel(place, Direction::Forward)),
        MouseEventKind::ScrollUp => Some(DebuggerAction::Wheel(place, Direction::Back)),
        _ => None,
    }
}

fn place(at: Position, model: &Model, area: Rect) -> ScreenPlace {
    if let Some(menu) = &model.menu {
        let (place, top) = menu::place(menu, area);
        return match line_of(at, place) {
            Some(Some(line)) if line + 2 < usize::from(place.height) => ScreenPlace::Item(top + line),
            _ => ScreenPlace::Elsewhere,
        };
    }
    let areas = Areas::of(model, area);
    if areas.tabs.contains(at) {
        return tab(at.x - areas.tabs.x, model).map_or(ScreenPlace::Elsewhere, ScreenPlace::Tab);
    }
    match line_of(at, areas.timeline) {
        Some(Some(line)) if line < model.window.rows.len() => return ScreenPlace::Row(line),
        Some(_) => return ScreenPlace::Pane(Focus::Timeline),
        None => {}
    }
    for (pane, focus) in [(areas.files, Focus::Files), (areas.detail, Focus::Detail)] {
        match line_of(at, pane) {
            Some(Some(line)) => return ScreenPlace::Line(focus, line),
            Some(None) => return ScreenPlace::Pane(focus),
            None => {}
        }
    }
    ScreenPlace::Elsewhere
}

/// Returns the line of a pane below its title; an inner `None` for the title itself.
fn line_of(at: Position, pane: Rect) -> Option<Option<usize>> {
    pane.contains(at).then(|| usize::from(at.y - pane.y).checked_sub(1))
}

/// Returns the tab at a column: each is its number and its name, with one sign on either side.
fn tab(column: u16, model: &Model) -> Option<Tab> {
    let mut end = 0;
    Tab::ALL
        .into_iter()
        .find(|tab| {
            end += columns(tab.name()) + 4;
            usize::from(column) < end
        })
        .filter(|_| model.prompt.is_none())
}
