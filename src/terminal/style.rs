//! The colours.

use anstyle::{AnsiColor, Style};

pub(crate) const BOLD: Style = Style::new().bold();
pub(crate) const DIM: Style = Style::new().dimmed();
pub(crate) const GOOD: Style = AnsiColor::Green.on_default();
pub(crate) const BAD: Style = AnsiColor::Red.on_default();
pub(crate) const ODD: Style = AnsiColor::Yellow.on_default();
pub(crate) const NOTED: Style = AnsiColor::Cyan.on_default();
pub(crate) const DIRECTORY: Style = AnsiColor::Blue.on_default();
pub(crate) const PLAIN: Style = Style::new();

/// The meaning of a line. Colour may be off, so the text must carry the meaning, too.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Tone {
    Plain,
    Dim,
    Bold,
    Good,
    Bad,
    Odd,
    Noted,
}

/// Returns the lines of a patch with their tones.
pub(crate) fn patch_lines(patch: &str) -> impl Iterator<Item = (Tone, &str)> {
    let mut in_hunk = false;
    patch.split_terminator('\n').map(move |line| {
        in_hunk = line.starts_with('@') || in_hunk && line.starts_with([' ', '+', '-', '\\']);
        let tone = match line.as_bytes().first() {
            _ if !in_hunk => Tone::Bold,
            Some(b'@') => Tone::Noted,
            Some(b'+') => Tone::Good,
            Some(b'-') => Tone::Bad,
            _ => Tone::Plain,
        };
        (tone, line)
    })
}

impl From<Tone> for Style {
    fn from(tone: Tone) -> Self {
        match tone {
            Tone::Plain => PLAIN,
            Tone::Dim => DIM,
            Tone::Bold => BOLD,
            Tone::Good => GOOD,
            Tone::Bad => BAD,
            Tone::Odd => ODD,
            Tone::Noted => NOTED,
        }
    }
}
