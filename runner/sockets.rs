//! Sockets in the network of the container, for foldspace, which is outside of it.

use std::io;
use std::net::{Ipv6Addr, SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::os::fd::OwnedFd;
use std::time::Duration;

use crate::files::Refused;
use crate::wire::{RunFailure, SocketKind, SocketRequest};

/// The time limit for a connection. Nothing else is served meanwhile, but on loopback only a full queue takes time.
const CONNECT_TIME_LIMIT: Duration = Duration::from_millis(250);

pub(crate) fn open(asked: &SocketRequest) -> Result<OwnedFd, Refused> {
    let address = SocketAddr::from((asked.address, asked.port));
    let opened = match asked.kind {
        SocketKind::Connect => connect(address),
        SocketKind::Listen => TcpListener::bind(address).map(OwnedFd::from),
        SocketKind::Datagram => UdpSocket::bind(address).map(OwnedFd::from),
    };
    opened.map_err(|error| {
        let errno = error.raw_os_error().unwrap_or(0);
        Refused { errno, ..Refused::new(RunFailure::Io, format!("{address}: {error}")) }
    })
}

fn connect(address: SocketAddr) -> io::Result<OwnedFd> {
    let connected = TcpStream::connect_timeout(&address, CONNECT_TIME_LIMIT);
    let connected = match connected {
        // A server may listen on IPv6 only.
        Err(error) if error.kind() == io::ErrorKind::ConnectionRefused && address.ip().is_loopback() => {
            let other = SocketAddr::from((Ipv6Addr::LOCALHOST, address.port()));
            TcpStream::connect_timeout(&other, CONNECT_TIME_LIMIT).map_err(|_| error)
        }
        connected => connected,
    };
    connected.map(OwnedFd::from)
}
