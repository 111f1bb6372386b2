//! The container backends, for Podman or Docker: a container for commands, an overlay or a directory for files.

mod confinement;
mod container;
mod container_figures;
mod container_plan;
mod diagnosis;
mod engine;
mod files;
mod images;
mod launch;
mod network;
mod orphans;
mod own_directory;
mod owners;
mod paths;
mod process_label;
mod sandbox;
mod usage;
mod warm;
mod warm_used;

pub use container_figures::{ContainerFigures, container_figures};
pub(crate) use diagnosis::diagnose;
pub use images::{BuiltImage, build_image};
pub use orphans::{find_engine, remove_leftovers};
pub use owners::sweep_sandboxes;
pub(crate) use paths::remove_files;
pub use sandbox::PodmanSandbox;
pub(crate) use sandbox::{check_engine, open};
pub use warm::WarmContainers;
pub use warm_used::WarmForUsed;
