//! The state of a session's container.

use std::sync::Arc;

use crate::backends::podman::engine::{Engine, EngineError};
use crate::backends::podman::launch::LiveContainer;

pub(super) enum ContainerState {
    /// No container. The engine is set once it was connected.
    None(Option<Arc<Engine>>),
    /// The engine was asked for one, which does not run yet, or no longer.
    Starting {
        engine: Arc<Engine>,
        id: String,
    },
    Running(LiveContainer),
    /// Stopped while idle.
    Stopped {
        engine: Arc<Engine>,
        id: String,
    },
    /// The engine does not respond, and may have a container. The next attempt may find another engine.
    Unreachable {
        engine: Arc<Engine>,
        id: String,
    },
}

impl Default for ContainerState {
    fn default() -> Self {
        Self::None(None)
    }
}

impl ContainerState {
    pub(super) fn engine(&self) -> Option<&Arc<Engine>> {
        match self {
            Self::None(engine) => engine.as_ref(),
            Self::Starting { engine, .. } | Self::Stopped { engine, .. } => Some(engine),
            Self::Running(live) => Some(&live.engine),
            Self::Unreachable { .. } => None,
        }
    }

    /// Returns the id or name of the container that the engine has or may have.
    pub(super) fn container(&self) -> Option<(Arc<Engine>, String)> {
        match self {
            Self::None(_) => None,
            Self::Running(live) => Some((Arc::clone(&live.engine), live.id.clone())),
            Self::Starting { engine, id } | Self::Stopped { engine, id } | Self::Unreachable { engine, id } => {
                Some((Arc::clone(engine), id.clone()))
            }
        }
    }

    /// Records an error of the engine: an unreachable one is not called again.
    pub(super) fn note(&mut self, error: &EngineError) {
        if let EngineError::Unreachable(_) = error {
            *self = match self.container() {
                Some((engine, id)) => Self::Unreachable { engine, id },
                None => Self::None(None),
            };
        }
    }
}
