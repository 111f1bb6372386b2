//! Leases of hosts, from the point of view of one host.
//!
//! Each host writes heartbeats to the cluster, under its name. Its lease starts when it sends a heartbeat; other hosts
//! declare it dead after a lease without a new heartbeat. They receive it after it was sent, so the host has stopped
//! by then. Time during which the cluster does not answer an observer does not count as silence.
//!
//! Leases keep hosts out of each other's way. The stream itself prevents two hosts from extending one history: it
//! accepts a message only after the expected last message.

use std::collections::BTreeMap;
use std::time::Duration;

/// A moment of a clock with an arbitrary start that keeps running while the machine sleeps.
pub(super) type Moment = Duration;

/// A run of a host's process.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, serde::Serialize, serde::Deserialize)]
pub(super) struct HostRun {
    pub(super) host: String,
    /// Unique for each start of the process.
    pub(super) run: String,
}

/// The leases of all hosts, as one host sees them. Pure: callers pass in times and the cluster's answers.
#[derive(Debug)]
pub(super) struct Leases {
    lease: Duration,
    held_until: Moment,
    /// Time of the cluster's last answer.
    answered: Moment,
    heard: BTreeMap<String, HeardHost>,
}

#[derive(Debug)]
struct HeardHost {
    run: String,
    revision: u64,
    /// Start of its current silence.
    since: Moment,
}

impl Leases {
    pub(super) fn of(lease: Duration, now: Moment) -> Self {
        Self { lease, held_until: Moment::ZERO, answered: now, heard: BTreeMap::new() }
    }

    /// Records that the cluster accepted this host's heartbeat, sent at `sent`.
    pub(super) fn said(&mut self, sent: Moment, now: Moment) {
        self.held_until = self.held_until.max(sent + self.lease);
        self.answered(now);
    }

    /// Records an answer of the cluster. After a gap, all silences restart: the other hosts may have been cut off, too.
    fn answered(&mut self, now: Moment) {
        if now.saturating_sub(self.answered) > self.lease / 2 {
            self.heard.values_mut().for_each(|heard| heard.since = now);
        }
        self.answered = self.answered.max(now);
    }

    /// Records a host's heartbeat, with its revision on the cluster.
    pub(super) fn heard(&mut self, of: &HostRun, revision: u64, now: Moment) {
        self.answered(now);
        let heard = self.heard.get(&of.host);
        if heard.is_none_or(|heard| heard.revision < revision) {
            self.heard.insert(of.host.clone(), HeardHost { run: of.run.clone(), revision, since: now });
        }
    }

    /// Returns true if this host holds its lease, so that it may act for its sessions.
    pub(super) fn is_held(&self, now: Moment) -> bool {
        now < self.held_until
    }

    /// Returns the time since this host's last accepted heartbeat. `None` while its lease holds.
    pub(super) fn silence(&self, now: Moment) -> Option<Duration> {
        (!self.is_held(now)).then(|| (now + self.lease).saturating_sub(self.held_until))
    }

    /// Returns true if a run of a host is over: the host restarted, or its lease expired while this host held its own.
    /// For a host without a recorded heartbeat, look it up and call [`heard`](Self::heard) first.
    pub(super) fn is_gone(&self, of: &HostRun, now: Moment) -> bool {
        self.heard.get(&of.host).is_some_and(|heard| {
            heard.run != of.run || self.is_held(now) && now.saturating_sub(heard.since) >= self.lease
        })
    }
}

/// The heartbeats of this process. A clone from a memory snapshot of the machine sends different ones.
#[derive(Debug, Default)]
pub(super) struct OwnBeats {
    /// The revision of the last accepted heartbeat.
    pub(super) revision: u64,
    /// The heartbeat without an answer.
    open: Option<String>,
}

impl OwnBeats {
    /// Returns the name of the next heartbeat. A heartbeat without an answer is sent again under the same name.
    pub(super) fn beat(&mut self, fresh: impl FnOnce() -> String) -> String {
        self.open.get_or_insert_with(fresh).clone()
    }

    pub(super) fn accepted(&mut self, revision: u64) {
        (self.revision, self.open) = (revision, None);
    }

    /// Compares with the stored heartbeat. Returns false if another process has sent it.
    pub(super) fn is_own(&mut self, revision: u64, beat: &str) -> bool {
        if self.open.as_deref() == Some(beat) {
            self.accepted(revision);
        }
        self.revision == revision
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LEASE: Duration = Duration::from_millis(2000);

    fn at(millis: u64) -> Moment {
        Moment::from_millis(millis)
    }

    fn run(host: &str, run: &str) -> HostRun {
        HostRun { host: host.to_owned(), run: run.to_owned() }
    }

    #[test]
    fn lease_is_held_from_the_sending_of_a_word() {
        let mut leases = Leases::of(LEASE, at(0));
        assert!(!leases.is_held(at(0)));
        leases.said(at(100), at(900));
        assert!(leases.is_held(at(2099)) && !leases.is_held(at(2100)));
        leases.said(at(50), at(1000));
        assert!(leases.is_held(at(2099)), "an older heartbeat shortens nothing");
        assert_eq!([2099, 2100, 5000].map(|now| leases.silence(at(now))), [None, Some(LEASE), Some(at(4900))]);
    }

    #[test]
    fn host_is_gone_after_silence_only_while_others_are_heard() {
        let mut leases = Leases::of(LEASE, at(0));
        leases.heard(&run("a", "1"), 1, at(100));
        for moment in [600, 1200, 1800, 2099] {
            leases.said(at(moment), at(moment));
            assert!(!leases.is_gone(&run("a", "1"), at(moment)), "{moment}");
        }
        leases.said(at(2100), at(2100));
        assert!(leases.is_gone(&run("a", "1"), at(2100)));
        leases.heard(&run("a", "1"), 2, at(2200));
        // The cluster does not answer for a while: no host is declared dead for that.
        leases.said(at(9000), at(9000));
        assert!(!leases.is_gone(&run("a", "1"), at(9000)));
        leases.said(at(10000), at(10000));
        leases.said(at(11000), at(11000));
        assert!(leases.is_gone(&run("a", "1"), at(11000)));
    }

    #[test]
    fn run_is_gone_when_another_one_is_there() {
        let mut leases = Leases::of(LEASE, at(0));
        leases.heard(&run("a", "1"), 1, at(0));
        leases.heard(&run("a", "2"), 2, at(10));
        assert!(leases.is_gone(&run("a", "1"), at(10)) && !leases.is_gone(&run("a", "2"), at(10)));
        assert!(!leases.is_gone(&run("b", "1"), at(10)), "an unknown host");
    }

    #[test]
    fn heartbeat_of_a_cloned_process_is_not_its_own() {
        let mut own = OwnBeats::default();
        assert_eq!(own.beat(|| "1".to_owned()), "1");
        own.accepted(7);
        assert_eq!(own.beat(|| "2".to_owned()), "2");
        assert!(own.is_own(7, "1"), "the second one has not arrived");
        assert_eq!(own.beat(|| "3".to_owned()), "2", "it is sent again");
        assert!(own.is_own(8, "2"), "it was accepted");
        assert_eq!(own.beat(|| "4".to_owned()), "4");
        assert!(!own.is_own(9, "of the clone"));
    }
}
