//! Lines of bounded length.

use tokio::io::{AsyncBufReadExt, AsyncRead, BufReader};

pub(super) struct LineReader<R> {
    input: BufReader<R>,
    limit: usize,
    line: Vec<u8>,
    /// Skips the rest of a line that is too long.
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
        Self {
            input: BufReader::with_capacity(64 << 10, input),
            limit,
            line: Vec::new(),
            skips: false,
            has_ended: false,
        }
    }

    pub(super) fn has_ended(&self) -> bool {
        self.has_ended
    }

    /// Returns the next line that is not empty; `None` at the end, or when reading fails. Cancel-safe.
    pub(super) async fn next(&mut self) -> Option<InputLine> {
        loop {
            let available = match self.input.fill_buf().await {
                Ok(available) => available,
                Err(error) => {
                    tracing::warn!(%error, "what a client says can't be read");
                    &[]
                }
            };
            if available.is_empty() {
                // A piece of a line at the end is no message.
                self.has_ended = true;
                return None;
            }
            let end = available.iter().position(|byte| *byte == b'\n');
            let piece = end.map_or(available, |end| &available[..end]);
            let fits = self.line.len() + piece.len() <= self.limit;
            if !self.skips && fits {
                self.line.extend_from_slice(piece);
            }
            let consumed = piece.len() + usize::from(end.is_some());
            self.input.consume(consumed);
            if !self.skips && !fits {
                self.line = Vec::new();
                self.skips = end.is_none();
                return Some(InputLine::TooLong);
            }
            if end.is_some() && !std::mem::take(&mut self.skips) {
                let line = std::mem::take(&mut self.line);
                let line = line.strip_suffix(b"\r").unwrap_or(&line);
                if !line.iter().all(u8::is_ascii_whitespace) {
                    return Some(InputLine::Whole(line.to_vec()));
                }
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
