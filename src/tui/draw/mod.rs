//! Draws the debugger. Signs, reversed and bold text carry all meaning, because colour may be off.

mod layout;
mod panes;
mod style;
#[cfg(test)]
mod tests;
mod timeline;

use ratatui::Frame;
use ratatui::layout::Rect;
use ratatui::text::{Line, Span};
use ratatui::widgets::{Clear, Paragraph};

use super::clean::{clean, columns, fitted};
use super::keys::HELP;
use super::model::{Heights, Model, Tab};
use crate::terminal::text;
use layout::Areas;
pub(crate) use style::Styles;

pub(crate) fn heights(model: &Model, width: u16, height: u16) -> Heights {
    Areas::of(model, Rect::new(0, 0, width, height)).heights()
}

pub(crate) fn draw(frame: &mut Frame<'_>, model: &Model, styles: Styles) {
    let area = frame.area();
    if area.width < layout::WIDTH_MIN || area.height < layout::HEIGHT_MIN {
        let words = format!(
            "{}x{} is too small: at least {}x{} are needed. q quits.",
            area.width,
            area.height,
            layout::WIDTH_MIN,
            layout::HEIGHT_MIN
        );
        frame.render_widget(Paragraph::new(words).wrap(ratatui::widgets::Wrap { trim: true }), area);
        return;
    }
    let areas = Areas::of(model, area);
    title(frame, model, areas.title, styles);
    timeline::draw(frame, model, areas.timeline, styles);
    tabs(frame, model, areas.tabs, styles);
    panes::files(frame, model, areas.files, styles);
    panes::detail(frame, model, areas.detail, styles);
    bottom(frame, model, areas.bottom, styles);
    if let Some(top) = model.help {
        help(frame, top, area, styles);
    }
}

fn title(frame: &mut Frame<'_>, model: &Model, area: Rect, styles: Styles) {
    let time = model.sight.as_ref().map_or(String::new(), |sight| format!("  {}", text::exact_moment(sight.time)));
    let name = clean(model.past.name(), 0, 40);
    let child = if model.is_visiting() { " (child)" } else { "" };
    let left = format!(" {name}{child}  event {} of {}{time}", model.cursor, model.past.head());
    let mut right = String::new();
    if !model.breakpoints.is_empty() {
        right.push_str(&format!("{}  ", text::count(model.breakpoints.len() as u64, "breakpoint")));
    }
    if let Some(agent) = &model.rows.agent {
        right.push_str(&format!("only agent {}  ", clean(agent, 0, 20)));
    }
    if let Some(kind) = &model.rows.kind {
        right.push_str(&format!("only kind {}  ", clean(kind, 0, 20)));
    }
    bar(frame, area, &left, &right, styles.bar());
}

fn bar(frame: &mut Frame<'_>, area: Rect, left: &str, right: &str, style: ratatui::style::Style) {
    let width = usize::from(area.width);
    let right = fitted(right, width / 2);
    let room = width.saturating_sub(columns(&right));
    let left = fitted(left, room);
    let gap = " ".repeat(room.saturating_sub(columns(&left)));
    frame.render_widget(Paragraph::new(Span::styled(format!("{left}{gap}{right}"), style)), area);
}

fn tabs(frame: &mut Frame<'_>, model: &Model, area: Rect, styles: Styles) {
    if area.height == 0 {
        return;
    }
    let mut spans = Vec::new();
    for (number, tab) in (1..).zip(Tab::ALL) {
        let shown = format!(" {number} {} ", tab.name());
        let style = if tab == model.tab { styles.chosen_tab() } else { styles.plain() };
        let shown = if tab == model.tab { format!("[{}]", shown.trim()) } else { shown };
        spans.push(Span::styled(shown, style));
    }
    frame.render_widget(Paragraph::new(Line::from(spans)), area);
}

fn bottom(frame: &mut Frame<'_>, model: &Model, area: Rect, styles: Styles) {
    if let Some(prompt) = &model.prompt {
        let question = prompt.ask.question();
        let room = usize::from(area.width).saturating_sub(question.len() + 1);
        let scroll = prompt.input.visual_scroll(room);
        let typed = clean(prompt.input.value(), scroll, room);
        frame.render_widget(Paragraph::new(format!("{question}{typed}")), area);
        let at = question.len() + prompt.input.visual_cursor().saturating_sub(scroll);
        let column = u16::try_from(at).unwrap_or(u16::MAX).min(area.width.saturating_sub(1));
        frame.set_cursor_position((area.x + column, area.y));
        return;
    }
    let (words, style) = match (&model.message, model.seeking()) {
        (_, Some(reached)) => (format!("looking... at {reached}; Esc stops"), styles.plain()),
        (Some((tone, words)), None) => (words.clone(), styles.of(*tone)),
        (None, None) => {
            ("j/k row  l/h event  / search  u until  1-6 panes  d diff  ? help  q quit".to_owned(), styles.dim())
        }
    };
    let words = fitted(&words, usize::from(area.width));
    frame.render_widget(Paragraph::new(Span::styled(words, style)), area);
}

fn help(frame: &mut Frame<'_>, top: usize, area: Rect, styles: Styles) {
    let width = area.width.min(84);
    let height = area.height.saturating_sub(2);
    let area = Rect::new(area.x + (area.width - width) / 2, area.y + 1, width, height);
    frame.render_widget(Clear, area);
    let rows = usize::from(height).saturating_sub(1);
    let top = top.min(HELP.len().saturating_sub(rows));
    let more = if top + rows < HELP.len() { "j for more, " } else { "" };
    let mut lines =
        vec![Line::styled(format!("{:<1$}", format!(" Keys  ({more}Esc closes)"), usize::from(width)), styles.bar())];
    for (keys, words) in HELP.iter().skip(top).take(rows) {
        let line = match *keys {
            "" => Line::styled(format!(" {words}"), styles.of(crate::terminal::style::Tone::Bold)),
            keys => Line::raw(format!("   {keys:<16} {words}")),
        };
        lines.push(line);
    }
    frame.render_widget(Paragraph::new(lines), area);
}
