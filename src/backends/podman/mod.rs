//! The Podman backend: a container for a session's commands, an overlay or a directory for its files.

mod confinement;
mod connection;
mod container;
mod container_plan;
mod diagnosis;
mod engine;
mod files;
mod launch;
mod options;
mod orphans;
mod owners;
mod paths;
mod process_label;
mod requests;
mod sandbox;
mod warm;

use std::sync::{Mutex, MutexGuard, PoisonError};

pub(crate) use diagnosis::{cache_directory, diagnose};
pub use options::{OverlayUse, PodmanOptions};
pub use orphans::{Leftover, Leftovers, remove_leftovers};
pub use owners::sweep_sandboxes;
pub(crate) use paths::remove_files;
pub use sandbox::PodmanSandbox;
pub use warm::WarmContainers;

/// The backend's name.
const NAME: &str = "podman";

/// Locks what a thread that panicked may have left locked.
fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
