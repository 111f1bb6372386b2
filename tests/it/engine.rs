//! The container engine that tests use: `./test` makes them ready, says where they are, and tests on each.

use std::path::Path;

use foldspace::backends::{EngineKind, PodmanOptions};

use crate::rig::{report_skip, skip};

fn set(name: &str) -> Option<String> {
    std::env::var(name).ok().filter(|value| !value.is_empty())
}

/// The engine that this run is on.
pub(crate) fn kind() -> EngineKind {
    match set("FOLDSPACE_TEST_ENGINE").as_deref() {
        Some("docker") => EngineKind::Docker,
        None | Some("podman") => EngineKind::Podman,
        Some(other) => panic!("FOLDSPACE_TEST_ENGINE is {other:?}, and neither podman nor docker"),
    }
}

/// Returns the address of that engine.
pub(crate) fn url() -> Option<String> {
    set(url_variable())
}

/// The variable by which the program finds it.
pub(crate) fn url_variable() -> &'static str {
    match kind() {
        EngineKind::Podman => "CONTAINER_HOST",
        EngineKind::Docker => "DOCKER_HOST",
    }
}

/// Options of a test's container; none, and the test is skipped, where there is no engine.
pub(crate) fn options() -> Option<PodmanOptions> {
    match (url(), set("FOLDSPACE_IMAGE")) {
        (Some(url), Some(image)) => {
            Some(PodmanOptions { engine: kind(), image, connection: Some(url), ..PodmanOptions::default() })
        }
        _ => {
            skip("no container engine (./test makes one ready)");
            None
        }
    }
}

/// An engine of an unprivileged user, who may be another one than this process's.
pub(crate) struct Rootless {
    pub(crate) url: String,
    pub(crate) image: String,
    /// The user, and its group.
    pub(crate) user: (u32, u32),
}

/// Returns the engine of an unprivileged user. Also in CI there need be none: not every machine can have one.
pub(crate) fn rootless() -> Option<Rootless> {
    use std::os::unix::fs::MetadataExt;
    let variable = match kind() {
        EngineKind::Podman => "FOLDSPACE_ROOTLESS_HOST",
        EngineKind::Docker => "FOLDSPACE_ROOTLESS_DOCKER_HOST",
    };
    let (Some(url), Some(image)) = (set(variable), set("FOLDSPACE_IMAGE")) else {
        report_skip("no container engine of an unprivileged user");
        return None;
    };
    // The socket itself may be of another group.
    let place = Path::new(url.strip_prefix("unix://").unwrap()).parent().unwrap().metadata().unwrap();
    let user = (place.uid(), place.gid());
    let me = rustix::process::geteuid().as_raw();
    assert!(me == 0 || me == user.0, "the engine of {variable} is user {}'s, not {me}'s", user.0);
    Some(Rootless { url, image, user })
}
