//! Draws a menu.

use ratatui::Frame;
use ratatui::layout::Rect;
use ratatui::text::{Line, Text};
use ratatui::widgets::{Block, Clear, Paragraph};

use super::style::Styles;
use crate::terminal::style::Tone;
use crate::tui::clean::{columns, fitted};
use crate::tui::model::Menu;

/// Columns of an item besides its text: the borders, its key, and spaces.
const AROUND: usize = 8;
const CLOSES: &str = "  (Esc closes) ";

/// Returns the area of a menu with its frame, and the first visible item.
pub(super) fn place(menu: &Menu, area: Rect) -> (Rect, usize) {
    let texts = menu.items.iter().map(|item| columns(&item.text) + AROUND);
    let width = texts.chain([columns(&menu.title) + CLOSES.len() + 4]).max().unwrap_or(0);
    let width = u16::try_from(width).unwrap_or(u16::MAX).min(area.width);
    let height = u16::try_from(menu.items.len() + 2).unwrap_or(u16::MAX).min(area.height.saturating_sub(2));
    let place = Rect::new(area.x + (area.width - width) / 2, area.y + (area.height - height) / 2, width, height);
    (place, (menu.at + 1).saturating_sub(usize::from(height).saturating_sub(2)))
}

pub(super) fn draw(frame: &mut Frame<'_>, menu: &Menu, area: Rect, styles: Styles) {
    let (place, top) = place(menu, area);
    let width = usize::from(place.width).saturating_sub(2);
    let lines = menu.items.iter().enumerate().skip(top).map(|(at, item)| {
        let sign = if at == menu.at { '>' } else { ' ' };
        let text = fitted(&format!("{sign} {}  {}", item.key, item.text), width);
        let gap = " ".repeat(width.saturating_sub(columns(&text)));
        let style = styles.of(Tone::Plain);
        Line::styled(format!("{text}{gap}"), if at == menu.at { styles.chosen(style, true) } else { style })
    });
    let title = fitted(&format!(" {}{CLOSES}", menu.title), width);
    let block = Block::bordered().title(Line::styled(title, styles.of(Tone::Bold)));
    frame.render_widget(Clear, place);
    frame.render_widget(Paragraph::new(Text::from(lines.collect::<Vec<_>>())).block(block), place);
}
