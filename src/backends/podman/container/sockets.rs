//! Sockets in the network of the container, opened by its runner.

use std::io;
use std::net::{Ipv4Addr, TcpStream};
use std::sync::{Arc, Weak};

use crate::network::{HttpAnswers, HttpMessage, HttpReport, NetworkProxy, NetworkReport, NetworkRules, ReportSink};

use super::{ContainerState, SessionContainer, pausing};
use crate::backends::MachineNews;
use crate::backends::podman::engine::EngineError;
use crate::backends::podman::launch::{LiveContainer, failed};
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
        let masks: Arc<[String]> = own.mask.clone().into();
        let sink: ReportSink = Arc::new(move |report| {
            let Some(container) = container.upgrade() else { return };
            let mut news = lock(&container.news);
            match report {
                NetworkReport::Connection(report) => add(&mut news, network::event(report)),
                NetworkReport::Exchange(report) => {
                    add_exchange(&mut news, &mut lock(&container.waiting), report, &masks);
                }
            }
        });
        let proxy = network::open(&live.runner, rules, sink)?;
        if let Some(certificates) = proxy.certificates() {
            self.paths.trust(certificates).map_err(failed("prepare the network of the container"))?;
        }
        lock(&self.answers).clone().into_iter().for_each(|answers| proxy.answer_from(answers));
        Ok(Some(proxy))
    }

    pub(super) fn answer_from(&self, answers: HttpAnswers) -> bool {
        if self.options.network.rules().is_none_or(|rules| rules.record_http.is_empty()) {
            return false;
        }
        let state = lock(&self.state);
        if let ContainerState::Running(LiveContainer { network: Some(network), .. }) = &*state {
            network.answer_from(Arc::clone(&answers));
        }
        *lock(&self.answers) = Some(answers);
        true
    }

    pub(super) fn set_rules(&self, rules: NetworkRules) -> bool {
        let Some(own) = self.options.network.rules() else { return false };
        // New rules don't change what is recorded.
        let rules = NetworkRules { record_http: own.record_http.clone(), mask: own.mask.clone(), ..rules };
        let state = lock(&self.state);
        *lock(&self.rules) = Some(rules.clone());
        if let ContainerState::Running(LiveContainer { network: Some(network), .. }) = &*state {
            network.set_rules(rules);
        }
        true
    }

    /// Returns true if connections have ended that are not recorded yet.
    pub(super) fn has_connections(&self) -> bool {
        lock(&self.news).iter().any(|news| matches!(news, MachineNews::Connected(_) | MachineNews::Exchanged(..)))
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

/// The most bytes of bodies, and of everything else, of requests that wait to be recorded.
const WAITING_MAX: (usize, usize) = (256 << 20, 8 << 20);

/// Adds a request to the news. If too much waits, bodies are left out, and then requests are only counted. `waiting` has the
/// bytes of the requests in the news, like [`WAITING_MAX`].
fn add_exchange(
    news: &mut Vec<MachineNews>,
    waiting: &mut (usize, usize),
    mut report: Box<HttpReport>,
    masks: &Arc<[String]>,
) {
    let [request, response] = [&report.request, &report.response].map(HttpMessage::sizes);
    let head = request.0 + response.0 + report.url.len() + report.error.len();
    let last = news.iter_mut().rev().find_map(|news| match news {
        MachineNews::Exchanged(last, _) => Some(last),
        _ => None,
    });
    if let (true, Some(last)) = (waiting.1 + head > WAITING_MAX.1, last) {
        last.left_out += 1;
        return;
    }
    waiting.1 += head;
    let bodies = request.1 + response.1;
    if waiting.0 + bodies > WAITING_MAX.0 {
        (report.request.body, report.response.body) = (Vec::new(), Vec::new());
    } else {
        waiting.0 += bodies;
    }
    news.push(MachineNews::Exchanged(report, Arc::clone(masks)));
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
