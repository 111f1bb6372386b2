//! The Podman backend: a container for a session's commands, an overlay or a directory for its files.

mod confinement;
mod connection;
mod container;
mod diagnosis;
mod engine;
mod exec;
mod files;
mod leftovers;
mod naming;
mod options;
mod paths;
mod requests;
mod sandbox;
mod stores;
mod warm;
mod way;

pub(crate) use diagnosis::{cache_directory, diagnose};
pub use leftovers::{Leftover, Leftovers, remove_leftovers};
pub use options::{OverlayUse, PodmanOptions, RunnerUse};
pub(crate) use paths::remove_files;
pub use sandbox::PodmanSandbox;
pub use stores::sweep_sandboxes;
pub use warm::WarmContainers;

/// The backend's name.
const NAME: &str = "podman";
