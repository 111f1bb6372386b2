//! Plays the recording of a command's terminal at its original pace.

use std::io::{self, Write};
use std::time::Duration;

use foldspace::backends::WindowSize;
use foldspace::event::TerminalRecorded;
use foldspace::{Recorded, Session};

use super::local_terminal::Playback;
use super::{Exit, Failure, output};

/// Resets the state that an interrupted recording may leave: the alternate screen, a hidden cursor, colours.
const AFTER: &[u8] = b"\x1b[?1049l\x1b[?25h\x1b[0m";

/// An event of a recording: the seconds since its start, its kind, and its text.
type CastLine = (f64, String, String);

/// Plays the recording among these events, `speed` times as fast.
pub(super) fn play(session: &Session, events: &[Recorded], speed: f64) -> Result<Exit, Failure> {
    let recorded = events.iter().find_map(|event| event.typed::<TerminalRecorded>()?.ok());
    let missing = || Failure::failed("no recording: the command had no terminal");
    let recorded = recorded.ok_or_else(|| missing().with_hint("`foldspace exec -t` runs a command in one"))?.event;
    let cast = session.content(&recorded.cast)?;
    let broken = |why: String| Failure::failed(format!("failed to read the recording: {why}"));
    let cast = std::str::from_utf8(&cast).map_err(|error| broken(error.to_string()))?;
    let lines = cast.lines().skip(1).map(serde_json::from_str::<CastLine>);
    let lines: Vec<CastLine> = lines.collect::<Result<_, _>>().map_err(|error| broken(error.to_string()))?;
    let window = WindowSize { rows: recorded.rows, columns: recorded.columns };
    let exit = super::block_on(show(lines, window, speed))??;
    if recorded.truncated {
        output::note("the rest of the output was not recorded");
    }
    Ok(exit)
}

async fn show(lines: Vec<CastLine>, window: WindowSize, speed: f64) -> Result<Exit, Failure> {
    let failed = |error: io::Error| Failure::io("play", "the recording", &error);
    let mut playback = Playback::begin().map_err(failed)?;
    if playback.is_smaller_than(window) {
        let WindowSize { rows, columns } = window;
        output::note(&format!("this terminal is smaller than the recording: {columns}x{rows}"));
    }
    let (mut filter, mut at) = (StringFilter::default(), 0.0);
    let mut exit = Exit::Ok;
    for (seconds, kind, text) in lines {
        let pause = Duration::try_from_secs_f64((seconds - at) / speed).unwrap_or_default();
        at = seconds;
        if !playback.wait(pause).await {
            exit = Exit::Interrupted;
            break;
        }
        if kind == "o" {
            let mut stdout = io::stdout().lock();
            match stdout.write_all(filter.pass(&text).as_bytes()).and_then(|()| stdout.flush()) {
                Err(error) if error.kind() == io::ErrorKind::BrokenPipe => break,
                written => written.map_err(failed)?,
            }
        }
    }
    if playback.is_at_terminal() {
        let mut stdout = io::stdout().lock();
        stdout.write_all(AFTER).and_then(|()| stdout.flush()).map_err(failed)?;
    }
    Ok(exit)
}

/// Private modes that change only the display: the cursor, wrapping, margins, the alternate screen.
const SHOWN_MODES: [&str; 11] = ["5", "6", "7", "12", "25", "47", "69", "1047", "1048", "1049", "2026"];
/// The largest length of a sequence that is passed on, in characters.
const SEQUENCE_MAX: usize = 512;

/// A filter that passes on only drawing. Strings for the terminal can reach the clipboard, queries are answered on
/// standard input, and keyboard and mouse modes outlive the recording.
#[derive(Default)]
struct StringFilter {
    state: StringState,
    /// The escape or control sequence so far, without its beginning.
    sequence: String,
}

#[derive(Default, Clone, Copy, PartialEq, Eq)]
enum StringState {
    #[default]
    Shown,
    Escape,
    Control,
    Inside,
    EscapeInside,
}

impl StringFilter {
    fn pass(&mut self, text: &str) -> String {
        let mut shown = String::with_capacity(text.len());
        for c in text.chars() {
            self.state = self.after(c, &mut shown);
        }
        shown
    }

    /// Returns the state after a character, and appends the output that it lets through.
    fn after(&mut self, c: char, shown: &mut String) -> StringState {
        use StringState::{Control, Escape, EscapeInside, Inside, Shown};
        match (self.state, c) {
            // CAN and SUB end any sequence, BEL ends operating system commands.
            (Inside | EscapeInside, '\x07' | '\x18' | '\x1a' | '\u{9c}') | (EscapeInside, '\\') => Shown,
            (Inside | EscapeInside, '\x1b') => EscapeInside,
            (EscapeInside, '[') | (_, '\u{9b}') => self.begin(Control),
            (Inside | EscapeInside, _) => Inside,
            (_, '\u{90}' | '\u{98}' | '\u{9d}'..='\u{9f}') => Inside,
            (_, '\x18' | '\x1a' | '\u{80}'..='\u{9f}') => Shown,
            (_, '\x1b') => self.begin(Escape),
            // ENQ is a query.
            (state, '\x05') => state,
            // A terminal executes a control character inside a sequence, and continues the sequence.
            (state, '\0'..='\x1f') => {
                shown.push(c);
                state
            }
            (state @ (Escape | Control), '\x7f') => state,
            (Escape, '[') if self.sequence.is_empty() => self.begin(Control),
            (Escape, ']' | 'P' | 'X' | '^' | '_') if self.sequence.is_empty() => Inside,
            (state @ Escape, ' '..='/') | (state @ Control, ' '..='?') => {
                self.sequence.extend((self.sequence.len() <= SEQUENCE_MAX).then_some(c));
                state
            }
            (Escape, '0'..='~') => self.end("\x1b", c, escape_draws, shown),
            (Control, '@'..='~') => self.end("\x1b[", c, control_draws, shown),
            (_, c) => {
                shown.push(c);
                Shown
            }
        }
    }

    fn begin(&mut self, state: StringState) -> StringState {
        self.sequence.clear();
        state
    }

    fn end(&self, begun: &str, last: char, draws: fn(&str, char) -> bool, shown: &mut String) -> StringState {
        if self.sequence.len() <= SEQUENCE_MAX && draws(&self.sequence, last) {
            shown.extend([begun, &self.sequence]);
            shown.push(last);
        }
        StringState::Shown
    }
}

/// Returns true for cursor and line movement, a reset, and character sets.
fn escape_draws(between: &str, last: char) -> bool {
    match between {
        "" => matches!(last, '7' | '8' | 'D' | 'E' | 'H' | 'M' | 'c'),
        between => matches!(between, "(" | ")" | "*" | "+" | "#"),
    }
}

fn control_draws(parameters: &str, last: char) -> bool {
    let is_plain = |text: &str| text.bytes().all(|byte| matches!(byte, b'0'..=b'9' | b';' | b':'));
    match (parameters.strip_prefix('?'), last) {
        (Some(modes), 'h' | 'l') => modes.split(';').all(|mode| SHOWN_MODES.contains(&mode)),
        (Some(which), 'J' | 'K') => is_plain(which),
        (Some(_), _) => false,
        (None, 'h' | 'l') => parameters == "4",
        (None, 'p') => parameters == "!",
        (None, 'q') => parameters.strip_suffix(' ').is_some_and(is_plain),
        (None, '@'..='M' | 'P' | 'S' | 'T' | 'X' | 'Z' | '`' | 'a' | 'b' | 'd'..='g' | 'm' | 'r' | 's' | 'u') => {
            is_plain(parameters)
        }
        (None, _) => false,
    }
}

/// Parses the speed of a playback.
pub(super) fn speed(text: &str) -> Result<f64, String> {
    let speed = text.parse::<f64>().ok().filter(|speed| (0.01..=1000.0).contains(speed));
    speed.ok_or_else(|| "expected a number from 0.01 to 1000".to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn playing_leaves_out_strings_for_the_terminal() {
        let mut filter = StringFilter::default();
        let parts = ["a\x1b[1mb\x1b]52;c;eHh4\x07c\x1b", "]0;title\x1b", "\\d\x1bPq#0\x1b\\e\u{9d}x\u{9c}f\x1b(B"];
        let shown: String = parts.iter().map(|part| filter.pass(part)).collect();
        assert_eq!(shown, "a\x1b[1mbcdef\x1b(B");
    }

    fn passed(text: &str) -> String {
        let mut filter = StringFilter::default();
        let whole = filter.pass(text);
        let (mut filter, mut bytes) = (StringFilter::default(), [0; 4]);
        let apart: String = text.chars().map(|c| filter.pass(c.encode_utf8(&mut bytes))).collect();
        assert_eq!(whole, apart, "{text:?}");
        whole
    }

    #[test]
    fn playing_leaves_out_strings_after_controls_within_their_beginning() {
        for control in (0..0x20).chain([0x7f]).map(char::from).filter(|c| !matches!(c, '\x18' | '\x1a' | '\x1b')) {
            for begun in ["]52;c;cHdu", "]2;PWN", "Pq#0", "_Gx", "^x", "Xx"] {
                let shown = passed(&format!("a\x1b{control}{begun}\x1b\\b"));
                let left: String = shown.chars().filter(|c| !c.is_control()).collect();
                assert_eq!(left, "ab", "{control:?} {begun}");
                assert!(!shown.contains('\x1b'), "{control:?} {begun}");
            }
            let bold: String = passed(&format!("\x1b{control}[1{control}m")).replace(control, "");
            assert_eq!(bold, "\x1b[1m", "{control:?}");
        }
        for cancel in ["\x18", "\x1a"] {
            assert_eq!(passed(&format!("a\x1b{cancel}]b\x1b[1{cancel}mc")), "a]bmc");
        }
    }

    #[test]
    fn playing_asks_the_terminal_nothing() {
        let questions = [
            "[c",
            "[0c",
            "[>c",
            "[=c",
            "[5n",
            "[6n",
            "[?6n",
            "[?996n",
            "[x",
            "[1x",
            "[14t",
            "[18t",
            "[21t",
            "[?25$p",
            "[4$p",
            "[1;1;1;1;1;1*y",
            "[>q",
            "[>0q",
            "[?u",
            "[?4m",
            "[?1$p",
            "Z",
            " F",
            "%@",
            "[i",
            "[5i",
            "[?1;3;0S",
        ];
        // Modes that change the reports of keys and the mouse are dropped, too.
        let modes =
            ["[?1000h", "[?1003;1006h", "[?1004h", "[?2004h", "[?2048h", "[?1h", "=", "[>4;2m", "[>1u", "[2h", "[20h"];
        for asked in questions.into_iter().chain(modes) {
            for begun in ["\x1b".to_owned(), "\x1b\n".to_owned(), "\x1b]0;t\x1b".to_owned()] {
                if begun.len() > 2 && !asked.starts_with('[') {
                    continue;
                }
                let shown = passed(&format!("{begun}{asked}"));
                assert_eq!(shown.trim(), "", "{begun:?}{asked}");
            }
            if let Some(asked) = asked.strip_prefix('[') {
                assert_eq!(passed(&format!("\u{9b}{asked}")), "", "{asked}");
            }
        }
        assert_eq!(passed("a\x05b\u{9a}c\x1b[1\u{9b}6nd"), "abcd");
        assert_eq!(passed(&format!("\x1b[{}m", "1;".repeat(400))), "");
    }

    #[test]
    fn playing_passes_on_what_draws() {
        let drawn = "\x1b[H\x1b[2J\x1b[?1049h\x1b[?25l\x1b[?12;25h\x1b[1;31mred\x1b[0m\x1b[38;2;1;2;3mx\x1b[38:2::1:2:3my\x1b[m\
                     \x1b[10;20r\x1b[3A\x1b[4B\x1b[5C\x1b[6D\x1b[7G\x1b[8d\x1b[K\x1b[1K\x1b[2L\x1b[3M\x1b[4P\x1b[5@\x1b[6X\x1b[s\x1b[u\
                     \x1b7\x1b8\x1bM\x1bD\x1bE\x1b(0lqk\x1b(B\x1b)0\x1b#8\x1b[2 q\x1b[!p\x1b[4h\x1b[?7l\x1bc\tü\r\n";
        assert_eq!(passed(drawn), drawn);
    }
}
