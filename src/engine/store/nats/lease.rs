//! Leases of hosts, as one of them sees them.
//!
//! A host says that it is there, again and again, under its name on the cluster. It holds its lease for a time after it
//! began to say so; others take it for gone once they have heard nothing for as long. They hear it later than it begins,
//! so it has stopped by then. What a host can't hear while the cluster does not answer it counts for nothing.
//!
//! Leases keep hosts out of each other's way. That two never extend one history is the stream's affair: it takes a
//! message only behind the last one.

use std::collections::BTreeMap;
use std::time::Duration;

/// A moment of a clock that goes on while the machine sleeps, from an arbitrary start.
pub(super) type Moment = Duration;

/// A run of a host's process.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, serde::Serialize, serde::Deserialize)]
pub(super) struct HostRun {
    pub(super) host: String,
    /// Another one for each start of the process.
    pub(super) run: String,
}

/// The leases of all hosts, as one of them sees them. Times and what the cluster told come in; it does nothing itself.
#[derive(Debug)]
pub(super) struct Leases {
    lease: Duration,
    held_until: Moment,
    /// The last answer of the cluster.
    answered: Moment,
    heard: BTreeMap<String, HeardHost>,
}

#[derive(Debug)]
struct HeardHost {
    run: String,
    revision: u64,
    /// The moment from which it was silent.
    since: Moment,
}

impl Leases {
    pub(super) fn of(lease: Duration, now: Moment) -> Self {
        Self { lease, held_until: Moment::ZERO, answered: now, heard: BTreeMap::new() }
    }

    /// Notes that the cluster took this host's word, which was sent at `sent`.
    pub(super) fn said(&mut self, sent: Moment, now: Moment) {
        self.held_until = self.held_until.max(sent + self.lease);
        self.answered(now);
    }

    /// Notes an answer of the cluster. After a gap others could not say anything either, as far as this host knows.
    fn answered(&mut self, now: Moment) {
        if now.saturating_sub(self.answered) > self.lease / 2 {
            self.heard.values_mut().for_each(|heard| heard.since = now);
        }
        self.answered = self.answered.max(now);
    }

    /// Notes a host's word, by its revision on the cluster.
    pub(super) fn heard(&mut self, of: &HostRun, revision: u64, now: Moment) {
        self.answered(now);
        let heard = self.heard.get(&of.host);
        if heard.is_none_or(|heard| heard.revision < revision) {
            self.heard.insert(of.host.clone(), HeardHost { run: of.run.clone(), revision, since: now });
        }
    }

    /// Tells whether this host may act for its sessions without asking.
    pub(super) fn is_held(&self, now: Moment) -> bool {
        now < self.held_until
    }

    /// Returns the time since this host's last word that the cluster took, once its lease is over.
    pub(super) fn silence(&self, now: Moment) -> Option<Duration> {
        (!self.is_held(now)).then(|| (now + self.lease).saturating_sub(self.held_until))
    }

    /// Tells whether a run of a host has ended: another one of it is there, or it was silent for the time of a lease
    /// while this host was heard. One that was never heard of is looked up first, as a `heard` with its revision.
    pub(super) fn is_gone(&self, of: &HostRun, now: Moment) -> bool {
        self.heard.get(&of.host).is_some_and(|heard| {
            heard.run != of.run || self.is_held(now) && now.saturating_sub(heard.since) >= self.lease
        })
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
        assert!(leases.is_held(at(2099)), "an older word takes nothing back");
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
        // The cluster says nothing for a while: nobody is gone for that.
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
        assert!(!leases.is_gone(&run("b", "1"), at(10)), "nothing is known of it");
    }
}
