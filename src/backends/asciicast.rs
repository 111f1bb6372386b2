//! Terminal recordings in asciicast version 2: JSON lines with the time of each output.

use std::time::Instant;

use bytes::Bytes;
use serde_json::json;

use super::command_input::WindowSize;

/// The recording of everything that a command showed on its terminal.
///
/// ```
/// # use foldspace_backends as foldspace;
/// use foldspace::backends::{HostOptions, ShellCommand, TerminalRecording, WindowSize, unwatched};
/// use foldspace::{HostWorkspace, Workspace};
/// # let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build()?;
/// let directory = tempfile::tempdir()?;
/// let workspace = HostWorkspace::open(directory.path(), &HostOptions::default())?;
/// let window = WindowSize { rows: 30, columns: 100 };
/// let command = ShellCommand { terminal: Some(window), ..ShellCommand::shell("stty size") };
/// let running = workspace.unrecorded_shell().unwrap().execute(command, unwatched(), Default::default());
/// let result = runtime.block_on(running)?;
/// assert_eq!(&result.stdout.kept[..], b"30 100\r\n");
/// let TerminalRecording { cast, .. } = result.terminal.unwrap();
/// assert!(cast.starts_with(br#"{"version":2,"width":100,"height":30}"#));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TerminalRecording {
    /// The initial size of the terminal.
    pub window: WindowSize,
    /// The recording in asciicast version 2.
    pub cast: Bytes,
    /// True if the recording was cut at its limit.
    pub truncated: bool,
}

/// Writes a recording while the command runs.
pub(super) struct CastWriter {
    first: WindowSize,
    window: WindowSize,
    started: Instant,
    cast: Vec<u8>,
    max: usize,
    /// The first bytes of a character that is still incomplete.
    half: Vec<u8>,
    is_full: bool,
}

impl CastWriter {
    pub(super) fn begin(window: WindowSize, started: Instant, max: usize) -> Self {
        let header = json!({ "version": 2, "width": window.columns, "height": window.rows });
        let cast = format!("{header}\n").into_bytes();
        Self { first: window, window, started, cast, max, half: Vec::new(), is_full: false }
    }

    pub(super) fn resized(&mut self, window: WindowSize, now: Instant) {
        if self.window != window {
            self.window = window;
            self.line(now, "r", &format!("{}x{}", window.columns, window.rows));
        }
    }

    pub(super) fn shown(&mut self, bytes: &[u8], now: Instant) {
        let mut all = std::mem::take(&mut self.half);
        all.extend_from_slice(bytes);
        if let Some(last) = all.utf8_chunks().last()
            && is_begun(last.invalid())
        {
            self.half = all.split_off(all.len() - last.invalid().len());
        }
        self.line(now, "o", &String::from_utf8_lossy(&all));
    }

    pub(super) fn finish(mut self, now: Instant) -> TerminalRecording {
        let half = std::mem::take(&mut self.half);
        self.line(now, "o", &String::from_utf8_lossy(&half));
        TerminalRecording { window: self.first, cast: self.cast.into(), truncated: self.is_full }
    }

    fn line(&mut self, now: Instant, kind: &str, text: &str) {
        if text.is_empty() || self.is_full {
            return;
        }
        let seconds = now.saturating_duration_since(self.started).as_micros() as f64 / 1e6;
        let line = format!("{}\n", json!([seconds, kind, text]));
        self.is_full = self.cast.len() + line.len() > self.max;
        if !self.is_full {
            self.cast.extend_from_slice(line.as_bytes());
        }
    }
}

/// Returns true if the bytes may be the beginning of a character.
fn is_begun(bytes: &[u8]) -> bool {
    std::str::from_utf8(bytes).is_err_and(|error| error.error_len().is_none())
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn cast_joins_split_characters_and_ends_at_its_limit() {
        let started = crate::backends::runner::now();
        let after = |millis| started + Duration::from_millis(millis);
        let window = WindowSize::default();
        let mut cast = CastWriter::begin(window, started, 130);
        cast.shown(b"a\xc3", after(100));
        cast.resized(WindowSize { rows: 50, columns: 132 }, after(150));
        cast.resized(WindowSize { rows: 50, columns: 132 }, after(160));
        cast.shown(b"\xa9\xff\x1b[1m", after(200));
        cast.shown(&[b'x'; 90], after(300));
        cast.shown(b"more", after(400));
        let recording = cast.finish(after(500));
        let text = String::from_utf8(recording.cast.to_vec()).unwrap();
        let wanted = [
            r#"{"version":2,"width":80,"height":24}"#,
            r#"[0.1,"o","a"]"#,
            r#"[0.15,"r","132x50"]"#,
            "[0.2,\"o\",\"\u{e9}\u{fffd}\\u001b[1m\"]",
        ];
        assert_eq!(text.lines().collect::<Vec<_>>(), wanted);
        assert!(recording.truncated && recording.window == window);
    }
}
