//! Sockets in the network of the container, opened by its runner.

use std::io;
use std::net::{Ipv4Addr, TcpStream};
use std::sync::{Arc, Weak};

use crate::network::{NetworkProxy, NetworkRules, ReportSink};

use super::{ContainerState, SessionContainer, pausing};
use crate::backends::MachineNews;
use crate::backends::podman::engine::EngineError;
use crate::backends::podman::launch::LiveContainer;
use crate::backends::podman::network;
use crate::backends::runner::{SocketKind, SocketRequest, now};
use crate::engine::event::NetworkConnection;
use crate::engine::lock::lock;

/// The number of connections from which on equal ones are only counted, until they are recorded.
const SEPARATE_MAX: usize = 1000;

impl SessionContainer {
    /// Starts the proxy of a recorded network.
    pub(super) fn open_network(&self, live: &LiveContainer) -> Result<Option<NetworkProxy>, EngineError> {
        let Some(own) = self.options.network.rules() else { return Ok(None) };
        let rules = lock(&self.rules).clone().unwrap_or_else(|| own.clone());
        let container = Weak::clone(&self.own);
        let sink: ReportSink = Arc::new(move |report| {
            if let Some(container) = container.upgrade() {
                add(&mut lock(&container.news), network::event(report));
            }
        });
        network::open(&live.runner, rules, sink).map(Some)
    }

    pub(super) fn set_rules(&self, rules: NetworkRules) -> bool {
        if self.options.network.rules().is_none() {
            return false;
        }
        let state = lock(&self.state);
        *lock(&self.rules) = Some(rules.clone());
        if let ContainerState::Running(LiveContainer { network: Some(network), .. }) = &*state {
            network.set_rules(rules);
        }
        true
    }

    /// Returns true if connections have ended that are not recorded yet.
    pub(super) fn has_connections(&self) -> bool {
        lock(&self.news).iter().any(|news| matches!(news, MachineNews::Connected(_)))
    }

    pub(super) fn connect_to(&self, port: u16) -> io::Result<TcpStream> {
        let runner = match &mut *lock(&self.state) {
            ContainerState::Running(live) => {
                live.used = now();
                pausing::resume(live).map_err(io::Error::other)?;
                live.runner.clone()
            }
            _ => return Err(io::Error::new(io::ErrorKind::ConnectionRefused, "its container does not run")),
        };
        let asked = SocketRequest { kind: SocketKind::Connect, address: Ipv4Addr::LOCALHOST.octets(), port };
        Ok(runner.socket(asked)?.into())
    }
}

/// Adds a connection to the news. Among very many, equal ones become one.
fn add(news: &mut Vec<MachineNews>, event: NetworkConnection) {
    let is_equal = |known: &NetworkConnection| {
        (&known.host, known.port, &known.outcome, &known.reason)
            == (&event.host, event.port, &event.outcome, &event.reason)
    };
    let has_many = news.len() >= SEPARATE_MAX;
    let known = news.iter_mut().rev().find_map(|news| match news {
        MachineNews::Connected(known) if has_many && is_equal(known) => Some(known),
        _ => None,
    });
    match known {
        Some(known) => {
            known.count += 1;
            known.sent += event.sent;
            known.received += event.received;
            known.micros += event.micros;
        }
        None => news.push(MachineNews::Connected(event)),
    }
}
