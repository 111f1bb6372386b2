//! The container engine that tests use: `./test` makes one ready and says where it is.

use foldspace::PodmanOptions;

/// Whether a test that can't do its work fails.
pub(crate) fn in_ci() -> bool {
    set("CI").is_some()
}

fn set(name: &str) -> Option<String> {
    std::env::var(name).ok().filter(|value| !value.is_empty())
}

/// What a container of a test is to be; none where there is no engine, which in CI is a failure.
pub(crate) fn options() -> Option<PodmanOptions> {
    match (set("CONTAINER_HOST"), set("FOLDSPACE_IMAGE")) {
        (Some(url), Some(image)) => Some(PodmanOptions { image, connection: Some(url), ..PodmanOptions::default() }),
        _ if in_ci() => panic!("no container engine: ./test makes one ready"),
        _ => None,
    }
}

/// An engine of an unprivileged user, who may be another one than this process's.
pub(crate) struct Rootless {
    pub(crate) url: String,
    pub(crate) image: String,
    /// The user, and its group.
    pub(crate) user: (u32, u32),
}

/// The engine of an unprivileged user; none where `./test` could not make one, as it then said.
pub(crate) fn rootless() -> Option<Rootless> {
    use std::os::unix::fs::MetadataExt;
    let set = |name| std::env::var(name).ok().filter(|value| !value.is_empty());
    let (url, image) = (set("FOLDSPACE_ROOTLESS_HOST")?, set("FOLDSPACE_IMAGE")?);
    let socket = std::fs::metadata(url.strip_prefix("unix://").unwrap()).unwrap();
    let user = (socket.uid(), socket.gid());
    let me = rustix::process::geteuid().as_raw();
    assert!(me == 0 || me == user.0, "the engine of FOLDSPACE_ROOTLESS_HOST is user {}'s, not {me}'s", user.0);
    Some(Rootless { url, image, user })
}
