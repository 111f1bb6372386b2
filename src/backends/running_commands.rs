//! The running commands of a place: counted, and ended on request.

use std::sync::{Arc, Mutex, OnceLock};

use super::runner::Cancel;
use crate::engine::lock::lock;

#[derive(Debug, Default)]
pub(crate) struct RunningCommands {
    commands: Mutex<Vec<Guarded>>,
}

#[derive(Debug)]
struct Guarded {
    wish: Arc<CancelState>,
    /// Bytes that must stay free on the place's disk for the command to continue.
    floor: u64,
    is_starving: bool,
}

/// The start and the cancellation of a command. Whichever comes first decides if it runs.
#[derive(Debug)]
pub(crate) struct CancelState {
    cancel: Cancel,
    begun: OnceLock<bool>,
    ended_for: OnceLock<String>,
}

/// Counts a command as running until dropped.
#[derive(Debug)]
pub(crate) struct Ongoing {
    all: Arc<RunningCommands>,
    wish: Arc<CancelState>,
}

impl CancelState {
    pub(crate) fn new() -> std::io::Result<Self> {
        Ok(Self { cancel: Cancel::new()?, begun: OnceLock::new(), ended_for: OnceLock::new() })
    }

    pub(crate) fn cancel(&self) -> &Cancel {
        &self.cancel
    }

    /// Starts the command. Returns false if it was cancelled.
    pub(crate) fn begin(&self) -> bool {
        *self.begun.get_or_init(|| true)
    }

    /// Cancels the command. Returns true if it had started; if not, it never will.
    pub(crate) fn take_back(&self) -> bool {
        self.cancel.cancel();
        *self.begun.get_or_init(|| false)
    }

    /// Returns the reason that the place ended the command; `None` if it did not.
    pub(crate) fn ended_for(&self) -> Option<&str> {
        self.ended_for.get().map(String::as_str)
    }
}

impl RunningCommands {
    /// Counts a command as running. It is ended if fewer than `floor` bytes are free on the place's disk.
    pub(crate) fn begin(self: &Arc<Self>, wish: Arc<CancelState>, floor: u64) -> Ongoing {
        lock(&self.commands).push(Guarded { wish: Arc::clone(&wish), floor, is_starving: false });
        Ongoing { all: Arc::clone(self), wish }
    }

    pub(crate) fn is_empty(&self) -> bool {
        lock(&self.commands).is_empty()
    }

    /// Ends each command once `free` is below its floor twice in a row: a full disk may end a command before that.
    pub(crate) fn end_starving(&self, free: u64) {
        for guarded in lock(&self.commands).iter_mut() {
            let was_starving = std::mem::replace(&mut guarded.is_starving, free < guarded.floor);
            if !(was_starving && guarded.is_starving) {
                continue;
            }
            let reason = format!(
                "ended: the disk that holds the workspace has less than {} MiB left; remove files before writing more",
                guarded.floor >> 20
            );
            if guarded.wish.ended_for.set(reason).is_ok() {
                guarded.wish.take_back();
            }
        }
    }
}

impl Drop for Ongoing {
    fn drop(&mut self) {
        lock(&self.all.commands).retain(|guarded| !Arc::ptr_eq(&guarded.wish, &self.wish));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn running_command_starts_or_is_cancelled() {
        let wish = CancelState::new().unwrap();
        assert!(wish.begin() && wish.begin());
        assert!(wish.take_back() && wish.cancel().is_cancelled());
        let wish = CancelState::new().unwrap();
        assert!(!wish.take_back());
        assert!(!wish.begin(), "a cancelled command must not run");
    }

    #[test]
    fn disk_limit_ends_only_the_running_out_command() {
        let all = Arc::new(RunningCommands::default());
        let (modest, hungry) = (Arc::new(CancelState::new().unwrap()), Arc::new(CancelState::new().unwrap()));
        let first = all.begin(Arc::clone(&modest), 1 << 20);
        let second = all.begin(Arc::clone(&hungry), 64 << 20);
        for free in [64 << 20, 2 << 20, 64 << 20, 2 << 20] {
            all.end_starving(free);
        }
        assert!(modest.ended_for().is_none() && hungry.ended_for().is_none());
        all.end_starving(2 << 20);
        assert!(modest.ended_for().is_none() && !modest.cancel().is_cancelled());
        assert!(hungry.ended_for().unwrap().contains("less than 64 MiB") && hungry.cancel().is_cancelled());
        assert!(!all.is_empty());
        drop((first, second));
        assert!(all.is_empty());
    }
}
