//! The process at the other end of a unix socket.

use std::io;
use std::os::unix::net::UnixStream;

use nix::sys::socket::{UnixCredentials, getsockopt, sockopt::PeerCredentials};

/// Returns the peer's process, as this process sees it, and its user. Process 0 is one of another pid namespace.
pub(crate) fn credentials(stream: &UnixStream) -> io::Result<UnixCredentials> {
    Ok(getsockopt(stream, PeerCredentials)?)
}
