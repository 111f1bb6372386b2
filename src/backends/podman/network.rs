//! The recorded network of a container: the places of its proxy.

use std::io;
use std::sync::Arc;

use crate::network::{
    ConnectionOutcome, ConnectionReport, ContainerSocket, NetworkProxy, NetworkRules, PROXY, ReportSink,
};

use super::engine::EngineError;
use crate::backends::runner::{Runner, SocketKind, SocketRequest};
use crate::engine::event::NetworkConnection;

/// Returns the variables that point programs at the proxy.
pub(super) fn variables() -> impl Iterator<Item = (&'static str, String)> {
    let all = ["HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "http_proxy", "https_proxy", "all_proxy"];
    let none = ["NO_PROXY", "no_proxy"].map(|name| (name, "localhost,127.0.0.1,::1".to_owned()));
    // Node ignores the others without this one.
    let node = ("NODE_USE_ENV_PROXY", "1".to_owned());
    all.into_iter().map(|name| (name, format!("http://{PROXY}"))).chain(none).chain([node])
}

/// Returns the variables that name a file with trusted certificates.
pub(super) fn trust_variables(file: &'static str) -> impl Iterator<Item = (&'static str, String)> {
    let names = [
        "SSL_CERT_FILE",
        "CURL_CA_BUNDLE",
        "REQUESTS_CA_BUNDLE",
        "PIP_CERT",
        "NODE_EXTRA_CA_CERTS",
        "GIT_SSL_CAINFO",
        "CARGO_HTTP_CAINFO",
        "AWS_CA_BUNDLE",
        "DENO_CERT",
    ];
    names.into_iter().map(move |name| (name, file.to_owned()))
}

/// Starts the proxy of a container.
pub(super) fn open(runner: &Runner, rules: NetworkRules, sink: ReportSink) -> Result<NetworkProxy, EngineError> {
    let runner = runner.clone();
    let open = move |asked| {
        let (kind, at) = match asked {
            ContainerSocket::Listen(at) => (SocketKind::Listen, at),
            ContainerSocket::Datagram(at) => (SocketKind::Datagram, at),
        };
        let asked = SocketRequest { kind, address: at.ip().octets(), port: at.port() };
        runner.socket(asked).map_err(io::Error::from)
    };
    let failed = |reason: String| EngineError::Failed { action: "open the network of the container", reason };
    NetworkProxy::start(Arc::new(open), rules, sink).map_err(|error| failed(error.to_string()))
}

/// Returns the event of a connection.
pub(super) fn event(report: ConnectionReport) -> NetworkConnection {
    let (outcome, reason) = match report.outcome {
        ConnectionOutcome::Closed => ("closed", String::new()),
        ConnectionOutcome::Refused(reason) => ("refused", reason),
        ConnectionOutcome::Failed(reason) => ("failed", reason),
    };
    NetworkConnection {
        host: report.host,
        port: report.port,
        address: report.address.map(|address| address.to_string()).unwrap_or_default(),
        by: report.by.to_owned(),
        outcome: outcome.to_owned(),
        reason,
        sent: report.sent,
        received: report.received,
        micros: u64::try_from(report.duration.as_micros()).unwrap_or(u64::MAX),
        count: 1,
    }
}
