//! The server's socket in the data directory. The store's owner also owns the socket; an existing one is stale.

use std::io;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};

use foldspace::http::bind_unix;
use tokio::net::UnixListener;

use crate::cli::Failure;
use crate::cli::owner::SOCKET;

/// A socket in the data directory, removed on drop.
pub(super) struct ServerSocket {
    path: PathBuf,
    device_and_inode: (u64, u64),
}

impl ServerSocket {
    /// Binds the socket, for the store's owner. Does not remove a file that is not a socket.
    #[expect(clippy::disallowed_methods, reason = "a server makes its socket")]
    pub(super) fn listen(directory: &Path) -> Result<(Self, UnixListener), Failure> {
        let path = directory.canonicalize().unwrap_or_else(|_| directory.to_owned()).join(SOCKET);
        let failed = |error: io::Error| {
            let failure = Failure::io("listen on", path.display(), &error);
            let hint = "another file is at that path: remove it, or use another --data directory";
            if error.kind() == io::ErrorKind::AddrInUse { failure.with_hint(hint) } else { failure }
        };
        if path.symlink_metadata().is_ok_and(|metadata| metadata.file_type().is_socket()) {
            std::fs::remove_file(&path).map_err(failed)?;
        }
        let listener = bind_unix(&path).map_err(failed)?;
        let device_and_inode = device_and_inode(&path).map_err(failed)?;
        Ok((Self { path, device_and_inode }, listener))
    }

    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    /// Returns true if the socket is still at its path; its directory may have been removed.
    pub(super) fn is_there(&self) -> bool {
        device_and_inode(&self.path).is_ok_and(|there| there == self.device_and_inode)
    }
}

impl Drop for ServerSocket {
    #[expect(clippy::disallowed_methods, reason = "a server takes its socket away again")]
    fn drop(&mut self) {
        if self.is_there() {
            drop(std::fs::remove_file(&self.path));
        }
    }
}

fn device_and_inode(path: &Path) -> io::Result<(u64, u64)> {
    path.symlink_metadata().map(|metadata| (metadata.dev(), metadata.ino()))
}
