//! Places of sessions on hosts and streams.

use super::super::sample::Noise;
use super::inputs::Inputs;
use super::take_over::{Orphan, Time};

/// The places of all sessions: a host each, and a stream by hash.
#[derive(Debug)]
pub(super) struct Placement {
    /// The streams of the sessions of each host, which is the emptier one of two random hosts.
    hosts: Vec<Vec<u32>>,
    /// Sessions of each stream.
    pub(super) on_stream: Vec<u32>,
    /// Sessions of each host, if each were on a random one.
    pub(super) at_random: Vec<u32>,
}

impl Placement {
    pub(super) fn draw(inputs: &Inputs, noise: &mut Noise) -> Self {
        let mut placement = Self {
            hosts: vec![Vec::new(); inputs.hosts],
            on_stream: vec![0; inputs.streams],
            at_random: vec![0; inputs.hosts],
        };
        for _ in 0..inputs.sessions {
            let mut draw = || noise.below(inputs.hosts as u64) as usize;
            let (one, other) = (draw(), draw());
            let emptier = if placement.hosts[other].len() < placement.hosts[one].len() { other } else { one };
            let stream = noise.below(inputs.streams as u64) as u32;
            placement.hosts[emptier].push(stream);
            placement.on_stream[stream as usize] += 1;
            placement.at_random[one] += 1;
        }
        placement
    }

    pub(super) fn on_hosts(&self) -> impl Iterator<Item = u32> {
        self.hosts.iter().map(|sessions| sessions.len() as u32)
    }

    /// Returns the sessions of hosts that fail at the same time, each taken over by a random one of the others: the one
    /// that a client asks next. A stream has a leader again `leader_at` later.
    pub(super) fn fail(
        &self,
        dead: std::ops::Range<usize>,
        died: Time,
        leader_at: &[Time],
        noise: &mut Noise,
    ) -> Vec<Orphan> {
        let alive = (self.hosts.len() - dead.len()) as u64;
        let sessions = self.hosts[dead.clone()].iter().flatten();
        let orphan = |stream: &u32| {
            let stream = *stream as usize;
            let taker = (dead.end + noise.below(alive) as usize) % self.hosts.len();
            Orphan { stream, taker, died, leader_at: died + leader_at[stream] }
        };
        sessions.map(orphan).collect()
    }
}
