//! Inputs of the simulation, from the command line.

use super::costs;

/// Inputs of the simulation.
#[derive(Debug, Clone, PartialEq)]
pub struct Inputs {
    /// Hosts that serve sessions.
    pub hosts: usize,
    /// Live sessions on all hosts.
    pub sessions: usize,
    /// Recorded events of all live sessions.
    pub events: f64,
    /// Days that a host runs between two failures, on average.
    pub mtbf_days: f64,
    /// Seconds of a host's lease.
    pub lease: f64,
    /// Streams, each with the commits of a part of the sessions.
    pub streams: usize,
    /// Nodes that have a stream.
    pub nodes_per_stream: usize,
    /// The seed of all that is drawn.
    pub seed: u64,
}

impl Default for Inputs {
    fn default() -> Self {
        Self {
            hosts: 10_000,
            sessions: 1_000_000,
            events: 10e9,
            mtbf_days: 30.0,
            lease: 2.0,
            streams: 16,
            nodes_per_stream: 3,
            seed: 1,
        }
    }
}

const FLAGS: &str = "--hosts, --sessions, --events, --mtbf-days, --lease, --streams, --nodes-per-stream, --seed";
/// Sessions that fit into the memory of a machine that simulates them.
const SESSIONS_MAX: f64 = 10e6;

impl Inputs {
    /// Reads flags, each with a number; `k`, `M` and `G` may follow it.
    ///
    /// # Errors
    /// The problem with a flag.
    pub fn of_flags(mut flags: impl Iterator<Item = String>) -> Result<Self, String> {
        let mut inputs = Self::default();
        while let Some(flag) = flags.next() {
            let given = flags.next().ok_or_else(|| format!("{flag} needs a number; the flags are {FLAGS}"))?;
            let value = amount(&given).ok_or_else(|| format!("{flag} {given}: this is no number"))?;
            let count = |most: f64| match value.fract() == 0.0 && (1.0..=most).contains(&value) {
                true => Ok(value as usize),
                false => Err(format!("{flag} {given}: whole numbers from 1 to {most}")),
            };
            let at_least = |least: f64| match value >= least {
                true => Ok(value),
                false => Err(format!("{flag} {given}: {least} or more")),
            };
            match flag.as_str() {
                "--hosts" => inputs.hosts = count(1e6)?,
                "--sessions" => inputs.sessions = count(SESSIONS_MAX)?,
                "--events" => inputs.events = at_least(1.0)?,
                "--mtbf-days" => inputs.mtbf_days = at_least(1.0)?,
                "--lease" => inputs.lease = at_least(0.1)?,
                "--streams" => inputs.streams = count(1e5)?,
                "--nodes-per-stream" => inputs.nodes_per_stream = count(5.0)?,
                "--seed" => inputs.seed = count(1e15)? as u64,
                _ => return Err(format!("{flag} is no flag; there are {FLAGS}")),
            }
        }
        match inputs.hosts {
            1 => Err("--hosts 1: nothing could take over".to_owned()),
            _ => Ok(inputs),
        }
    }

    pub(super) fn nodes(&self) -> usize {
        self.streams.max(self.nodes_per_stream)
    }

    pub(super) fn commits(&self) -> f64 {
        self.sessions as f64 / costs::CALL_EVERY * costs::CALL_COMMITS
    }

    /// Commits of a session.
    pub(super) fn history(&self) -> f64 {
        self.events / self.sessions as f64 / costs::CALL_EVENTS * costs::CALL_COMMITS
    }

    pub(super) fn heartbeats(&self) -> f64 {
        self.hosts as f64 * costs::HEARTBEATS / self.lease
    }
}

fn amount(text: &str) -> Option<f64> {
    let (digits, unit) = match text.strip_suffix(['k', 'M', 'G']) {
        Some(digits) if text.ends_with('k') => (digits, 1e3),
        Some(digits) if text.ends_with('M') => (digits, 1e6),
        Some(digits) => (digits, 1e9),
        None => (text, 1.0),
    };
    digits.parse::<f64>().ok().map(|value| value * unit).filter(|value| value.is_finite())
}
