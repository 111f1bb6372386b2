//! A program's hooks into a command of its session's shell.

use tokio_util::sync::CancellationToken;

use crate::backends::OutputWatch;

/// Hooks of the program that runs the command, in addition to the call's own.
#[derive(Clone)]
pub(crate) struct CommandHooks {
    pub(crate) watch: OutputWatch,
    pub(crate) cancel: CancellationToken,
}
