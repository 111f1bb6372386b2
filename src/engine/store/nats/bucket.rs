//! Contents in object storage, one object each.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use object_store::path::Path;
use object_store::{Error, ObjectStore, ObjectStoreExt, PutPayload};

use crate::engine::Digest;
use crate::engine::store::Result;
use crate::engine::store::replication::target::open_s3;

/// Attempts to read an object, and the pause after the first attempt; each further pause is twice as long.
const TRIES: u32 = 6;
const PAUSE: Duration = Duration::from_millis(100);

/// A bucket of contents.
#[derive(Clone)]
pub(super) struct ContentBucket {
    store: Arc<dyn ObjectStore>,
    prefix: Path,
}

impl ContentBucket {
    /// Opens `s3://BUCKET/PREFIX`. Fails with the problem.
    pub(super) fn open(url: &str) -> Result<Self, String> {
        let opened = open_s3(url)?;
        Ok(Self { store: opened.store, prefix: opened.prefix })
    }

    fn path(&self, digest: &Digest) -> Path {
        self.prefix.clone().join("contents").join(digest.to_string())
    }

    /// Stores a payload, replacing an equal one if it exists. Returns `None` if the caller should retry.
    pub(super) async fn put(&self, digest: &Digest, payload: Bytes) -> Result<Option<()>> {
        match self.store.put(&self.path(digest), PutPayload::from(payload)).await {
            Ok(_) => Ok(Some(())),
            Err(error) => {
                tracing::warn!(%error, "retrying to write a content to object storage");
                Ok(None)
            }
        }
    }

    /// Reads a payload. `None` if it does not exist. Fails with the problem.
    pub(super) async fn get(&self, digest: &Digest) -> Result<Option<Bytes>, String> {
        let (mut pause, mut tried) = (PAUSE, 1);
        loop {
            let read = async { self.store.get(&self.path(digest)).await?.bytes().await };
            match read.await {
                Ok(bytes) => return Ok(Some(bytes)),
                Err(Error::NotFound { .. }) => return Ok(None),
                Err(error) if tried == TRIES => return Err(error.to_string()),
                Err(_) => tokio::time::sleep(pause).await,
            }
            (pause, tried) = (pause * 2, tried + 1);
        }
    }
}
