//! A session's files in an overlay, with the changes in a small upper layer.

mod attach;
mod flatten;
mod manifest;
mod mount;
mod mounted;
mod overlay_dir;
mod overlay_disk;
mod pool;
mod probe;
mod step;

pub(super) use attach::MountPoint;
pub(super) use manifest::boot_id;
pub(crate) use overlay_dir::OverlayDir;
pub(crate) use overlay_disk::{OverlayDisk, OverlayOptions};
pub(crate) use probe::{is_supported, supported};
#[cfg(test)]
pub(super) use step::cut_after;
