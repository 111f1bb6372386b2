//! Ending a command before its time.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;

use rustix::event::{EventfdFlags, eventfd};

/// A request to end a command, which wakes up the thread that waits for it. Clones are the same request.
#[derive(Debug, Clone, Default)]
pub(crate) struct Cancel {
    event: Option<Arc<OwnedFd>>,
}

impl Cancel {
    pub(crate) fn new() -> io::Result<Self> {
        let event = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?;
        Ok(Self { event: Some(Arc::new(event)) })
    }

    /// A wish that never comes.
    #[cfg(test)]
    pub(crate) fn never() -> Self {
        Self::default()
    }

    pub(crate) fn cancel(&self) {
        if let Some(event) = &self.event {
            // The counter cannot be full: it is never near its end.
            if let Err(error) = rustix::io::write(event, &1_u64.to_ne_bytes()) {
                tracing::debug!(%error, "a command could not be cancelled");
            }
        }
    }

    #[cfg(test)]
    pub(crate) fn is_cancelled(&self) -> bool {
        let Some(event) = &self.event else { return false };
        let mut fds = [rustix::event::PollFd::new(event, rustix::event::PollFlags::IN)];
        rustix::event::poll(&mut fds, Some(&Default::default())).is_ok_and(|ready| ready > 0)
    }

    pub(super) fn descriptor(&self) -> Option<BorrowedFd<'_>> {
        self.event.as_ref().map(|event| event.as_fd())
    }
}
