//! One peer: what it sent and is not served yet, what it is owed and has not taken yet.

use std::io::{self, Read, Write};
use std::os::fd::AsRawFd;
use std::os::unix::net::UnixStream;
use std::time::Instant;

use crate::files::Refused;
use crate::sys::{POLLIN, POLLOUT, PollFd};
use crate::wire::{MAX_FRAME, OUTPUT, OutputStreamKind, RunFailure, RunnerReply, close_frame, frame_length};

/// Bytes of a frame from a peer that has not shown its token.
const MAX_GREETING: usize = 512;
/// Bytes owed to a peer before its command's output is no longer read.
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
    /// The connection ends when the peer has taken what it is owed.
    closing: bool,
    gone: bool,
    /// A peer that has not greeted by then is dropped; one that is closing too.
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

    /// When [`HostConnection::is_over`] is to be asked again.
    pub(crate) fn next_deadline(&self) -> Option<Instant> {
        (self.closing || !self.greeted).then_some(self.patience)
    }

    pub(crate) fn advance(&mut self, ready: i16) {
        if ready & POLLOUT != 0 {
            self.flush();
        }
        match self.interest().events & POLLIN != 0 {
            true if ready & !POLLOUT != 0 => self.receive(),
            // Nothing is read any more, so that it is closed shows here only.
            false if ready & !(POLLIN | POLLOUT) != 0 => self.gone = true,
            _ => {}
        }
    }

    /// Takes in what the peer has sent, a chunk at a time.
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

    /// The next whole frame's body. None when it is not there yet, or never will be.
    pub(crate) fn next_frame(&mut self) -> Option<Vec<u8>> {
        if self.closing || self.gone {
            return None;
        }
        let length = frame_length(&self.received)?;
        if length == 0 || length > self.frame_max() {
            self.refuse(RunFailure::Protocol, "a frame has a length that no frame may have");
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

    /// Tells whether the peer has taken enough for more output to be read.
    pub(crate) fn takes_output(&self) -> bool {
        self.owed.len() - self.taken < OWED_MAX
    }

    /// Appends what a stream has as one frame, copied once. Gives the bytes read, none at its end.
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

/// Tells whether a descriptor that is not waited for is of no use any more.
pub(crate) fn is_fatal(error: &io::Error) -> bool {
    !matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted)
}
