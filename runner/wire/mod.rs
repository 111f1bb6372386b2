//! The frames between foldspace and the resident runner, without I/O. `docs/RUNNER.md` describes them.
//!
//! Both sides compile this file: the runner as a module, foldspace through `#[path]`.

mod bytes;
mod reply;
mod request;

pub(crate) use reply::{Ended, OutputStreamKind, RunFailure, RunnerReply};
pub(crate) use request::{CallerSurroundings, RunRequest, RunnerRequest, SocketKind, SocketRequest, TerminalWindow};

pub(crate) const VERSION: u16 = 2;
pub(crate) const MAGIC: &[u8; 8] = b"foldrun\n";
/// The feature of a runner that can create only AF_UNIX, AF_INET, AF_INET6 and AF_NETLINK sockets.
pub(crate) const FEW_SOCKETS: u32 = 1;
pub(crate) const MAX_FRAME: usize = 4 * 1024 * 1024 + 64 * 1024;
pub(crate) const MAX_STDIN: usize = 64 * 1024;
/// The maximum number of `Input` bytes that are not reported as `Taken` yet.
pub(crate) const MAX_INPUT: usize = 64 * 1024;
pub(crate) const MAX_WORDS_BYTES: usize = 1024 * 1024;
pub(crate) const MAX_WORDS: usize = 65_536;
pub(crate) const MAX_LIMITS: u32 = 32;
pub(crate) const MAX_CONNECTIONS: usize = 64;

/// The kind of [`RunnerReply::Output`]. The runner also writes such frames directly, to copy their bytes only once.
pub(crate) const OUTPUT: u8 = 129;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Malformed(pub(crate) &'static str);

/// Returns the length in a frame's first four bytes. `None` if they are incomplete.
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

/// Writes the length of the frame from `start` to the end of `out`.
pub(crate) fn close_frame(out: &mut [u8], start: usize) {
    let length = u32::try_from(out.len().saturating_sub(start + 4)).unwrap_or(u32::MAX);
    if let Some(place) = out.get_mut(start..start + 4) {
        place.copy_from_slice(&length.to_le_bytes());
    }
}
