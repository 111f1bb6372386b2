//! Styles, with colour and without.

use ratatui::style::{Color, Modifier, Style};

use crate::terminal::style::Tone;
use crate::tui::model::ToolSort;

#[derive(Debug, Clone, Copy)]
pub(crate) struct Styles {
    pub(crate) colour: bool,
}

impl Styles {
    fn in_colour(self, colour: Color) -> Style {
        if self.colour { Style::new().fg(colour) } else { Style::new() }
    }

    pub(in crate::tui) fn of(self, tone: Tone) -> Style {
        match tone {
            Tone::Plain => Style::new(),
            Tone::Dim => Style::new().add_modifier(Modifier::DIM),
            Tone::Bold => Style::new().add_modifier(Modifier::BOLD),
            Tone::Good => self.in_colour(Color::Green),
            Tone::Bad => self.in_colour(Color::Red),
            Tone::Odd => self.in_colour(Color::Yellow),
            Tone::Noted => self.in_colour(Color::Cyan),
        }
    }

    pub(in crate::tui) fn bar(self) -> Style {
        Style::new().add_modifier(Modifier::REVERSED)
    }

    pub(super) fn title(self, focused: bool) -> Style {
        // Bold on the terminal's own ground is readable on any; blue is not.
        let style = if focused { self.in_colour(Color::Magenta) } else { Style::new() };
        style.add_modifier(Modifier::UNDERLINED | Modifier::BOLD)
    }

    pub(in crate::tui) fn chosen(self, style: Style, focused: bool) -> Style {
        if focused { style.add_modifier(Modifier::REVERSED) } else { style.add_modifier(Modifier::BOLD) }
    }

    /// Returns the sign and the style of a call, by its tool's sort.
    pub(super) fn call(self, sort: ToolSort, ended: Tone) -> (char, Style) {
        if matches!(ended, Tone::Bad | Tone::Odd) {
            return ('!', self.of(ended));
        }
        match sort {
            ToolSort::Read => (' ', self.of(Tone::Dim)),
            ToolSort::Write => ('*', self.of(Tone::Good)),
            ToolSort::Command => ('$', self.of(Tone::Noted)),
            ToolSort::Other => (' ', Style::new()),
        }
    }

    /// Returns the style of a call's end: failures and open calls stand out.
    pub(super) fn ending(self, tone: Tone) -> Style {
        match tone {
            Tone::Bad | Tone::Odd | Tone::Noted => self.of(tone).add_modifier(Modifier::BOLD),
            _ => self.of(Tone::Dim),
        }
    }

    pub(super) fn lane(self, lane: usize) -> Style {
        const LANES: [Color; 5] = [Color::Cyan, Color::Magenta, Color::Yellow, Color::Green, Color::Red];
        self.in_colour(LANES[lane % LANES.len()]).add_modifier(Modifier::BOLD)
    }
}
