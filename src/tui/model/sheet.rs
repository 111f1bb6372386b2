//! Sheets: the lines of a pane, independent of a screen.

use foldspace::EntryPath;

use super::Tone;
use crate::tui::clean;

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Target {
    File(EntryPath),
    Directory(EntryPath),
    Slice(String),
}

/// A line of a sheet, with text as recorded: drawing escapes it.
#[derive(Debug, Clone)]
pub(crate) struct SheetLine {
    pub(crate) tone: Tone,
    pub(crate) text: String,
    pub(crate) target: Option<Target>,
}

#[derive(Debug, Clone, Default)]
pub(crate) struct Sheet {
    pub(crate) title: String,
    pub(crate) lines: Vec<SheetLine>,
    pub(crate) first: usize,
}

/// Maximum lines of a sheet.
const LINES_MAX: usize = 20_000;
/// Maximum bytes of a line: a screen shows fewer, and one line may have a gigabyte.
const LINE_MAX: usize = 16 << 10;

impl Sheet {
    pub(crate) fn new(title: impl Into<String>) -> Self {
        Self { title: title.into(), ..Self::default() }
    }

    pub(crate) fn add(&mut self, tone: Tone, text: impl Into<String>) {
        self.add_for(tone, text, None);
    }

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

    pub(crate) fn is_full(&self) -> bool {
        self.lines.len() > LINES_MAX
    }

    pub(crate) fn block(&mut self, tone: Tone, indent: &str, text: &str) {
        for line in text.lines() {
            if self.is_full() {
                return;
            }
            self.add(tone, format!("{indent}{}", &line[..line.floor_char_boundary(LINE_MAX)]));
        }
    }

    /// Breaks the lines that are wider than the pane.
    pub(crate) fn wrapped(self, width: usize) -> Self {
        let mut sheet = Self::new(self.title);
        for (at, line) in self.lines.into_iter().enumerate() {
            if at == self.first {
                sheet.first = sheet.lines.len();
            }
            match line.target {
                None => clean::wrapped(&line.text, width).into_iter().for_each(|part| sheet.add(line.tone, part)),
                target => sheet.add_for(line.tone, line.text, target),
            }
        }
        sheet
    }

    /// Returns the columns of its widest line.
    pub(crate) fn columns(&self) -> usize {
        self.lines.iter().map(|line| clean::columns(&line.text)).max().unwrap_or(0)
    }

    /// Marks the next line as the first to show, unless one is marked.
    pub(crate) fn notice(&mut self) {
        if self.first == 0 {
            self.first = self.lines.len();
        }
    }
}
