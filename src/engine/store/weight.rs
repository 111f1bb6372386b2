//! Cache weights of byte values.

use bytes::Bytes;
use quick_cache::Weighter;

const BESIDE: u64 = 64;

#[derive(Clone)]
pub(super) struct ByBytes;

impl<K> Weighter<K, Bytes> for ByBytes {
    fn weight(&self, _: &K, bytes: &Bytes) -> u64 {
        bytes.len() as u64 + BESIDE
    }
}
