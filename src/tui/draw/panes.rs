//! Draws the panes of files and details.

use ratatui::Frame;
use ratatui::layout::Rect;
use ratatui::text::{Line, Span};
use ratatui::widgets::Paragraph;

use super::style::Styles;
use crate::tui::clean::{clean, columns, fitted};
use crate::tui::model::{Focus, Model, Scroll, Sheet};

pub(super) fn files(frame: &mut Frame<'_>, model: &Model, area: Rect, styles: Styles) {
    if let Some(sight) = &model.sight {
        sheet(frame, &sight.files, (model.file_scroll, 0), model.focus == Focus::Files, area, styles);
    }
}

pub(super) fn detail(frame: &mut Frame<'_>, model: &Model, area: Rect, styles: Styles) {
    if let Some(sight) = &model.sight {
        let place = (model.detail_scroll, model.sideways);
        sheet(frame, &sight.detail, place, model.focus == Focus::Detail, area, styles);
    }
}

fn sheet(
    frame: &mut Frame<'_>,
    sheet: &Sheet,
    (scroll, skipped): (Scroll, usize),
    focused: bool,
    area: Rect,
    styles: Styles,
) {
    if area.height == 0 {
        return;
    }
    let width = usize::from(area.width);
    let sign = if focused { '>' } else { ' ' };
    let mut lines = vec![title(&format!("{sign}{}", sheet.title), width, styles.title(focused))];
    let rows = usize::from(area.height) - 1;
    for (at, line) in sheet.lines.iter().enumerate().skip(scroll.top).take(rows) {
        let is_chosen = at == scroll.line && (focused || line.target.is_some());
        let sign = if is_chosen { '>' } else { ' ' };
        let text = clean(&line.text, skipped, width.saturating_sub(1));
        let style = styles.of(line.tone);
        let style = if is_chosen { styles.chosen(style, focused) } else { style };
        let gap = " ".repeat(width.saturating_sub(columns(&text) + 1));
        lines.push(Line::from(Span::styled(format!("{sign}{text}{gap}"), style)));
    }
    frame.render_widget(Paragraph::new(lines), area);
}

pub(super) fn title(text: &str, width: usize, style: ratatui::style::Style) -> Line<'static> {
    let text = fitted(text, width);
    let gap = " ".repeat(width.saturating_sub(columns(&text)));
    Line::from(Span::styled(format!("{text}{gap}"), style))
}
