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
pub(crate) struct ProcessOutput {
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

/// A stretch of a process's output, by stream.
#[derive(Debug, Default)]
pub(crate) struct OutputStretch {
    pub(crate) stdout: Vec<u8>,
    pub(crate) stderr: Vec<u8>,
    /// The number of bytes before it that are no longer retained.
    pub(crate) missed: u64,
    /// The number of bytes up to its end, in both streams.
    pub(crate) next: u64,
    /// The number of bytes written so far, in both streams.
    pub(crate) written: u64,
}

/// A part of a process's output.
pub enum OutputPart {
    /// Output.
    Piece(OutputPiece),
    /// The number of bytes that are no longer retained.
    Missed(u64),
}

impl ProcessOutput {
    /// Adds a piece. Blocks while the buffer is full of output that a reader has not read yet.
    pub(crate) fn push(&self, stream: OutputStream, bytes: &[u8]) {
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
    pub(crate) fn end(&self) {
        lock(&self.state).is_over = true;
        self.more.notify_waiters();
    }

    /// Returns the bytes written so far to standard output and standard error.
    pub(crate) fn bytes(&self) -> [u64; 2] {
        lock(&self.state).by_stream
    }

    pub(crate) fn read_from(self: &Arc<Self>, at: u64) -> ProcessReader {
        let mut state = lock(&self.state);
        state.last_reader += 1;
        let number = state.last_reader;
        let at = at.min(state.end);
        state.readers.insert(number, at);
        drop(state);
        ProcessReader { output: Arc::clone(self), number, at }
    }

    /// Copies up to `most` bytes, without making the process wait. Leaves an incomplete character for the next stretch.
    pub(crate) fn stretch(&self, from: u64, most: usize) -> OutputStretch {
        let state = lock(&self.state);
        let at = state.pieces.front().map_or(state.end, |piece| piece.at).max(from);
        let mut stretch = OutputStretch { missed: at - from, next: at, written: state.end, ..Default::default() };
        let first = state.pieces.partition_point(|piece| piece.at + piece.bytes.len() as u64 <= at);
        let (mut room, mut last) = (most, None);
        for piece in state.pieces.range(first..) {
            let skip = usize::try_from(stretch.next - piece.at).unwrap_or_default();
            let bytes = piece.bytes.slice(skip..piece.bytes.len().min(skip + room));
            room -= bytes.len();
            stretch.next += bytes.len() as u64;
            stretch.of(piece.stream).extend_from_slice(&bytes);
            last = Some((piece.stream, bytes.len()));
            if room == 0 {
                break;
            }
        }
        let is_last = state.is_over && stretch.next == state.end;
        drop(state);
        if let Some((stream, count)) = last.filter(|_| !is_last && stretch.next > at) {
            stretch.leave_incomplete(stream, count);
        }
        stretch
    }

    /// Waits for its end, which comes when the process ends.
    pub(crate) async fn ended(&self) {
        self.beyond(u64::MAX).await;
    }

    /// Waits for output after that byte. Returns false if the output ends before.
    pub(crate) async fn beyond(&self, at: u64) -> bool {
        loop {
            let mut more = std::pin::pin!(self.more.notified());
            more.as_mut().enable();
            {
                let state = lock(&self.state);
                if state.end > at || state.is_over {
                    return state.end > at;
                }
            }
            more.await;
        }
    }
}

impl OutputStretch {
    fn of(&mut self, stream: OutputStream) -> &mut Vec<u8> {
        match stream {
            OutputStream::Stdout => &mut self.stdout,
            OutputStream::Stderr => &mut self.stderr,
        }
    }

    /// Removes an incomplete character from the end of the last piece, which has `count` bytes, unless nothing else is
    /// left.
    fn leave_incomplete(&mut self, stream: OutputStream, count: usize) {
        let is_all = self.stdout.len() + self.stderr.len();
        let bytes = self.of(stream);
        let tail = bytes.utf8_chunks().last().map(|chunk| chunk.invalid()).unwrap_or_default();
        let is_begun = std::str::from_utf8(tail).is_err_and(|error| error.error_len().is_none());
        let left = if is_begun && tail.len() <= count && tail.len() < is_all { tail.len() } else { 0 };
        bytes.truncate(bytes.len() - left);
        self.next -= left as u64;
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

    #[tokio::test]
    async fn process_output_stretch_is_bounded_and_keeps_characters_whole() {
        let output = ProcessOutput::default();
        output.push(OutputStream::Stdout, "aé".as_bytes());
        output.push(OutputStream::Stderr, b"err");
        let stretch = output.stretch(0, 2);
        assert_eq!((&stretch.stdout[..], stretch.next, stretch.written), (&b"a"[..], 1, 6));
        let stretch = output.stretch(stretch.next, 4);
        assert_eq!((&stretch.stdout[..], &stretch.stderr[..], stretch.next), ("é".as_bytes(), &b"er"[..], 5));
        assert!(output.beyond(5).await);
        output.push(OutputStream::Stdout, &[0xc3]);
        assert_eq!((output.stretch(5, 9).next, output.stretch(6, 9).next), (6, 7), "alone it is not left");
        output.push(OutputStream::Stdout, &vec![b'x'; KEPT_MAX]);
        let stretch = output.stretch(2, 3);
        assert_eq!((stretch.missed, &stretch.stdout[..], stretch.next), (5, &b"xxx"[..], 10));
        output.end();
        assert!(!output.beyond(stretch.written).await);
        assert_eq!(output.stretch(stretch.written, 9).next, stretch.written);
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
