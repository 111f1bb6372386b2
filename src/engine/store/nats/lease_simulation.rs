//! Hosts that take one session from each other, in simulated time: heartbeats are late or lost, processes stop,
//! machines crash, data directories are copied, and the cluster lacks a leader for a while. Each seed is one run.

use std::collections::BTreeMap;
use std::time::Duration;

use super::identity::{DirectoryNote, LineRecord};
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
    directory: Directory,
}

/// A host's data directory.
#[derive(Clone)]
struct Directory {
    note: DirectoryNote,
    place: String,
    /// The end of the session as its files have it.
    files: usize,
}

/// A message in flight.
enum Arriving {
    /// A heartbeat reaches the cluster.
    Word { from: usize, of: HostRun, sent: u64 },
    /// The cluster's answer to a heartbeat reaches its host.
    Answer { to: usize, of: HostRun, sent: u64 },
    /// A heartbeat and its revision reach another host.
    Heard { to: usize, of: HostRun, revision: u64 },
}

#[derive(Default)]
struct Cluster {
    revision: u64,
    words: BTreeMap<String, (HostRun, u64)>,
    lines: BTreeMap<String, LineRecord>,
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
    /// A copy of a host's data directory, from an earlier moment.
    image: Option<Directory>,
    taken_over: u64,
    kept: u64,
    lost: u64,
}

fn at(millis: u64) -> Moment {
    Moment::from_millis(millis)
}

impl Simulation {
    fn of(seed: u64) -> Self {
        let (arriving, cluster) = (BTreeMap::new(), Cluster::default());
        let numbers = Numbers(seed);
        let mut simulation = Self {
            numbers,
            cluster,
            hosts: Vec::new(),
            arriving,
            count: 0,
            image: None,
            taken_over: 0,
            kept: 0,
            lost: 0,
        };
        for number in 0..HOSTS {
            let note = simulation.new_note();
            let host = simulation.started(number, Directory { place: note.place.clone(), note, files: 0 }, 0);
            simulation.hosts.push(host);
        }
        simulation
    }

    fn new_note(&mut self) -> DirectoryNote {
        self.count += 1;
        let [line, mark, place] = ["line", "mark", "place"].map(|what| format!("{what}{}", self.count));
        DirectoryNote { line, mark, before: String::new(), place }
    }

    /// Starts a host in a directory, in the directory's place.
    fn started(&mut self, host: usize, mut directory: Directory, now: u64) -> SimulatedHost {
        let new = DirectoryNote { place: directory.place.clone(), ..self.new_note() };
        let record = self.cluster.lines.get(&directory.note.line);
        directory.note = directory.note.next(record, &new);
        let DirectoryNote { line, mark, .. } = directory.note.clone();
        let me = HostRun { host: format!("h{host}"), run: format!("{line}.{mark}") };
        // Now and then the process ends before it has changed the record.
        if self.numbers.below(4) > 0 {
            self.cluster.lines.insert(line, LineRecord { mark, is_ended: false });
        } else {
            return self.started(host, directory, now);
        }
        let leases = Leases::of(LEASE, at(now));
        SimulatedHost { me, leases, stopped: now + 500, apart: 0, next_beat: now, owned: None, directory }
    }

    /// Ends a host, and starts it in its directory, in another one, or in a copy of another host's.
    fn restart(&mut self, host: usize, now: u64) {
        let other = self.numbers.below(HOSTS as u64) as usize;
        let mut directory = self.hosts[host].directory.clone();
        match self.numbers.below(4) {
            0 => {
                let image = self.hosts[other].directory.clone();
                directory = self.image.replace(image).unwrap_or(directory);
                directory.place = self.new_note().place;
            }
            1 => {
                // A clean end.
                directory.note = directory.note.marked(self.new_note().mark);
                let DirectoryNote { line, mark, .. } = directory.note.clone();
                self.cluster.lines.insert(line, LineRecord { mark, is_ended: true });
                if self.numbers.below(2) == 0 && other != host {
                    // The image also starts on another host, which is faster.
                    let mut image = directory.clone();
                    image.place = self.new_note().place;
                    self.hosts[other] = self.started(other, image, now);
                }
            }
            _ => {}
        }
        if self.numbers.below(3) == 0 {
            // A reboot, or another machine.
            directory.place = self.new_note().place;
        }
        self.hosts[host] = self.started(host, directory, now);
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

    fn run(mut self) -> [u64; 3] {
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
        [self.taken_over, self.kept, self.lost]
    }

    fn disturb(&mut self, now: u64) {
        let host = self.numbers.below(HOSTS as u64) as usize;
        match self.numbers.below(60_000) {
            0..3 => self.hosts[host].stopped = now + self.numbers.below(8_000),
            3..6 => self.hosts[host].apart = now + self.numbers.below(8_000),
            6 => self.cluster.silent = now + self.numbers.below(7_000),
            7..9 => self.restart(host, now),
            _ => {}
        }
    }

    fn arrive(&mut self, now: u64, what: Arriving) {
        match what {
            // The first heartbeat of the next process has replaced the last one of the ended process.
            Arriving::Word { from, of, sent } if self.is_reached(from, now) && self.hosts[from].me == of => {
                self.cluster.revision += 1;
                let revision = self.cluster.revision;
                self.cluster.words.insert(of.host.clone(), (of.clone(), revision));
                self.send(now, Arriving::Answer { to: from, of: of.clone(), sent });
                for to in 0..HOSTS {
                    self.send(now, Arriving::Heard { to, of: of.clone(), revision });
                }
            }
            Arriving::Answer { to, of, sent } if self.is_reached(to, now) && self.hosts[to].me == of => {
                // A stopped process reads it later, while its clock kept running.
                let read = now.max(self.hosts[to].stopped);
                if read > now {
                    self.arriving.insert((read, u64::MAX - self.count), Arriving::Answer { to, of, sent });
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
            let of = self.hosts[host].me.clone();
            self.send(now, Arriving::Word { from: host, of, sent: now });
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
                    self.hosts[host].directory.files += 1;
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
            if !is_same_line(owner, me) && !self.hosts[host].leases.is_gone(owner, at(now)) {
                return;
            }
            let holder = self.hosts.iter().find(|other| other.me == *owner && other.me != *me);
            if let Some(holder) = holder {
                assert!(
                    !holder.leases.is_held(at(now)),
                    "{owner:?} was taken from by {me:?} at {now} while it held its lease; words {:?} {:?}",
                    self.cluster.words,
                    self.hosts[host].leases
                );
            }
        }
        if !self.hosts[host].leases.is_held(at(now)) {
            return;
        }
        self.cluster.revision += 1;
        if owner.is_some_and(|(owner, _)| is_same_line(&owner, me)) {
            self.kept += 1;
            assert_eq!(self.hosts[host].directory.files, self.cluster.messages.len(), "its files are stale at {now}");
        } else {
            self.taken_over += 1;
            // The commit that records it: from here on, the former owner's expected end is outdated.
            self.cluster.messages.push(format!("{} takes it", me.host));
        }
        self.cluster.owner = Some((me.clone(), self.cluster.revision));
        self.hosts[host].owned = Some((self.cluster.revision, self.cluster.messages.len() as u64));
        self.hosts[host].directory.files = self.cluster.messages.len();
    }
}

fn is_same_line(one: &HostRun, other: &HostRun) -> bool {
    let line = |of: &HostRun| of.run.split_once('.').map(|(line, _)| line.to_owned());
    line(one) == line(other)
}

#[test]
fn leases_never_overlap_and_sessions_go_on() {
    let seeds = std::env::var("FOLDSPACE_SEEDS").ok().and_then(|seeds| seeds.parse().ok()).unwrap_or(200);
    let mut sums = [0; 3];
    for seed in 1..=seeds {
        Simulation::of(seed).run().into_iter().zip(&mut sums).for_each(|(count, sum)| *sum += count);
    }
    let [taken_over, kept, lost] = sums;
    // Otherwise the runs tested nothing.
    assert!(taken_over > seeds && kept > seeds / 10 && lost > seeds / 4, "{taken_over}, {kept} kept, {lost} lost");
}
