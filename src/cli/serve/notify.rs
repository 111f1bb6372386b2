//! Notifies the service manager of the server's state, as `sd_notify` does.

use std::os::linux::net::SocketAddrExt;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::net::{SocketAddr, UnixDatagram};
use std::time::Duration;

pub(super) struct Notify {
    way: Option<(UnixDatagram, SocketAddr)>,
    watchdog: Option<Duration>,
}

impl Notify {
    pub(super) fn from_environment() -> Self {
        let address = std::env::var_os("NOTIFY_SOCKET").and_then(|name| {
            let name = name.into_vec();
            match name.strip_prefix(b"@") {
                Some(abstract_name) => SocketAddr::from_abstract_name(abstract_name).ok(),
                None => SocketAddr::from_pathname(std::ffi::OsStr::from_bytes(&name)).ok(),
            }
        });
        let way = address.and_then(|address| Some((UnixDatagram::unbound().ok()?, address)));
        let number = |name| std::env::var(name).ok()?.parse::<u64>().ok();
        let is_meant = number("WATCHDOG_PID").is_none_or(|process| process == u64::from(std::process::id()));
        let watchdog = number("WATCHDOG_USEC").filter(|micros| is_meant && *micros > 0).map(Duration::from_micros);
        Self { way, watchdog }
    }

    pub(super) fn tell(&self, what: &str) {
        if let Some((socket, address)) = &self.way
            && let Err(error) = socket.send_to_addr(what.as_bytes(), address)
        {
            tracing::debug!(%error, "failed to notify the service manager");
        }
    }

    pub(super) fn pause(&self) -> Option<Duration> {
        self.watchdog.map(|within| within / 3)
    }

    pub(super) fn alive(&self) {
        if self.watchdog.is_some() {
            self.tell("WATCHDOG=1");
        }
    }
}
