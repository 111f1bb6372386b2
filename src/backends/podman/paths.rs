//! The directories of a session's container on this machine.

use std::fs::File;
use std::io;
use std::os::unix::fs::{DirBuilderExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use crate::backends::containers::PodmanOptions;
use crate::backends::disk::{OverlayDir, entries_in, remove_path};
use crate::engine::id::SessionId;

/// Stricter than the engine's own profile: no user namespaces, mounts, bpf or ptrace.
pub(super) const SECCOMP: &str = include_str!("seccomp.json");

/// The file with the address of the resolver.
pub(super) const RESOLVER: &str = "resolv.conf";

/// The file with the certificates that commands trust, if requests are recorded.
pub(super) const CERTIFICATES: &str = "certificates.pem";

const USER: (u32, u32) = (65534, 65534);
/// The ids of this machine for a container's own user namespace, from root's on: outside of all known allocations.
pub(crate) const OWN_IDS: (u32, u32) = (0x7000_0000, 0x1_0000);
pub(crate) const DOOR: &str = "door";
/// The runner's socket and its token, in a separate directory.
pub(crate) const SOCKET: &str = "socket";
const TOKEN: &str = "socket.token";

const NOTE: &str = "container";

const LAYERS: &str = "layers/overlay";

#[derive(Debug, Clone)]
pub(crate) struct Paths {
    pub(crate) root: PathBuf,
    pub(crate) layers: PathBuf,
    pub(crate) overlay: OverlayDir,
    pub(crate) files: PathBuf,
    /// Bound at the workspace if there is an overlay; it stays empty itself.
    pub(crate) mount: PathBuf,
    /// The runner and scripts, read-only in the container, so that its links can't redirect this process's writes.
    pub(crate) run: PathBuf,
    /// The runner's socket and its token. The container may write there, so it is recreated before each start.
    pub(crate) door: PathBuf,
    pub(crate) seccomp: PathBuf,
    /// Locked while any clone of these paths exists.
    _lock: Arc<File>,
}

impl Paths {
    pub(crate) fn prepare(session: SessionId) -> io::Result<Self> {
        directory(&cache()?, 0o700)?;
        let paths = Self::of(overlay(session)?)?;
        directory(&paths.layers, 0o755)?;
        Ok(paths)
    }

    pub(crate) fn spare(name: &str) -> io::Result<Self> {
        Self::of(OverlayDir::new(&spares()?, name, LAYERS))
    }

    fn of(overlay: OverlayDir) -> io::Result<Self> {
        let root = overlay.home();
        let paths = Self {
            _lock: Arc::new(hold(&overlay)?),
            overlay,
            layers: root.join("layers"),
            files: root.join("files"),
            mount: root.join("mount"),
            run: root.join("run"),
            door: root.join(DOOR),
            seccomp: root.join("seccomp.json"),
            root,
        };
        Ok(paths)
    }

    /// Creates the container's directories, with a new directory for the runner.
    pub(crate) fn prepare_run(&self, runner: &[u8]) -> io::Result<()> {
        remove_path(&self.run)?;
        directory(&self.run, 0o755)?;
        directory(&self.mount, 0o755)?;
        directory(&self.door, 0o700)?;
        write(&self.seccomp, SECCOMP.as_bytes(), 0o644)?;
        for path in ["scripts", DOOR] {
            directory(&self.run.join(path), 0o755)?;
        }
        write(&self.run.join(RESOLVER), format!("nameserver {}\n", crate::network::RESOLVER.ip()).as_bytes(), 0o444)?;
        write(&self.run.join(CERTIFICATES), b"", 0o644)?;
        write(&self.run.join("runner"), runner, 0o555)
    }

    /// Replaces the certificates that the container's commands trust, in the file that is mounted there.
    #[expect(clippy::disallowed_methods, reason = "a backend writes its own files")]
    pub(crate) fn trust(&self, certificates: &str) -> io::Result<()> {
        std::fs::write(self.run.join(CERTIFICATES), certificates)
    }

    /// Recreates the socket's directory, with the token in it. No container of the session may run.
    pub(crate) fn prepare_door(&self, token: &[u8], owner: (u32, u32)) -> io::Result<()> {
        remove_path(&self.door)?;
        directory(&self.door, 0o700)?;
        let path = self.door.join(TOKEN);
        write(&path, token, 0o400)?;
        give_away(&path, owner)?;
        give_away(&self.door, owner)
    }

    /// Moves the bound directories of a spare container to this session. No container of the session may run.
    #[expect(clippy::disallowed_methods, reason = "a backend moves its own directories")]
    pub(crate) fn take_over(&self, spare: &Self) -> io::Result<()> {
        for (from, to) in [(&spare.mount, &self.mount), (&spare.run, &self.run), (&spare.door, &self.door)] {
            // The container has the directory itself, not its path. An empty one is replaced, as in most cases.
            if std::fs::rename(from, to).is_err() {
                remove_path(to)?;
                std::fs::rename(from, to)?;
            }
        }
        Ok(())
    }

    /// Records the container that will show the files, for later processes: it does not have the session's name.
    pub(crate) fn note_container(&self, id: &str) -> io::Result<()> {
        write(&self.noted(), id.as_bytes(), 0o600)
    }

    pub(crate) fn noted_container(&self) -> io::Result<Option<String>> {
        match noted_in(&self.root) {
            Ok(id) => Ok(Some(id).filter(|id| !id.is_empty())),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(error),
        }
    }

    pub(crate) fn forget_container(&self) -> io::Result<()> {
        remove_path(&self.noted())
    }

    /// Forgets the removed container: its remains would cost later processes a query.
    pub(crate) fn forget_run(&self) {
        let forgotten = self.forget_container().and_then(|()| remove_path(&self.run));
        if let Err(error) = forgotten {
            tracing::debug!(%error, "failed to forget a removed container; it is queried again");
        }
    }

    fn noted(&self) -> PathBuf {
        self.root.join(NOTE)
    }

    pub(crate) fn remove_spare(&self) {
        if let Err(error) = remove_path(&self.root) {
            tracing::debug!(%error, place = %self.root.display(), "garbage collection will remove a spare directory");
        }
    }
}

/// Returns the user and the group of a container's commands, as seen on this machine if root runs the engine.
pub(crate) fn owner(options: &PodmanOptions) -> (u32, u32) {
    if options.writable_root { (OWN_IDS.0, OWN_IDS.0) } else { USER }
}

/// Gives a directory to the container's user. Without root it already is that user, by the engine's mapping.
pub(crate) fn give_away(path: &Path, owner: (u32, u32)) -> io::Result<()> {
    if rustix::process::geteuid().is_root() {
        std::os::unix::fs::chown(path, Some(owner.0), Some(owner.1))?;
    }
    Ok(())
}

/// Creates a session's directory and locks it while the file is open, also against copies of the store.
pub(crate) fn hold(overlay: &OverlayDir) -> io::Result<File> {
    overlay.hold()?.ok_or_else(|| {
        let words = "the session's container and files are in use by another process, or opened twice in this one; \
                     close them there first";
        let words = format!("{words} ({} is locked)", overlay.home().display());
        io::Error::new(io::ErrorKind::ResourceBusy, words)
    })
}

pub(crate) fn cache() -> io::Result<PathBuf> {
    let set = |name| std::env::var_os(name).filter(|value| !value.is_empty()).map(PathBuf::from);
    let cache = set("FOLDSPACE_CACHE").or_else(|| set("HOME").map(|home| home.join(".cache/foldspace/podman")));
    let cache = cache.ok_or_else(|| io::Error::other("neither FOLDSPACE_CACHE nor HOME is set"))?;
    std::path::absolute(cache)
}

/// Returns the place of one session's container, and of the layers of its files.
pub(crate) fn overlay(session: SessionId) -> io::Result<OverlayDir> {
    Ok(OverlayDir::new(&cache()?, &session.to_string(), LAYERS))
}

/// Removes a session's files here, except for shared layers: those are removed with their last user.
pub(crate) fn remove_files(session: SessionId) -> io::Result<()> {
    let overlay = overlay(session)?;
    let shown =
        |error: io::Error| io::Error::new(error.kind(), format!("can't remove {}: {error}", overlay.home().display()));
    overlay.remove().map_err(shown)
}

pub(crate) fn noted_by(container: &str) -> Option<String> {
    let all = cache().ok()?;
    names_in(&all).find(|name| noted_in(&all.join(name)).is_ok_and(|id| id == container))
}

#[expect(clippy::disallowed_methods, reason = "a backend reads its own files")]
fn noted_in(root: &Path) -> io::Result<String> {
    std::fs::read_to_string(root.join(NOTE))
}

fn spares() -> io::Result<PathBuf> {
    Ok(cache()?.join("warm"))
}

pub(crate) fn spare_name() -> io::Result<String> {
    let mut bytes = [0; 8];
    getrandom::fill(&mut bytes).map_err(io::Error::other)?;
    Ok(format!("{:016x}", u64::from_be_bytes(bytes)))
}

pub(crate) fn token() -> io::Result<Vec<u8>> {
    let mut token = vec![0; 32];
    getrandom::fill(&mut token).map_err(io::Error::other)?;
    Ok(token)
}

/// Removes the remains of interrupted processes: shared layers and spare containers. Returns the failures.
pub(crate) fn sweep() -> Vec<String> {
    let (Ok(all), Ok(spares)) = (cache(), spares()) else { return Vec::new() };
    let mut failed: Vec<io::Error> = OverlayDir::sweep(&all, LAYERS).err().into_iter().collect();
    let spares = names_in(&spares).map(|name| OverlayDir::new(&spares, &name, LAYERS));
    // Locked while it is removed, so that one in creation stays.
    failed.extend(spares.filter_map(|spare| match spare.try_hold() {
        Ok(Some(_held)) => remove_path(&spare.home()).err(),
        Ok(None) => None,
        Err(error) => Some(error),
    }));
    failed.iter().map(io::Error::to_string).collect()
}

/// Lists the names in a directory; empty if it does not exist.
pub(crate) fn names_in(directory: &Path) -> impl Iterator<Item = String> + use<> {
    let entries = entries_in(directory).unwrap_or_default();
    entries.into_iter().filter_map(|entry| entry.file_name().into_string().ok())
}

/// Creates a directory with this mode, and its parents. An existing one keeps its mode.
#[expect(clippy::disallowed_methods, reason = "a backend makes its own directories")]
pub(crate) fn directory(path: &Path, mode: u32) -> io::Result<()> {
    if let Some(above) = path.parent() {
        std::fs::DirBuilder::new().recursive(true).mode(mode).create(above)?;
    }
    match std::fs::DirBuilder::new().mode(mode).create(path) {
        // Regardless of this process's umask.
        Ok(()) => std::fs::set_permissions(path, std::fs::Permissions::from_mode(mode)),
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists && path.is_dir() => Ok(()),
        Err(error) => Err(error),
    }
}

pub(crate) fn write(path: &Path, bytes: &[u8], mode: u32) -> io::Result<()> {
    #[expect(clippy::disallowed_methods, reason = "a backend writes its own files")]
    std::fs::write(path, bytes)?;
    std::fs::set_permissions(path, std::fs::Permissions::from_mode(mode))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cache_existing_directory_keeps_mode() {
        let place = tempfile::tempdir().unwrap();
        let mode = |path: &Path| path.metadata().unwrap().permissions().mode() & 0o7777;
        std::fs::set_permissions(place.path(), std::fs::Permissions::from_mode(0o1777)).unwrap();
        directory(place.path(), 0o700).unwrap();
        assert_eq!(mode(place.path()), 0o1777);
        let made = place.path().join("a/b");
        directory(&made, 0o755).unwrap();
        assert_eq!(mode(&made), 0o755);
        write(&place.path().join("file"), b"", 0o644).unwrap();
        assert!(directory(&place.path().join("file"), 0o700).is_err());
    }

    #[test]
    fn cache_lock_of_removed_directory_is_taken_anew() {
        let place = tempfile::tempdir().unwrap();
        let overlay = OverlayDir::new(place.path(), "one", "layers");
        let first = hold(&overlay).unwrap();
        let theirs = overlay.clone();
        let waiting = std::thread::spawn(move || hold(&theirs).unwrap());
        std::thread::sleep(std::time::Duration::from_millis(40));
        overlay.remove_held().unwrap();
        drop(first);
        let second = waiting.join().unwrap();
        assert!(overlay.home().join("lock").exists());
        assert!(overlay.try_hold().unwrap().is_none(), "it is locked");
        drop(second);
        overlay.remove().unwrap();
        assert!(!overlay.home().exists() && overlay.try_hold().unwrap().is_none());
    }
}
