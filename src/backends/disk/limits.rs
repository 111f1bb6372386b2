//! Limits of a scan or walk.

use std::io;

/// The maximum bytes in the path of a directory that a scan enters: time and memory grow with the square of the depth.
pub(super) const PATH_BYTES_MAX: usize = 16 << 10;
/// The maximum total bytes of the paths in one scan: enough for eight million files with paths of 64 bytes.
pub(super) const SCAN_BYTES_MAX: usize = 512 << 20;

/// Reports that a scan exceeds the limit, with the directory where it did.
pub(super) fn too_much(path: &[u8]) -> io::Error {
    let shown = String::from_utf8_lossy(&path[..path.len().min(200)]).into_owned();
    let more = if path.len() > 200 { "..." } else { "" };
    let words = format!("too many entries with too long paths, the last below /{shown}{more}; remove some");
    io::Error::other(words)
}
