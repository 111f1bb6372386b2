//! The runner as a child process on the host.

use std::fs::{File, Permissions};
use std::io::{self, IoSlice, Write};
use std::mem::MaybeUninit;
use std::net::Shutdown;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::{Mutex, OnceLock};
use std::time::Duration;

use rustix::event::{PollFd, PollFlags};
use rustix::fs::{MemfdFlags, SealFlags, fcntl_add_seals, memfd_create};
use rustix::io::Errno;
use rustix::net::{SendAncillaryBuffer, SendAncillaryMessage, SendFlags, sendmsg};
use tempfile::TempPath;

use super::RUNNER;
use super::connection::{MARGIN, wait};
use super::error::RunnerError;
use crate::engine::lock::lock;

/// The number of attempts at a program file that another thread's new process still holds open.
const TRIES: u32 = 20;

#[derive(Debug)]
pub(super) struct HostRunner {
    /// Carries sockets to the runner, which ends when it closes.
    control: UnixStream,
    pub(super) child: Mutex<Child>,
}

impl HostRunner {
    pub(super) fn start(root: &Path) -> Result<Self, RunnerError> {
        if let Some(program) = in_memory() {
            match start(Path::new(&format!("/proc/self/fd/{}", program.as_raw_fd())), root) {
                Ok(runner) => return Ok(runner),
                // Some systems forbid executing a memfd.
                Err(error) => tracing::debug!(%error, "failed to execute the runner from memory"),
            }
        }
        let started = in_file().and_then(|program| start(&program, root));
        started.map_err(|source| RunnerError::Start { directory: std::env::temp_dir(), source })
    }

    pub(super) fn connect(&self) -> io::Result<UnixStream> {
        let (own, theirs) = UnixStream::pair()?;
        let fds = [theirs.as_fd()];
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
        let mut ancillary = SendAncillaryBuffer::new(&mut space);
        ancillary.push(SendAncillaryMessage::ScmRights(&fds));
        loop {
            match sendmsg(&self.control, &[IoSlice::new(&[0])], &mut ancillary, SendFlags::NOSIGNAL) {
                Ok(_) => return Ok(own),
                Err(Errno::INTR) => {}
                Err(error) => return Err(error.into()),
            }
        }
    }

    pub(super) fn is_alive(&self) -> bool {
        matches!(lock(&self.child).try_wait(), Ok(None))
    }
}

impl Drop for HostRunner {
    /// Lets the runner kill its commands and end, and reaps it, so that nothing remains.
    fn drop(&mut self) {
        let mut child = lock(&self.child);
        let mut ended = false;
        if self.control.shutdown(Shutdown::Write).is_ok() {
            let mut fds = [PollFd::new(&self.control, PollFlags::IN)];
            ended = wait(&mut fds, Some(MARGIN)).is_ok() && !fds[0].revents().is_empty();
        }
        let killed = if ended { Ok(()) } else { child.kill() };
        if let Err(error) = killed.and_then(|()| child.wait().map(drop)) {
            tracing::debug!(%error, "failed to wait for the runner's end");
        }
    }
}

#[expect(clippy::disallowed_methods, reason = "a backend starts processes")]
fn start(program: &Path, root: &Path) -> io::Result<HostRunner> {
    let (control, theirs) = UnixStream::pair()?;
    control.set_write_timeout(Some(MARGIN))?;
    let mut command = Command::new(program);
    command.arg0("foldspace-runner").arg("host").arg(std::path::absolute(root)?).current_dir("/");
    // A separate process group, because foldspace handles interrupts from the terminal.
    command.stdin(OwnedFd::from(theirs)).stdout(Stdio::null()).stderr(Stdio::null()).process_group(0);
    let mut tries = 0;
    loop {
        match command.spawn() {
            Ok(child) => return Ok(HostRunner { control, child: Mutex::new(child) }),
            Err(error) if error.kind() == io::ErrorKind::ExecutableFileBusy && tries < TRIES => {
                tries += 1;
                std::thread::sleep(Duration::from_millis(5));
            }
            Err(error) => return Err(error),
        }
    }
}

/// Returns the program in an immutable memfd, created once.
fn in_memory() -> Option<&'static OwnedFd> {
    static PROGRAM: OnceLock<Option<OwnedFd>> = OnceLock::new();
    let make = || {
        let flags = MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING;
        // Kernels before 6.3 lack the flag, and allow execution anyway.
        let made = memfd_create(c"foldspace-runner", flags | MemfdFlags::EXEC);
        let mut file = File::from(made.or_else(|_| memfd_create(c"foldspace-runner", flags))?);
        file.write_all(RUNNER)?;
        fcntl_add_seals(&file, SealFlags::WRITE | SealFlags::SHRINK | SealFlags::GROW | SealFlags::SEAL)?;
        Ok::<_, io::Error>(OwnedFd::from(file))
    };
    PROGRAM.get_or_init(|| make().ok()).as_ref()
}

/// Writes the program to a temporary file, which is removed with the path.
fn in_file() -> io::Result<TempPath> {
    let mode = Permissions::from_mode(0o700);
    let mut file = tempfile::Builder::new().prefix("foldspace-runner-").permissions(mode).tempfile()?;
    file.write_all(RUNNER)?;
    Ok(file.into_temp_path())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn runner_in_file_starts() {
        let root = tempfile::tempdir().unwrap();
        let runner = start(&in_file().unwrap(), root.path()).unwrap();
        assert!(runner.is_alive());
        assert!(start(&root.path().join("none"), root.path()).is_err());
    }
}
