//! The state of a stream, as its leader reports it.

use std::time::Duration;

use serde::Deserialize;

use crate::engine::Timestamp;

/// The answer of a stream's leader.
#[derive(Debug, Default, Deserialize)]
pub(super) struct StreamInfo {
    /// The time on the leader's clock.
    pub(super) ts: Option<Timestamp>,
    pub(super) config: Option<StreamReplicas>,
    pub(super) cluster: Option<Replicas>,
}

#[derive(Debug, Deserialize)]
pub(super) struct StreamReplicas {
    pub(super) num_replicas: usize,
}

#[derive(Debug, Default, Deserialize)]
pub(super) struct Replicas {
    pub(super) leader: Option<String>,
    #[serde(default)]
    pub(super) replicas: Vec<Replica>,
}

#[derive(Debug, Deserialize)]
pub(super) struct Replica {
    pub(super) name: String,
    #[serde(default)]
    pub(super) current: bool,
    #[serde(default)]
    pub(super) offline: bool,
    pub(super) lag: Option<u64>,
}

impl StreamInfo {
    /// Asks the leader of a stream. `None` without an answer.
    pub(super) async fn read(client: &async_nats::Client, stream: &str, patience: Duration) -> Option<Self> {
        let asked = client.request(format!("$JS.API.STREAM.INFO.{stream}"), "".into());
        let answer = tokio::time::timeout(patience, asked).await.ok()?.ok()?;
        serde_json::from_slice(&answer.payload).ok()
    }
}
