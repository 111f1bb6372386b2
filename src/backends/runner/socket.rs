//! The connection to a container's runner.

use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::time::Duration;

use rustix::fs::{FileType, Mode, OFlags, fstat, open};
use rustix::net::sockopt::{Timeout, set_socket_timeout};
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType, connect, socket_with};

use super::connection::{MARGIN, RunnerConnection};
use super::error::RunnerError;
use crate::engine::peer;

/// The address of a container's runner, and the means of mutual authentication.
pub(super) struct RunnerAddress {
    pub(super) socket: PathBuf,
    pub(super) token: Vec<u8>,
    pub(super) process: Option<u32>,
}

impl std::fmt::Debug for RunnerAddress {
    /// Leaves the token out.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self { socket, process, .. } = self;
        f.debug_struct("Address").field("socket", socket).field("process", process).finish_non_exhaustive()
    }
}

impl RunnerAddress {
    pub(super) fn connect(&self, patience: Duration) -> Result<(RunnerConnection, u32), RunnerError> {
        let stream = open_socket(&self.socket, patience).map_err(RunnerError::connect(&self.socket))?;
        if let Some(expected) = self.process {
            let actual = peer::credentials(&stream).map_err(RunnerError::Gone)?.pid;
            if u32::try_from(actual) != Ok(expected) {
                return Err(RunnerError::Stranger { socket: self.socket.clone(), expected, actual });
            }
        }
        RunnerConnection::greet(stream, &self.token, patience.min(MARGIN))
    }
}

/// Connects to the socket itself: a command in the container may have replaced it with a link.
fn open_socket(path: &Path, patience: Duration) -> io::Result<UnixStream> {
    let entry = open(path, OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC, Mode::empty())?;
    if FileType::from_raw_mode(fstat(&entry)?.st_mode) != FileType::Socket {
        return Err(io::Error::other("it is not a socket"));
    }
    // By its descriptor, because the path may be longer than an address.
    let address = SocketAddrUnix::new(format!("/proc/self/fd/{}", entry.as_raw_fd()))?;
    let socket = socket_with(AddressFamily::UNIX, SocketType::STREAM, SocketFlags::CLOEXEC, None)?;
    // It also limits the wait for a full queue.
    set_socket_timeout(&socket, Timeout::Send, Some(patience))?;
    connect(&socket, &address)?;
    Ok(UnixStream::from(socket))
}
