//! The container engine that tests use: `./test` makes one ready and says where it is.

use foldspace::PodmanOptions;

/// What a container of a test is to be; none where there is no engine, which in CI is a failure.
pub(crate) fn options() -> Option<PodmanOptions> {
    let set = |name| std::env::var(name).ok().filter(|value| !value.is_empty());
    match (set("CONTAINER_HOST"), set("FOLDSPACE_IMAGE")) {
        (Some(url), Some(image)) => Some(PodmanOptions { image, connection: Some(url), ..PodmanOptions::default() }),
        _ if set("CI").is_some() => panic!("no container engine: ./test makes one ready"),
        _ => None,
    }
}
