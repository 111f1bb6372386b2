//! A number that identifies which part of the lower layers an overlay's directory shows.

use std::os::fd::OwnedFd;

use rustix::io::Errno;

/// The kind of directories: directories of an overlay can hide parts of the lower layers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Forms {
    Plain,
    /// Overlay directories, with the extended attributes for hiding everything below and for another path below.
    Overlay {
        opaque: &'static str,
        redirect: &'static str,
    },
}

impl Forms {
    /// Returns a number that changes when a directory shows another part of the lower layers; 0 for the same path.
    pub(crate) fn of(self, directory: &OwnedFd) -> Result<u32, Errno> {
        let Self::Overlay { opaque, redirect } = self else { return Ok(0) };
        let mut value = [0; 4096];
        let mut attribute = |name| match rustix::fs::fgetxattr(directory, name, &mut value[..]) {
            Ok(length) => Ok(Some(crc32c::crc32c(value.get(..length).unwrap_or_default()))),
            Err(Errno::NODATA | Errno::NOTSUP) => Ok(None),
            Err(error) => Err(error),
        };
        // The value "x" only means that files may be marked as deleted by an attribute.
        let mark = crc32c::crc32c(b"x");
        let hides = attribute(opaque)?.is_some_and(|value| value != mark);
        let leads = attribute(redirect)?;
        Ok(u32::from(hides) | leads.map_or(0, |digest| digest | 2))
    }
}
