//! Ctrl-C while calls are made.

use tokio_util::sync::CancellationToken;

/// Would cancel the token at the first Ctrl-C, which needs tokio's `signal` feature. Without it Ctrl-C
/// ends the program as it ends any other; a call cut off so is recorded as interrupted by the next run.
pub(super) fn watch(token: CancellationToken) {
    drop(token);
}
