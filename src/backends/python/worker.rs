//! The parent's side of an evaluator process.

use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::os::unix::process::ExitStatusExt;
use std::path::Path;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::Duration;

use tokio::time::Instant;

use foldspace_evaluator::{EvalAnswer, EvalRequest, EvaluatorHello, MEMORY_MAX, read_frame, write_frame};

/// The time limit of its start.
const START: Duration = Duration::from_secs(10);
/// The time beyond the interpreter's own limit until the process is killed.
const GRACE: Duration = Duration::from_millis(200);

/// Signals that code can cause, as numbered in signal(7).
const SIGABRT: i32 = 6;
const SIGBUS: i32 = 7;
const SIGSEGV: i32 = 11;
const SIGXCPU: i32 = 24;

/// The end of an evaluation.
pub enum EvalEnd {
    Answer(Box<EvalAnswer>),
    /// The process was killed because the code exceeded its time limit.
    TimedOut,
    Cancelled,
    /// The code made the process die, in this way.
    Died(String),
}

/// A process that evaluates one code at a time. Dropping it ends the process.
pub(super) struct EvaluatorProcess {
    child: Child,
    socket: UnixStream,
}

/// Ends the process of an abandoned evaluation.
pub(super) struct Severing(Option<UnixStream>);

impl Severing {
    pub(super) fn of(process: &EvaluatorProcess) -> io::Result<Self> {
        process.socket.try_clone().map(|socket| Self(Some(socket)))
    }

    /// Closes the connection, which makes the thread that waits for the answer kill the process.
    pub(super) fn sever(&self) {
        // An error means that the connection is already closed.
        let _ = self.0.as_ref().map(|socket| socket.shutdown(std::net::Shutdown::Both));
    }

    pub(super) fn disarm(mut self) {
        self.0 = None;
    }
}

impl Drop for Severing {
    fn drop(&mut self) {
        self.sever();
    }
}

impl EvaluatorProcess {
    #[expect(clippy::disallowed_methods, reason = "this is where the process starts")]
    pub(super) fn start(program: &Path) -> io::Result<Self> {
        let (socket, theirs) = UnixStream::pair()?;
        let mut command = Command::new(program);
        // Nothing of this process's environment or directory is the code's.
        command.env_clear().current_dir("/").stdin(OwnedFd::from(theirs));
        command.stdout(Stdio::null()).stderr(Stdio::null());
        let child = command.spawn()?;
        // Closes this process's copy of the child's end, so that its death closes the connection.
        drop(command);
        let mut process = Self { child, socket };
        process.socket.set_read_timeout(Some(START))?;
        let hello = read_frame::<EvaluatorHello>(&mut process.socket);
        match hello {
            Ok(hello) if hello == EvaluatorHello::own() => Ok(process),
            Ok(other) => Err(io::Error::other(format!("its release is {}, not this program's", other.evaluator))),
            Err(error) => Err(io::Error::other(format!("it does not respond as an evaluator: {error}"))),
        }
    }

    pub(super) fn alive(mut self) -> Option<Self> {
        matches!(self.child.try_wait(), Ok(None)).then_some(self)
    }

    /// Sends a request. Also returns the process if it can be used again.
    pub(super) fn ask(mut self, request: &EvalRequest) -> (EvalEnd, Option<Self>) {
        let deadline = Instant::now() + request.limit() + GRACE;
        match self.exchange(request, deadline) {
            Ok(answer) => (EvalEnd::Answer(Box::new(answer)), Some(self)),
            Err(error) if matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut) => {
                (EvalEnd::TimedOut, None)
            }
            Err(error) => (self.died(&error), None),
        }
    }

    fn exchange(&mut self, request: &EvalRequest, deadline: Instant) -> io::Result<EvalAnswer> {
        let left = || deadline.saturating_duration_since(Instant::now()).max(Duration::from_millis(1));
        self.socket.set_write_timeout(Some(left()))?;
        write_frame(&mut self.socket, request)?;
        self.socket.set_read_timeout(Some(left()))?;
        read_frame(&mut self.socket)
    }

    fn died(&mut self, error: &io::Error) -> EvalEnd {
        // A process that closed its end without dying is killed.
        let ended = match self.child.try_wait() {
            Ok(Some(status)) => Ok(status),
            _ => self.end(),
        };
        match ended.map(|status: ExitStatus| (status.signal(), status)) {
            Ok((Some(SIGXCPU), _)) => EvalEnd::TimedOut,
            Ok((Some(SIGABRT | SIGBUS | SIGSEGV), _)) => {
                EvalEnd::Died(format!("it took more than {} MiB of memory, or recursed too deeply", MEMORY_MAX >> 20))
            }
            Ok((_, status)) => EvalEnd::Died(format!("the interpreter failed: {status}, {error}")),
            Err(_) => EvalEnd::Died(format!("the interpreter failed: {error}")),
        }
    }

    fn end(&mut self) -> io::Result<ExitStatus> {
        self.child.kill()?;
        self.child.wait()
    }
}

impl Drop for EvaluatorProcess {
    fn drop(&mut self) {
        if let Err(error) = self.end() {
            tracing::debug!(%error, "an evaluator had already ended");
        }
    }
}
