//! What is kept in caches, by its bytes.

use bytes::Bytes;
use quick_cache::Weighter;

/// Bytes that an entry takes beside its own.
const BESIDE: u64 = 64;

/// Weighs an entry by its bytes.
#[derive(Clone)]
pub(super) struct ByBytes;

impl<K> Weighter<K, Bytes> for ByBytes {
    fn weight(&self, _: &K, bytes: &Bytes) -> u64 {
        bytes.len() as u64 + BESIDE
    }
}
