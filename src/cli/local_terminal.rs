//! Forwards this program's terminal, or other standard input, to a command.

use std::io;
use std::os::fd::OwnedFd;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use foldspace::backends::WindowSize;
use foldspace::http::TerminalKeys;
use rustix::event::{EventfdFlags, PollFd, PollFlags, eventfd, poll};
use rustix::termios::{
    LocalModes, OptionalActions, QueueSelector, Termios, isatty, tcflush, tcgetattr, tcgetwinsize, tcsetattr,
};
use serde_json::Value;
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::sync::mpsc;
use tokio::task::JoinHandle;

use super::Failure;

const PIECE: usize = 16 << 10;

/// The settings of the terminal before each change of its mode.
static BEFORE: Mutex<Vec<Termios>> = Mutex::new(Vec::new());

/// This program's standard input, forwarded to a command.
#[derive(Default)]
pub(super) struct LocalInput {
    is_terminal: bool,
    raw: Option<TerminalMode>,
    typing: Option<(JoinHandle<()>, Arc<TypingGate>)>,
}

impl LocalInput {
    /// Returns the input of a command with a terminal. Fails if this program has no terminal.
    pub(super) fn terminal() -> Result<Self, Failure> {
        if !isatty(io::stdin()) {
            let what = "--tty needs a terminal as standard input";
            return Err(Failure::usage(what).with_hint("leave out --tty; --stdin forwards piped input"));
        }
        Ok(Self { is_terminal: true, raw: None, typing: None })
    }

    /// Returns true if both standard input and standard output are a terminal.
    pub(super) fn is_possible() -> bool {
        isatty(io::stdin()) && isatty(io::stdout())
    }

    /// Returns the size of the terminal, for a command with a terminal.
    pub(super) fn window(&self) -> Option<WindowSize> {
        self.is_terminal.then(|| window().unwrap_or_default())
    }

    /// Forwards input until this is dropped. Sets a terminal to raw mode, so that all keys go to the command.
    pub(super) fn begin(&mut self, keys: TerminalKeys) -> io::Result<()> {
        if self.is_terminal {
            self.raw = Some(TerminalMode::raw()?);
        }
        let (typing, resized) = (Typing::begin()?, self.is_terminal.then(|| signal(SignalKind::window_change())));
        let gate = Arc::clone(&typing.gate);
        self.typing = Some((tokio::spawn(pass_on(keys, typing, resized.and_then(Result::ok))), gate));
        Ok(())
    }
}

impl Drop for LocalInput {
    fn drop(&mut self) {
        if let Some((typing, gate)) = &self.typing {
            // The task ends later, and must not take the next line that is typed.
            gate.close();
            typing.abort();
        }
    }
}

/// The terminal while a recording is played on it. Discards keys, and the terminal's answers to the recording.
pub(super) struct Playback {
    _raw: Option<TerminalMode>,
    typing: Option<Typing>,
    is_shown: bool,
}

impl Playback {
    pub(super) fn begin() -> io::Result<Self> {
        let is_shown = isatty(io::stdout());
        let is_typed = isatty(io::stdin()) && is_shown;
        let raw = if is_typed { Some(TerminalMode::raw()?) } else { None };
        let typing = if is_typed { Some(Typing::begin()?) } else { None };
        Ok(Self { _raw: raw, typing, is_shown })
    }

    pub(super) fn is_at_terminal(&self) -> bool {
        self.is_shown
    }

    pub(super) fn is_smaller_than(&self, wanted: WindowSize) -> bool {
        let smaller = |own: WindowSize| own.rows < wanted.rows || own.columns < wanted.columns;
        self.is_shown && window().is_some_and(smaller)
    }

    /// Waits for a pause. Returns false if Ctrl-C or `q` is typed.
    pub(super) async fn wait(&mut self, pause: Duration) -> bool {
        const CTRL_C: u8 = 3;
        let over = tokio::time::sleep(pause);
        tokio::pin!(over);
        loop {
            let typed = async {
                match &mut self.typing {
                    Some(typing) => typing.pieces.recv().await,
                    None => std::future::pending().await,
                }
            };
            tokio::select! {
                biased;
                piece = typed => match piece {
                    // A key arrives alone; a terminal's answer may contain any letter.
                    Some(piece) if matches!(piece[..], [b'q' | CTRL_C]) => return false,
                    Some(_) => {}
                    None => self.typing = None,
                },
                () = &mut over => return true,
            }
        }
    }
}

impl Drop for Playback {
    fn drop(&mut self) {
        if self.typing.is_some() {
            // The shell would read the terminal's answers as commands.
            let _ = tcflush(io::stdin(), QueueSelector::IFlush);
        }
    }
}

/// Adds a terminal of the same type as this one to the parameters of a call.
pub(super) fn give_terminal(params: &mut Value) {
    params["tty"] = Value::Bool(true);
    if let Ok(kind) = std::env::var("TERM")
        && params["env"]["TERM"].is_null()
    {
        params["env"]["TERM"] = kind.into();
    }
}

pub(super) fn window() -> Option<WindowSize> {
    let size = tcgetwinsize(io::stdin()).ok().filter(|size| size.ws_row > 0 && size.ws_col > 0)?;
    Some(WindowSize { rows: size.ws_row, columns: size.ws_col })
}

async fn pass_on(mut keys: TerminalKeys, mut typing: Typing, mut resized: Option<Signal>) {
    let mut has_ended = false;
    loop {
        let next_size = async {
            match &mut resized {
                Some(resized) => resized.recv().await,
                None => std::future::pending().await,
            }
        };
        let passed = tokio::select! {
            piece = typing.pieces.recv(), if !has_ended => match piece {
                Some(piece) => keys.send(piece).await,
                None => {
                    has_ended = true;
                    keys.end_input().await
                }
            },
            Some(()) = next_size => keys.resize(window().unwrap_or_default()).await,
            // Dropping `keys` would hang up the command, so this waits until the call ends.
            else => std::future::pending().await,
        };
        if let Err(error) = passed {
            // The call's outcome reports the cause.
            tracing::debug!(%error, "input did not reach the command");
            return;
        }
    }
}

/// Reads standard input in a thread, which stops when this is dropped: later input is not for the command.
struct Typing {
    pieces: mpsc::Receiver<Bytes>,
    gate: Arc<TypingGate>,
}

/// Ends the reading of standard input.
struct TypingGate {
    stop: OwnedFd,
    /// Locked during a read.
    is_over: Mutex<bool>,
}

impl TypingGate {
    /// Stops all further reads.
    fn close(&self) {
        *self.is_over.lock().unwrap_or_else(PoisonError::into_inner) = true;
        // The counter cannot overflow: it is written only a few times.
        let _ = rustix::io::write(&self.stop, &1_u64.to_ne_bytes());
    }

    /// Waits for the next bytes; returns `None` at the end of the input, or once closed.
    fn next_piece(&self) -> io::Result<Option<Bytes>> {
        let stdin = io::stdin();
        loop {
            let mut fds = [PollFd::new(&self.stop, PollFlags::IN), PollFd::new(&stdin, PollFlags::IN)];
            match poll(&mut fds, None) {
                Err(rustix::io::Errno::INTR) => continue,
                polled => polled?,
            };
            let is_over = self.is_over.lock().unwrap_or_else(PoisonError::into_inner);
            if *is_over {
                return Ok(None);
            }
            let mut piece = vec![0; PIECE];
            match rustix::io::read(&stdin, &mut piece) {
                Err(rustix::io::Errno::INTR | rustix::io::Errno::AGAIN) => {}
                read => {
                    piece.truncate(read?);
                    return Ok((!piece.is_empty()).then(|| piece.into()));
                }
            }
        }
    }
}

impl Typing {
    fn begin() -> io::Result<Self> {
        let (give, pieces) = mpsc::channel(1);
        let gate = Arc::new(TypingGate { stop: eventfd(0, EventfdFlags::CLOEXEC)?, is_over: Mutex::new(false) });
        let own = Arc::clone(&gate);
        let thread = std::thread::Builder::new().name("foldspace-input".to_owned());
        thread.spawn(move || {
            while let Ok(Some(piece)) = own.next_piece() {
                if give.blocking_send(piece).is_err() {
                    return;
                }
            }
        })?;
        Ok(Self { pieces, gate })
    }
}

impl Drop for Typing {
    fn drop(&mut self) {
        self.gate.close();
    }
}

/// A mode of the terminal, ended on drop.
pub(super) struct TerminalMode;

impl TerminalMode {
    /// Passes all keys to a command.
    fn raw() -> io::Result<Self> {
        Self::begin(Termios::make_raw)
    }

    /// Leaves keys as they are typed, also early, for a line editor; otherwise the terminal would consume a Ctrl-D.
    pub(super) fn unread() -> io::Result<Self> {
        Self::begin(|modes| modes.local_modes.remove(LocalModes::ICANON | LocalModes::ECHO))
    }

    fn begin(change: impl FnOnce(&mut Termios)) -> io::Result<Self> {
        let before = tcgetattr(io::stdin())?;
        let mut modes = before.clone();
        change(&mut modes);
        BEFORE.lock().unwrap_or_else(PoisonError::into_inner).push(before);
        tcsetattr(io::stdin(), OptionalActions::Now, &modes)?;
        Ok(Self)
    }
}

impl Drop for TerminalMode {
    fn drop(&mut self) {
        restore(BEFORE.lock().unwrap_or_else(PoisonError::into_inner).pop());
    }
}

/// Restores the terminal for exits that drop nothing.
pub(super) fn restore_all() {
    restore(BEFORE.lock().unwrap_or_else(PoisonError::into_inner).drain(..).next());
}

fn restore(before: Option<Termios>) {
    if let Some(before) = before {
        // The terminal may be gone.
        let _ = tcsetattr(io::stdin(), OptionalActions::Drain, &before);
    }
}
