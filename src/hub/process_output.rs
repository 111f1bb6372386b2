//! The output of a process. Its tail is retained for readers that start later.

use std::collections::{BTreeMap, VecDeque};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use tokio::sync::Notify;

use crate::backends::OutputStream;
use crate::engine::lock::lock;

/// Retained bytes for readers that start later.
const KEPT_MAX: usize = 1 << 20;
/// Time limit of a process's wait for a slow reader.
const READER_STALL_LIMIT: Duration = Duration::from_secs(30);

/// The output of a process.
#[derive(Default)]
pub(super) struct ProcessOutput {
    state: Mutex<OutputState>,
    /// Wakes the process when a reader has made room.
    room: Condvar,
    /// Wakes readers when there is more output.
    more: Notify,
}

#[derive(Default)]
struct OutputState {
    pieces: VecDeque<OutputPiece>,
    kept: usize,
    /// Total bytes of both streams.
    end: u64,
    by_stream: [u64; 2],
    is_over: bool,
    /// The positions of the readers that the process waits for.
    readers: BTreeMap<u64, u64>,
    last_reader: u64,
}

/// A piece of a process's output.
#[derive(Debug, Clone)]
pub struct OutputPiece {
    /// The number of bytes before it, in both streams.
    pub at: u64,
    /// The stream.
    pub stream: OutputStream,
    /// The bytes.
    pub bytes: Bytes,
}

/// Reads a process's output, starting at any byte.
pub struct ProcessReader {
    output: Arc<ProcessOutput>,
    number: u64,
    at: u64,
}

/// A part of a process's output.
pub enum OutputPart {
    Piece(OutputPiece),
    /// The number of bytes that are no longer retained.
    Missed(u64),
}

impl ProcessOutput {
    /// Adds a piece. Blocks while the buffer is full of output that a reader has not read yet.
    pub(super) fn push(&self, stream: OutputStream, bytes: &[u8]) {
        let mut state = lock(&self.state);
        while state.kept > 0 && state.kept + bytes.len() > KEPT_MAX {
            let first = state.pieces.front().map_or(0, |piece| piece.at + piece.bytes.len() as u64);
            if state.readers.values().all(|at| *at >= first) {
                state.drop_first();
                continue;
            }
            let waited = self.room.wait_timeout(state, READER_STALL_LIMIT);
            let (back, timeout) = waited.unwrap_or_else(PoisonError::into_inner);
            state = back;
            if timeout.timed_out() {
                // The process no longer waits for readers that stalled, until they read again.
                state.readers.retain(|_, at| *at >= first);
            }
        }
        let at = state.end;
        state.pieces.push_back(OutputPiece { at, stream, bytes: Bytes::copy_from_slice(bytes) });
        state.kept += bytes.len();
        state.end += bytes.len() as u64;
        if let Some(count) = state.by_stream.get_mut(usize::from(stream == OutputStream::Stderr)) {
            *count += bytes.len() as u64;
        }
        drop(state);
        self.more.notify_waiters();
    }

    /// Ends the output.
    pub(super) fn end(&self) {
        lock(&self.state).is_over = true;
        self.more.notify_waiters();
    }

    /// Returns the bytes written so far to standard output and standard error.
    pub(super) fn bytes(&self) -> [u64; 2] {
        lock(&self.state).by_stream
    }

    pub(super) fn read_from(self: &Arc<Self>, at: u64) -> ProcessReader {
        let mut state = lock(&self.state);
        state.last_reader += 1;
        let number = state.last_reader;
        let at = at.min(state.end);
        state.readers.insert(number, at);
        drop(state);
        ProcessReader { output: Arc::clone(self), number, at }
    }
}

impl OutputState {
    fn drop_first(&mut self) {
        if let Some(gone) = self.pieces.pop_front() {
            self.kept -= gone.bytes.len();
        }
    }
}

impl ProcessReader {
    /// Waits for the next part. `None` at the end.
    pub async fn next(&mut self) -> Option<OutputPart> {
        loop {
            let output = Arc::clone(&self.output);
            let mut more = std::pin::pin!(output.more.notified());
            more.as_mut().enable();
            {
                let mut state = lock(&output.state);
                if let Some(part) = self.part(&mut state) {
                    drop(state);
                    output.room.notify_all();
                    return Some(part);
                }
                if state.is_over {
                    return None;
                }
            }
            more.await;
        }
    }

    fn part(&mut self, state: &mut MutexGuard<'_, OutputState>) -> Option<OutputPart> {
        let (at, first) = (self.at, state.pieces.front().map_or(state.end, |piece| piece.at));
        if at < first {
            self.at = first;
            state.readers.insert(self.number, first);
            return Some(OutputPart::Missed(first - at));
        }
        let index = state.pieces.partition_point(|piece| piece.at + piece.bytes.len() as u64 <= at);
        let piece = state.pieces.get(index)?;
        let skip = usize::try_from(at - piece.at).unwrap_or_default();
        let piece = OutputPiece { at, stream: piece.stream, bytes: piece.bytes.slice(skip..) };
        self.at = at + piece.bytes.len() as u64;
        state.readers.insert(self.number, self.at);
        Some(OutputPart::Piece(piece))
    }
}

impl Drop for ProcessReader {
    fn drop(&mut self) {
        lock(&self.output.state).readers.remove(&self.number);
        self.output.room.notify_all();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    async fn text(reader: &mut ProcessReader) -> (String, u64) {
        let (mut text, mut missed) = (String::new(), 0);
        while let Some(part) = reader.next().await {
            match part {
                OutputPart::Piece(piece) => text.push_str(&String::from_utf8_lossy(&piece.bytes)),
                OutputPart::Missed(bytes) => missed += bytes,
            }
        }
        (text, missed)
    }

    #[tokio::test]
    async fn process_output_is_read_from_any_byte_and_its_end_is_kept() {
        let output = Arc::new(ProcessOutput::default());
        output.push(OutputStream::Stdout, b"one ");
        output.push(OutputStream::Stderr, b"two");
        assert_eq!(output.bytes(), [4, 3]);
        let (mut all, mut later) = (output.read_from(0), output.read_from(2));
        output.end();
        assert_eq!(text(&mut all).await, ("one two".to_owned(), 0));
        assert_eq!(text(&mut later).await, ("e two".to_owned(), 0));
        let long = Arc::new(ProcessOutput::default());
        for _ in 0..3 {
            long.push(OutputStream::Stdout, &vec![b'x'; KEPT_MAX / 2]);
        }
        let mut late = long.read_from(1);
        long.end();
        let (kept, missed) = text(&mut late).await;
        assert_eq!((kept.len(), missed), (KEPT_MAX, KEPT_MAX as u64 / 2 - 1));
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn process_output_waits_for_a_reader() {
        let output = Arc::new(ProcessOutput::default());
        let mut reader = output.read_from(0);
        let pushing = Arc::clone(&output);
        let pushed = tokio::task::spawn_blocking(move || {
            for _ in 0..64 {
                pushing.push(OutputStream::Stdout, &[b'x'; 64 << 10]);
            }
            pushing.end();
        });
        let (read, missed) = text(&mut reader).await;
        pushed.await.unwrap();
        assert_eq!((read.len(), missed), (4 << 20, 0));
    }
}
