//! Styles, with colour and without.

use ratatui::style::{Color, Modifier, Style};

use crate::terminal::style::Tone;

#[derive(Debug, Clone, Copy)]
pub(crate) struct Styles {
    pub(crate) colour: bool,
}

impl Styles {
    fn in_colour(self, colour: Color) -> Style {
        if self.colour { Style::new().fg(colour) } else { Style::new() }
    }

    pub(super) fn of(self, tone: Tone) -> Style {
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

    pub(super) fn bar(self) -> Style {
        Style::new().add_modifier(Modifier::REVERSED)
    }

    pub(super) fn title(self, focused: bool) -> Style {
        let style = self.in_colour(Color::Blue).add_modifier(Modifier::UNDERLINED);
        if focused { style.add_modifier(Modifier::BOLD) } else { style }
    }

    pub(super) fn chosen(self, style: Style, focused: bool) -> Style {
        if focused { style.add_modifier(Modifier::REVERSED) } else { style.add_modifier(Modifier::BOLD) }
    }

    pub(super) fn lane(self, lane: usize) -> Style {
        const LANES: [Color; 6] = [Color::Cyan, Color::Magenta, Color::Yellow, Color::Green, Color::Blue, Color::Red];
        self.in_colour(LANES[lane % LANES.len()]).add_modifier(Modifier::BOLD)
    }
}
