//! The process at the other end of a unix socket, and the check that it is in this process's sandbox.

use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};
use std::os::unix::ffi::OsStringExt;
use std::os::unix::fs::MetadataExt;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};

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
#[expect(unsafe_code, reason = "rustix has no value for pid 0")]
pub fn credentials(stream: &UnixStream) -> io::Result<libc::ucred> {
    let unset = libc::ucred { pid: 0, uid: u32::MAX, gid: u32::MAX };
    // SAFETY: the option is this structure of numbers.
    unsafe { socket_option(stream.as_fd(), libc::SO_PEERCRED, unset) }
}

/// Returns a pidfd of the peer. Fails on kernels before 6.5.
#[expect(unsafe_code, reason = "rustix does not wrap this option")]
pub fn pidfd(stream: impl AsFd) -> io::Result<OwnedFd> {
    // SAFETY: the option is a number.
    let number: i32 = unsafe { socket_option(stream.as_fd(), libc::SO_PEERPIDFD, -1) }?;
    // SAFETY: the kernel opened this descriptor for the call above.
    Ok(unsafe { OwnedFd::from_raw_fd(number) })
}

/// Reads an option of a socket into `value`.
///
/// # Safety
/// The option is a `T`, and any bytes are a valid `T`.
#[expect(unsafe_code, reason = "the kernel writes the value")]
unsafe fn socket_option<T>(socket: BorrowedFd<'_>, option: i32, mut value: T) -> io::Result<T> {
    let mut size = libc::socklen_t::try_from(size_of::<T>()).map_err(io::Error::other)?;
    let (number, target) = (socket.as_raw_fd(), (&raw mut value).cast());
    // SAFETY: both pointers are valid during the call, and the size is that of the value.
    match unsafe { libc::getsockopt(number, libc::SOL_SOCKET, option, target, &raw mut size) } {
        0 => Ok(value),
        _ => Err(io::Error::last_os_error()),
    }
}

/// Checks that the peer is in the same sandbox as this process.
///
/// # Errors
/// The reason why it is not, or why that is unknown.
pub(crate) fn check_sandbox(stream: &UnixStream) -> Result<(), String> {
    let unseen = |error: io::Error| format!("it can't be inspected: {error}");
    let process = u32::try_from(credentials(stream).map_err(unseen)?.pid).unwrap_or(0);
    check_process(process, pidfd(stream).ok().as_ref(), |_| Ok(()))
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
