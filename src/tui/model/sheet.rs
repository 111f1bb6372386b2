//! Sheets: what a pane shows, line by line, without a screen.

use foldspace::EntryPath;

/// How a line is meant. It never tells more than the line's own signs: colour may be off.
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

/// What a line stands for, so that it can be chosen.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Target {
    File(EntryPath),
    Directory(EntryPath),
    Slice(String),
}

/// A line of a sheet. The text is as it was recorded: whoever shows it makes it safe first.
#[derive(Debug, Clone)]
pub(crate) struct SheetLine {
    pub(crate) tone: Tone,
    pub(crate) text: String,
    pub(crate) target: Option<Target>,
}

/// What a pane shows.
#[derive(Debug, Clone, Default)]
pub(crate) struct Sheet {
    pub(crate) title: String,
    pub(crate) lines: Vec<SheetLine>,
    /// The line that is worth seeing first.
    pub(crate) first: usize,
}

/// Lines of a sheet at most.
const LINES_MAX: usize = 20_000;
/// Bytes of a line at most: a screen shows fewer, and one line may have a gigabyte.
const LINE_MAX: usize = 16 << 10;

impl Sheet {
    pub(crate) fn new(title: impl Into<String>) -> Self {
        Self { title: title.into(), ..Self::default() }
    }

    /// Adds a line, unless the sheet is full.
    pub(crate) fn add(&mut self, tone: Tone, text: impl Into<String>) {
        self.add_for(tone, text, None);
    }

    /// Adds a line that can be chosen.
    pub(crate) fn add_for(&mut self, tone: Tone, text: impl Into<String>, target: Option<Target>) {
        let mut text = text.into();
        if text.len() > LINE_MAX {
            let cut = text.floor_char_boundary(LINE_MAX);
            text.truncate(cut);
            text.push_str("...");
        }
        match self.lines.len() {
            0..LINES_MAX => self.lines.push(SheetLine { tone, text, target }),
            LINES_MAX => self.lines.push(SheetLine {
                tone: Tone::Odd,
                text: format!("... only the first {LINES_MAX} lines are shown"),
                target: None,
            }),
            _ => {}
        }
    }

    /// Whether more lines would be left out.
    pub(crate) fn is_full(&self) -> bool {
        self.lines.len() > LINES_MAX
    }

    /// Adds each line of a text, moved in.
    pub(crate) fn block(&mut self, tone: Tone, indent: &str, text: &str) {
        for line in text.lines() {
            if self.is_full() {
                return;
            }
            self.add(tone, format!("{indent}{}", &line[..line.floor_char_boundary(LINE_MAX)]));
        }
    }

    /// Notes that the next line is worth seeing first, unless an earlier one is.
    pub(crate) fn notice(&mut self) {
        if self.first == 0 {
            self.first = self.lines.len();
        }
    }
}
