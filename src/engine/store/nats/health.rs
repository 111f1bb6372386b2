//! The state of a cluster's streams and replicas.

use serde::Serialize;

use super::address::NatsAddress;
use super::cluster::{Cluster, REPLY_TIMEOUT};
use super::stream_info::{Replica, Replicas, StreamInfo};
use crate::engine::store::{Result, StoreError};

/// The state of a stream on a store's cluster.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct StreamHealth {
    /// Name of the stream. `KV_` and `OBJ_` begin the names of buckets' streams.
    pub stream: String,
    /// Number of its replicas.
    pub replicas: usize,
    /// Number of replicas with all of its messages, the leader included. 0 if no leader answers.
    pub current: usize,
    /// Server that leads it. `None` if no leader answers.
    pub leader: Option<String>,
    /// Replicas without all of its messages.
    pub behind: Vec<ReplicaHealth>,
}

/// A replica that lacks messages of its stream.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct ReplicaHealth {
    /// Server.
    pub server: String,
    /// True if the leader does not reach the server.
    pub offline: bool,
    /// Number of operations that it is behind the leader. `None` if unknown.
    pub lag: Option<u64>,
}

impl StreamHealth {
    /// Reads the state of each stream of a store, from the streams' leaders. Blocks; not for threads of a runtime.
    ///
    /// # Errors
    /// [`StoreError::Cluster`] if no server can be reached.
    pub fn of_store(address: &NatsAddress) -> Result<Vec<Self>> {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
        let failed = |error| StoreError::Cluster { address: address.to_string(), what: format!("{error}") };
        runtime.map_err(failed)?.block_on(async {
            let client = Cluster::client(address, "").await?;
            let name = address.stream();
            let streams = [
                name.to_owned(),
                format!("{name}-contents"),
                format!("KV_{name}-sessions"),
                format!("KV_{name}-hosts"),
                format!("KV_{name}-owners"),
                format!("OBJ_{name}-snapshots"),
            ];
            let read = streams.iter().map(|stream| async {
                let info = StreamInfo::read(&client, stream, REPLY_TIMEOUT).await.unwrap_or_default();
                health(info, stream.clone(), address.replicas())
            });
            Ok(futures_util::future::join_all(read).await)
        })
    }

    /// Returns the number of further replicas that may fail before the stream stops.
    pub fn spare(&self) -> usize {
        self.current.saturating_sub(self.replicas / 2 + 1)
    }
}

fn health(info: StreamInfo, stream: String, replicas: usize) -> StreamHealth {
    let StreamInfo { config: Some(config), cluster, .. } = info else {
        return StreamHealth { stream, replicas, current: 0, leader: None, behind: Vec::new() };
    };
    // A server without a cluster leaves it out.
    let Replicas { leader, replicas } = cluster.unwrap_or_default();
    let current = 1 + replicas.iter().filter(|replica| replica.current && !replica.offline).count();
    let behind = replicas.into_iter().filter(|replica| !replica.current || replica.offline);
    let behind = behind.map(|Replica { name, offline, lag, .. }| ReplicaHealth { server: name, offline, lag });
    StreamHealth { stream, replicas: config.num_replicas, current, leader, behind: behind.collect() }
}
