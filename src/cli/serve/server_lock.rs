//! The server's socket in the data directory, and the lock that allows one server.

use std::cell::Cell;
use std::fs::{File, OpenOptions, TryLockError};
use std::io::{self, Read, Seek, Write};
use std::os::unix::fs::{FileTypeExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use foldspace::http::{bind_unix, connect_unix};
use tokio::net::UnixListener;

use crate::cli::owner::SOCKET;
use crate::cli::{Exit, Failure, text};

const LOCK: &str = "http.lock";

pub(super) struct ServerLock {
    socket: PathBuf,
    is_own: Cell<bool>,
    path: PathBuf,
    lock: File,
}

impl ServerLock {
    #[expect(clippy::disallowed_methods, reason = "a server makes its socket and the lock beside it")]
    pub(super) fn take(directory: &Path) -> Result<Self, Failure> {
        let path = directory.join(LOCK);
        let failed = |action| {
            let path = path.display().to_string();
            move |error: io::Error| Failure::io(action, path, &error)
        };
        let mut open = OpenOptions::new();
        let open = open.read(true).write(true).create(true).truncate(false).mode(0o600);
        let mut lock = open.open(&path).map_err(failed("open"))?;
        match lock.try_lock() {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => {
                let mut holder = String::new();
                // What it says of itself is only for the message.
                drop((&mut lock).take(64).read_to_string(&mut holder));
                return Err(is_there(directory, holder.trim()));
            }
            Err(TryLockError::Error(error)) => return Err(failed("lock")(error)),
        }
        let noted = lock.set_len(0).and_then(|()| lock.rewind()).and_then(|()| write!(lock, "{}", std::process::id()));
        noted.map_err(failed("write"))?;
        let directory = directory.canonicalize().map_err(failed("find"))?;
        Ok(Self { socket: directory.join(SOCKET), is_own: Cell::new(false), path, lock })
    }

    /// Tells whether the lock is still in the data directory, and so whether that is there.
    pub(super) fn is_there(&self) -> bool {
        let (Ok(ours), Ok(there)) = (self.lock.metadata(), self.path.symlink_metadata()) else { return false };
        (ours.dev(), ours.ino()) == (there.dev(), there.ino())
    }

    pub(super) fn socket(&self) -> &Path {
        &self.socket
    }

    /// Listens on the socket. A dead server's socket is removed; one that answers stays.
    pub(super) async fn listen(&self) -> Result<UnixListener, Failure> {
        let listener = self.bind().await?;
        self.is_own.set(true);
        Ok(listener)
    }

    #[expect(clippy::disallowed_methods, reason = "a server makes its socket and the lock beside it")]
    async fn bind(&self) -> Result<UnixListener, Failure> {
        let failed = |error: io::Error| Failure::io("listen on", self.socket.display(), &error);
        match bind_unix(&self.socket) {
            Err(error) if error.kind() == io::ErrorKind::AddrInUse => {}
            other => return other.map_err(failed),
        }
        match connect_unix(&self.socket).await {
            Err(error) if error.kind() == io::ErrorKind::ConnectionRefused && is_socket(&self.socket) => {
                std::fs::remove_file(&self.socket).map_err(failed)?;
                bind_unix(&self.socket).map_err(failed)
            }
            Ok(_) => Err(is_there(self.socket.parent().unwrap_or(&self.socket), "")),
            Err(error) => Err(failed(error)
                .with_hint("something else is at that path: take it away, or use another --data directory")),
        }
    }
}

/// A plain file answers no connection either, and must stay.
fn is_socket(path: &Path) -> bool {
    path.symlink_metadata().is_ok_and(|metadata| metadata.file_type().is_socket())
}

fn is_there(directory: &Path, process: &str) -> Failure {
    let shown = text::one_line(&directory.display().to_string(), 300);
    let who = match process.parse::<u32>() {
        Ok(process) => format!("process {process}"),
        Err(_) => "another process".to_owned(),
    };
    Failure::new(Exit::Busy, format!("{who} serves {shown} already"))
        .with_hint(format!("its socket is {SOCKET} there; a directory has one server at a time"))
}

impl Drop for ServerLock {
    #[expect(clippy::disallowed_methods, reason = "a server takes its socket away again")]
    fn drop(&mut self) {
        if self.is_own.get() {
            drop(std::fs::remove_file(&self.socket));
        }
    }
}
