//! The streams of an exec, as the engine interleaves them.

use crate::backends::runner::OutputStreamKind;

/// Bytes of a header: the stream, three of padding, the length as a big-endian number.
const HEADER: usize = 8;

/// Takes the streams apart again. It holds no more than a header, whatever lengths are announced.
#[derive(Debug, Default)]
pub(crate) struct ExecFrames {
    header: [u8; HEADER],
    /// Bytes of the header that have come.
    filled: usize,
    /// Bytes that still belong to the frame whose header was read.
    left: usize,
}

/// The engine sends something else than the two streams.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("the engine sent bytes of an unknown stream, {0}")]
pub(crate) struct UnknownStream(u8);

impl ExecFrames {
    /// Takes what has come, in whatever pieces.
    pub(crate) fn feed(
        &mut self,
        mut bytes: &[u8],
        output: &mut dyn FnMut(OutputStreamKind, &[u8]),
    ) -> Result<(), UnknownStream> {
        while !bytes.is_empty() {
            if self.left == 0 {
                let (header, rest) = bytes.split_at(bytes.len().min(HEADER - self.filled));
                for (slot, byte) in self.header.iter_mut().skip(self.filled).zip(header) {
                    *slot = *byte;
                }
                self.filled += header.len();
                bytes = rest;
                if self.filled < HEADER {
                    return Ok(());
                }
                self.filled = 0;
                let [_, _, _, _, length @ ..] = self.header;
                self.left = usize::try_from(u32::from_be_bytes(length)).unwrap_or(usize::MAX);
            }
            let (piece, rest) = bytes.split_at(bytes.len().min(self.left));
            let stream = match self.header[0] {
                0 | 1 => OutputStreamKind::Stdout,
                2 => OutputStreamKind::Stderr,
                other => return Err(UnknownStream(other)),
            };
            if !piece.is_empty() {
                output(stream, piece);
            }
            self.left -= piece.len();
            bytes = rest;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn frame(stream: u8, bytes: &[u8]) -> Vec<u8> {
        let length = u32::try_from(bytes.len()).unwrap().to_be_bytes();
        [&[stream, 0, 0, 0][..], &length[..], bytes].concat()
    }

    #[test]
    fn exec_frames_split_anywhere_keep_streams() {
        let sent = [frame(1, b"out"), frame(2, b""), frame(2, b"err"), frame(0, b"put"), frame(1, b"")].concat();
        for piece in 1..=sent.len() {
            let (mut frames, mut stdout, mut stderr) = (ExecFrames::default(), Vec::new(), Vec::new());
            for bytes in sent.chunks(piece) {
                let mut output = |stream, bytes: &[u8]| match stream {
                    OutputStreamKind::Stdout => stdout.extend_from_slice(bytes),
                    OutputStreamKind::Stderr => stderr.extend_from_slice(bytes),
                };
                frames.feed(bytes, &mut output).unwrap();
            }
            assert_eq!((&stdout[..], &stderr[..]), (&b"output"[..], &b"err"[..]), "in pieces of {piece}");
        }
    }

    #[test]
    fn exec_frames_malformed_are_an_error() {
        for first in 3..=255 {
            let mut frames = ExecFrames::default();
            let fed = frames.feed(&frame(first, b"x"), &mut |_, _| panic!("given"));
            assert_eq!(fed, Err(UnknownStream(first)));
        }
    }

    #[test]
    fn exec_frames_huge_length_takes_no_memory() {
        let mut frames = ExecFrames::default();
        let mut seen = 0;
        let mut output = |_, bytes: &[u8]| seen += bytes.len();
        frames.feed(&[1, 0, 0, 0, 255, 255, 255, 255], &mut output).unwrap();
        frames.feed(&[7; 1000], &mut output).unwrap();
        assert_eq!(seen, 1000);
    }
}
