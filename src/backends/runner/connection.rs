//! A connection to a runner: one request and its answers at a time.

use std::io::{self, IoSliceMut, Write};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::net::{RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, recvmsg};

use super::error::RunnerError;
use super::wire::{MAX_FRAME, RunnerReply, RunnerRequest, VERSION, frame_length};

/// The time that the runner may take in addition to the request's own.
pub(super) const MARGIN: Duration = Duration::from_secs(15);
const CHUNK: usize = 64 * 1024;
const KEPT: usize = 256 * 1024;

/// A connection that is idle, or has one request in progress.
#[derive(Debug)]
pub(super) struct RunnerConnection {
    stream: UnixStream,
    received: Vec<u8>,
    /// The number of filled bytes in `received`.
    filled: usize,
    /// The number of bytes in `received` of frames already taken.
    given: usize,
    /// The descriptor that came last.
    pub(super) passed: Option<OwnedFd>,
}

pub(super) enum Waited {
    Frame,
    /// Another descriptor is ready: the index of the first one.
    Woken(usize),
    TimedOut,
}

impl RunnerConnection {
    /// Greets a runner. Also returns its features.
    pub(super) fn greet(stream: UnixStream, token: &[u8], patience: Duration) -> Result<(Self, u32), RunnerError> {
        stream.set_nonblocking(true).map_err(RunnerError::Gone)?;
        let mut connection = Self { stream, received: Vec::new(), filled: 0, given: 0, passed: None };
        connection.send(&RunnerRequest::Hello { version: VERSION, token })?;
        match connection.answer(patience)? {
            RunnerReply::Welcome { version: VERSION, features, .. } => Ok((connection, features)),
            RunnerReply::Welcome { version, .. } => Err(RunnerError::Version(format!("it speaks version {version}"))),
            _ => Err(RunnerError::Protocol("the greeting got another reply than a welcome".to_owned())),
        }
    }

    pub(super) fn send(&mut self, request: &RunnerRequest<'_>) -> Result<(), RunnerError> {
        let mut frame = Vec::new();
        request.encode(&mut frame);
        let mut left = frame.as_slice();
        let started = now();
        while !left.is_empty() {
            match self.stream.write(left) {
                Ok(written) => left = left.get(written..).unwrap_or_default(),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    let passed = now().saturating_duration_since(started);
                    if passed >= MARGIN {
                        return Err(RunnerError::Silent { waited: passed });
                    }
                    let mut fds = [PollFd::new(&self.stream, PollFlags::OUT)];
                    wait(&mut fds, Some(MARGIN - passed)).map_err(RunnerError::Gone)?;
                }
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                // The runner may have sent a reason before it closed.
                Err(_) if self.last_words() => return Ok(()),
                Err(error) => return Err(RunnerError::Gone(error)),
            }
        }
        Ok(())
    }

    fn last_words(&mut self) -> bool {
        matches!(self.wait(Duration::ZERO, [None; 2]), Ok(Waited::Frame))
    }

    /// Returns the only answer to a request, or the runner's error.
    pub(super) fn answer(&mut self, patience: Duration) -> Result<RunnerReply<'_>, RunnerError> {
        match self.wait(patience, [None; 2])? {
            Waited::Frame => {}
            Waited::Woken(_) | Waited::TimedOut => return Err(RunnerError::Silent { waited: patience }),
        }
        match self.take()? {
            RunnerReply::Failed { kind, errno, message } => Err(RunnerError::failed(kind, errno, message)),
            reply => Ok(reply),
        }
    }

    /// Waits for a whole frame, or until another descriptor is readable.
    pub(super) fn wait(
        &mut self,
        patience: Duration,
        others: [Option<BorrowedFd<'_>>; 2],
    ) -> Result<Waited, RunnerError> {
        // A time out of range is as good as none.
        let until = now().checked_add(patience);
        while !self.has_frame()? {
            let left = until.map(|until| until.saturating_duration_since(now()));
            let (frame, woken) = self.poll(left, others).map_err(RunnerError::Gone)?;
            if let Some(woken) = woken {
                return Ok(Waited::Woken(woken));
            }
            if frame {
                self.receive()?;
            } else if left.is_some_and(|left| left.is_zero()) {
                return Ok(Waited::TimedOut);
            }
        }
        Ok(Waited::Frame)
    }

    /// Returns the frame found by [`RunnerConnection::wait`].
    pub(super) fn take(&mut self) -> Result<RunnerReply<'_>, RunnerError> {
        let start = self.given + 4;
        let length = self.received.get(self.given..).and_then(frame_length).unwrap_or(0);
        self.given = start + length;
        let body = self.received.get(start..start + length).unwrap_or_default();
        Ok(RunnerReply::decode(body)?)
    }

    /// Returns true if the connection can be reused: no unexpected bytes have arrived.
    pub(super) fn is_quiet(&self) -> bool {
        self.given == self.filled
    }

    fn has_frame(&self) -> Result<bool, RunnerError> {
        let there = self.received.get(self.given..self.filled).unwrap_or_default();
        match frame_length(there) {
            Some(length) if length > MAX_FRAME => {
                Err(RunnerError::Protocol(format!("received a frame of {length} bytes; the limit is {MAX_FRAME}")))
            }
            Some(length) => Ok(there.len() >= 4 + length),
            None => Ok(false),
        }
    }

    fn poll(&self, left: Option<Duration>, others: [Option<BorrowedFd<'_>>; 2]) -> io::Result<(bool, Option<usize>)> {
        let own = self.stream.as_fd();
        let [first, second] = others.map(|other| other.unwrap_or(own));
        let mut fds = [own, first, second].map(|fd| PollFd::from_borrowed_fd(fd, PollFlags::IN));
        wait(&mut fds, left)?;
        let [frame, ready @ ..] = fds.map(|fd| !fd.revents().is_empty());
        let woken = ready.iter().zip(&others).position(|(is_ready, other)| *is_ready && other.is_some());
        Ok((frame, woken))
    }

    fn receive(&mut self) -> Result<(), RunnerError> {
        if self.given > 0 {
            self.received.copy_within(self.given..self.filled, 0);
            self.filled -= self.given;
            self.given = 0;
        }
        if self.received.len() > KEPT && self.filled < CHUNK {
            self.received.truncate(KEPT);
            self.received.shrink_to_fit();
        }
        if self.received.len() < self.filled + CHUNK {
            self.received.resize(self.filled + CHUNK, 0);
        }
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
        let mut ancillary = RecvAncillaryBuffer::new(&mut space);
        let mut part = [IoSliceMut::new(self.received.get_mut(self.filled..).unwrap_or_default())];
        match recvmsg(&self.stream, &mut part, &mut ancillary, RecvFlags::CMSG_CLOEXEC) {
            Ok(message) if message.bytes == 0 => Err(RunnerError::Gone(io::ErrorKind::UnexpectedEof.into())),
            Ok(message) => {
                self.filled += message.bytes;
                for message in ancillary.drain() {
                    if let RecvAncillaryMessage::ScmRights(descriptors) = message {
                        self.passed = descriptors.last().or(self.passed.take());
                    }
                }
                Ok(())
            }
            Err(Errno::AGAIN | Errno::INTR) => Ok(()),
            Err(error) => Err(RunnerError::Gone(error.into())),
        }
    }
}

/// Waits until a descriptor is ready. An interruption counts as none ready.
pub(super) fn wait(fds: &mut [PollFd<'_>], left: Option<Duration>) -> io::Result<()> {
    let left = left.map(|left| Timespec {
        tv_sec: i64::try_from(left.as_secs()).unwrap_or(i64::MAX),
        tv_nsec: left.subsec_nanos().into(),
    });
    match poll(fds, left.as_ref()) {
        Ok(_) | Err(Errno::INTR) => Ok(()),
        Err(error) => Err(error.into()),
    }
}

#[expect(clippy::disallowed_methods, reason = "the time spent waiting for a process is not recorded")]
pub(crate) fn now() -> Instant {
    Instant::now()
}
