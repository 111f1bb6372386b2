//! Hosts that take one session from each other, in simulated time: heartbeats are late or lost, processes stop, and the
//! cluster lacks a leader for a while. Each seed is one run.

use std::collections::BTreeMap;
use std::time::Duration;

use super::lease::{HostRun, Leases, Moment};

const LEASE: Duration = Duration::from_millis(2000);
const BEAT: u64 = 600;
const HOSTS: usize = 4;
const END: u64 = 120_000;

/// A deterministic random generator.
struct Numbers(u64);

impl Numbers {
    fn below(&mut self, count: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % count.max(1)
    }
}

struct SimulatedHost {
    me: HostRun,
    leases: Leases,
    /// The process is stopped, or its network is down, until then.
    stopped: u64,
    apart: u64,
    next_beat: u64,
    /// The ownership that it believes in: its revision, and the expected end of the session.
    owned: Option<(u64, u64)>,
}

/// A message in flight.
enum Arriving {
    /// A heartbeat reaches the cluster.
    Word { from: usize, sent: u64 },
    /// The cluster's answer to a heartbeat reaches its host.
    Answer { to: usize, sent: u64 },
    /// A heartbeat and its revision reach another host.
    Heard { to: usize, of: HostRun, revision: u64 },
}

#[derive(Default)]
struct Cluster {
    revision: u64,
    words: BTreeMap<String, (HostRun, u64)>,
    owner: Option<(HostRun, u64)>,
    /// The session: the writer of each message.
    messages: Vec<String>,
    /// The cluster lacks a leader until then.
    silent: u64,
}

struct Simulation {
    numbers: Numbers,
    cluster: Cluster,
    hosts: Vec<SimulatedHost>,
    arriving: BTreeMap<(u64, u64), Arriving>,
    count: u64,
    taken_over: u64,
    lost: u64,
}

fn at(millis: u64) -> Moment {
    Moment::from_millis(millis)
}

impl Simulation {
    fn of(seed: u64) -> Self {
        let host = |number: usize| SimulatedHost {
            me: HostRun { host: format!("h{number}"), run: "1".to_owned() },
            leases: Leases::of(LEASE, at(0)),
            stopped: 0,
            apart: 0,
            next_beat: number as u64 * 7,
            owned: None,
        };
        let hosts = (0..HOSTS).map(host).collect();
        let (arriving, cluster) = (BTreeMap::new(), Cluster::default());
        Self { numbers: Numbers(seed), cluster, hosts, arriving, count: 0, taken_over: 0, lost: 0 }
    }

    fn send(&mut self, now: u64, what: Arriving) {
        // Mostly fast, sometimes late, sometimes lost.
        let delay = match self.numbers.below(100) {
            0..90 => 1 + self.numbers.below(5),
            90..98 => self.numbers.below(1500),
            _ => return,
        };
        self.count += 1;
        self.arriving.insert((now + delay, self.count), what);
    }

    fn is_reached(&self, host: usize, now: u64) -> bool {
        now >= self.hosts[host].apart && now >= self.cluster.silent
    }

    fn run(mut self) -> (u64, u64) {
        for now in 0..END {
            self.disturb(now);
            while let Some(first) = self.arriving.first_entry().filter(|first| first.key().0 <= now) {
                let what = first.remove();
                self.arrive(now, what);
            }
            for host in 0..HOSTS {
                if now >= self.hosts[host].stopped {
                    self.act(now, host);
                }
            }
        }
        (self.taken_over, self.lost)
    }

    fn disturb(&mut self, now: u64) {
        let host = self.numbers.below(HOSTS as u64) as usize;
        match self.numbers.below(60_000) {
            0..3 => self.hosts[host].stopped = now + self.numbers.below(8_000),
            3..6 => self.hosts[host].apart = now + self.numbers.below(8_000),
            6 => self.cluster.silent = now + self.numbers.below(7_000),
            7 => {
                // The host is killed and restarts.
                let run = self.numbers.below(1 << 30).to_string();
                let me = HostRun { run, ..self.hosts[host].me.clone() };
                let fresh = Leases::of(LEASE, at(now));
                self.hosts[host] =
                    SimulatedHost { me, leases: fresh, stopped: now + 500, apart: 0, next_beat: now, owned: None };
            }
            _ => {}
        }
    }

    fn arrive(&mut self, now: u64, what: Arriving) {
        match what {
            Arriving::Word { from, sent } if self.is_reached(from, now) => {
                self.cluster.revision += 1;
                let (me, revision) = (self.hosts[from].me.clone(), self.cluster.revision);
                self.cluster.words.insert(me.host.clone(), (me.clone(), revision));
                self.send(now, Arriving::Answer { to: from, sent });
                for to in 0..HOSTS {
                    self.send(now, Arriving::Heard { to, of: me.clone(), revision });
                }
            }
            Arriving::Answer { to, sent } if self.is_reached(to, now) => {
                // A stopped process reads it later, while its clock kept running.
                let read = now.max(self.hosts[to].stopped);
                if read > now {
                    self.arriving.insert((read, u64::MAX - self.count), Arriving::Answer { to, sent });
                } else {
                    self.hosts[to].leases.said(at(sent), at(now));
                }
            }
            Arriving::Heard { to, of, revision } if self.is_reached(to, now) && now >= self.hosts[to].stopped => {
                self.hosts[to].leases.heard(&of, revision, at(now));
            }
            _ => {}
        }
    }

    /// Runs one step of a host: a heartbeat, an append to its session, or an attempt to claim it.
    fn act(&mut self, now: u64, host: usize) {
        if now >= self.hosts[host].next_beat {
            self.hosts[host].next_beat = now + BEAT;
            self.send(now, Arriving::Word { from: host, sent: now });
        }
        if !self.is_reached(host, now) || self.numbers.below(20) > 0 {
            return;
        }
        let me = self.hosts[host].me.clone();
        match self.hosts[host].owned {
            Some((revision, end)) => {
                if end == self.cluster.messages.len() as u64 {
                    assert_eq!(
                        self.cluster.owner.as_ref().map(|(owner, _)| owner),
                        Some(&me),
                        "it was taken over before"
                    );
                    self.cluster.messages.push(me.host);
                    self.hosts[host].owned = Some((revision, end + 1));
                } else {
                    // Another host has taken it over, so this host stops extending it.
                    self.hosts[host].owned = None;
                    self.lost += 1;
                }
            }
            None => self.claim(now, host, &me),
        }
    }

    fn claim(&mut self, now: u64, host: usize, me: &HostRun) {
        let owner = self.cluster.owner.clone();
        if let Some((owner, _)) = &owner {
            // The heartbeat that the cluster has, before the host is declared dead.
            if let Some((of, revision)) = self.cluster.words.get(&owner.host).cloned() {
                self.hosts[host].leases.heard(&of, revision, at(now));
            }
            if owner != me && !self.hosts[host].leases.is_gone(owner, at(now)) {
                return;
            }
            let holder = self.hosts.iter().find(|other| other.me == *owner && other.me != *me);
            if let Some(holder) = holder {
                assert!(
                    !holder.leases.is_held(at(now)),
                    "{} was taken from at {now} while it held its lease",
                    owner.host
                );
            }
        }
        if !self.hosts[host].leases.is_held(at(now)) {
            return;
        }
        self.cluster.revision += 1;
        self.taken_over += u64::from(owner.is_some_and(|(owner, _)| owner != *me));
        self.cluster.owner = Some((me.clone(), self.cluster.revision));
        // The commit that records it: from here on, the former owner's expected end is outdated.
        self.cluster.messages.push(format!("{} takes it", me.host));
        self.hosts[host].owned = Some((self.cluster.revision, self.cluster.messages.len() as u64));
    }
}

#[test]
fn leases_never_overlap_and_sessions_go_on() {
    let seeds = std::env::var("FOLDSPACE_SEEDS").ok().and_then(|seeds| seeds.parse().ok()).unwrap_or(200);
    let (mut taken_over, mut lost) = (0, 0);
    for seed in 1..=seeds {
        let (taken, left) = Simulation::of(seed).run();
        (taken_over, lost) = (taken_over + taken, lost + left);
    }
    // Otherwise the runs tested nothing.
    assert!(taken_over > seeds && lost > seeds / 4, "{taken_over} taken over, {lost} lost");
}
