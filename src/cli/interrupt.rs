//! Handles Ctrl-C and other signals that end the program during calls.

use std::future::pending;
use std::sync::Arc;
use std::time::Duration;

use foldspace::Workspace;
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio_util::sync::CancellationToken;

use super::{Exit, local_terminal};

const CLOSING: Duration = Duration::from_secs(3);

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Interruption {
    Stop,
    End,
}

impl Interruption {
    pub(super) fn words(self) -> &'static str {
        match self {
            Self::Stop => "stopped by Ctrl-C",
            Self::End => "stopped by SIGTERM or SIGHUP",
        }
    }
}

pub(super) struct Signals {
    interrupt: Option<Signal>,
    terminate: Option<Signal>,
    hang_up: Option<Signal>,
    is_to_end: bool,
}

impl Signals {
    /// Starts listening: from now on signals do not end the program. Needs a runtime.
    pub(super) fn listen() -> Self {
        let listen = |kind| signal(kind).ok();
        Self {
            interrupt: listen(SignalKind::interrupt()),
            terminate: listen(SignalKind::terminate()),
            // A program that was started by `nohup` continues.
            hang_up: if hang_up_is_ignored() { None } else { listen(SignalKind::hangup()) },
            is_to_end: false,
        }
    }

    pub(super) fn is_to_end(&self) -> bool {
        self.is_to_end
    }

    /// Waits for the next signal. It is cancel-safe.
    pub(super) async fn next(&mut self) -> Interruption {
        let wish = tokio::select! {
            () = received(&mut self.interrupt) => Interruption::Stop,
            () = received(&mut self.terminate) => Interruption::End,
            () = received(&mut self.hang_up) => Interruption::End,
        };
        self.is_to_end |= wish == Interruption::End;
        wish
    }
}

async fn received(signal: &mut Option<Signal>) {
    let received = match signal {
        Some(signal) => signal.recv().await,
        None => None,
    };
    if received.is_none() {
        pending::<()>().await;
    }
}

#[expect(clippy::disallowed_methods, reason = "the kernel reports it in a file")]
fn hang_up_is_ignored() -> bool {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let mask = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    let mask = mask.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok()).unwrap_or(0);
    mask >> (SignalKind::hangup().as_raw_value() - 1) & 1 == 1
}

/// Cancels the token at the first signal, so that the call is recorded as interrupted. A second signal ends the
/// program at once; the next run records the interruption.
pub(super) fn watch(token: CancellationToken, close: impl Future<Output = ()> + Send + 'static) {
    let mut signals = Signals::listen();
    tokio::spawn(async move {
        signals.next().await;
        token.cancel();
        signals.next().await;
        end_now(close).await;
    });
}

pub(super) async fn minding<T>(
    signals: &mut Signals,
    token: &CancellationToken,
    close: impl Future<Output = ()>,
    work: impl Future<Output = T>,
) -> T {
    let mut work = std::pin::pin!(work);
    loop {
        tokio::select! {
            done = &mut work => return done,
            _ = signals.next() => {
                if token.is_cancelled() {
                    end_now(close).await;
                }
                token.cancel();
            }
        }
    }
}

/// Closes a workspace, if it is still open when this is polled.
pub(super) fn closing(workspace: &Arc<dyn Workspace>) -> impl Future<Output = ()> + Send + 'static {
    let workspace = Arc::downgrade(workspace);
    async move {
        if let Some(workspace) = workspace.upgrade() {
            // The caller limits the wait for it.
            drop(tokio::task::spawn_blocking(move || workspace.close()).await);
        }
    }
}

/// Ends the program, after a short time limit for `close` to release containers.
pub(super) async fn end_now(close: impl Future<Output = ()>) -> ! {
    drop(tokio::time::timeout(CLOSING, close).await);
    local_terminal::restore_all();
    std::process::exit(i32::from(Exit::Interrupted.code()))
}
