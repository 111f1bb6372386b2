//! A session's files on a disk of this machine: safe operations beneath a directory, and finding out
//! what has changed there.

mod apply;
pub(crate) mod beneath;
mod copying;
mod dir_xattrs;
mod entries;
mod file_stat;
mod ignore_rules;
mod ignored_count;
mod index;
mod kept_index;
mod left_out;
mod limits;
mod listing;
pub(crate) mod locked;
mod making;
mod mapped_mount;
mod opened_directory;
pub(crate) mod overlay;
mod pending_scan;
mod plain;
mod populate;
pub(crate) mod populate_marker;
mod remove;
mod root_check;
mod scan;
mod shut_dirs;
mod sparse;
mod staging_dir;
#[cfg(test)]
mod tests;
mod told_look;
mod tree;
mod watch;
mod workspace_disk;

pub(crate) use entries::{changed_at, entries_in, lock_file, make_private};
pub(crate) use ignore_rules::{IgnoreRules, RecordedBeyond};
pub use ignore_rules::{IgnoredLimits, is_secret_name};
pub(crate) use kept_index::KeptIndex;
pub(crate) use making::umask;
pub(crate) use mapped_mount::MappedMount;
pub(crate) use opened_directory::{OpenedDirectory, overlap, owner_of};
pub(crate) use overlay::{OverlayDir, OverlayDisk, OverlayOptions};
pub(crate) use plain::{PlainDisk, PlainOptions};
pub(crate) use remove::remove_path;
pub(crate) use root_check::Anchor;
pub(crate) use staging_dir::StagingDir;
pub(crate) use tree::DirTree;
pub(crate) use workspace_disk::SealError;
