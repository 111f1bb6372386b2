//! A full-screen list to choose a row from. Typing narrows it.

use crossterm::event::{Event, KeyCode, KeyEvent, KeyEventKind, KeyModifiers, MouseButton, MouseEvent, MouseEventKind};
use ratatui::Frame;
use ratatui::layout::Rect;
use ratatui::text::{Line, Text};

use super::clean::{clean, columns, fitted};
use super::draw::Styles;
use crate::terminal::style::Tone;

/// A list of rows, each with its cells.
pub(crate) struct Picker {
    title: String,
    rows: Vec<Vec<String>>,
    typed: String,
    /// The selected row among the shown rows, and the first row on the screen.
    at: usize,
    top: usize,
}

#[derive(Debug, PartialEq, Eq)]
pub(super) enum Picked {
    Row(usize),
    Nothing,
}

const TYPED_MAX: usize = 100;
const CELL_MAX: usize = 60;

impl Picker {
    /// Starts with the first row selected; the first cell is the name.
    pub(crate) fn new(title: impl Into<String>, rows: Vec<Vec<String>>) -> Self {
        Self { title: title.into(), rows, typed: String::new(), at: 0, top: 0 }
    }

    /// Returns the rows that contain every typed word.
    fn shown(&self) -> Vec<usize> {
        let typed = self.typed.to_lowercase();
        let has = |row: &Vec<String>| {
            let row = row.join(" ").to_lowercase();
            typed.split_whitespace().all(|word| row.contains(word))
        };
        (0..self.rows.len()).filter(|at| self.rows.get(*at).is_some_and(has)).collect()
    }

    pub(super) fn take(&mut self, event: &Event, height: u16) -> Option<Picked> {
        match event {
            Event::Key(key) if key.kind != KeyEventKind::Release => self.key(*key, height),
            Event::Mouse(mouse) => self.mouse(*mouse),
            Event::Paste(text) => {
                text.chars().filter(|c| !c.is_control()).for_each(|c| self.type_in(c));
                None
            }
            _ => None,
        }
    }

    fn key(&mut self, key: KeyEvent, height: u16) -> Option<Picked> {
        let page = usize::from(height).saturating_sub(4).max(1);
        let control = key.modifiers.contains(KeyModifiers::CONTROL);
        match key.code {
            KeyCode::Char('c') if control => return Some(Picked::Nothing),
            KeyCode::Char('n') if control => self.go(1),
            KeyCode::Char('p') if control => self.go(-1),
            KeyCode::Char('u') if control => self.narrow(String::new()),
            KeyCode::Char(c) if !control => self.type_in(c),
            KeyCode::Backspace => {
                let mut typed = std::mem::take(&mut self.typed);
                typed.pop();
                self.narrow(typed);
            }
            KeyCode::Down => self.go(1),
            KeyCode::Up => self.go(-1),
            KeyCode::PageDown => self.go(isize::try_from(page).unwrap_or(1)),
            KeyCode::PageUp => self.go(-isize::try_from(page).unwrap_or(1)),
            KeyCode::Home => self.at = 0,
            KeyCode::End => self.at = self.shown().len().saturating_sub(1),
            KeyCode::Enter => return self.shown().get(self.at).map(|row| Picked::Row(*row)),
            KeyCode::Esc if self.typed.is_empty() => return Some(Picked::Nothing),
            KeyCode::Esc => self.narrow(String::new()),
            _ => {}
        }
        None
    }

    fn mouse(&mut self, mouse: MouseEvent) -> Option<Picked> {
        match mouse.kind {
            MouseEventKind::ScrollDown => self.go(1),
            MouseEventKind::ScrollUp => self.go(-1),
            MouseEventKind::Down(MouseButton::Left) => {
                let at = self.top + usize::from(mouse.row.checked_sub(2)?);
                let row = *self.shown().get(at)?;
                if std::mem::replace(&mut self.at, at) == at {
                    return Some(Picked::Row(row));
                }
            }
            _ => {}
        }
        None
    }

    fn go(&mut self, by: isize) {
        self.at = self.at.saturating_add_signed(by).min(self.shown().len().saturating_sub(1));
    }

    fn type_in(&mut self, c: char) {
        if self.typed.chars().count() < TYPED_MAX {
            self.narrow(format!("{}{c}", self.typed));
        }
    }

    fn narrow(&mut self, typed: String) {
        (self.typed, self.at, self.top) = (typed, 0, 0);
    }

    /// Scrolls as little as possible to bring the selected row onto a screen of this height.
    pub(super) fn fit(&mut self, height: u16) {
        let rows = usize::from(height).saturating_sub(3).max(1);
        self.top = self.top.clamp((self.at + 1).saturating_sub(rows), self.at);
    }

    pub(super) fn draw(&self, frame: &mut Frame<'_>, styles: Styles) {
        let area = frame.area();
        let width = usize::from(area.width);
        let shown = self.shown();
        let padded = |text: String| {
            let text = fitted(&text, width);
            format!("{text}{}", " ".repeat(width.saturating_sub(columns(&text))))
        };
        let title = format!(" {}  {} of {}", self.title, shown.len(), self.rows.len());
        let mut lines = vec![
            Line::styled(padded(title), styles.bar()),
            Line::raw(fitted(&format!(" type to narrow: {}", self.typed), width)),
        ];
        let count = self.rows.first().map_or(0, Vec::len);
        let widths: Vec<usize> = (0..count).map(|cell| self.widest(cell)).collect();
        let rows = usize::from(area.height).saturating_sub(3);
        for (at, row) in shown.iter().enumerate().skip(self.top).take(rows) {
            let sign = if at == self.at { '>' } else { ' ' };
            let cells = self.rows.get(*row).map_or(&[][..], Vec::as_slice).iter().zip(&widths);
            let cells = cells.map(|(cell, wide)| {
                let cell = clean(cell, 0, CELL_MAX);
                let gap = " ".repeat(wide.saturating_sub(columns(&cell)));
                format!("{cell}{gap}")
            });
            let text = padded(format!("{sign}{}", cells.collect::<Vec<_>>().join("  ")));
            let style = styles.of(Tone::Plain);
            lines.push(Line::styled(text, if at == self.at { styles.chosen(style, true) } else { style }));
        }
        if shown.is_empty() {
            lines.push(Line::raw(" no match; Esc clears the filter"));
        }
        frame.render_widget(Text::from(lines), area);
        let bottom = Rect { y: area.height.saturating_sub(1), height: area.height.min(1), ..area };
        let words = " Up Down  Enter chooses  Esc leaves";
        frame.render_widget(Line::styled(fitted(words, width), styles.of(Tone::Dim)), bottom);
    }

    fn widest(&self, cell: usize) -> usize {
        let cells = self.rows.iter().filter_map(|row| row.get(cell));
        cells.map(|cell| columns(&clean(cell, 0, CELL_MAX))).max().unwrap_or(0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn picker() -> Picker {
        let row = |name: &str, backend: &str| vec![name.to_owned(), backend.to_owned()];
        Picker::new("Sessions", vec![row("alpha", "host"), row("beta", "memory"), row("gamma", "host")])
    }

    fn press(picker: &mut Picker, codes: &[KeyCode]) -> Option<Picked> {
        codes.iter().map(|code| picker.take(&Event::Key(KeyEvent::from(*code)), 24)).fold(None, Option::or)
    }

    #[test]
    fn picker_moves_and_chooses() {
        use KeyCode::{Down, End, Enter, Esc, PageDown, Up};
        assert_eq!(press(&mut picker(), &[Down, Enter]), Some(Picked::Row(1)));
        assert_eq!(press(&mut picker(), &[Up, Enter]), Some(Picked::Row(0)));
        assert_eq!(press(&mut picker(), &[PageDown, Down, Enter]), Some(Picked::Row(2)));
        assert_eq!(press(&mut picker(), &[End, Up, Enter]), Some(Picked::Row(1)));
        assert_eq!(press(&mut picker(), &[Esc]), Some(Picked::Nothing));
        assert_eq!(press(&mut Picker::new("Sessions", Vec::new()), &[Down, Up, Enter]), None);
    }

    #[test]
    fn picker_narrows_by_what_is_typed() {
        use KeyCode::{Backspace, Char, Down, Enter, Esc};
        let mut picker = picker();
        assert_eq!(press(&mut picker, &[Char('H'), Char('o'), Char(' '), Char('m'), Enter]), Some(Picked::Row(2)));
        assert_eq!(press(&mut picker, &[Char('z'), Down, Enter]), None, "nothing is left");
        assert_eq!(press(&mut picker, &[Backspace, Enter]), Some(Picked::Row(2)));
        assert_eq!(press(&mut picker, &[Esc]), None, "the first one clears the text");
        assert_eq!(press(&mut picker, &[Enter]), Some(Picked::Row(0)));
    }

    #[test]
    fn picker_chooses_by_mouse() {
        let mut picker = picker();
        let click = |row| {
            let kind = MouseEventKind::Down(MouseButton::Left);
            Event::Mouse(MouseEvent { kind, column: 3, row, modifiers: KeyModifiers::NONE })
        };
        assert_eq!(picker.take(&click(3), 24), None, "a click selects");
        assert_eq!(picker.take(&click(3), 24), Some(Picked::Row(1)), "and the next one chooses");
        assert_eq!([picker.take(&click(0), 24), picker.take(&click(9), 24)], [None, None]);
    }
}
