//! Encoding of the built-in events with rkyv: frozen structs, always validated when read.

use rkyv::api::high::HighSerializer;
use rkyv::api::low::LowValidator;
use rkyv::bytecheck::CheckBytes;
use rkyv::rancor::{Error, Failure};
use rkyv::ser::allocator::ArenaHandle;
use rkyv::util::AlignedVec;
use rkyv::{Archive, Portable, Serialize};

use super::CodecError;

pub(super) fn archive<T>(kind: &str, version: u16, value: &T, out: &mut Vec<u8>) -> Result<(), CodecError>
where
    T: for<'a> Serialize<HighSerializer<AlignedVec, ArenaHandle<'a>, Error>>,
{
    let bytes = rkyv::to_bytes::<Error>(value).map_err(|e| CodecError::new(kind, version, e))?;
    out.extend_from_slice(&bytes);
    Ok(())
}

/// Validates bytes from a disk, of the first version, and returns the archive in place.
pub(crate) fn validated<'a, T>(kind: &str, version: u16, bytes: &'a [u8]) -> Result<&'a T::Archived, CodecError>
where
    T: Archive,
    T::Archived: Portable + for<'b> CheckBytes<LowValidator<'b, Failure>>,
{
    if version != 1 {
        return Err(CodecError::newer(kind, version));
    }
    rkyv::api::low::access::<T::Archived, Failure>(bytes)
        .map_err(|_| CodecError::new(kind, version, "the payload is damaged"))
}
