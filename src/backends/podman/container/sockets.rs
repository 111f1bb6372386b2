//! Sockets in the network of the container, opened by its runner.

use std::io;
use std::net::{Ipv4Addr, TcpStream};

use super::{ContainerState, SessionContainer};
use crate::backends::runner::{RunnerError, SocketKind, SocketRequest, now};
use crate::engine::lock::lock;

impl SessionContainer {
    pub(super) fn connect_to(&self, port: u16) -> io::Result<TcpStream> {
        let runner = match &mut *lock(&self.state) {
            ContainerState::Running(live) => {
                live.used = now();
                live.runner.clone()
            }
            _ => return Err(io::Error::new(io::ErrorKind::ConnectionRefused, "its container does not run")),
        };
        let asked = SocketRequest { kind: SocketKind::Connect, address: Ipv4Addr::LOCALHOST.octets(), port };
        runner.socket(asked).map(TcpStream::from).map_err(|error| match error {
            RunnerError::Io { errno, .. } => io::Error::from_raw_os_error(errno),
            error => io::Error::other(error),
        })
    }
}
