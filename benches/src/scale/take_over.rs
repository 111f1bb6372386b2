//! Sessions that go on elsewhere: lease, commit, state, and a bounded number of workspaces filled at once per host.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};

use super::super::sample::Noise;
use super::costs;
use super::inputs::Inputs;
use super::placement::Placement;

/// Microseconds.
pub(super) type Time = u64;

/// A session whose host is gone.
#[derive(Debug, Clone, Copy)]
pub(super) struct Orphan {
    pub(super) stream: usize,
    /// The host that takes it over.
    pub(super) taker: usize,
    pub(super) died: Time,
    /// The stream has a leader from then on.
    pub(super) leader_at: Time,
}

/// The next step of an orphan.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Step {
    /// A host may take it: its lease is over.
    Commit,
    /// Its history is there, and its files are next.
    Fill,
    /// It goes on.
    Filled,
}

/// Queues that the hosts share while they take over: streams and the object store.
#[derive(Debug)]
pub(super) struct TakeOver<'a> {
    orphans: &'a [Orphan],
    inputs: &'a Inputs,
    /// Microseconds between two commits that each stream can take beside what it takes anyway.
    pauses: Vec<Time>,
}

/// Returns microseconds.
pub(super) fn micros(milliseconds: f64) -> Time {
    (milliseconds * 1e3) as Time
}

/// Returns a number from 0 to 1.
pub(super) fn part(noise: &mut Noise) -> f64 {
    noise.below(1 << 32) as f64 / (1_u64 << 32) as f64
}

/// Returns a number of files.
pub(super) fn files(noise: &mut Noise) -> f64 {
    costs::FILES[0] * (costs::FILES[1] / costs::FILES[0]).powf(part(noise))
}

/// Returns a number between the two.
pub(super) fn between([least, most]: [f64; 2], noise: &mut Noise) -> f64 {
    least + (most - least) * part(noise)
}

/// Reading of a session by a host that did not know it.
pub(super) struct SessionRead {
    /// Milliseconds that its stream is busy with that.
    pub(super) busy: f64,
    pub(super) bytes: f64,
}

/// Reads all commits of a session, or its last snapshot and, on average, half of the commits until the next one.
pub(super) fn read_session(commits: f64, files: f64) -> SessionRead {
    let of_events = |commits: f64| SessionRead {
        busy: commits / costs::STREAM_READS * 1e3,
        bytes: commits * (costs::CALL_BYTES / costs::CALL_COMMITS + costs::MESSAGE_BYTES),
    };
    let snapshot = costs::SNAPSHOT_BYTES + files * costs::SNAPSHOT_FILE;
    let every = costs::SNAPSHOT_EVERY.max(snapshot / costs::SNAPSHOT_BYTES_PER_EVENT);
    let behind = every / 2.0 * costs::CALL_COMMITS / costs::CALL_EVENTS;
    if commits < 2.0 * behind {
        return of_events(commits);
    }
    let SessionRead { busy, bytes } = of_events(behind);
    SessionRead { busy: busy + snapshot / costs::SNAPSHOT_READS * 1e3, bytes: bytes + snapshot }
}

impl<'a> TakeOver<'a> {
    pub(super) fn new(inputs: &'a Inputs, placement: &Placement, orphans: &'a [Orphan]) -> Self {
        let pause = |sessions: &u32| {
            let taken = inputs.commits() * f64::from(*sessions) / inputs.sessions as f64;
            // A stream that is full already takes one in a hundred all the same.
            let spare = (costs::STREAM_COMMITS - taken).max(costs::STREAM_COMMITS / 100.0);
            (1e6 / spare) as Time
        };
        Self { orphans, inputs, pauses: placement.on_stream.iter().map(pause).collect() }
    }

    /// Returns the microseconds from the death of its host until each orphan goes on.
    pub(super) fn run(&self, noise: &mut Noise) -> Vec<Time> {
        let mut steps = BinaryHeap::with_capacity(self.orphans.len());
        for (at, orphan) in self.orphans.iter().enumerate() {
            // The last heartbeat was up to one interval ago.
            let left = self.inputs.lease * 1e6 * between([1.0 - 1.0 / costs::HEARTBEATS, 1.0], noise);
            steps.push(Reverse(((orphan.died + left as Time).max(orphan.leader_at), Step::Commit, at)));
        }
        let mut free = vec![0; self.pauses.len()];
        let (mut contents_free, mut history_free) = (0, vec![0; self.pauses.len()]);
        let mut waiting = vec![VecDeque::new(); self.inputs.hosts];
        let mut filling = vec![0; self.inputs.hosts];
        let mut took = vec![0; self.orphans.len()];
        let mut sizes = vec![0.0; self.orphans.len()];
        while let Some(Reverse((now, step, at))) = steps.pop() {
            let Orphan { stream, taker, died, .. } = self.orphans[at];
            match step {
                Step::Commit => {
                    let turn = now.max(free[stream]);
                    free[stream] = turn + self.pauses[stream];
                    let committed = turn + micros(costs::COMMIT[usize::from(noise.below(100) == 0)] + costs::KEY_READ);
                    sizes[at] = files(noise);
                    let read = read_session(self.inputs.history(), sizes[at]);
                    history_free[stream] = committed.max(history_free[stream]) + micros(read.busy);
                    steps.push(Reverse((history_free[stream] + micros(costs::STATE), Step::Fill, at)));
                    continue;
                }
                Step::Fill => waiting[taker].push_back(at),
                Step::Filled => {
                    took[at] = now - died;
                    filling[taker] -= 1;
                }
            }
            while filling[taker] < costs::FILLED_AT_ONCE {
                let Some(next) = waiting[taker].pop_front() else { break };
                filling[taker] += 1;
                let read = self.read_contents(now, sizes[next], &mut contents_free);
                steps.push(Reverse((read + micros(sizes[next] * costs::POPULATE), Step::Filled, next)));
            }
        }
        took
    }

    /// Returns the time at which a host has the contents that it lacks, after those that others asked for before.
    fn read_contents(&self, now: Time, files: f64, free: &mut Time) -> Time {
        let missing = files * costs::MISSING;
        *free = now.max(*free) + micros(missing * costs::CONTENT_READ / self.inputs.streams as f64);
        (*free).max(now + micros(missing * costs::CONTENT_READ))
    }
}
