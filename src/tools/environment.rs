//! Differences between the containers of two runs.

use std::fmt;

use schemars::JsonSchema;
use serde::Serialize;

use crate::engine::event::ContainerStarted;
use crate::engine::state::State;
use crate::reducers::PodmanWorkspace;

/// A difference between the container of a recorded run and the present one. It may explain other differences.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, JsonSchema)]
pub struct EnvironmentDifference {
    /// `image`, `engine` or `kernel`.
    pub differs: &'static str,
    /// As recorded.
    pub was: String,
    /// Now.
    pub is: String,
}

impl fmt::Display for EnvironmentDifference {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "the {} differs: {} recorded, {} now", self.differs, self.was, self.is)
    }
}

impl EnvironmentDifference {
    /// Compares two containers. A value that one of them lacks, as in older records, does not differ.
    pub(super) fn between(was: &ContainerStarted, is: &ContainerStarted) -> Vec<Self> {
        let image = match was.image_digest.is_empty() || is.image_digest.is_empty() {
            true => (&was.image, &is.image),
            false => (&was.image_digest, &is.image_digest),
        };
        let compared = [("image", image), ("engine", (&was.engine, &is.engine)), ("kernel", (&was.kernel, &is.kernel))];
        let differing = compared.into_iter().filter(|(_, (was, is))| was != is && !was.is_empty() && !is.is_empty());
        let difference =
            |(differs, (was, is)): (_, (&String, &String))| Self { differs, was: was.clone(), is: is.clone() };
        differing.map(difference).collect()
    }
}

/// Returns the container that a session used last.
pub(super) fn container_in(state: &State) -> Option<&ContainerStarted> {
    state.slice::<PodmanWorkspace>()?.container.as_ref()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn container(image_digest: &str, engine: &str, kernel: &str) -> ContainerStarted {
        let started = serde_json::json!({
            "name": "c", "id": "1", "image": "python", "engine": engine, "created": true, "rootless": false,
            "limits_enforced": true, "overlay": true, "workdir": "/workspace", "image_digest": image_digest,
            "kernel": kernel,
        });
        serde_json::from_value(started).unwrap()
    }

    #[test]
    fn environment_differs_in_known_values_only() {
        let words = |was: &ContainerStarted, is: &ContainerStarted| -> Vec<String> {
            EnvironmentDifference::between(was, is).iter().map(ToString::to_string).collect()
        };
        let one = container("sha256:a", "podman 4.3.1", "6.1");
        assert!(words(&one, &one).is_empty());
        let other = container("sha256:b", "docker 29.1", "6.2");
        assert_eq!(
            words(&one, &other),
            [
                "the image differs: sha256:a recorded, sha256:b now",
                "the engine differs: podman 4.3.1 recorded, docker 29.1 now",
                "the kernel differs: 6.1 recorded, 6.2 now"
            ]
        );
        let old = ContainerStarted { image: "other".to_owned(), ..container("", "podman 4.3.1", "") };
        assert_eq!(words(&old, &one), ["the image differs: other recorded, python now"]);
    }
}
