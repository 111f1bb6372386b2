//! Blocking work on files and sessions, off the runtime's threads.

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
