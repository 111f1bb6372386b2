//! Starting a process as posix_spawn does: the child borrows this process's memory until it becomes its program, so
//! that nothing is copied. It differs in what the child does first.

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
    /// Paths of the program; the first that is there is taken.
    pub(crate) candidates: &'a [CString],
    pub(crate) argv: &'a [CString],
    pub(crate) env: &'a [CString],
    pub(crate) cwd: BorrowedFd<'a>,
    pub(crate) streams: [BorrowedFd<'a>; 3],
    /// The child is killed when this process dies. In a container the kernel does it anyway.
    pub(crate) die_with_runner: bool,
    pub(crate) surroundings: &'a CallerSurroundings<'a>,
    /// Takes the child into a control group.
    pub(crate) cgroup: Option<BorrowedFd<'a>>,
}

#[derive(Clone, Copy)]
pub(crate) enum SpawnStage {
    Process,
    Directory,
    Program,
}

/// Memory that children stand on for the moment until they are their programs.
pub(crate) struct Spawner {
    stack: Box<[u128]>,
}

/// All that the child needs, as plain pointers: it must not allocate.
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
        #[expect(unsafe_code, reason = "std's spawn cannot set what a child begins with without copying this process")]
        // SAFETY: with CLONE_VFORK this thread, the only one, stands still until the child has become its program or
        // has ended, so the child alone uses the stack and `child`, and both outlive its use of them. All signals are
        // blocked, so no handler runs in the shared memory.
        let pid = unsafe { clone(begin, top.cast(), flags, (&raw mut child).cast()) };
        if pid < 0 {
            return Err((SpawnStage::Process, io::Error::last_os_error()));
        }
        #[expect(unsafe_code, reason = "the child wrote through a pointer that the compiler does not see")]
        // SAFETY: the place is valid, and the child no longer writes to it.
        let failed = unsafe { (&raw const child.failed).read_volatile() };
        // A child that failed has ended; the loop that reaps takes it.
        match failed {
            None => Ok(pid),
            Some((stage, errno)) => Err((stage, io::Error::from_raw_os_error(errno))),
        }
    }
}

fn pointers(texts: &[CString]) -> Vec<*const c_char> {
    texts.iter().map(|text| text.as_ptr()).chain([std::ptr::null()]).collect()
}

/// The child's life before its program: system calls only.
#[expect(unsafe_code, reason = "between clone and execve only plain system calls are sound")]
extern "C" fn begin(argument: *mut c_void) -> c_int {
    let child: *mut ChildSetup = argument.cast();
    // SAFETY: `argument` is the `ChildSetup` of `spawn`, which lives until this process is its program or has ended, and is
    // used by nothing else meanwhile. Every pointer in it ends in NUL or null as the calls need.
    unsafe {
        let child = &mut *child;
        setsid();
        let (zero, one): (c_ulong, c_ulong) = (0, 1);
        // What the command's processes leave behind becomes its leader's, and so is known to be this command's.
        prctl(PR_SET_CHILD_SUBREAPER, one, zero, zero, zero);
        if child.die_with_runner {
            prctl(PR_SET_PDEATHSIG, SIGKILL as c_ulong, zero, zero, zero);
        }
        // What of these the system refuses stays as the runner has it.
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
        // What is no terminal is refused.
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

/// Becomes the first candidate that there is, as execvp does. Returns why none was.
#[expect(unsafe_code, reason = "between clone and execve only plain system calls are sound")]
unsafe fn execute(child: &ChildSetup) -> c_int {
    let mut denied = false;
    let mut candidate = child.candidates;
    // SAFETY: the candidates end in a null pointer; argv and env are as execve needs them.
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
