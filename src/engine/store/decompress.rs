//! Decompression of stored zstd frames.

use std::cell::RefCell;

use zstd::bulk::Decompressor;

/// Decompresses a zstd frame to at most `length` bytes. `None` if it is damaged.
pub(super) fn decompressed(frame: &[u8], length: usize) -> Option<Vec<u8>> {
    thread_local! {
        /// Reused, because creating one takes as long as decompressing a small frame.
        static DECOMPRESSOR: RefCell<Option<Decompressor<'static>>> = RefCell::new(Decompressor::new().ok());
    }
    DECOMPRESSOR.with_borrow_mut(|decompressor| decompressor.as_mut()?.decompress(frame, length).ok())
}
