//! Containers as the engine knows them, without the library.

use std::path::PathBuf;

use podman_api::Podman;
use podman_api::opts::{ContainerListFilter, ContainerListOpts};

/// Asks the engine.
pub(crate) fn podman<T>(question: impl AsyncFnOnce(Podman) -> T) -> T {
    at(&std::env::var("CONTAINER_HOST").unwrap(), question)
}

fn at<T>(url: &str, question: impl AsyncFnOnce(Podman) -> T) -> T {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(question(Podman::new(url).unwrap()))
}

/// Where the things of containers are.
pub(crate) fn cache() -> PathBuf {
    let set = |name| std::env::var_os(name).filter(|value| !value.is_empty()).map(PathBuf::from);
    set("FOLDSPACE_CACHE").or_else(|| set("HOME").map(|home| home.join(".cache/foldspace/podman"))).unwrap()
}

/// The ids of the containers of that name, running or not.
pub(crate) fn named(name: &str) -> Vec<String> {
    named_at(&std::env::var("CONTAINER_HOST").unwrap(), name)
}

/// The same of the engine at a place.
pub(crate) fn named_at(url: &str, name: &str) -> Vec<String> {
    let filter = ContainerListFilter::Name(format!("^{name}$"));
    let options = ContainerListOpts::builder().all(true).filter([filter]).build();
    let found = at(url, async |podman| podman.containers().list(&options).await).unwrap();
    found.into_iter().filter_map(|container| container.id).collect()
}

/// The first process of a container that runs, as this machine numbers it.
pub(crate) fn process_of(name: &str) -> Option<i64> {
    let inspected = podman(async |podman| podman.containers().get(name).inspect().await).ok()?;
    inspected.state.and_then(|state| state.pid).filter(|process| *process > 0)
}
