//! The process at the other end of a unix socket, and the check that it is in this process's sandbox.

use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::ffi::OsStringExt;
use std::os::unix::fs::MetadataExt;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};

use nix::sys::socket::{UnixCredentials, getsockopt, sockopt::PeerCredentials, sockopt::PeerPidfd};
use rustix::event::{PollFd, PollFlags, Timespec, poll};

const NAMESPACES: [&str; 8] = ["cgroup", "ipc", "mnt", "net", "pid", "time", "user", "uts"];
/// Fields of a process's status that state its privileges.
const POWERS: [&str; 11] = [
    "Uid",
    "Gid",
    "Groups",
    "CapInh",
    "CapPrm",
    "CapEff",
    "CapBnd",
    "CapAmb",
    "NoNewPrivs",
    "Seccomp",
    "Seccomp_filters",
];

/// Returns the peer's pid, as this process sees it, and its user. Pid 0 is a process of another pid namespace.
pub fn credentials(stream: &UnixStream) -> io::Result<UnixCredentials> {
    Ok(getsockopt(stream, PeerCredentials)?)
}

/// Checks that the peer is in the same sandbox as this process.
///
/// # Errors
/// The reason why it is not, or why that is unknown.
pub(crate) fn check_sandbox(stream: &UnixStream) -> Result<(), String> {
    let unseen = |error: io::Error| format!("it can't be inspected: {error}");
    let process = u32::try_from(credentials(stream).map_err(unseen)?.pid()).unwrap_or(0);
    check_process(process, getsockopt(stream, PeerPidfd).ok().as_ref(), |_| Ok(()))
}

/// Checks that a process is in the same sandbox as this one, and reads something about it. `pidfd` guards against a
/// reused pid.
///
/// # Errors
/// The reason why it is not, or why that is unknown.
pub fn check_process<T>(
    process: u32,
    pidfd: Option<&OwnedFd>,
    read: impl FnOnce(&Path) -> io::Result<T>,
) -> Result<T, String> {
    if process == 0 {
        return Err("it is in another process namespace".to_owned());
    }
    let proc = PathBuf::from(format!("/proc/{process}"));
    let unseen = |error: io::Error| format!("it can't be inspected: {error}");
    if let Some(what) = difference(&proc).map_err(unseen)? {
        return Err(format!("its {what} differs"));
    }
    let found = read(&proc).map_err(unseen)?;
    // The pid may belong to another process by now.
    match pidfd.is_some_and(|pidfd| has_ended(pidfd).unwrap_or(true)) {
        true => Err("it has ended".to_owned()),
        false => Ok(found),
    }
}

/// Returns the name of the first bound that differs from this process's.
fn difference(proc: &Path) -> io::Result<Option<String>> {
    let (own, theirs) = (bounds(Path::new("/proc/self"))?, bounds(proc)?);
    let differs = own.into_iter().zip(theirs).find(|(own, theirs)| own != theirs);
    Ok(differs.map(|((name, _), _)| name))
}

/// Returns the bounds of a process with their names, in a fixed order.
fn bounds(proc: &Path) -> io::Result<Vec<(String, Vec<u8>)>> {
    let mut bounds = Vec::new();
    for name in NAMESPACES {
        let namespace = match proc.join("ns").join(name).read_link() {
            Ok(namespace) => namespace.into_os_string().into_vec(),
            // The kernel does not support these namespaces.
            Err(error) if error.kind() == io::ErrorKind::NotFound => Vec::new(),
            Err(error) => return Err(error),
        };
        bounds.push((format!("{name} namespace"), namespace));
    }
    let root = proc.join("root").metadata()?;
    bounds.push(("root directory".to_owned(), [root.dev().to_le_bytes(), root.ino().to_le_bytes()].concat()));
    let status = proc_text(&proc.join("status"))?;
    let power = |name: &str| (name.to_owned(), field(&status, name).unwrap_or_default().as_bytes().to_vec());
    bounds.extend(POWERS.map(power));
    Ok(bounds)
}

fn has_ended(pidfd: &OwnedFd) -> io::Result<bool> {
    let mut fds = [PollFd::from_borrowed_fd(pidfd.as_fd(), PollFlags::IN)];
    Ok(poll(&mut fds, Some(&Timespec { tv_sec: 0, tv_nsec: 0 }))? > 0)
}

/// Returns a field of a process's status.
pub fn field<'a>(status: &'a str, name: &str) -> Option<&'a str> {
    status.lines().find_map(|line| Some(line.strip_prefix(name)?.strip_prefix(':')?.trim()))
}

/// Reads a file of `/proc`.
#[expect(clippy::disallowed_methods, reason = "the kernel describes processes in files")]
pub fn proc_bytes(path: &Path) -> io::Result<Vec<u8>> {
    std::fs::read(path)
}

/// Reads a file of `/proc` as text.
pub fn proc_text(path: &Path) -> io::Result<String> {
    proc_bytes(path).map(|bytes| String::from_utf8_lossy(&bytes).into_owned())
}
