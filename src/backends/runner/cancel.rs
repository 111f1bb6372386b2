//! Ending a command before its time.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;

use rustix::event::{EventfdFlags, eventfd};

/// A wish that a command ends, which wakes up whoever waits for the command. Clones are the same wish.
#[derive(Debug, Clone, Default)]
pub(crate) struct Cancel {
    event: Option<Arc<OwnedFd>>,
}

impl Cancel {
    /// A wish that may come.
    ///
    /// # Errors
    /// When the process has no descriptor left.
    pub(crate) fn new() -> io::Result<Self> {
        let event = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?;
        Ok(Self { event: Some(Arc::new(event)) })
    }

    /// A wish that never comes.
    #[cfg(test)]
    pub(crate) fn never() -> Self {
        Self::default()
    }

    /// Asks for the end. It stays asked for.
    pub(crate) fn cancel(&self) {
        if let Some(event) = &self.event {
            // The counter cannot be full: it is never near its end.
            if let Err(error) = rustix::io::write(event, &1_u64.to_ne_bytes()) {
                tracing::debug!(%error, "a command could not be cancelled");
            }
        }
    }

    /// Tells whether the end was asked for.
    #[cfg(test)]
    pub(crate) fn is_cancelled(&self) -> bool {
        let Some(event) = &self.event else { return false };
        let mut fds = [rustix::event::PollFd::new(event, rustix::event::PollFlags::IN)];
        rustix::event::poll(&mut fds, Some(&Default::default())).is_ok_and(|ready| ready > 0)
    }

    /// Readable when the end was asked for.
    pub(super) fn descriptor(&self) -> Option<BorrowedFd<'_>> {
        self.event.as_ref().map(|event| event.as_fd())
    }
}
