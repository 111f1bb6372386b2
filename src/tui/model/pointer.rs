//! Clicks and the wheel of the mouse.

use super::moving::moved;
use super::{DebuggerAction, Direction, Failure, Focus, Model, ScreenPlace, Tone};

/// Lines per notch of the wheel.
const NOTCH: usize = 3;

impl Model {
    /// Selects the clicked place; a click on the selection opens or closes it.
    pub(super) fn click(&mut self, place: ScreenPlace) -> Result<(), Failure> {
        if self.prompt.is_some() {
            return Ok(());
        }
        if self.help.is_some() || self.menu.is_some() && !matches!(place, ScreenPlace::Item(_)) {
            return self.act(DebuggerAction::Escape);
        }
        match place {
            ScreenPlace::Row(at) => {
                let Some(seq) = self.window.rows.get(at).map(|row| row.seq) else { return Ok(()) };
                let was_focused = std::mem::replace(&mut self.focus, Focus::Timeline) == Focus::Timeline;
                if seq == self.cursor && was_focused {
                    return self.turn_row();
                }
                self.settle_on(seq);
            }
            ScreenPlace::Line(focus, at) => {
                let was_focused = std::mem::replace(&mut self.focus, focus) == focus;
                let Some((scroll, lines, _)) = self.pane(focus) else { return Ok(()) };
                let line = scroll.top.saturating_add(at);
                if line >= lines {
                    return Ok(());
                }
                if std::mem::replace(&mut scroll.line, line) == line && was_focused {
                    return self.enter();
                }
            }
            ScreenPlace::Pane(focus) => self.focus = focus,
            ScreenPlace::Tab(tab) => self.show_tab(tab),
            ScreenPlace::Item(at) => return self.choose(at),
            ScreenPlace::Elsewhere => {}
        }
        Ok(())
    }

    /// Scrolls the place under the mouse. The cursor stays where it is.
    pub(super) fn wheel(&mut self, place: ScreenPlace, way: Direction) -> Result<(), Failure> {
        if let Some(menu) = &mut self.menu {
            menu.step(way);
            return Ok(());
        }
        if let Some(top) = &mut self.help {
            *top = moved(*top, way, NOTCH);
            return Ok(());
        }
        match place {
            ScreenPlace::Row(_) | ScreenPlace::Pane(Focus::Timeline) => {
                for _ in 0..NOTCH {
                    self.window.roll(&self.past, &self.rows, way)?;
                }
            }
            ScreenPlace::Line(focus, _) | ScreenPlace::Pane(focus) => {
                let Some((scroll, lines, height)) = self.pane(focus) else { return Ok(()) };
                scroll.top = moved(scroll.top, way, NOTCH).min(lines.saturating_sub(height));
                scroll.line = scroll.line.clamp(scroll.top, scroll.top + height.saturating_sub(1));
            }
            ScreenPlace::Tab(_) | ScreenPlace::Item(_) | ScreenPlace::Elsewhere => {}
        }
        Ok(())
    }

    pub(super) fn turn_mouse(&mut self) {
        self.mouse = !self.mouse;
        let words = match self.mouse {
            true => "the mouse is the debugger's: a click selects, the wheel scrolls",
            false => "the mouse is the terminal's, to select text; M takes it back",
        };
        self.tell(Tone::Plain, words);
    }
}
