//! Decompression of what is kept, a frame at a time.

use std::cell::RefCell;

use zstd::bulk::Decompressor;

/// Decompresses a zstd frame to at most `length` bytes; none if it is damaged.
pub(super) fn decompressed(frame: &[u8], length: usize) -> Option<Vec<u8>> {
    thread_local! {
        /// Creating one takes as long as a small frame.
        static DECOMPRESSOR: RefCell<Option<Decompressor<'static>>> = RefCell::new(Decompressor::new().ok());
    }
    DECOMPRESSOR.with_borrow_mut(|decompressor| decompressor.as_mut()?.decompress(frame, length).ok())
}
