//! The Podman backend: a container for a session's commands, an overlay or a directory for its files.

mod confinement;
mod connection;
mod container;
mod diagnosis;
mod engine;
mod exec;
mod files;
mod leftovers;
mod options;
mod paths;
mod requests;
mod sandbox;
mod way;

pub(crate) use diagnosis::{cache_directory, diagnose};
pub use leftovers::{Leftover, Leftovers, remove_leftovers};
pub use options::{OverlayUse, PodmanOptions, RunnerUse};
pub(crate) use paths::session_directory;
pub use sandbox::PodmanSandbox;

/// The backend's name.
const NAME: &str = "podman";
