//! The input of a command, from its peer to its pipe or terminal.

use std::collections::VecDeque;
use std::fs::File;
use std::io::{self, Write};
use std::os::fd::{AsRawFd, RawFd};

use crate::connection::is_fatal;
use crate::wire::MAX_INPUT;

/// The key that ends the input of a terminal with its usual settings: Ctrl-D.
const END_OF_INPUT: u8 = 4;

pub(crate) struct CommandFeed {
    file: File,
    waiting: VecDeque<u8>,
    /// The number of bytes in `waiting` that came as `Input` and are not reported as `Taken` yet.
    counted: usize,
    has_ended: bool,
    is_terminal: bool,
    ends_in_line: bool,
}

impl CommandFeed {
    pub(crate) fn new(file: File, first: &[u8], is_terminal: bool) -> Self {
        let ends_in_line = first.last().is_some_and(|byte| *byte != b'\n');
        let waiting = first.iter().copied().collect();
        Self { file, waiting, counted: 0, has_ended: false, is_terminal, ends_in_line }
    }

    pub(crate) fn has_more(&self) -> bool {
        !self.waiting.is_empty()
    }

    pub(crate) fn is_over(&self) -> bool {
        self.has_ended && self.waiting.is_empty()
    }

    /// Buffers input. Returns false if the peer has sent more than [`MAX_INPUT`].
    pub(crate) fn take(&mut self, bytes: &[u8]) -> bool {
        if self.counted + bytes.len() > MAX_INPUT || self.has_ended {
            return self.has_ended;
        }
        self.counted += bytes.len();
        self.waiting.extend(bytes);
        if let Some(last) = bytes.last() {
            self.ends_in_line = *last != b'\n';
        }
        true
    }

    pub(crate) fn end(&mut self) {
        if !self.has_ended && self.is_terminal {
            // Within a line, the first Ctrl-D only ends the line.
            self.waiting.extend([END_OF_INPUT, END_OF_INPUT].iter().skip(usize::from(!self.ends_in_line)));
        }
        self.has_ended = true;
    }

    /// Writes as much as the command takes now. Returns the number of bytes to report as `Taken`.
    pub(crate) fn write(&mut self) -> usize {
        while !self.waiting.is_empty() {
            match self.file.write(self.waiting.as_slices().0) {
                Ok(written) => drop(self.waiting.drain(..written)),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) if !is_fatal(&error) => break,
                // The program may close its input.
                Err(_) => self.waiting.clear(),
            }
        }
        let left = self.counted.min(self.waiting.len());
        let taken = self.counted - left;
        self.counted = left;
        taken
    }
}

impl AsRawFd for CommandFeed {
    fn as_raw_fd(&self) -> RawFd {
        self.file.as_raw_fd()
    }
}
