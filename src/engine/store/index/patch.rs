//! Patches: zstd frames with matches in other bytes, the base.

use zstd::bulk::Compressor;
use zstd::zstd_safe::{CParameter, DCtx, ErrorCode, compress_bound, get_error_name};

use crate::engine::store::{Result, StoreError};

const LEVEL: i32 = 1;
/// Maximum distance of matches, as a power of two: beyond it, patches grow.
const WINDOW_MAX: u32 = 30;
const WINDOW_MIN: u32 = 10;
/// Number of indexed places of the base, as a power of two. The level's default is too small: a 10 MB base with one
/// record in 50 changed needs a patch of 4.3 MB with 17, 0.7 MB with 20, and 0.1 MB with 22.
const HASH_MAX: u32 = 23;

/// Compresses `target` as a patch of `base`.
pub(super) fn diff(base: &[u8], target: &[u8]) -> Result<Vec<u8>> {
    let io = |error: std::io::Error| StoreError::Index(error.to_string());
    let failed = |code: ErrorCode| StoreError::Index(get_error_name(code).to_owned());
    let window = (base.len() + target.len()).max(1).ilog2() + 1;
    let mut compressor = Compressor::new(LEVEL).map_err(io)?;
    let context = compressor.context_mut();
    context.set_parameter(CParameter::WindowLog(window.clamp(WINDOW_MIN, WINDOW_MAX))).map_err(failed)?;
    context.set_parameter(CParameter::HashLog((window - 1).clamp(WINDOW_MIN, HASH_MAX))).map_err(failed)?;
    context.ref_prefix(base).map_err(failed)?;
    let mut patch = Vec::with_capacity(compress_bound(target.len()));
    context.compress2(&mut patch, target).map_err(failed)?;
    Ok(patch)
}

/// Returns the `length` bytes that `patch` encodes. `None` if it is damaged or detectably of another base.
pub(super) fn apply(base: &[u8], patch: &[u8], length: usize) -> Option<Vec<u8>> {
    let mut context = DCtx::try_create()?;
    context.ref_prefix(base).ok()?;
    let mut target = Vec::new();
    target.try_reserve_exact(length).ok()?;
    context.decompress(&mut target, patch).ok()?;
    (target.len() == length).then_some(target)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn patch_of_large_base_has_what_differs() {
        let record = |number: u64, version: u64| {
            let digest = crate::engine::Digest::of(&[number.to_le_bytes(), version.to_le_bytes()].concat());
            [format!("/a/directory/with/the/file/number/{number:08}.rs").as_bytes(), digest.as_bytes()].concat()
        };
        let records =
            |changed: u64| (0..80_000).flat_map(move |number| record(number, u64::from(number % 50 < changed)));
        let (base, target) = (records(0).collect::<Vec<u8>>(), records(1).collect::<Vec<u8>>());
        let patch = diff(&base, &target).unwrap();
        assert!(patch.len() < 1_600 * 32 * 2, "{} of {} bytes", patch.len(), target.len());
        assert!(apply(&base, &patch, target.len()).unwrap() == target);
    }

    proptest! {
        #[test]
        fn patch_applied_to_its_base_gives_the_target(
            base in prop::collection::vec(any::<u8>(), 0..5_000),
            edits in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 0..20),
            more in prop::collection::vec(any::<u8>(), 0..500),
        ) {
            let mut target = base.clone();
            for (at, byte) in edits.iter().filter(|_| !base.is_empty()) {
                target[at.index(base.len())] = *byte;
            }
            target.extend(&more);
            let patch = diff(&base, &target).unwrap();
            prop_assert_eq!(apply(&base, &patch, target.len()), Some(target.clone()));
            prop_assert!(patch.len() <= 150 + 30 * edits.len() + more.len(), "{} bytes", patch.len());
            prop_assert_eq!(apply(&base, &patch, target.len() + 1), None);
            if !patch.is_empty() {
                prop_assert_eq!(apply(&base, &patch[..patch.len() - 1], target.len()), None);
            }
        }

        #[test]
        fn damaged_patch_is_no_panic(
            base in prop::collection::vec(any::<u8>(), 0..500),
            patch in prop::collection::vec(any::<u8>(), 0..500),
            length in 0..100_000_usize,
        ) {
            prop_assert!(apply(&base, &patch, length).is_none_or(|target| target.len() == length));
        }
    }
}
