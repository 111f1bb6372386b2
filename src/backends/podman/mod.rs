//! The Podman backend: a container for a session's commands, an overlay or a directory for its files.

mod confinement;
mod connection;
mod container;
mod diagnosis;
mod engine;
mod exec;
pub(crate) mod exec_mode;
mod files;
mod options;
pub(crate) mod orphans;
pub(crate) mod owners;
mod paths;
pub(crate) mod rename;
mod requests;
mod sandbox;
mod warm;

pub(crate) use diagnosis::{cache_directory, diagnose};
pub use options::{OverlayUse, PodmanOptions, RunnerUse};
pub use orphans::{Leftover, Leftovers, remove_leftovers};
pub use owners::sweep_sandboxes;
pub(crate) use paths::remove_files;
pub use sandbox::PodmanSandbox;
pub use warm::WarmContainers;

/// The backend's name.
const NAME: &str = "podman";
