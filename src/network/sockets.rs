//! Sockets in the network of a container.

use std::io;
use std::net::{Ipv4Addr, SocketAddrV4};
use std::os::fd::OwnedFd;
use std::sync::Arc;

/// The address of the proxy in a container: on loopback, but not where servers of commands usually listen.
pub const PROXY: SocketAddrV4 = SocketAddrV4::new(Ipv4Addr::new(127, 0, 0, 2), 3128);
/// The address of the resolver in a container.
pub const RESOLVER: SocketAddrV4 = SocketAddrV4::new(Ipv4Addr::new(127, 0, 0, 2), 53);

/// A socket in a container's network.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ContainerSocket {
    /// TCP, listening at the address.
    Listen(SocketAddrV4),
    /// UDP, bound to the address.
    Datagram(SocketAddrV4),
}

/// Opens sockets in a container's network. It may block.
pub type SocketOpener = Arc<dyn Fn(ContainerSocket) -> io::Result<OwnedFd> + Send + Sync>;

/// The reason why no proxy runs.
#[derive(Debug, thiserror::Error)]
#[error("the network's proxy can't run: {0}")]
pub struct ProxyError(#[from] io::Error);
