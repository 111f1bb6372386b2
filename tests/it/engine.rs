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
