//! Starts processes like `posix_spawn`: the child shares this process's memory until it executes its program, so
//! nothing is copied. Only the child's setup differs.

use std::ffi::{CString, c_char, c_int, c_ulong, c_void};
use std::io;
use std::os::fd::{AsRawFd, BorrowedFd, RawFd};

use crate::sys::{
    PR_SET_CHILD_SUBREAPER, PR_SET_PDEATHSIG, ResourceLimit, SIGCHLD, SIGKILL, SignalSet, TIOCSCTTY, ioctl, prctl,
    setpriority, setrlimit, sigprocmask, umask, write,
};
use crate::wire::CallerSurroundings;

const CLONE_VM: c_int = 0x100;
const CLONE_VFORK: c_int = 0x4000;
const SIG_SETMASK: c_int = 2;
const PRIO_PROCESS: c_int = 0;
const ENOENT: c_int = 2;
const EACCES: c_int = 13;
const ENOTDIR: c_int = 20;
const STACK_BYTES: usize = 64 * 1024;

#[expect(unsafe_code, reason = "std cannot start a process this way")]
unsafe extern "C" {
    fn clone(
        run: extern "C" fn(*mut c_void) -> c_int,
        stack: *mut c_void,
        flags: c_int,
        argument: *mut c_void,
        ...
    ) -> c_int;
    fn execve(path: *const c_char, argv: *const *const c_char, env: *const *const c_char) -> c_int;
    fn setsid() -> c_int;
    fn dup2(from: c_int, to: c_int) -> c_int;
    fn fchdir(fd: c_int) -> c_int;
    fn _exit(code: c_int) -> !;
    fn __errno_location() -> *mut c_int;
}

pub(crate) struct SpawnOptions<'a> {
    /// Paths to try for the program, in order.
    pub(crate) candidates: &'a [CString],
    pub(crate) argv: &'a [CString],
    pub(crate) env: &'a [CString],
    pub(crate) cwd: BorrowedFd<'a>,
    pub(crate) streams: [BorrowedFd<'a>; 3],
    /// True to kill the child when this process dies. In a container the kernel does that anyway.
    pub(crate) die_with_runner: bool,
    pub(crate) surroundings: &'a CallerSurroundings<'a>,
    /// The `cgroup.procs` file of the child's control group.
    pub(crate) cgroup: Option<BorrowedFd<'a>>,
}

#[derive(Clone, Copy)]
pub(crate) enum SpawnStage {
    Process,
    Directory,
    Program,
}

/// The stack that a child uses until it executes its program.
pub(crate) struct Spawner {
    stack: Box<[u128]>,
}

/// Everything that the child needs, as plain pointers: it must not allocate.
struct ChildSetup {
    candidates: *const *const c_char,
    argv: *const *const c_char,
    env: *const *const c_char,
    cwd: RawFd,
    streams: [RawFd; 3],
    die_with_runner: bool,
    surroundings: *const CallerSurroundings<'static>,
    cgroup: RawFd,
    failed: Option<(SpawnStage, c_int)>,
}

impl Spawner {
    pub(crate) fn new() -> Self {
        Self { stack: vec![0; STACK_BYTES / size_of::<u128>()].into_boxed_slice() }
    }

    pub(crate) fn spawn(&mut self, start: &SpawnOptions<'_>) -> Result<i32, (SpawnStage, io::Error)> {
        let (candidates, argv, env) = (pointers(start.candidates), pointers(start.argv), pointers(start.env));
        let mut child = ChildSetup {
            candidates: candidates.as_ptr(),
            argv: argv.as_ptr(),
            env: env.as_ptr(),
            cwd: start.cwd.as_raw_fd(),
            streams: start.streams.map(|stream| stream.as_raw_fd()),
            die_with_runner: start.die_with_runner,
            surroundings: (&raw const *start.surroundings).cast(),
            cgroup: start.cgroup.map_or(-1, |file| file.as_raw_fd()),
            failed: None,
        };
        let top = self.stack.as_mut_ptr_range().end;
        let flags = CLONE_VM | CLONE_VFORK | SIGCHLD;
        #[expect(unsafe_code, reason = "std cannot set a child up like this without copying this process")]
        // SAFETY: CLONE_VFORK suspends this thread, the only one, until the child executes its program or ends. So only
        // the child uses the stack and `child`, and both outlive that use. All signals are blocked, so no handler runs
        // in the shared memory.
        let pid = unsafe { clone(begin, top.cast(), flags, (&raw mut child).cast()) };
        if pid < 0 {
            return Err((SpawnStage::Process, io::Error::last_os_error()));
        }
        #[expect(unsafe_code, reason = "the child wrote through a pointer that the compiler does not see")]
        // SAFETY: the field is valid, and the child no longer writes to it.
        let failed = unsafe { (&raw const child.failed).read_volatile() };
        // A failed child has ended; the event loop reaps it.
        match failed {
            None => Ok(pid),
            Some((stage, errno)) => Err((stage, io::Error::from_raw_os_error(errno))),
        }
    }
}

fn pointers(texts: &[CString]) -> Vec<*const c_char> {
    texts.iter().map(|text| text.as_ptr()).chain([std::ptr::null()]).collect()
}

/// Sets the child up and executes its program, with system calls only.
#[expect(unsafe_code, reason = "between clone and execve only plain system calls are sound")]
extern "C" fn begin(argument: *mut c_void) -> c_int {
    let child: *mut ChildSetup = argument.cast();
    // SAFETY: `argument` is the `ChildSetup` of `spawn`. It lives until this process executes its program or ends, and
    // nothing else uses it until then. Its strings end in NUL and its lists in null, as the calls require.
    unsafe {
        let child = &mut *child;
        setsid();
        let (zero, one): (c_ulong, c_ulong) = (0, 1);
        // The leader adopts its descendants' orphans, which attributes them to this command.
        prctl(PR_SET_CHILD_SUBREAPER, one, zero, zero, zero);
        if child.die_with_runner {
            prctl(PR_SET_PDEATHSIG, SIGKILL as c_ulong, zero, zero, zero);
        }
        // If the system refuses one of these, the runner's own value remains.
        if child.cgroup >= 0 {
            write(child.cgroup, c"0".as_ptr().cast(), 1);
        }
        let surroundings = &*child.surroundings;
        if let Some(mask) = surroundings.umask {
            umask(mask);
        }
        if let Some(nice) = surroundings.nice {
            setpriority(PRIO_PROCESS, 0, nice);
        }
        for &(resource, soft, hard) in &surroundings.limits {
            let limit = ResourceLimit { soft, hard };
            setrlimit(resource, &raw const limit);
        }
        for (number, stream) in (0..).zip(child.streams) {
            dup2(stream, number);
        }
        // Fails if standard input is not a terminal.
        ioctl(0, TIOCSCTTY, 0);
        if fchdir(child.cwd) != 0 {
            child.failed = Some((SpawnStage::Directory, *__errno_location()));
            _exit(126);
        }
        let none = SignalSet::empty();
        sigprocmask(SIG_SETMASK, &raw const none, std::ptr::null_mut());
        let errno = execute(child);
        child.failed = Some((SpawnStage::Program, errno));
        _exit(127)
    }
}

/// Executes the first existing candidate, like `execvp`. Returns the error number if none can be executed.
#[expect(unsafe_code, reason = "between clone and execve only plain system calls are sound")]
unsafe fn execute(child: &ChildSetup) -> c_int {
    let mut denied = false;
    let mut candidate = child.candidates;
    // SAFETY: the candidates end in a null pointer; argv and env are as execve requires.
    unsafe {
        while !(*candidate).is_null() {
            execve(*candidate, child.argv, child.env);
            match *__errno_location() {
                ENOENT | ENOTDIR => {}
                EACCES => denied = true,
                other => return other,
            }
            candidate = candidate.add(1);
        }
    }
    if denied { EACCES } else { ENOENT }
}
