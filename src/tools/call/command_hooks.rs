//! Hooks of a program into a command of its session's shell.

use tokio_util::sync::CancellationToken;

use crate::backends::OutputWatch;

/// Hooks of the program whose command it is, beside those of the call.
#[derive(Clone)]
pub(crate) struct CommandHooks {
    pub(crate) watch: OutputWatch,
    pub(crate) cancel: CancellationToken,
}
