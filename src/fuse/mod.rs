//! Mounts: the files of a session, at a position or now, as a read-only directory. A separate process serves each
//! mount with FUSE, so that a mount outlives the owner of the store.

mod error;
mod file_system;
mod following;
mod inodes;
mod moments;
mod mount_point;
mod mount_record;
mod mounted_store;
mod start;
mod tree_view;

pub use error::FuseError;
pub use mount_point::unmount;
pub use mount_record::{MountDocument, mounts};
pub use start::{MountHelper, MountRequest, MountWork};
