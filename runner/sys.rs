//! System calls that std does not wrap, each behind a safe function.

use std::ffi::{CStr, c_char, c_int, c_long, c_uint, c_ulong, c_void};
use std::fs::File;
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd, RawFd};
use std::time::Duration;

pub(crate) const SIGHUP: i32 = 1;
pub(crate) const SIGKILL: i32 = 9;
pub(crate) const SIGTERM: i32 = 15;
pub(crate) const SIGCHLD: i32 = 17;
pub(crate) const SIGCONT: i32 = 18;
pub(crate) const SIGSTOP: i32 = 19;

pub(crate) const EAGAIN: i32 = 11;
pub(crate) const EXDEV: i32 = 18;

const O_NONBLOCK: i32 = 0o4000;
pub(crate) const O_PATH: i32 = 0o10_000_000;
const O_CLOEXEC: i32 = 0o2_000_000;
#[cfg(target_arch = "aarch64")]
pub(crate) const O_DIRECTORY: i32 = 0o40_000;
#[cfg(not(target_arch = "aarch64"))]
pub(crate) const O_DIRECTORY: i32 = 0o200_000;

pub(crate) const POLLIN: i16 = 0x1;
pub(crate) const POLLOUT: i16 = 0x4;

pub(crate) const PR_SET_PDEATHSIG: c_int = 1;
const PR_SET_DUMPABLE: c_int = 4;
pub(crate) const PR_SET_CHILD_SUBREAPER: c_int = 36;
const PR_SET_NO_NEW_PRIVS: c_int = 38;
const WNOHANG: c_int = 1;
const F_GETFL: c_int = 3;
const F_SETFL: c_int = 4;
const SOL_SOCKET: c_int = 1;
const SO_PEERCRED: c_int = 17;
const SCM_RIGHTS: c_int = 1;
const MSG_DONTWAIT: c_int = 0x40;
const MSG_NOSIGNAL: c_int = 0x4000;
const MSG_CMSG_CLOEXEC: c_int = 0x4000_0000;
const SIG_BLOCK: c_int = 0;
const SI_USER: c_int = 0;
const SIG_DFL: usize = 0;
pub(crate) const TIOCSCTTY: c_ulong = 0x540E;
const TIOCSWINSZ: c_ulong = 0x5414;
const TIOCSPTLCK: c_ulong = 0x4004_5431;
const TIOCGPTPEER: c_ulong = 0x5441;
const O_RDWR: c_int = 2;
const O_NOCTTY: c_int = 0o400;
const SYS_CLOSE_RANGE: c_long = 436;
const SYS_OPENAT2: c_long = 437;
const RESOLVE_NO_MAGICLINKS: u64 = 0x02;
const RESOLVE_BENEATH: u64 = 0x08;

#[expect(unsafe_code, reason = "std does not wrap these")]
unsafe extern "C" {
    fn poll(fds: *mut PollFd, count: c_ulong, timeout: c_int) -> c_int;
    #[link_name = "kill"]
    fn raw_kill(pid: c_int, signal: c_int) -> c_int;
    fn getpgid(pid: c_int) -> c_int;
    pub(crate) fn prctl(option: c_int, ...) -> c_int;
    fn waitpid(pid: c_int, status: *mut c_int, options: c_int) -> c_int;
    fn fcntl(fd: c_int, command: c_int, ...) -> c_int;
    fn getsockopt(fd: c_int, level: c_int, name: c_int, value: *mut c_void, length: *mut u32) -> c_int;
    fn socket(family: c_int, kind: c_int, protocol: c_int) -> c_int;
    fn recvmsg(fd: c_int, message: *mut MessageHeader, flags: c_int) -> isize;
    fn sendmsg(fd: c_int, message: *const MessageHeader, flags: c_int) -> isize;
    fn close(fd: c_int) -> c_int;
    pub(crate) fn ioctl(fd: c_int, request: c_ulong, ...) -> c_int;
    fn syscall(number: c_long, ...) -> c_long;
    fn sigfillset(set: *mut SignalSet) -> c_int;
    pub(crate) fn sigprocmask(how: c_int, set: *const SignalSet, old: *mut SignalSet) -> c_int;
    fn signal(number: c_int, handler: usize) -> usize;
    pub(crate) fn write(fd: c_int, bytes: *const c_void, length: usize) -> isize;
    pub(crate) fn umask(mask: c_uint) -> c_uint;
    pub(crate) fn setpriority(which: c_int, who: c_uint, nice: c_int) -> c_int;
    pub(crate) fn setrlimit(resource: c_uint, limit: *const ResourceLimit) -> c_int;
    fn signalfd(fd: c_int, set: *const SignalSet, flags: c_int) -> c_int;
}

/// The `rlimit` of 64-bit kernels.
#[repr(C)]
pub(crate) struct ResourceLimit {
    pub(crate) soft: u64,
    pub(crate) hard: u64,
}

#[repr(C)]
pub(crate) struct PollFd {
    pub(crate) fd: RawFd,
    pub(crate) events: i16,
    pub(crate) ready: i16,
}

#[repr(C)]
pub(crate) struct SignalSet([u64; 16]);

impl SignalSet {
    pub(crate) const fn empty() -> Self {
        Self([0; 16])
    }
}

#[repr(C)]
struct MessageHeader {
    name: *mut c_void,
    name_length: u32,
    parts: *mut MessagePart,
    parts_count: usize,
    control: *mut c_void,
    control_length: usize,
    flags: c_int,
}

#[repr(C)]
struct MessagePart {
    base: *mut c_void,
    length: usize,
}

/// A control message with one descriptor, as the kernel aligns it.
#[repr(C, align(8))]
struct ControlMessage {
    length: usize,
    level: c_int,
    kind: c_int,
    fd: c_int,
    padding: c_int,
}

#[repr(C)]
struct OpenHow {
    flags: u64,
    mode: u64,
    resolve: u64,
}

/// Closes inherited descriptors except the standard streams: commands would inherit them, too.
pub(crate) fn close_inherited() {
    const FIRST: c_int = 3;
    const LAST_WITHOUT_RANGE: c_int = 4096;
    #[expect(unsafe_code, reason = "std has no call for descriptors that it did not open")]
    // SAFETY: nothing has been opened yet, so nothing uses these descriptors.
    unsafe {
        if syscall(SYS_CLOSE_RANGE, FIRST, c_uint::MAX, 0) != 0 {
            for fd in FIRST..LAST_WITHOUT_RANGE {
                close(fd);
            }
        }
    }
}

pub(crate) fn wait_ready(fds: &mut [PollFd], timeout: Option<Duration>) -> io::Result<()> {
    let timeout = match timeout {
        // Rounded up: waking early would spin.
        Some(timeout) => c_int::try_from(timeout.as_nanos().div_ceil(1_000_000)).unwrap_or(c_int::MAX),
        None => -1,
    };
    #[expect(unsafe_code, reason = "poll has no wrapper in std")]
    // SAFETY: the slice is valid for its length, and poll writes `ready` only.
    let ready = unsafe { poll(fds.as_mut_ptr(), fds.len() as c_ulong, timeout) };
    if ready >= 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

/// Waits until the descriptor is readable or its other end is closed. Returns false on a timeout.
pub(crate) fn readable(fd: BorrowedFd<'_>, timeout: Duration) -> bool {
    let mut fds = [PollFd { fd: fd.as_raw_fd(), events: POLLIN, ready: 0 }];
    wait_ready(&mut fds, Some(timeout)).is_ok() && fds[0].ready != 0
}

/// Blocks all signals, and returns a descriptor for SIGTERM and SIGCHLD. Commands start with none blocked.
pub(crate) fn take_signals() -> io::Result<File> {
    let mut all = SignalSet::empty();
    let mut wanted = SignalSet::empty();
    for number in [SIGTERM, SIGCHLD] {
        wanted.0[0] |= 1 << (number - 1);
    }
    #[expect(unsafe_code, reason = "std does not wrap signals")]
    // SAFETY: the sets are valid and have the C library's size; no handler is installed.
    let fd = unsafe {
        for number in 1..=64 {
            signal(number, SIG_DFL);
        }
        sigfillset(&raw mut all);
        sigprocmask(SIG_BLOCK, &raw const all, std::ptr::null_mut());
        signalfd(-1, &raw const wanted, O_CLOEXEC | O_NONBLOCK)
    };
    owned(fd).map(File::from)
}

pub(crate) struct Received {
    pub(crate) number: i32,
    /// The process that sent it by `kill`; 0 if outside of this namespace. `None` if it was sent in another way.
    pub(crate) sender: Option<u32>,
}

pub(crate) fn next_signal(mut signals: &File) -> Option<Received> {
    use io::Read;
    let mut raw = [0; 128];
    if signals.read(&mut raw).ok()? != raw.len() {
        return None;
    }
    let word = |at: usize| raw.get(at..at + 4).and_then(|bytes| bytes.try_into().ok()).map(u32::from_ne_bytes);
    // The kernel sets the sender only for `kill`. With sigqueue the caller sets it. A signal that a descriptor sends
    // (F_SETSIG, which any process of the same user can trigger) has no sender, and would look like a signal from
    // outside.
    let sender = if word(8)?.cast_signed() == SI_USER { word(12) } else { None };
    Some(Received { number: word(0)?.cast_signed(), sender })
}

pub(crate) fn forbid_new_privileges() -> io::Result<()> {
    control(PR_SET_NO_NEW_PRIVS, 1)
}

/// Keeps processes of the same user from tracing this one and from reading its memory, environment and descriptors.
pub(crate) fn forbid_inspection() -> io::Result<()> {
    control(PR_SET_DUMPABLE, 0)
}

pub(crate) fn adopt_orphans() -> io::Result<()> {
    control(PR_SET_CHILD_SUBREAPER, 1)
}

fn control(option: c_int, value: c_int) -> io::Result<()> {
    let zero: c_ulong = 0;
    #[expect(unsafe_code, reason = "prctl has no wrapper in std")]
    // SAFETY: the options above take a number and no pointer.
    let done = unsafe { prctl(option, c_long::from(value) as c_ulong, zero, zero, zero) };
    if done == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

/// Returns the process group of a process. `None` if the process does not exist.
pub(crate) fn group_of(pid: i32) -> Option<i32> {
    #[expect(unsafe_code, reason = "getpgid has no wrapper in std")]
    // SAFETY: it takes a number only.
    let group = unsafe { getpgid(pid) };
    (group > 0).then_some(group)
}

/// Signals one process. Ignores process 1 and ids that stand for several processes.
pub(crate) fn kill(pid: i32, number: i32) {
    if pid > 1 {
        send(pid, number);
    }
}

pub(crate) fn kill_group(group: i32, number: i32) {
    if group > 1 {
        send(-group, number);
    }
}

/// Signals every process of the namespace except this one, in one step that no fork escapes.
pub(crate) fn kill_namespace(number: i32) {
    // Outside of a container this would signal every process of the machine.
    if std::process::id() == 1 {
        send(-1, number);
    }
}

fn send(target: i32, number: i32) {
    #[expect(unsafe_code, reason = "kill has no wrapper in std")]
    // SAFETY: it takes numbers only. A target that has already ended is fine.
    unsafe {
        raw_kill(target, number);
    }
}

pub(crate) enum Reaped {
    Child(Dead),
    Nothing,
    Childless,
}

pub(crate) struct Dead {
    pub(crate) pid: i32,
    pub(crate) status: i32,
}

pub(crate) fn reap() -> Reaped {
    let mut status = 0;
    #[expect(unsafe_code, reason = "std waits only for children that it started")]
    // SAFETY: `status` is valid.
    let pid = unsafe { waitpid(-1, &raw mut status, WNOHANG) };
    match pid {
        1.. => Reaped::Child(Dead { pid, status }),
        0 => Reaped::Nothing,
        _ => Reaped::Childless,
    }
}

pub(crate) fn set_nonblocking(fd: impl AsFd) -> io::Result<()> {
    let fd = fd.as_fd().as_raw_fd();
    #[expect(unsafe_code, reason = "fcntl has no wrapper in std")]
    // SAFETY: both commands take numbers only.
    let done = unsafe {
        let flags = fcntl(fd, F_GETFL);
        fcntl(fd, F_SETFL, flags | O_NONBLOCK)
    };
    if done == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

/// Returns the process at the other end of a unix socket; 0 if it is outside of this process's namespace.
pub(crate) fn peer(socket: impl AsFd) -> io::Result<i32> {
    let mut credentials = [0_i32; 3];
    let mut length = 12;
    let value = (&raw mut credentials).cast();
    let fd = socket.as_fd().as_raw_fd();
    #[expect(unsafe_code, reason = "std's peer_cred is not stable")]
    // SAFETY: `value` has the 12 bytes of a ucred, as `length` says.
    let done = unsafe { getsockopt(fd, SOL_SOCKET, SO_PEERCRED, value, &raw mut length) };
    if done == 0 && length == 12 { Ok(credentials[0]) } else { Err(io::Error::last_os_error()) }
}

/// Returns true if this process can create sockets that bypass the container's network, such as AF_VSOCK.
pub(crate) fn makes_other_sockets() -> bool {
    /// AF_UNIX, AF_INET, AF_INET6 and AF_NETLINK.
    const CONFINED: [c_int; 4] = [1, 2, 10, 16];
    /// More than any kernel has.
    const FAMILIES: c_int = 64;
    /// SOCK_STREAM, SOCK_DGRAM, SOCK_RAW and SOCK_SEQPACKET.
    const KINDS: [c_int; 4] = [1, 2, 3, 5];
    let others = (0..FAMILIES).filter(|family| !CONFINED.contains(family));
    let makes = |family, kind| {
        #[expect(unsafe_code, reason = "std creates sockets of some families only")]
        // SAFETY: it takes numbers only.
        let fd = unsafe { socket(family, kind, 0) };
        owned(fd).is_ok()
    };
    others.into_iter().any(|family| KINDS.iter().any(|kind| makes(family, *kind)))
}

pub(crate) enum Passed {
    Socket(OwnedFd),
    Nothing,
    Closed,
}

/// The length in a control message with one descriptor.
const WITH_DESCRIPTOR: usize = size_of::<usize>() + 3 * size_of::<c_int>();

fn header(part: &mut MessagePart, message: &mut ControlMessage) -> MessageHeader {
    MessageHeader {
        name: std::ptr::null_mut(),
        name_length: 0,
        parts: part,
        parts_count: 1,
        control: std::ptr::from_mut(message).cast(),
        control_length: size_of::<ControlMessage>(),
        flags: 0,
    }
}

/// Sends bytes and a descriptor with them. Returns the number of bytes sent.
pub(crate) fn send_descriptor(socket: impl AsFd, bytes: &[u8], descriptor: impl AsFd) -> io::Result<usize> {
    let fd = descriptor.as_fd().as_raw_fd();
    let mut part = MessagePart { base: bytes.as_ptr().cast_mut().cast(), length: bytes.len() };
    let mut message = ControlMessage { length: WITH_DESCRIPTOR, level: SOL_SOCKET, kind: SCM_RIGHTS, fd, padding: 0 };
    let header = header(&mut part, &mut message);
    #[expect(unsafe_code, reason = "std's ancillary data is not stable")]
    // SAFETY: every pointer in the header is valid for the length next to it, and only read.
    let sent = unsafe { sendmsg(socket.as_fd().as_raw_fd(), &raw const header, MSG_DONTWAIT | MSG_NOSIGNAL) };
    usize::try_from(sent).map_err(|_| io::Error::last_os_error())
}

pub(crate) fn receive_descriptor(socket: impl AsFd) -> io::Result<Passed> {
    let mut byte = 0_u8;
    let mut part = MessagePart { base: (&raw mut byte).cast(), length: 1 };
    let mut message = ControlMessage { length: 0, level: 0, kind: 0, fd: -1, padding: 0 };
    let mut header = header(&mut part, &mut message);
    #[expect(unsafe_code, reason = "std's ancillary data is not stable")]
    // SAFETY: every pointer in the header is valid for the length next to it.
    let read = unsafe { recvmsg(socket.as_fd().as_raw_fd(), &raw mut header, MSG_DONTWAIT | MSG_CMSG_CLOEXEC) };
    let has_one = message.length == WITH_DESCRIPTOR && message.level == SOL_SOCKET && message.kind == SCM_RIGHTS;
    match read {
        ..0 => Err(io::Error::last_os_error()),
        0 => Ok(Passed::Closed),
        _ if has_one && message.fd >= 0 => owned(message.fd).map(Passed::Socket),
        _ => Ok(Passed::Nothing),
    }
}

/// Opens a new terminal. Returns this process's side and the command's.
pub(crate) fn open_terminal() -> io::Result<(File, OwnedFd)> {
    use std::os::unix::fs::OpenOptionsExt;
    let outer = File::options().read(true).write(true).custom_flags(O_NOCTTY).open("/dev/ptmx")?;
    let unlocked: c_int = 0;
    let fd = outer.as_raw_fd();
    #[expect(unsafe_code, reason = "ioctl has no wrapper in std")]
    // SAFETY: the first reads `unlocked`, which outlives the call; the second takes flags only.
    let inner = unsafe {
        if ioctl(fd, TIOCSPTLCK, &raw const unlocked) != 0 {
            return Err(io::Error::last_os_error());
        }
        ioctl(fd, TIOCGPTPEER, O_RDWR | O_NOCTTY | O_CLOEXEC)
    };
    Ok((outer, owned(inner)?))
}

/// Sets a terminal's size; the kernel notifies the programs in its foreground.
pub(crate) fn set_window(terminal: &File, rows: u16, columns: u16) -> io::Result<()> {
    let size = [rows, columns, 0, 0];
    #[expect(unsafe_code, reason = "ioctl has no wrapper in std")]
    // SAFETY: it reads a winsize, which is four numbers of 16 bits.
    let done = unsafe { ioctl(terminal.as_raw_fd(), TIOCSWINSZ, &raw const size) };
    if done == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

/// Opens a path below a directory. No link, `..` or race leads out of it.
pub(crate) fn open_beneath(root: BorrowedFd<'_>, path: &CStr, flags: i32) -> io::Result<OwnedFd> {
    let flags = u64::from((flags | O_CLOEXEC).cast_unsigned());
    let how = OpenHow { flags, mode: 0, resolve: RESOLVE_BENEATH | RESOLVE_NO_MAGICLINKS };
    let pointer: *const c_char = path.as_ptr();
    let mut tries = 0;
    loop {
        #[expect(unsafe_code, reason = "openat2 has no wrapper in std or the C library")]
        // SAFETY: the path ends in NUL, and `how` is valid for the given size.
        let fd = unsafe { syscall(SYS_OPENAT2, root.as_raw_fd(), pointer, &raw const how, size_of::<OpenHow>()) };
        let opened = owned(c_int::try_from(fd).unwrap_or(-1));
        tries += 1;
        match opened {
            // A concurrent rename raced with the lookup.
            Err(error) if error.raw_os_error() == Some(EAGAIN) && tries < 100 => {}
            other => return other,
        }
    }
}

/// Returns the descriptor that a system call has just created, or the call's error.
fn owned(fd: c_int) -> io::Result<OwnedFd> {
    if fd < 0 {
        return Err(io::Error::last_os_error());
    }
    #[expect(unsafe_code, reason = "the calls above return plain numbers")]
    // SAFETY: the kernel has just created it for this process, and nothing else owns it.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}
