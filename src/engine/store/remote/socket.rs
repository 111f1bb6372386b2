//! The unix socket in the store's directory.

use std::io::{self, ErrorKind, Read, Write};
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::time::Duration;

use rustix::fs::{Mode, OFlags};

use super::wire::HELLO;
use crate::engine::peer;
use crate::engine::store::StoreError;

const NAME: &str = "store.sock";
const GREETING: Duration = Duration::from_secs(5);

pub(super) fn path_in(directory: &Path) -> PathBuf {
    directory.join(NAME)
}

/// A short path of an entry of a directory, because a socket address has little room.
struct ShortPath {
    directory: OwnedFd,
    name: String,
}

impl ShortPath {
    fn new(directory: &Path, name: &str) -> io::Result<Self> {
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        Ok(Self { directory: rustix::fs::open(directory, flags, Mode::empty())?, name: name.to_owned() })
    }

    fn path(&self) -> PathBuf {
        PathBuf::from(format!("/proc/self/fd/{}/{}", self.directory.as_raw_fd(), self.name))
    }
}

/// Listens on the socket of a store that the caller owns; replaces an earlier owner's socket.
pub(super) fn listen(directory: &Path) -> io::Result<UnixListener> {
    let begun = format!("{NAME}.{}", std::process::id());
    let short = ShortPath::new(directory, &begun)?;
    remove(&directory.join(&begun))?;
    let listener = UnixListener::bind(short.path())?;
    // Before the rename, so that no process finds it with another mode.
    std::fs::set_permissions(directory.join(&begun), PermissionsExt::from_mode(0o600))?;
    rename(&directory.join(&begun), &path_in(directory))?;
    Ok(listener)
}

#[expect(clippy::disallowed_methods, reason = "the store accesses files directly")]
fn rename(from: &Path, to: &Path) -> io::Result<()> {
    std::fs::rename(from, to)
}

#[expect(clippy::disallowed_methods, reason = "the store accesses files directly")]
pub(super) fn remove(path: &Path) -> io::Result<()> {
    match std::fs::remove_file(path) {
        Err(error) if error.kind() != ErrorKind::NotFound => Err(error),
        _ => Ok(()),
    }
}

pub(super) enum Unreached {
    Nobody,
    Refused(StoreError),
}

pub(super) fn connect(directory: &Path) -> Result<UnixStream, Unreached> {
    let path = path_in(directory);
    let short = ShortPath::new(directory, NAME).map_err(|_| Unreached::Nobody)?;
    let stream = UnixStream::connect(short.path()).map_err(|_| Unreached::Nobody)?;
    let foreign = |what: String| Unreached::Refused(StoreError::Foreign { path: path.clone(), what });
    match stranger(&stream) {
        Ok(None) => {}
        Ok(Some(user)) => return Err(foreign(format!("user {user} serves it"))),
        Err(_) => return Err(Unreached::Nobody),
    }
    match greet(&stream) {
        Ok(true) => Ok(stream),
        Ok(false) => Err(foreign("another version of foldspace serves it".to_owned())),
        Err(_) => Err(Unreached::Nobody),
    }
}

/// Returns the user at the other end, if it is not this process's user.
pub(super) fn stranger(stream: &UnixStream) -> io::Result<Option<u32>> {
    let user = peer::credentials(stream)?.uid;
    Ok((user != rustix::process::geteuid().as_raw()).then_some(user))
}

/// Exchanges greetings. Returns true if the other end has the same version.
pub(super) fn greet(mut stream: &UnixStream) -> io::Result<bool> {
    stream.set_read_timeout(Some(GREETING))?;
    stream.write_all(&HELLO)?;
    let mut heard = [0; HELLO.len()];
    stream.read_exact(&mut heard)?;
    stream.set_read_timeout(None)?;
    Ok(heard == HELLO)
}
