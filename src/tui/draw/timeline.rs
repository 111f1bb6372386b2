//! Draws the timeline, with a lane for each agent.

use ratatui::Frame;
use ratatui::layout::Rect;
use ratatui::text::{Line, Span};
use ratatui::widgets::Paragraph;

use super::panes::title;
use super::style::Styles;
use crate::terminal::style::Tone;
use crate::tui::clean::clean;
use crate::tui::model::{Focus, Model, TimelineRow};

pub(super) fn draw(frame: &mut Frame<'_>, model: &Model, area: Rect, styles: Styles) {
    if area.height == 0 {
        return;
    }
    let focused = model.focus == Focus::Timeline;
    let width = usize::from(area.width);
    let sign = if focused { '>' } else { ' ' };
    let lanes: Vec<String> =
        model.window.lanes.iter().zip('a'..).map(|(lane, letter)| format!("{letter} {lane}")).collect();
    let head = format!("{sign}timeline  lanes: {}", lanes.join(", "));
    let mut lines = vec![title(&head, width, styles.title(focused))];
    let digits = model.past.head().to_string().len().max(4);
    for row in model.window.rows.iter().take(usize::from(area.height) - 1) {
        lines.push(line(row, model, digits, width, focused, styles));
    }
    frame.render_widget(Paragraph::new(lines), area);
}

fn line(row: &TimelineRow, model: &Model, digits: usize, width: usize, focused: bool, styles: Styles) -> Line<'static> {
    let chosen = row.seq == model.cursor;
    let sign = if chosen { '>' } else { ' ' };
    let mark = model.mark_at(row.seq).unwrap_or(' ');
    let mut spans = vec![Span::raw(format!("{sign}{mark}{:>digits$} ", row.seq))];
    for (lane, letter) in (0..model.window.lanes.len()).zip('a'..) {
        let span = match lane == row.lane {
            true => Span::styled(letter.to_string(), styles.lane(lane)),
            false => Span::styled("|", styles.of(Tone::Dim)),
        };
        spans.push(span);
    }
    let fold = match row.open {
        Some(true) => "v ",
        Some(false) => "> ",
        None if row.inner => "  . ",
        None => "  ",
    };
    // A call is told by its tool and its ending, an event by its kind.
    let text = match row.open {
        Some(_) if row.end.is_empty() => row.text.clone(),
        Some(_) => format!("{}  [{}]", row.text, row.end),
        None => format!("{:<14} {}", row.kind, row.text),
    };
    let room = width.saturating_sub(digits + 4 + model.window.lanes.len());
    spans.push(Span::styled(clean(&format!(" {fold}{text}"), 0, room + 1), styles.of(row.tone)));
    let line = Line::from(spans);
    if chosen { line.patch_style(styles.chosen(styles.of(Tone::Plain), focused)) } else { line }
}
