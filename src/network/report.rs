//! Reports of connections.

use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use super::recording::HttpReport;

/// The end of a connection to a host, or of the attempt to make one.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ConnectionReport {
    /// The host, as the command named it.
    pub host: String,
    /// The port.
    pub port: u16,
    /// The address that was connected to.
    pub address: Option<IpAddr>,
    /// Type of the request: `connect`, `http`, `socks`, or `name` for a program without proxy support.
    pub by: &'static str,
    /// The outcome.
    pub outcome: ConnectionOutcome,
    /// Bytes sent to the host.
    pub sent: u64,
    /// Bytes received from it.
    pub received: u64,
    /// Time from the request to the end.
    pub duration: Duration,
}

/// The outcome of a connection.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ConnectionOutcome {
    /// It was made, and has ended.
    Closed,
    /// The rules refused it, for this reason.
    Refused(String),
    /// It could not be made, for this reason.
    Failed(String),
}

/// A report of a container's network.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum NetworkReport {
    /// A connection has ended.
    Connection(ConnectionReport),
    /// An HTTP exchange has ended, with or without a response.
    Exchange(Box<HttpReport>),
}

/// Receives the reports. It must not block.
pub type ReportSink = Arc<dyn Fn(NetworkReport) + Send + Sync>;
