//! Cancelling commands.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::event::{EventfdFlags, eventfd};

/// A request to end a command, which wakes the thread that waits for it.
#[derive(Debug)]
pub(crate) struct Cancel {
    event: OwnedFd,
}

impl Cancel {
    pub(crate) fn new() -> io::Result<Self> {
        Ok(Self { event: eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)? })
    }

    pub(crate) fn cancel(&self) {
        // The counter can't overflow: cancels are few.
        if let Err(error) = rustix::io::write(&self.event, &1_u64.to_ne_bytes()) {
            tracing::debug!(%error, "failed to cancel a command");
        }
    }

    pub(super) fn descriptor(&self) -> BorrowedFd<'_> {
        self.event.as_fd()
    }
}
