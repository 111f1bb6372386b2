//! Lines of bounded length.

use tokio::io::{AsyncBufReadExt, AsyncRead, AsyncReadExt, BufReader, Take};

pub(super) struct LineReader<R> {
    input: Take<BufReader<R>>,
    limit: usize,
    line: Vec<u8>,
    /// True while the rest of a line that is too long is skipped.
    skips: bool,
    has_ended: bool,
}

#[derive(Debug, PartialEq, Eq)]
pub(super) enum InputLine {
    Whole(Vec<u8>),
    TooLong,
}

impl<R: AsyncRead + Unpin> LineReader<R> {
    pub(super) fn new(input: R, limit: usize) -> Self {
        let input = BufReader::with_capacity(64 << 10, input).take(0);
        Self { input, limit, line: Vec::new(), skips: false, has_ended: false }
    }

    pub(super) fn has_ended(&self) -> bool {
        self.has_ended
    }

    /// Returns the next line that is not empty. `None` at the end or if reading fails. Cancel-safe.
    pub(super) async fn next(&mut self) -> Option<InputLine> {
        loop {
            // One byte more than the limit shows that a line is too long.
            self.input.set_limit((self.limit + 1 - self.line.len()) as u64);
            let read = self.input.read_until(b'\n', &mut self.line).await;
            if let Err(error) = &read {
                tracing::warn!(%error, "failed to read from a client");
            }
            let is_whole = self.line.last() == Some(&b'\n');
            if !is_whole && self.line.len() <= self.limit {
                // An incomplete line at the end is not a message.
                self.has_ended = true;
                return None;
            }
            let mut line = std::mem::take(&mut self.line);
            if std::mem::replace(&mut self.skips, !is_whole) {
                continue;
            }
            if !is_whole {
                return Some(InputLine::TooLong);
            }
            line.truncate(line.trim_ascii_end().len());
            if !line.is_empty() {
                return Some(InputLine::Whole(line));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    async fn lines(input: &[u8]) -> Vec<InputLine> {
        let mut reader = LineReader::new(input, 8);
        let mut lines = Vec::new();
        while let Some(line) = reader.next().await {
            lines.push(line);
        }
        assert!(reader.has_ended());
        lines
    }

    #[tokio::test]
    async fn reader_line_is_bounded() {
        let whole = |text: &[u8]| InputLine::Whole(text.to_vec());
        assert_eq!(lines(b"one\r\n\n  \ntwo\n").await, [whole(b"one"), whole(b"two")]);
        assert_eq!(lines(b"12345678\n123456789\nok\n").await, [whole(b"12345678"), InputLine::TooLong, whole(b"ok")]);
        let mut long = vec![b'x'; 1 << 20];
        long.extend_from_slice(b"\nok\nno end");
        assert_eq!(lines(&long).await, [InputLine::TooLong, whole(b"ok")]);
    }
}
