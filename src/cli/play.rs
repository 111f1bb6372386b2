//! Plays the recording of a command's terminal at the pace at which it was made.

use std::io::{self, Write};
use std::time::Duration;

use foldspace::backends::WindowSize;
use foldspace::event::TerminalRecorded;
use foldspace::{Recorded, Session};

use super::local_terminal::Playback;
use super::{Exit, Failure, output};

/// Ends what a recording that was left in the middle may have begun: another screen, a hidden cursor, colours.
const AFTER: &[u8] = b"\x1b[?1049l\x1b[?25h\x1b[0m";

/// A part of a recording: the seconds since its beginning, its kind, and its text.
type CastLine = (f64, String, String);

/// Plays the recording among these events, so many times as fast.
pub(super) fn play(session: &Session, events: &[Recorded], speed: f64) -> Result<Exit, Failure> {
    let recorded = events.iter().find_map(|event| event.typed::<TerminalRecorded>()?.ok());
    let missing = || Failure::failed("there is no recording: the command had no terminal");
    let recorded = recorded.ok_or_else(|| missing().with_hint("`foldspace exec -t` gives a command one"))?.event;
    let cast = session.content(&recorded.cast)?;
    let broken = |why: String| Failure::failed(format!("the recording can't be read: {why}"));
    let cast = std::str::from_utf8(&cast).map_err(|error| broken(error.to_string()))?;
    let lines = cast.lines().skip(1).map(serde_json::from_str::<CastLine>);
    let lines: Vec<CastLine> = lines.collect::<Result<_, _>>().map_err(|error| broken(error.to_string()))?;
    let window = WindowSize { rows: recorded.rows, columns: recorded.columns };
    let exit = super::block_on(show(lines, window, speed))??;
    if recorded.truncated {
        output::note("it showed more, which was not kept");
    }
    Ok(exit)
}

async fn show(lines: Vec<CastLine>, window: WindowSize, speed: f64) -> Result<Exit, Failure> {
    let failed = |error: io::Error| Failure::io("play", "the recording", &error);
    let mut playback = Playback::begin().map_err(failed)?;
    if playback.is_smaller_than(window) {
        let WindowSize { rows, columns } = window;
        output::note(&format!("it was recorded at {columns}x{rows}, and this terminal is smaller"));
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

/// Leaves out the strings that a terminal is told beside what it shows: they reach the clipboard, and more.
#[derive(Default)]
struct StringFilter {
    state: StringState,
}

#[derive(Default, Clone, Copy, PartialEq, Eq)]
enum StringState {
    #[default]
    Shown,
    Escape,
    Inside,
    EscapeInside,
}

impl StringFilter {
    fn pass(&mut self, text: &str) -> String {
        use StringState::{Escape, EscapeInside, Inside, Shown};
        let mut shown = String::with_capacity(text.len());
        for c in text.chars() {
            self.state = match (self.state, c) {
                (Shown, '\x1b') => Escape,
                (Shown | Escape, '\u{90}' | '\u{98}' | '\u{9d}'..='\u{9f}') => Inside,
                (Escape, ']' | 'P' | 'X' | '^' | '_') => Inside,
                (Escape, '\x1b') => Escape,
                (Escape, c) => {
                    shown.extend(['\x1b', c]);
                    Shown
                }
                (Shown, c) => {
                    shown.push(c);
                    Shown
                }
                // CAN and SUB end any sequence, BEL those of systems.
                (Inside | EscapeInside, '\x07' | '\x18' | '\x1a' | '\u{9c}') | (EscapeInside, '\\') => Shown,
                (Inside, '\x1b') => EscapeInside,
                (Inside, _) => Inside,
                (EscapeInside, '[') => {
                    shown.push_str("\x1b[");
                    Shown
                }
                (EscapeInside, '\x1b') => EscapeInside,
                (EscapeInside, _) => Inside,
            };
        }
        shown
    }
}

/// Reads how many times as fast a recording is played.
pub(super) fn speed(text: &str) -> Result<f64, String> {
    let speed = text.parse::<f64>().ok().filter(|speed| (0.01..=1000.0).contains(speed));
    speed.ok_or_else(|| "give a number from 0.01 to 1000".to_owned())
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
}
