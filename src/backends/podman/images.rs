//! The development image: the programs that agents use, built on this machine.

use std::collections::HashMap;

use super::engine::{Engine, ImageBuild};
use crate::backends::BackendError;
use crate::backends::containers::EngineKind;
use crate::engine::id::Digest;

/// An image that foldspace can build.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum BuiltImage {
    /// The development image: the programs that agents use.
    #[default]
    Development,
    /// An image like E2B's `base`.
    E2bBase,
}

impl BuiltImage {
    fn containerfile(self) -> &'static str {
        match self {
            Self::Development => include_str!("../../../images/Containerfile"),
            Self::E2bBase => include_str!("../../../images/e2b-base/Containerfile"),
        }
    }

    /// Returns the image's name, derived from its instructions: another version of them is another image.
    fn name(self) -> String {
        let kind = match self {
            Self::Development => "development",
            Self::E2bBase => "e2b-base",
        };
        format!("localhost/foldspace-{kind}:{}", Digest::of(self.containerfile().as_bytes()).short())
    }

    /// Returns the image's name, if an engine has it.
    pub(crate) fn built(self, engine: EngineKind, connection: Option<&str>) -> Option<String> {
        let name = self.name();
        Engine::connect(engine, connection).ok()?.has_image(&name).ok()?.then_some(name)
    }
}

/// Builds an image at an engine, and returns its name. `base` is its base image, `network` the network of
/// its build commands.
///
/// # Errors
/// The engine is not available, or a step of the build fails; the message is the engine's.
pub fn build_image(
    image: BuiltImage,
    engine: EngineKind,
    connection: Option<&str>,
    base: Option<&str>,
    network: Option<&str>,
    progress: &mut (dyn FnMut(&str) + Send),
) -> Result<String, BackendError> {
    let failed = |error: super::engine::EngineError| BackendError { backend: engine.name(), reason: error.to_string() };
    let name = image.name();
    let arguments = base.map(|base| ("BASE".to_owned(), base.to_owned())).into_iter().collect::<HashMap<_, _>>();
    let build = ImageBuild { name: &name, containerfile: image.containerfile(), arguments, network };
    Engine::connect(engine, connection).map_err(failed)?.build(&build, progress).map_err(failed)?;
    Ok(name)
}
