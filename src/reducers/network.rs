//! The hosts that the commands of a container connected to.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::engine::event::{HttpExchange, NetworkConnection, SessionStarted};
use crate::engine::{OnRewind, Recorded, Registry, Seq, Slice, ValueError};

/// Connections of a session's commands by host. A rewind keeps them, since it can't take them back; a fork begins with
/// none.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Network {
    /// Traffic by host and port, as `example.com:443`: of the first 1,000.
    pub hosts: BTreeMap<String, HostTraffic>,
    /// Traffic with all other hosts.
    #[serde(default, skip_serializing_if = "HostTraffic::is_none")]
    pub others: HostTraffic,
}

/// Connections to a host and a port.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct HostTraffic {
    /// Connections that were made.
    pub connections: u64,
    /// Connections that the rules refused.
    pub refused: u64,
    /// Connections that could not be made.
    pub failed: u64,
    /// Bytes sent.
    pub sent: u64,
    /// Bytes received.
    pub received: u64,
    /// Position of the last event.
    pub last: Seq,
}

impl HostTraffic {
    fn is_none(&self) -> bool {
        *self == Self::default()
    }
}

/// The most hosts with separate entries.
const HOSTS_MAX: usize = 1000;

impl Slice for Network {
    const NAME: &'static str = "Network";
    const ON_REWIND: OnRewind = OnRewind::Keep;
}

fn begun(network: Network, recorded: &Recorded<SessionStarted>) -> Network {
    if recorded.event.begins_child() { Network::default() } else { network }
}

fn connected(mut network: Network, recorded: &Recorded<NetworkConnection>) -> Network {
    let NetworkConnection { host, port, outcome, sent, received, count, .. } = &recorded.event;
    let name = if *port == 0 { host.clone() } else { format!("{host}:{port}") };
    let has_room = network.hosts.len() < HOSTS_MAX || network.hosts.contains_key(&name);
    let traffic = if has_room { network.hosts.entry(name).or_default() } else { &mut network.others };
    *match outcome.as_str() {
        "refused" => &mut traffic.refused,
        "failed" => &mut traffic.failed,
        _ => &mut traffic.connections,
    } += count;
    traffic.sent = traffic.sent.saturating_add(*sent);
    traffic.received = traffic.received.saturating_add(*received);
    traffic.last = recorded.seq;
    network
}

pub(super) fn register(registry: Registry) -> Result<Registry, ValueError> {
    registry
        .event::<NetworkConnection>()?
        .event::<HttpExchange>()?
        .slice::<Network>()?
        .reducer(begun)?
        .reducer(connected)
}
