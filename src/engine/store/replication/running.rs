//! A replication on a separate thread, which never blocks the store.

use std::path::Path;
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Duration;

use tokio::sync::oneshot;
use tokio::time::Instant;

use super::error::{CopyResult, ReplicationError};
use super::progress::ReplicationProgress;
use super::replicator::{Replicator, ReplicatorOptions};
use crate::engine::store::StoreError;

/// Interval of passes.
const EVERY: Duration = Duration::from_secs(1);
/// Maximum time between attempts after failures.
const SLOWEST: Duration = Duration::from_secs(30);
/// Time limit for the first answer of the storage.
const FIRST: Duration = Duration::from_secs(5);
/// Time limit for the last pass, when the replication ends.
const LAST: Duration = Duration::from_secs(2);

/// A running replication. Dropping it stops it after a last pass.
pub struct Replication {
    progress: Arc<ReplicationProgress>,
    thread: Option<(oneshot::Sender<()>, JoinHandle<()>)>,
}

impl Replication {
    /// Starts copying the journal in `data` to `url`, every second.
    ///
    /// # Errors
    /// Access is denied or the bucket is missing. Other failures are retried.
    pub fn start(data: &Path, url: &str) -> CopyResult<Self> {
        let mut replicator = Replicator::open(data, url, ReplicatorOptions::default())?;
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
        let runtime = runtime.map_err(StoreError::io("start a thread for", data))?;
        let progress = replicator.progress();
        let (end, mut ended) = oneshot::channel::<()>();
        let (refuse, refused) = std::sync::mpsc::channel();
        let thread = std::thread::Builder::new().name("foldspace-replicate".to_owned()).spawn(move || {
            runtime.block_on(async {
                match tokio::time::timeout(FIRST, replicator.reach()).await {
                    Ok(Err(error)) if error.is_decided() => return drop(refuse.send(error)),
                    _ => drop(refuse),
                }
                tokio::select! {
                    _ = &mut ended => {}
                    _ = replicator.run() => return,
                }
                // One last pass, from the start, because the end may have interrupted one.
                drop(tokio::time::timeout(LAST, replicator.pass()).await);
            });
            runtime.shutdown_background();
        });
        let thread = thread.map_err(StoreError::io("start a thread for", data))?;
        match refused.recv() {
            Ok(error) => Err(error),
            Err(_) => Ok(Self { progress, thread: Some((end, thread)) }),
        }
    }

    /// Returns the progress.
    pub fn progress(&self) -> Arc<ReplicationProgress> {
        Arc::clone(&self.progress)
    }
}

impl Drop for Replication {
    fn drop(&mut self) {
        if let Some((end, thread)) = self.thread.take() {
            // The thread may have ended with an error already, which it logged.
            drop(end);
            drop(thread.join());
        }
    }
}

impl Replicator {
    /// Copies new data every second, until a retry can't help; returns the reason.
    pub async fn run(&mut self) -> ReplicationError {
        let progress = self.progress();
        let mut failed = 0u32;
        loop {
            let begun = Instant::now();
            match self.pass().await {
                Ok(_) if failed > 0 => {
                    failed = 0;
                    tracing::info!("copying the journal works again");
                }
                Ok(_) => {}
                Err(error) => {
                    failed += 1;
                    if progress.failed(error.to_string(), error.is_final()) {
                        tracing::warn!(%error, "failed to copy the journal");
                    }
                    if error.is_final() {
                        return error;
                    }
                }
            }
            let pause = EVERY.saturating_mul(2u32.saturating_pow(failed.saturating_sub(1))).min(SLOWEST);
            tokio::time::sleep_until(begun + pause).await;
        }
    }
}
