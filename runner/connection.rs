//! A peer's connection, with the received bytes not yet handled and the answers not yet sent.

use std::io::{self, Read, Write};
use std::os::fd::{AsFd, AsRawFd};
use std::os::unix::net::UnixStream;
use std::time::Instant;

use crate::files::Refused;
use crate::sys::{POLLIN, POLLOUT, PollFd, send_descriptor};
use crate::wire::{MAX_FRAME, OUTPUT, OutputStreamKind, RunFailure, RunnerReply, close_frame, frame_length};

/// The maximum size of a frame from a peer that has not shown its token.
const MAX_GREETING: usize = 512;
/// The number of unsent bytes from which on the command's output is no longer read.
const OWED_MAX: usize = 128 * 1024;
const CHUNK: usize = 64 * 1024;
const KEPT: usize = 256 * 1024;

pub(crate) struct HostConnection {
    stream: UnixStream,
    received: Vec<u8>,
    owed: Vec<u8>,
    taken: usize,
    pub(crate) greeted: bool,
    pub(crate) runs: bool,
    /// True to close the connection once the peer has taken all answers.
    closing: bool,
    gone: bool,
    /// The time when a connection is dropped that has not greeted, or is still closing.
    pub(crate) patience: Instant,
}

impl HostConnection {
    pub(crate) fn new(stream: UnixStream, patience: Instant) -> io::Result<Self> {
        stream.set_nonblocking(true)?;
        let (received, owed, taken) = (Vec::new(), Vec::new(), 0);
        let (greeted, runs, closing, gone) = (false, false, false, false);
        Ok(Self { stream, received, owed, taken, greeted, runs, closing, gone, patience })
    }

    pub(crate) fn interest(&self) -> PollFd {
        let wants_in = !self.closing && self.received.len() < self.frame_max() + 4;
        let wants_out = self.owed.len() > self.taken;
        let events = if wants_in { POLLIN } else { 0 } | if wants_out { POLLOUT } else { 0 };
        PollFd { fd: self.stream.as_raw_fd(), events, ready: 0 }
    }

    pub(crate) fn is_over(&self, now: Instant) -> bool {
        let impatient = (self.closing || !self.greeted) && now >= self.patience;
        self.gone || impatient || (self.closing && self.owed.len() == self.taken)
    }

    /// The next time to check [`HostConnection::is_over`].
    pub(crate) fn next_deadline(&self) -> Option<Instant> {
        (self.closing || !self.greeted).then_some(self.patience)
    }

    pub(crate) fn advance(&mut self, ready: i16) {
        if ready & POLLOUT != 0 {
            self.flush();
        }
        match self.interest().events & POLLIN != 0 {
            true if ready & !POLLOUT != 0 => self.receive(),
            // Without reads, only these flags show that the peer has closed.
            false if ready & !(POLLIN | POLLOUT) != 0 => self.gone = true,
            _ => {}
        }
    }

    /// Reads one chunk of the peer's bytes.
    fn receive(&mut self) {
        let before = self.received.len();
        self.received.resize(before + CHUNK, 0);
        let read = match self.received.get_mut(before..) {
            Some(space) => self.stream.read(space),
            None => Ok(0),
        };
        self.received.truncate(before + read.as_ref().map_or(0, |read| *read));
        match read {
            Ok(0) => self.gone = true,
            Ok(_) => {}
            Err(error) => self.gone |= is_fatal(&error),
        }
    }

    /// Returns the next frame's body. `None` if the frame is incomplete or invalid, or the connection is ending.
    pub(crate) fn next_frame(&mut self) -> Option<Vec<u8>> {
        if self.closing || self.gone {
            return None;
        }
        let length = frame_length(&self.received)?;
        if length == 0 || length > self.frame_max() {
            self.refuse(RunFailure::Protocol, "invalid frame length");
            return None;
        }
        let body = self.received.get(4..4 + length)?.to_vec();
        self.received.drain(..4 + length);
        if self.received.is_empty() && self.received.capacity() > KEPT {
            self.received = Vec::new();
        }
        Some(body)
    }

    fn frame_max(&self) -> usize {
        if self.greeted { MAX_FRAME } else { MAX_GREETING }
    }

    pub(crate) fn out(&mut self) -> &mut Vec<u8> {
        &mut self.owed
    }

    /// Returns true if the peer has taken enough that more output can be read.
    pub(crate) fn takes_output(&self) -> bool {
        self.owed.len() - self.taken < OWED_MAX
    }

    /// Reads a stream directly into one frame. Returns the number of bytes read, 0 at the stream's end.
    pub(crate) fn relay(&mut self, stream: OutputStreamKind, mut source: impl Read) -> io::Result<usize> {
        let start = self.owed.len();
        self.owed.extend_from_slice(&[0, 0, 0, 0, OUTPUT, stream as u8]);
        let body = self.owed.len();
        self.owed.resize(body + CHUNK, 0);
        let read = match self.owed.get_mut(body..) {
            Some(space) => source.read(space),
            None => Ok(0),
        };
        match read {
            Ok(1..) => self.owed.truncate(body + read.as_ref().map_or(0, |read| *read)),
            _ => self.owed.truncate(start),
        }
        if self.owed.len() > start {
            close_frame(&mut self.owed, start);
        }
        read
    }

    /// Answers with a descriptor.
    pub(crate) fn pass(&mut self, descriptor: impl AsFd) {
        self.flush();
        if !self.owed.is_empty() {
            return self.refuse(RunFailure::Protocol, "the answers to earlier requests were not read");
        }
        let mut frame = Vec::new();
        RunnerReply::Done.encode(&mut frame);
        match send_descriptor(&self.stream, &frame, descriptor) {
            Ok(sent) if sent == frame.len() => {}
            _ => self.gone = true,
        }
    }

    pub(crate) fn fail(&mut self, Refused { kind, errno, message }: &Refused) {
        RunnerReply::Failed { kind: *kind, errno: *errno, message: message.as_bytes() }.encode(&mut self.owed);
    }

    pub(crate) fn refuse(&mut self, kind: RunFailure, message: &str) {
        self.fail(&Refused::new(kind, message));
        self.closing = true;
    }

    pub(crate) fn flush(&mut self) {
        while let Some(left) = self.owed.get(self.taken..).filter(|left| !left.is_empty()) {
            match self.stream.write(left) {
                Ok(written) => self.taken += written,
                Err(error) => {
                    self.gone |= is_fatal(&error);
                    break;
                }
            }
        }
        if self.taken == self.owed.len() {
            self.taken = 0;
            self.owed.clear();
            if self.owed.capacity() > KEPT {
                self.owed = Vec::new();
            }
        } else if self.taken > OWED_MAX {
            self.owed.drain(..self.taken);
            self.taken = 0;
        }
    }
}

/// Returns true if an error makes a non-blocking descriptor unusable.
pub(crate) fn is_fatal(error: &io::Error) -> bool {
    !matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted)
}
