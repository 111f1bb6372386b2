//! Blocking work on files and sessions, off the runtime's threads.

use crate::engine::session::Session;
use crate::engine::session::error::SessionError;
use crate::engine::state::State;

/// Runs `work` on a blocking thread. Drops `held` when the work is done, even if the caller no longer waits. Returns
/// `stopped` if the work panics or the runtime shuts down before.
pub(super) async fn off_thread<T, F, E>(
    held: impl Send + 'static,
    stopped: E,
    work: impl FnOnce() -> Result<T, F> + Send + 'static,
) -> Result<T, E>
where
    T: Send + 'static,
    F: Send + 'static,
    E: From<F>,
{
    let done = tokio::task::spawn_blocking(move || {
        let done = work();
        drop(held);
        done
    });
    Ok(done.await.map_err(|_| stopped)??)
}

/// Runs `work`, which uses the session's store: on a blocking thread if the store may wait, else in place. On a blocking
/// thread it completes even if the caller no longer waits.
pub(super) async fn with_store<T: Send + 'static>(
    session: &Session,
    work: impl FnOnce() -> T + Send + 'static,
) -> Result<T, SessionError> {
    if !session.store_may_wait() {
        return Ok(work());
    }
    tokio::task::spawn_blocking(work).await.map_err(|_| SessionError::Stopped)
}

/// Returns the current state of a session. Fails if this process does not own the store.
pub(super) async fn own_state(session: &Session) -> Result<State, SessionError> {
    let of = session.clone();
    with_store(session, move || {
        of.check_own()?;
        of.state()
    })
    .await?
}
