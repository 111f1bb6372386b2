//! Bounds of one scan or walk.

use std::io;

/// Bytes of a directory's path beyond which a scan does not enter it: time and memory grow with the depth's square.
pub(super) const PATH_BYTES_MAX: usize = 16 << 10;
/// Bytes that the paths have together which one scan holds: those of eight million files, where a path has 64.
pub(super) const SCAN_BYTES_MAX: usize = 512 << 20;

/// Says that a scan would hold more than that, and below which directory it came to it.
pub(super) fn too_much(path: &[u8]) -> io::Error {
    let shown = String::from_utf8_lossy(&path[..path.len().min(200)]).into_owned();
    let more = if path.len() > 200 { "..." } else { "" };
    let words = format!("there are too many entries with too long paths, the last below /{shown}{more}; remove some");
    io::Error::other(words)
}
