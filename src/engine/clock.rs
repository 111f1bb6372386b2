//! The engine's only source of time and randomness.

use std::fmt;
use std::str::FromStr;
use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};

use serde::{Deserialize, Serialize};

use super::id::Digest;

/// Moment in UTC, in milliseconds since 1970.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Timestamp(pub i64);

impl fmt::Display for Timestamp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match jiff::Timestamp::from_millisecond(self.0) {
            Ok(time) => write!(f, "{time:.3}"),
            Err(_) => write!(f, "{}ms", self.0),
        }
    }
}

impl FromStr for Timestamp {
    type Err = jiff::Error;

    fn from_str(text: &str) -> Result<Self, jiff::Error> {
        Ok(Self(text.parse::<jiff::Timestamp>()?.as_millisecond()))
    }
}

impl Serialize for Timestamp {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for Timestamp {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        String::deserialize(deserializer)?.parse().map_err(serde::de::Error::custom)
    }
}

/// Source of times and fresh identities; everything else in the engine is a function of its input. The time may jump
/// back or stand still: the engine never records a time before the session's last one.
pub trait Clock: Send + Sync + 'static {
    /// Returns the current time.
    fn now(&self) -> Timestamp;

    /// Returns the microseconds of a clock that never goes back, from an arbitrary start; for durations.
    fn monotonic_micros(&self) -> u64;

    /// Returns 128 bits that no earlier call returned.
    fn fresh_id(&self) -> [u8; 16];
}

/// Clock and random source of the machine.
#[derive(Debug)]
pub struct SystemClock {
    start: std::time::Instant,
    fallback: AtomicU64,
}

impl Default for SystemClock {
    #[expect(clippy::disallowed_methods, reason = "the one place that reads the machine's clock")]
    fn default() -> Self {
        Self { start: std::time::Instant::now(), fallback: AtomicU64::new(0) }
    }
}

impl SystemClock {
    /// Returns true if the machine's clock is before 1970: it reads as 1970, which some programs can't handle.
    pub(crate) fn is_before_1970(&self) -> bool {
        self.now() == Timestamp(0)
    }
}

impl Clock for SystemClock {
    #[expect(clippy::disallowed_methods, reason = "the one place that reads the machine's clock")]
    fn now(&self) -> Timestamp {
        let since = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
        Timestamp(since.map_or(0, |d| i64::try_from(d.as_millis()).unwrap_or(i64::MAX)))
    }

    fn monotonic_micros(&self) -> u64 {
        u64::try_from(self.start.elapsed().as_micros()).unwrap_or(u64::MAX)
    }

    fn fresh_id(&self) -> [u8; 16] {
        let mut id = [0; 16];
        if getrandom::fill(&mut id).is_err() {
            // Without the kernel's random source, time, process and a counter still differ.
            let count = self.fallback.fetch_add(1, Ordering::Relaxed);
            let seed = (self.now().0, self.monotonic_micros(), std::process::id(), count);
            id.copy_from_slice(&Digest::of(format!("{seed:?}").as_bytes()).as_bytes()[..16]);
        }
        id
    }
}

/// Clock for tests: each reading advances it by a fixed step, and its ids come from a counter.
#[derive(Debug)]
pub struct StepClock {
    now: AtomicI64,
    step: i64,
    ids: AtomicU64,
}

impl StepClock {
    /// Creates a clock whose first reading is `start`; each reading adds `step_ms`, which may be negative.
    pub fn new(start: Timestamp, step_ms: i64) -> Self {
        Self { now: AtomicI64::new(start.0), step: step_ms, ids: AtomicU64::new(1) }
    }

    /// Sets the time of the next reading.
    pub fn set(&self, now: Timestamp) {
        self.now.store(now.0, Ordering::SeqCst);
    }
}

impl Clock for StepClock {
    fn now(&self) -> Timestamp {
        Timestamp(self.now.fetch_add(self.step, Ordering::SeqCst))
    }

    fn monotonic_micros(&self) -> u64 {
        0
    }

    fn fresh_id(&self) -> [u8; 16] {
        let count = self.ids.fetch_add(1, Ordering::SeqCst);
        let mut id = [0; 16];
        id.copy_from_slice(&Digest::of(&count.to_le_bytes()).as_bytes()[..16]);
        id
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn timestamp_prints_milliseconds() {
        let moment = Timestamp(1_700_000_000_120);
        assert_eq!(moment.to_string(), "2023-11-14T22:13:20.120Z");
        assert_eq!("2023-11-14T22:13:20.120Z".parse::<Timestamp>().unwrap(), moment);
    }

    #[test]
    fn system_clock_ids_differ() {
        let clock = SystemClock::default();
        assert_ne!(clock.fresh_id(), clock.fresh_id());
    }
}
