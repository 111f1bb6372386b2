//! The emulated screen of a terminal, for clients that draw only text.

use std::collections::BTreeMap;
use std::sync::atomic::Ordering;
use std::time::Duration;

use avt::parser::Function;
use avt::{Cell, Color, Parser, Pen, Terminal};
use schemars::JsonSchema;
use serde::Serialize;

use super::terminal_keys::TypingModes;
use crate::backends::WindowSize;

/// The largest screen.
const MOST: WindowSize = WindowSize { rows: 300, columns: 500 };
/// The most characters to keep of a control sequence's parameters.
const PARAMS_MAX: usize = 32;
/// The most bytes of pending replies.
const REPLY_MAX: usize = 1024;
/// The shortest time between two frames.
pub(super) const FRAME: Duration = Duration::from_micros(33_333);

/// A change of a terminal's screen.
#[derive(Debug, Clone, PartialEq, Serialize, JsonSchema)]
pub(super) struct ScreenFrame {
    /// Microseconds since the beginning.
    micros: u64,
    /// The size of the screen, if it has changed.
    #[serde(skip_serializing_if = "Option::is_none")]
    size: Option<WindowSize>,
    /// The cursor's column and line, from 0; null while it is hidden.
    cursor: Option<(usize, usize)>,
    /// The lines that changed, by their numbers from 0, without trailing blanks.
    #[schemars(with = "BTreeMap<String, Vec<ScreenText>>")]
    rows: BTreeMap<usize, Vec<ScreenText>>,
}

/// A run of text in one style.
#[derive(Debug, Clone, Default, PartialEq, Serialize, JsonSchema)]
pub(super) struct ScreenText {
    /// The characters, without control characters.
    text: String,
    /// Its colour: `red` or another of the eight names, `bright-red` and so on, `#rrggbb`, or `ground`, the default
    /// background, of inverse text.
    #[serde(skip_serializing_if = "Option::is_none")]
    foreground: Option<String>,
    /// The background colour; `ink`, the default foreground, of inverse text.
    #[serde(skip_serializing_if = "Option::is_none")]
    background: Option<String>,
    /// `bold`, `dim`, `italic`, `underline`, `struck`; `wide` if each character takes two columns.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    style: Vec<&'static str>,
}

/// A terminal emulator that is fed a command's output.
pub(super) struct EmulatedScreen {
    parser: Parser,
    terminal: Terminal,
    /// The beginning of a character that is still incomplete.
    half: Vec<u8>,
    watch: SequenceWatch,
    reply: String,
    /// The cursor, the columns and the lines of the last frame.
    cursor: Option<(usize, usize)>,
    columns: usize,
    shown: Vec<Vec<Cell>>,
}

impl EmulatedScreen {
    pub(super) fn new(window: WindowSize) -> Self {
        let (columns, rows) = bounded(window);
        #[expect(clippy::expect_used, reason = "it has at least one line and one column")]
        let terminal = Terminal::new(columns, rows).expect("a size");
        Self {
            parser: Parser::new(),
            terminal,
            half: Vec::new(),
            watch: SequenceWatch::default(),
            reply: String::new(),
            cursor: None,
            columns: 0,
            shown: Vec::new(),
        }
    }

    pub(super) fn resize(&mut self, window: WindowSize) {
        let (columns, rows) = bounded(window);
        self.terminal.resize(columns, rows);
    }

    pub(super) fn feed(&mut self, bytes: &[u8]) {
        let mut all = std::mem::take(&mut self.half);
        all.extend_from_slice(bytes);
        for chunk in all.utf8_chunks() {
            chunk.valid().chars().for_each(|c| self.show(c));
            let rest = chunk.invalid();
            // At the end it may be an incomplete character.
            match std::str::from_utf8(rest) {
                Err(error) if error.error_len().is_none() => self.half = rest.to_vec(),
                Err(_) => self.show(char::REPLACEMENT_CHARACTER),
                Ok(_) => {}
            }
        }
    }

    fn show(&mut self, c: char) {
        match self.parser.feed(c) {
            // A terminal does not show DEL; the emulator would.
            Some(Function::Print('\x7f')) => {}
            // Programs repeat a character within a line; a short sequence must cost no more than that.
            Some(Function::Rep(count)) => self.terminal.execute(Function::Rep(count.min(MOST.columns))),
            Some(function) => self.terminal.execute(function),
            None => {}
        }
        match self.watch.see(c).filter(|_| self.reply.len() < REPLY_MAX) {
            Some(ScreenQuery::Place) => {
                let cursor = self.terminal.cursor();
                self.reply.push_str(&format!("\x1b[{};{}R", cursor.row + 1, cursor.col.min(self.columns_last()) + 1));
            }
            Some(ScreenQuery::Health) => self.reply.push_str("\x1b[0n"),
            Some(ScreenQuery::Kind) => self.reply.push_str("\x1b[?6c"),
            None => {}
        }
    }

    fn columns_last(&self) -> usize {
        self.terminal.size().0 - 1
    }

    /// Takes the terminal's replies to the command's queries; they are input for the command.
    pub(super) fn take_reply(&mut self) -> String {
        std::mem::take(&mut self.reply)
    }

    pub(super) fn note_modes(&self, modes: &TypingModes) {
        modes.has_application_keys.store(self.terminal.cursor_key_app_mode(), Ordering::Relaxed);
        modes.brackets_pastes.store(self.watch.brackets_pastes, Ordering::Relaxed);
    }

    /// Returns the changes since the last frame; `None` if nothing has changed.
    pub(super) fn frame(&mut self, micros: u64) -> Option<ScreenFrame> {
        let (columns, rows) = self.terminal.size();
        let is_resized = (self.columns, self.shown.len()) != (columns, rows);
        self.columns = columns;
        self.shown.resize(rows, vec![Cell::default(); columns]);
        let mut changed = BTreeMap::new();
        for (number, (line, shown)) in self.terminal.screen().visible_lines().zip(&mut self.shown).enumerate() {
            if line.cells() != shown.as_slice() {
                *shown = line.cells().to_vec();
                changed.insert(number, texts(line.cells()));
            }
        }
        let size = is_resized.then(|| WindowSize { rows: small(rows), columns: small(columns) });
        let cursor = self.terminal.cursor().position().map(|(column, row)| (column.min(columns - 1), row));
        let is_new = is_resized || !changed.is_empty() || cursor != self.cursor;
        self.cursor = cursor;
        is_new.then_some(ScreenFrame { micros, size, cursor, rows: changed })
    }
}

fn bounded(window: WindowSize) -> (usize, usize) {
    let within = |wanted: u16, most: u16| usize::from(wanted.clamp(1, most));
    (within(window.columns, MOST.columns), within(window.rows, MOST.rows))
}

fn small(number: usize) -> u16 {
    u16::try_from(number).unwrap_or(u16::MAX)
}

fn texts(cells: &[Cell]) -> Vec<ScreenText> {
    let end = cells.iter().rposition(|cell| *cell != Cell::default()).map_or(0, |last| last + 1);
    let mut texts: Vec<(ScreenText, (Pen, bool))> = Vec::new();
    // The second half of a wide character has width 0.
    for cell in cells[..end].iter().filter(|cell| cell.width() > 0) {
        let look = (*cell.pen(), cell.width() == 2);
        if texts.last().is_none_or(|(_, last)| *last != look) {
            texts.push((styled(look), look));
        }
        if let Some((text, _)) = texts.last_mut() {
            text.text.push(cell.char());
        }
    }
    texts.into_iter().map(|(text, _)| text).collect()
}

fn styled((pen, is_wide): (Pen, bool)) -> ScreenText {
    let all = [
        (pen.is_bold(), "bold"),
        (pen.is_faint(), "dim"),
        (pen.is_italic(), "italic"),
        (pen.is_underline(), "underline"),
        (pen.is_strikethrough(), "struck"),
        (is_wide, "wide"),
    ];
    let style = all.into_iter().filter_map(|(is_set, name)| is_set.then_some(name)).collect();
    let (mut foreground, mut background) = (pen.foreground().map(named), pen.background().map(named));
    if pen.is_inverse() {
        let (ink, ground) = (foreground.unwrap_or("ink".to_owned()), background.unwrap_or("ground".to_owned()));
        (foreground, background) = (Some(ground), Some(ink));
    }
    ScreenText { text: String::new(), foreground, background, style }
}

fn named(color: Color) -> String {
    const NAMES: [&str; 8] = ["black", "red", "green", "yellow", "blue", "magenta", "cyan", "white"];
    let (red, green, blue) = match color {
        Color::Indexed(index @ 0..=7) => return NAMES[usize::from(index)].to_owned(),
        Color::Indexed(index @ 8..=15) => return format!("bright-{}", NAMES[usize::from(index - 8)]),
        // A colour cube with six steps per channel, then greys.
        Color::Indexed(index @ 16..=231) => {
            let step = |number: u8| if number == 0 { 0 } else { 55 + 40 * number };
            let index = index - 16;
            (step(index / 36), step(index / 6 % 6), step(index % 6))
        }
        Color::Indexed(index) => [8 + 10 * (index - 232); 3].into(),
        Color::RGB(color) => (color.r, color.g, color.b),
    };
    format!("#{red:02x}{green:02x}{blue:02x}")
}

enum ScreenQuery {
    Place,
    Health,
    Kind,
}

/// Tracks sequences that the emulator ignores: bracketed paste mode, and queries to the terminal.
#[derive(Default)]
struct SequenceWatch {
    /// The parameters of the open sequence; `None` outside of a sequence.
    params: Option<String>,
    is_escape: bool,
    brackets_pastes: bool,
}

impl SequenceWatch {
    fn see(&mut self, c: char) -> Option<ScreenQuery> {
        let follows_escape = std::mem::replace(&mut self.is_escape, c == '\x1b');
        match c {
            '[' if follows_escape => self.params = Some(String::new()),
            '0'..='?' => {
                self.params.iter_mut().filter(|params| params.len() < PARAMS_MAX).for_each(|params| params.push(c))
            }
            _ => return self.params.take().and_then(|params| self.ended(&params, c)),
        }
        None
    }

    fn ended(&mut self, params: &str, last: char) -> Option<ScreenQuery> {
        match (params, last) {
            ("6", 'n') => Some(ScreenQuery::Place),
            ("5", 'n') => Some(ScreenQuery::Health),
            ("" | "0", 'c') => Some(ScreenQuery::Kind),
            (_, 'h' | 'l')
                if params.strip_prefix('?').is_some_and(|modes| modes.split(';').any(|mode| mode == "2004")) =>
            {
                self.brackets_pastes = last == 'h';
                None
            }
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use arbtest::arbtest;
    use serde_json::{Value, json};

    use super::*;

    fn screen(columns: u16, rows: u16) -> EmulatedScreen {
        EmulatedScreen::new(WindowSize { rows, columns })
    }

    fn framed(screen: &mut EmulatedScreen, bytes: &[u8]) -> Value {
        screen.feed(bytes);
        json!(screen.frame(0))
    }

    #[test]
    fn screen_gives_only_what_changed() {
        let mut screen = screen(10, 3);
        let first = framed(&mut screen, b"one\r\n\x1b[1;31mtwo\x1b[0m");
        let red = json!([{ "text": "two", "foreground": "red", "style": ["bold"] }]);
        let rows = json!({ "0": [{ "text": "one" }], "1": red });
        let wanted = json!({ "micros": 0, "size": { "rows": 3, "columns": 10 }, "cursor": [3, 1], "rows": rows });
        assert_eq!(first, wanted);
        assert_eq!(framed(&mut screen, b""), Value::Null);
        assert_eq!(framed(&mut screen, b"\x1b[?25l"), json!({ "micros": 0, "cursor": null, "rows": {} }));
        let next = framed(&mut screen, b"\x1b[H\x1b[7;38;5;196mO\x1b[?25h");
        let inverse = json!({ "text": "O", "foreground": "ground", "background": "#ff0000" });
        assert_eq!(next["rows"], json!({ "0": [inverse, { "text": "ne" }] }));
        screen.resize(WindowSize { rows: 2, columns: 5 });
        assert_eq!(json!(screen.frame(0))["size"], json!({ "rows": 2, "columns": 5 }));
    }

    #[test]
    fn screen_joins_split_characters_and_marks_wide_ones() {
        let mut screen = screen(10, 1);
        framed(&mut screen, b"a\xe4\xbd");
        let joined = framed(&mut screen, b"\xa0b\xffc");
        let wide = json!({ "text": "\u{4f60}", "style": ["wide"] });
        assert_eq!(joined["rows"]["0"], json!([{ "text": "a" }, wide, { "text": "b\u{fffd}c" }]));
    }

    #[test]
    fn screen_keeps_the_shell_behind_an_editor() {
        let mut screen = screen(10, 2);
        framed(&mut screen, b"shell");
        assert_eq!(framed(&mut screen, b"\x1b[?1049h\x1b[Hvim")["rows"]["0"], json!([{ "text": "vim" }]));
        assert_eq!(framed(&mut screen, b"\x1b[?1049l")["rows"]["0"], json!([{ "text": "shell" }]));
    }

    #[test]
    fn screen_tells_modes_and_answers_questions() {
        let mut screen = screen(10, 5);
        screen.feed(b"\r\nab\x1b[6n\x1b[c\x1b[5n");
        assert_eq!(screen.take_reply(), "\x1b[2;3R\x1b[?6c\x1b[0n");
        screen.feed(&b"\x1b[6n".repeat(10_000));
        assert!(screen.take_reply().len() < 2 * REPLY_MAX);
        for (bytes, wanted) in [(&b"\x1b[?1;2004h"[..], true), (b"\x1b[?2004l\x1b[?1l", false)] {
            screen.feed(bytes);
            let modes = TypingModes::default();
            screen.note_modes(&modes);
            assert_eq!(modes.has_application_keys.load(Ordering::Relaxed), wanted);
            assert_eq!(modes.brackets_pastes.load(Ordering::Relaxed), wanted);
        }
    }

    #[test]
    fn screen_of_any_size_has_bounds() {
        let mut screen = screen(0, u16::MAX);
        screen.resize(WindowSize { rows: u16::MAX, columns: u16::MAX });
        assert_eq!(framed(&mut screen, b"x\x1b[65535b")["size"], json!({ "rows": 300, "columns": 500 }));
    }

    /// Feeds at least a MiB of noise and of beginnings of sequences, with resizes in between.
    #[test]
    fn screen_takes_hostile_bytes() {
        const PARTS: [&[u8]; 16] = [
            b"\x1b[",
            b"\x1b]",
            b"\x1bP",
            b"\x1b",
            b";",
            b"?",
            b"99999",
            b"\xe4\xbd\xa0",
            b"\xf0\x9f",
            b"h",
            b"r",
            b"m",
            b"J",
            b"\x1b[?1049h",
            b"\x1b[?1049l",
            b"L",
        ];
        let mut fed = 0;
        while fed < 1 << 20 {
            arbtest(|input| {
                let mut screen = screen(input.arbitrary()?, input.int_in_range(1..=40)?);
                while !input.is_empty() {
                    match input.int_in_range(0..=20)? {
                        0 => screen.resize(WindowSize {
                            rows: input.int_in_range(0..=50)?,
                            columns: input.int_in_range(0..=90)?,
                        }),
                        1..=8 => {
                            let noise = input.bytes(input.len().min(200))?;
                            fed += noise.len();
                            screen.feed(noise);
                        }
                        _ => {
                            let part = input.choose(&PARTS)?;
                            fed += part.len();
                            screen.feed(part);
                        }
                    }
                    if let Some(frame) = screen.frame(0) {
                        let columns = screen.terminal.size().0;
                        assert!(frame.cursor.is_none_or(|(column, row)| column < columns && row < screen.shown.len()));
                        let mut told = frame.rows.values().flatten().flat_map(|text| text.text.chars());
                        assert!(told.all(|c| !c.is_control()), "{frame:?}");
                    }
                }
                Ok(())
            })
            .budget_ms(200);
        }
    }
}
