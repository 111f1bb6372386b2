//! An engine's address, and the way it was found.

use std::path::Path;
#[cfg(feature = "docker")]
use std::path::PathBuf;

use crate::engine::peer;

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct EngineAddress {
    pub(crate) url: String,
    pub(crate) source: String,
}

impl EngineAddress {
    /// Returns the user of the listening process; `None` if unknown, as over a network.
    pub(crate) fn user(&self) -> Option<u32> {
        let path = self.url.strip_prefix("unix://")?;
        let stream = std::os::unix::net::UnixStream::connect(path).ok()?;
        Some(peer::credentials(&stream).ok()?.uid)
    }
}

pub(super) trait Surroundings {
    /// Returns a variable of the environment; `None` if it is not set, or empty.
    fn variable(&self, name: &str) -> Option<String>;
    fn has_socket(&self, path: &Path) -> bool;
    #[cfg(feature = "docker")]
    fn file(&self, path: &Path) -> Option<String>;
    #[cfg(feature = "docker")]
    fn entries(&self, directory: &Path) -> Vec<PathBuf>;
}

/// Checks an address. `example` is suggested instead.
pub(super) fn usable(url: String, source: String, example: &str) -> Result<EngineAddress, String> {
    match url.split_once("://") {
        Some(("unix" | "tcp" | "http", rest)) if !rest.is_empty() => Ok(EngineAddress { url, source }),
        None if url.starts_with('/') => Ok(EngineAddress { url: format!("unix://{url}"), source }),
        Some(("ssh", _)) => Err(format!(
            "{source} names {url}; ssh connections are not supported: the engine must share this \
             machine's files. Use a local engine, such as {example}"
        )),
        _ => Err(format!(
            "{source} names {url:?}; it must be unix:///PATH, or tcp://HOST:PORT or http://HOST:PORT on this machine"
        )),
    }
}

pub(super) struct ProcessEnv;

impl Surroundings for ProcessEnv {
    fn variable(&self, name: &str) -> Option<String> {
        std::env::var(name).ok().filter(|value| !value.is_empty())
    }

    fn has_socket(&self, path: &Path) -> bool {
        use std::os::unix::fs::FileTypeExt;
        path.metadata().is_ok_and(|metadata| metadata.file_type().is_socket())
    }

    #[cfg(feature = "docker")]
    #[expect(clippy::disallowed_methods, reason = "Docker's client stores its contexts in files")]
    fn file(&self, path: &Path) -> Option<String> {
        std::fs::read_to_string(path).ok()
    }

    #[cfg(feature = "docker")]
    fn entries(&self, directory: &Path) -> Vec<PathBuf> {
        let entries = crate::backends::disk::entries_in(directory).unwrap_or_default();
        entries.iter().map(std::fs::DirEntry::path).collect()
    }
}
