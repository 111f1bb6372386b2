//! Draws the timeline, with a lane for each agent.

use ratatui::Frame;
use ratatui::layout::Rect;
use ratatui::text::{Line, Span};
use ratatui::widgets::Paragraph;

use super::panes::title;
use super::style::Styles;
use crate::terminal::style::Tone;
use crate::tui::clean::{clean, columns as columns_of, fitted};
use crate::tui::model::{Focus, Model, TimelineRow};

/// Minimum columns of a text; its status is cut only to leave these.
const TEXT_MIN: usize = 12;

pub(super) fn draw(frame: &mut Frame<'_>, model: &Model, area: Rect, styles: Styles) {
    if area.height == 0 {
        return;
    }
    let focused = model.focus == Focus::Timeline;
    let width = usize::from(area.width);
    let sign = if focused { '>' } else { ' ' };
    let lanes = model.window.lanes.iter().zip('a'..).map(|(lane, letter)| match (&**lane, lane.strip_prefix('+')) {
        ("-", _) => format!("{letter} no agent"),
        (_, Some(child)) => format!("{letter} {child} (child)"),
        (agent, None) => format!("{letter} {agent}"),
    });
    let lanes = lanes.collect::<Vec<_>>().join(", ");
    let filter = model
        .rows
        .filter
        .as_ref()
        .map_or(String::new(), |rows| format!(" only {} ({})", clean(rows.text(), 0, 40), rows.len()));
    let head = format!("{sign}timeline{filter}  lanes: {lanes}");
    let mut lines = vec![title(&head, width, styles.title(focused))];
    for row in model.window.rows.iter().take(usize::from(area.height) - 1) {
        lines.push(line(row, model, width, focused, styles));
    }
    frame.render_widget(Paragraph::new(lines), area);
}

/// Returns the columns that the rows shown so far need.
pub(super) fn columns(model: &Model) -> usize {
    // The cursor and the mark, a space after the number and one after the lanes.
    digits(model) + 4 + model.window.lanes.len() + model.window.widest
}

fn digits(model: &Model) -> usize {
    model.past.head().to_string().len().max(4)
}

fn line(row: &TimelineRow, model: &Model, width: usize, focused: bool, styles: Styles) -> Line<'static> {
    let chosen = row.seq == model.cursor;
    let sign = if chosen { '>' } else { ' ' };
    let mark = model.mark_at(row.seq).unwrap_or(' ');
    let digits = digits(model);
    let mut spans = vec![Span::raw(format!("{sign}{mark}{:>digits$} ", row.seq))];
    for (lane, letter) in (0..model.window.lanes.len()).zip('a'..) {
        let span = match lane == row.lane {
            true => Span::styled(letter.to_string(), styles.lane(lane)),
            false => Span::styled("|", styles.of(Tone::Dim)),
        };
        spans.push(span);
    }
    spans.push(Span::raw(" "));
    let room = width.saturating_sub(digits + 4 + model.window.lanes.len());
    match row.open {
        Some(open) if row.is_call => spans.extend(call(row, open, room.min(model.window.widest), room, styles)),
        // A call shows its tool and its ending, an event its kind.
        open => {
            let indent = match open {
                Some(true) => "v   ",
                Some(false) => ">   ",
                None if row.inner => "  . ",
                None => "    ",
            };
            let text = format!("{indent}{:<14} {}", row.kind, row.text);
            spans.push(Span::styled(fitted(&text, room), styles.of(row.tone)));
        }
    }
    let used: usize = spans.iter().map(|span| columns_of(&span.content)).sum();
    spans.push(Span::raw(" ".repeat(width.saturating_sub(used))));
    let line = Line::from(spans);
    if chosen { line.patch_style(styles.chosen(styles.of(Tone::Plain), focused)) } else { line }
}

/// Returns the spans of a call: its text is cut if both do not fit, and the ends of all calls are aligned.
fn call(row: &TimelineRow, open: bool, aligned: usize, room: usize, styles: Styles) -> [Span<'static>; 4] {
    let (sign, style) = styles.call(row.sort, row.tone);
    let fold = if open { 'v' } else { '>' };
    let end = if row.end.is_empty() { String::new() } else { format!("[{}]", row.end) };
    let end = fitted(&end, room.saturating_sub(TEXT_MIN));
    let text_room = aligned.saturating_sub(columns_of(&end) + 5);
    let text = fitted(&row.text, text_room);
    let gap = " ".repeat(text_room.saturating_sub(columns_of(&text)) + 1);
    [
        Span::styled(format!("{fold} {sign} "), style),
        Span::styled(text, style),
        Span::raw(gap),
        Span::styled(end, styles.ending(row.tone)),
    ]
}
