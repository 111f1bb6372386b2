//! A number for the part of the layers below that a directory of an overlay shows.

use std::os::fd::OwnedFd;

use rustix::io::Errno;

/// The kind of directories: an overlay's hide what is in the layers below.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Forms {
    Plain,
    /// They are, and these extended attributes say so: one for hiding all, one for another path below.
    Overlay {
        opaque: &'static str,
        redirect: &'static str,
    },
}

impl Forms {
    /// A number that differs when an open directory shows something else of the layers below; 0 for the same path.
    pub(crate) fn of(self, directory: &OwnedFd) -> Result<u32, Errno> {
        let Self::Overlay { opaque, redirect } = self else { return Ok(0) };
        let mut value = [0; 4096];
        let mut attribute = |name| match rustix::fs::fgetxattr(directory, name, &mut value[..]) {
            Ok(length) => Ok(Some(crc32c::crc32c(value.get(..length).unwrap_or_default()))),
            Err(Errno::NODATA | Errno::NOTSUP) => Ok(None),
            Err(error) => Err(error),
        };
        // "x" only says that files may be marked as deleted by an attribute of theirs.
        let mark = crc32c::crc32c(b"x");
        let hides = attribute(opaque)?.is_some_and(|value| value != mark);
        let leads = attribute(redirect)?;
        Ok(u32::from(hides) | leads.map_or(0, |digest| digest | 2))
    }
}
