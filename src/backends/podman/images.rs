//! The development image: the programs that agents use, built on this machine.

use std::collections::HashMap;

use super::engine::{Engine, ImageBuild};
use crate::backends::BackendError;
use crate::backends::containers::EngineKind;
use crate::engine::id::Digest;

const CONTAINERFILE: &str = include_str!("../../../images/Containerfile");

/// Builds the development image at an engine, and returns its name. `base` is its base image, `network` the network of
/// its build commands.
///
/// # Errors
/// The engine is not available, or a step of the build fails; the message is the engine's.
pub fn build_image(
    engine: EngineKind,
    connection: Option<&str>,
    base: Option<&str>,
    network: Option<&str>,
    progress: &mut (dyn FnMut(&str) + Send),
) -> Result<String, BackendError> {
    let failed = |error: super::engine::EngineError| BackendError { backend: engine.name(), reason: error.to_string() };
    let name = name();
    let arguments = base.map(|base| ("BASE".to_owned(), base.to_owned())).into_iter().collect::<HashMap<_, _>>();
    let build = ImageBuild { name: &name, containerfile: CONTAINERFILE, arguments, network };
    Engine::connect(engine, connection).map_err(failed)?.build(&build, progress).map_err(failed)?;
    Ok(name)
}

/// Returns the development image's name, derived from its instructions: another version of them is another image.
fn name() -> String {
    format!("localhost/foldspace-development:{}", Digest::of(CONTAINERFILE.as_bytes()).short())
}

/// Returns the development image, if an engine has it.
pub(crate) fn built_image(engine: EngineKind, connection: Option<&str>) -> Option<String> {
    let name = name();
    Engine::connect(engine, connection).ok()?.has_image(&name).ok()?.then_some(name)
}
