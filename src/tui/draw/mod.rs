//! Draws the debugger. Signs, reversed and bold text carry all meaning, because colour may be off.

mod layout;
mod menu;
mod mouse;
mod panes;
mod style;
#[cfg(test)]
mod tests;
mod timeline;

use ratatui::Frame;
use ratatui::layout::Rect;
use ratatui::text::{Line, Span, Text};
use ratatui::widgets::{Clear, Paragraph};

use super::clean::{clean, columns, fitted, wrapped};
use super::keys::HELP;
use super::model::{Ask, Heights, Model, Tab};
use crate::terminal::style::Tone;
use crate::terminal::text;
use layout::Areas;
pub(crate) use mouse::pointed;
pub(crate) use style::Styles;

/// Maximum lines of an error message.
const MESSAGE_LINES: usize = 4;

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
    if let Some(menu) = &model.menu {
        menu::draw(frame, menu, area, styles);
    }
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
    let width = usize::from(area.width);
    let right = fitted(&right, width / 2);
    let left = fitted(&left, width.saturating_sub(columns(&right)));
    frame.render_widget(Line::styled(left, styles.bar()), area);
    frame.render_widget(Line::raw(right).right_aligned(), area);
}

fn tabs(frame: &mut Frame<'_>, model: &Model, area: Rect, styles: Styles) {
    let span = |(number, tab): (u8, Tab)| match tab == model.tab {
        true => Span::styled(format!("[{number} {}]", tab.name()), styles.of(Tone::Bold)),
        false => Span::raw(format!(" {number} {} ", tab.name())),
    };
    frame.render_widget((1..).zip(Tab::ALL).map(span).collect::<Line<'_>>(), area);
}

fn bottom(frame: &mut Frame<'_>, model: &Model, area: Rect, styles: Styles) {
    if let Some(prompt) = &model.prompt {
        hint(frame, model, prompt.ask, area, styles);
        let question = prompt.ask.question();
        let room = usize::from(area.width).saturating_sub(question.len() + 1);
        let scroll = prompt.input.visual_scroll(room);
        let typed = clean(prompt.input.value(), scroll, room);
        frame.render_widget(format!("{question}{typed}"), area);
        let at = question.len() + prompt.input.visual_cursor().saturating_sub(scroll);
        let column = u16::try_from(at).unwrap_or(u16::MAX).min(area.width.saturating_sub(1));
        frame.set_cursor_position((area.x + column, area.y));
        return;
    }
    let (words, style) = match (&model.message, model.seeking()) {
        (_, Some(reached)) => (format!("searching... at {reached}; Esc stops"), styles.of(Tone::Plain)),
        (Some((tone, words)), None) => (words.clone(), styles.of(*tone)),
        (None, None) => (
            "j/k row  Enter open  a act  f filter  / search  u until  d diff  ? help  q quit".to_owned(),
            styles.of(Tone::Dim),
        ),
    };
    let width = usize::from(area.width);
    // Errors are shown in full, over the lines above.
    let lines = match model.message {
        Some((Tone::Bad, _)) => shortened(&words, width, MESSAGE_LINES),
        _ => vec![fitted(&words, width)],
    };
    let above = u16::try_from(lines.len() - 1).unwrap_or_default().min(area.y);
    let place = Rect { y: area.y - above, height: area.height + above, ..area };
    frame.render_widget(Clear, place);
    let lines = lines.into_iter().map(|line| Line::styled(line, style));
    frame.render_widget(Text::from(lines.collect::<Vec<_>>()), place);
}

/// Wraps a text into at most `most` lines.
fn shortened(text: &str, width: usize, most: usize) -> Vec<String> {
    let mut lines = wrapped(&text.split_whitespace().collect::<Vec<_>>().join(" "), width);
    if lines.len() > most {
        let rest = lines.split_off(most.saturating_sub(1)).join(" ");
        lines.push(fitted(&rest, width));
    }
    lines
}

/// Shows example answers and the last answer above a question.
fn hint(frame: &mut Frame<'_>, model: &Model, ask: Ask, area: Rect, styles: Styles) {
    let above = Rect { y: area.y.saturating_sub(1), ..area };
    let width = usize::from(area.width);
    let last = model.answers(ask).next().map_or(String::new(), |last| format!("  Up: {}", clean(last, 0, width / 3)));
    let examples = fitted(&format!(" e.g. {}", ask.examples()), width.saturating_sub(columns(&last)));
    let gap = " ".repeat(width.saturating_sub(columns(&examples) + columns(&last)));
    let line = Line::from(vec![Span::raw(examples), Span::styled(last, styles.of(Tone::Bold)), Span::raw(gap)]);
    frame.render_widget(Clear, above);
    frame.render_widget(line.patch_style(styles.bar()), above);
}

fn help(frame: &mut Frame<'_>, top: usize, area: Rect, styles: Styles) {
    let width = area.width.min(84);
    let height = area.height.saturating_sub(2);
    let area = Rect::new(area.x + (area.width - width) / 2, area.y + 1, width, height);
    frame.render_widget(Clear, area);
    let rows = usize::from(height).saturating_sub(1);
    let top = top.min(HELP.len().saturating_sub(rows));
    let more = if top + rows < HELP.len() { "j for more, " } else { "" };
    let mut lines = vec![Line::styled(format!(" Keys  ({more}Esc closes)"), styles.bar())];
    for (keys, words) in HELP.iter().skip(top).take(rows) {
        let line = match *keys {
            "" if words.starts_with(' ') => Line::raw(format!("{:20}{}", "", words.trim_start())),
            "" => Line::styled(format!(" {words}"), styles.of(Tone::Bold)),
            keys => Line::raw(format!("   {keys:<16} {words}")),
        };
        lines.push(line);
    }
    frame.render_widget(Text::from(lines), area);
}
