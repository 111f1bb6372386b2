//! Ctrl-C while calls are made.

use tokio_util::sync::CancellationToken;

use super::exit::Exit;

/// Cancels the token at the first Ctrl-C: the call under way is recorded as interrupted. A second one
/// ends the program at once; the next run records the interruption then.
pub(super) fn watch(token: CancellationToken) {
    tokio::spawn(async move {
        if tokio::signal::ctrl_c().await.is_ok() {
            token.cancel();
        }
        if tokio::signal::ctrl_c().await.is_ok() {
            std::process::exit(i32::from(Exit::Interrupted.code()));
        }
    });
}
