//! The recorded network of a container: a proxy that its commands use, rules for the hosts that they reach, and a
//! report of each connection.
//!
//! The container has no network. The proxy's listeners are sockets in the container's loopback, and its
//! connections to the outside are sockets of this process. So nothing gets out without the proxy.

mod address;
#[cfg(feature = "proxy")]
mod certificates;
#[cfg(feature = "proxy")]
mod connection;
#[cfg(feature = "proxy")]
mod exchange;
#[cfg(feature = "proxy")]
mod http;
#[cfg(feature = "proxy")]
mod intercept;
#[cfg(feature = "proxy")]
mod names;
#[cfg_attr(not(feature = "proxy"), path = "no_proxy.rs")]
mod proxy;
#[cfg(feature = "proxy")]
#[cfg(test)]
mod record_tests;
mod recording;
mod report;
mod rules;
mod sockets;
#[cfg(feature = "proxy")]
mod socks;
#[cfg(feature = "proxy")]
mod state;
#[cfg(feature = "proxy")]
#[cfg(test)]
mod tests;

#[cfg(feature = "proxy")]
pub use proxy::NetworkProxy;
#[cfg(not(feature = "proxy"))]
pub use proxy::NoNetworkProxy as NetworkProxy;
pub use recording::{BODY_KEPT, HttpAnswers, HttpMessage, HttpReport};
pub use report::{ConnectionOutcome, ConnectionReport, NetworkReport, ReportSink};
pub use rules::{HostPattern, HostRefusal, InvalidPattern, NetworkRules};
pub use sockets::{ContainerSocket, PROXY, ProxyError, RESOLVER, SocketOpener};
