//! Input for a command while it runs, and the size of its terminal.

use std::collections::VecDeque;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::{Arc, Mutex};

use rustix::event::{EventfdFlags, eventfd};
use serde::{Deserialize, Serialize};
use tokio::sync::Notify;

use crate::engine::lock::lock;

/// The maximum number of bytes in this process that wait for a command.
const WAITING_MAX: usize = 64 << 10;
const SIGNALS_MAX: usize = 64;

/// The size of a terminal, in characters.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct WindowSize {
    /// Lines.
    pub rows: u16,
    /// Characters in a line.
    pub columns: u16,
}

impl Default for WindowSize {
    fn default() -> Self {
        Self { rows: 24, columns: 80 }
    }
}

/// Input for one command while it runs. Clones share the input.
///
/// It is not recorded. The command waits for more input until [`end`](CommandInput::end).
///
/// ```
/// # use foldspace_backends as foldspace;
/// use foldspace::{HostWorkspace, Workspace, backends::{CommandInput, HostOptions, ShellCommand, unwatched}};
/// # let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build()?;
/// let directory = tempfile::tempdir()?;
/// let workspace = HostWorkspace::open(directory.path(), &HostOptions::default())?;
/// let input = CommandInput::new()?;
/// let command = ShellCommand { input: Some(input.clone()), ..ShellCommand::shell("tr a-z A-Z") };
/// let running = workspace.unrecorded_shell().unwrap().execute(command, unwatched(), Default::default());
/// let result = runtime.block_on(async {
///     input.send(b"loud\n").await;
///     input.end();
///     running.await
/// })?;
/// assert_eq!(&result.stdout.kept[..], b"LOUD\n");
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug, Clone)]
pub struct CommandInput(Arc<InputQueue>);

#[derive(Debug)]
struct InputQueue {
    state: Mutex<InputState>,
    /// Wakes the thread that follows the command.
    more: OwnedFd,
    room: Notify,
}

#[derive(Debug, Default)]
struct InputState {
    waiting: VecDeque<u8>,
    has_ended: bool,
    is_end_passed: bool,
    pid: Option<u32>,
    /// True if the command has ended.
    is_closed: bool,
    window: Option<WindowSize>,
    is_resized: bool,
    signals: Vec<u8>,
}

/// The next part of an input to be passed on.
#[derive(Debug, Default)]
pub(super) struct InputPart {
    pub(super) window: Option<WindowSize>,
    pub(super) bytes: Vec<u8>,
    pub(super) is_end: bool,
    pub(super) signals: Vec<u8>,
}

impl CommandInput {
    /// Returns an input for one command. Fails if the process has no free file descriptor.
    pub fn new() -> io::Result<Self> {
        let more = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?;
        Ok(Self(Arc::new(InputQueue { state: Mutex::default(), more, room: Notify::new() })))
    }

    /// Sends bytes, and waits while the command does not read. Returns false if it takes no more.
    pub async fn send(&self, mut bytes: &[u8]) -> bool {
        self.feed(&mut bytes).await
    }

    /// Sends bytes like [`send`](CommandInput::send), and removes from `bytes` what has been taken.
    #[doc(hidden)]
    pub async fn feed(&self, bytes: &mut &[u8]) -> bool {
        loop {
            let room = self.0.room.notified();
            {
                let mut state = lock(&self.0.state);
                if state.is_closed || state.has_ended {
                    return false;
                }
                let (now, later) = bytes.split_at(bytes.len().min(WAITING_MAX.saturating_sub(state.waiting.len())));
                state.waiting.extend(now);
                *bytes = later;
            }
            self.wake();
            if bytes.is_empty() {
                return true;
            }
            room.await;
        }
    }

    /// Ends the input, like Ctrl-D at a terminal.
    pub fn end(&self) {
        lock(&self.0.state).has_ended = true;
        self.wake();
    }

    /// Sets the size of the command's terminal; before the command starts, its initial size.
    pub fn resize(&self, window: WindowSize) {
        let mut state = lock(&self.0.state);
        (state.window, state.is_resized) = (Some(window), true);
        drop(state);
        self.wake();
    }

    /// Sends a signal to the command's first process and its group. After the command's end it has no effect.
    pub fn signal(&self, number: u8) {
        let mut state = lock(&self.0.state);
        // A client has no reason to send so many before the first is passed on.
        if state.signals.len() < SIGNALS_MAX {
            state.signals.push(number);
        }
        drop(state);
        self.wake();
    }

    /// Returns the number of the command's first process, as its workspace sees it; `None` before it starts.
    #[doc(hidden)]
    pub fn pid(&self) -> Option<u32> {
        lock(&self.0.state).pid
    }

    /// Waits until the command starts, and returns the number of its first process; `None` if it can't start.
    #[doc(hidden)]
    pub async fn started(&self) -> Option<u32> {
        loop {
            let news = self.0.room.notified();
            let (pid, is_closed) = {
                let state = lock(&self.0.state);
                (state.pid, state.is_closed)
            };
            if pid.is_some() || is_closed {
                return pid;
            }
            news.await;
        }
    }

    /// Records that the command has started.
    pub(super) fn begin(&self, pid: u32) {
        lock(&self.0.state).pid = Some(pid);
        self.0.room.notify_waiters();
    }

    /// Returns the last size that was set.
    #[doc(hidden)]
    pub fn window(&self) -> Option<WindowSize> {
        lock(&self.0.state).window
    }

    pub(super) fn descriptor(&self) -> BorrowedFd<'_> {
        self.0.more.as_fd()
    }

    /// Takes all waiting input, with at most `room` bytes.
    pub(super) fn take(&self, room: usize) -> InputPart {
        // The read resets the counter, so that the descriptor is no longer ready; its value does not matter.
        let _ = rustix::io::read(&self.0.more, &mut [0; 8]);
        let mut state = lock(&self.0.state);
        let count = room.min(state.waiting.len());
        let bytes = state.waiting.drain(..count).collect();
        let is_end = state.has_ended && state.waiting.is_empty() && !state.is_end_passed;
        state.is_end_passed |= is_end;
        let window = state.window.filter(|_| std::mem::take(&mut state.is_resized));
        let signals = std::mem::take(&mut state.signals);
        drop(state);
        self.0.room.notify_waiters();
        InputPart { window, bytes, is_end, signals }
    }

    /// Records that the command has ended, so that senders stop waiting.
    pub(super) fn close(&self) {
        let mut state = lock(&self.0.state);
        state.is_closed = true;
        state.waiting.clear();
        drop(state);
        self.0.room.notify_waiters();
    }

    fn wake(&self) {
        // The counter can't overflow: each `take` resets it.
        if let Err(error) = rustix::io::write(&self.0.more, &1_u64.to_ne_bytes()) {
            tracing::debug!(%error, "failed to announce a command's input");
        }
    }
}

/// Closes an input when dropped: the command has ended or will never start.
pub struct ClosesInput(pub Option<CommandInput>);

impl Drop for ClosesInput {
    fn drop(&mut self) {
        self.0.iter().for_each(CommandInput::close);
    }
}

impl PartialEq for CommandInput {
    fn eq(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }
}
