//! Frames between foldspace and the resident runner, pure. `docs/RUNNER.md` describes them.
//!
//! Both sides compile this file: the runner as a module, foldspace through `#[path]`.

mod bytes;
mod reply;
mod request;

pub(crate) use reply::{Ended, OutputStreamKind, RunFailure, RunnerReply};
pub(crate) use request::{CallerSurroundings, RunRequest, RunnerRequest, TerminalWindow};

pub(crate) const VERSION: u16 = 5;
pub(crate) const MAGIC: &[u8; 8] = b"foldrun\n";
/// A feature of a runner: it can make no socket but those of AF_UNIX, AF_INET, AF_INET6 and AF_NETLINK.
pub(crate) const FEW_SOCKETS: u32 = 1;
pub(crate) const MAX_FRAME: usize = 4 * 1024 * 1024 + 64 * 1024;
pub(crate) const MAX_STDIN: usize = 64 * 1024;
/// Bytes of input that a peer may have sent and the command not taken.
pub(crate) const MAX_INPUT: usize = 64 * 1024;
pub(crate) const MAX_WORDS_BYTES: usize = 1024 * 1024;
pub(crate) const MAX_WORDS: usize = 65_536;
pub(crate) const MAX_LIMITS: u32 = 32;
pub(crate) const MAX_CONNECTIONS: usize = 64;

/// The kind of [`RunnerReply::Output`], which the runner also writes by itself to copy its bytes once only.
pub(crate) const OUTPUT: u8 = 129;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Malformed(pub(crate) &'static str);

/// The length that a frame's first four bytes say, or none while they are not there.
pub(crate) fn frame_length(bytes: &[u8]) -> Option<usize> {
    let first = bytes.first_chunk::<4>()?;
    Some(u32::from_le_bytes(*first) as usize)
}

pub(crate) fn frame(out: &mut Vec<u8>, body: impl FnOnce(&mut Vec<u8>)) {
    let start = out.len();
    out.extend_from_slice(&[0; 4]);
    body(out);
    close_frame(out, start);
}

/// Writes the length of the frame that begins at `start` and ends where `out` does.
pub(crate) fn close_frame(out: &mut [u8], start: usize) {
    let length = u32::try_from(out.len().saturating_sub(start + 4)).unwrap_or(u32::MAX);
    if let Some(place) = out.get_mut(start..start + 4) {
        place.copy_from_slice(&length.to_le_bytes());
    }
}
