//! Work on files and sessions, off the threads that calls share.

/// Works on a thread that may block, and drops what is `held` once the work is done, though no one may wait for it then.
/// `stopped` is the error for a runtime that ends before.
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
