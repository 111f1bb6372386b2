//! The clock of a call.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::watch;
use tokio::time::Instant;

/// Effectively never: the limit of the runtime's own clock.
const NEVER: Duration = Duration::from_secs(30 * 365 * 24 * 60 * 60);

/// Time limit of a call. It pauses while a command with its own limit runs, but never exceeds the caller's or the
/// session's limit.
#[derive(Debug)]
pub(crate) struct CallClock {
    begun: Instant,
    limit: Duration,
    until: watch::Sender<Instant>,
    /// The deadline that no command extends.
    last: Option<Instant>,
}

/// Pauses a clock until it is dropped.
#[derive(Debug)]
pub(crate) struct StoppedClock {
    clock: Arc<CallClock>,
    since: Instant,
    until: Instant,
}

impl CallClock {
    /// Starts a clock with a limit, which commands may extend up to `most`.
    pub(crate) fn start(limit: Duration, most: Option<Duration>) -> Arc<Self> {
        let begun = Instant::now();
        let limit = limit.min(most.unwrap_or(NEVER)).min(NEVER);
        let last = most.map(|most| begun + most.min(NEVER));
        Arc::new(Self { begun, limit, until: watch::Sender::new(begun + limit), last })
    }

    pub(crate) fn limit(&self) -> Duration {
        self.limit
    }

    pub(crate) fn passed(&self) -> Duration {
        self.begun.elapsed()
    }

    pub(crate) fn remaining(&self) -> Duration {
        self.until.borrow().saturating_duration_since(Instant::now())
    }

    /// Waits until the time is up.
    pub(crate) async fn expired(&self) {
        let mut until = self.until.subscribe();
        loop {
            let at = *until.borrow_and_update();
            tokio::select! {
                () = tokio::time::sleep_until(at) => return,
                _ = until.changed() => {}
            }
        }
    }

    /// Pauses the clock for a command.
    pub(crate) fn stop(self: &Arc<Self>) -> StoppedClock {
        let since = Instant::now();
        let until = self.until.send_replace(self.last.unwrap_or(since + NEVER));
        StoppedClock { clock: Arc::clone(self), since, until }
    }
}

impl Drop for StoppedClock {
    fn drop(&mut self) {
        let until = self.until + self.since.elapsed();
        self.clock.until.send_replace(self.clock.last.map_or(until, |last| last.min(until)));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SHORT: Duration = Duration::from_millis(50);

    #[tokio::test]
    async fn call_clock_stands_still_during_a_command() {
        let clock = CallClock::start(SHORT, None);
        let stopped = clock.stop();
        tokio::time::sleep(4 * SHORT).await;
        assert!(clock.remaining() > Duration::from_secs(3600));
        drop(stopped);
        assert!(clock.remaining() <= SHORT);
        clock.expired().await;
        assert!(clock.passed() >= 5 * SHORT && clock.remaining().is_zero());
    }

    #[tokio::test]
    async fn call_clock_stops_no_longer_than_it_may() {
        let clock = CallClock::start(SHORT, Some(2 * SHORT));
        assert!(clock.remaining() <= SHORT);
        let _stopped = clock.stop();
        clock.expired().await;
        assert!(clock.passed() >= 2 * SHORT && clock.remaining().is_zero());
    }
}
