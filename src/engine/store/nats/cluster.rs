//! The connection to a NATS cluster with a store's streams.

use std::time::Duration;

use async_nats::jetstream::context::{CreateKeyValueErrorKind, CreateStreamErrorKind};
use async_nats::jetstream::object_store::{self, ObjectStore};
use async_nats::jetstream::stream::{self, LastRawMessageErrorKind, Stream};
use async_nats::jetstream::{self, Context, ErrorCode, kv};
use async_nats::{Client, ConnectOptions, Message, ServerAddr};
use bytes::Bytes;
use futures_util::StreamExt;
use serde_json::json;

use super::address::NatsAddress;
#[cfg(feature = "replicate")]
use super::bucket::ContentBucket;
use super::stream_info::StreamInfo;
use crate::engine::store::{Result, StoreError};
use crate::engine::{Digest, SessionId, Timestamp};

/// The oldest server version without a known loss of acknowledged messages.
const OLDEST: (u64, u64, u64) = (2, 14, 4);
/// Time limit for the first connection, and for each answer of the cluster.
pub(super) const REPLY_TIMEOUT: Duration = Duration::from_secs(2);
/// Pause between attempts while a store is opened.
const PAUSE: Duration = Duration::from_millis(200);
/// Messages per request, and their bytes.
const BATCH_MESSAGES: u32 = 1000;
const BATCH_BYTES: u32 = 4 << 20;
/// Bytes reserved for a message's headers, besides its payload.
const HEADERS: usize = 1 << 10;

/// A connection, with the streams and names of a store on the cluster.
#[derive(Clone)]
pub(super) struct Cluster {
    client: Client,
    pub(super) context: Context,
    pub(super) stream: Stream<()>,
    pub(super) contents: Stream<()>,
    /// The object storage for contents, which replaces the `contents` stream.
    #[cfg(feature = "replicate")]
    pub(super) bucket: Option<ContentBucket>,
    name: String,
    address: String,
    replicas: usize,
    payload_max: usize,
    /// Time limit for the cluster to elect leaders while a store is opened.
    patience: Duration,
}

impl Cluster {
    /// Connects to a server of a sufficient version.
    pub(super) async fn client(address: &NatsAddress, host: &str) -> Result<Client> {
        let failed = |what: String| StoreError::Cluster { address: address.to_string(), what };
        let servers: Vec<ServerAddr> = address
            .servers()
            .iter()
            .map(|server| server.parse().map_err(|error| failed(format!("has an invalid address: {error}"))))
            .collect::<Result<_>>()?;
        let options = ConnectOptions::new()
            .name(format!("foldspace {host}"))
            .connection_timeout(REPLY_TIMEOUT)
            .ping_interval(REPLY_TIMEOUT);
        let client = options.connect(servers).await.map_err(|error| failed(format!("can't be reached: {error}")))?;
        let version = client.server_info().version;
        if number_of(&version) < Some(OLDEST) {
            let (major, minor, patch) = OLDEST;
            return Err(failed(format!(
                "runs server version {version}, which may lose acknowledged messages; upgrade it to \
                 {major}.{minor}.{patch} or later"
            )));
        }
        Ok(client)
    }

    /// Connects, and creates missing streams.
    pub(super) async fn connect(address: &NatsAddress, host: &str, patience: Duration) -> Result<Self> {
        let failed = |what: String| StoreError::Cluster { address: address.to_string(), what };
        #[cfg(feature = "replicate")]
        let bucket = address.contents().map(ContentBucket::open).transpose().map_err(|what| {
            failed(format!("can't use object storage {}: {what}", address.contents().unwrap_or_default()))
        })?;
        #[cfg(not(feature = "replicate"))]
        if address.contents().is_some() {
            return Err(failed("has contents in object storage, which needs the feature `replicate`".to_owned()));
        }
        let client = Self::client(address, host).await?;
        let payload_max = client.server_info().max_payload.saturating_sub(HEADERS);
        let context = jetstream::ContextBuilder::new().timeout(REPLY_TIMEOUT).build(client.clone());
        let name = address.stream().to_owned();
        let replicas = address.replicas();
        let (stream, contents) = Self::streams(&context, &failed, (&name, replicas), patience).await?;
        Ok(Self {
            client,
            context,
            stream,
            contents,
            #[cfg(feature = "replicate")]
            bucket,
            name,
            address: address.to_string(),
            replicas,
            payload_max,
            patience,
        })
    }

    /// Opens the streams of commits and contents.
    async fn streams(
        context: &Context,
        failed: &impl Fn(String) -> StoreError,
        (name, replicas): (&str, usize),
        patience: Duration,
    ) -> Result<(Stream<()>, Stream<()>)> {
        let events = stream::Config {
            name: name.to_owned(),
            subjects: vec![format!("{name}.s.*")],
            num_replicas: replicas,
            allow_direct: true,
            deny_delete: true,
            description: Some("Foldspace sessions: one subject each, one message per commit".to_owned()),
            ..stream::Config::default()
        };
        let contents = stream::Config {
            name: format!("{name}-contents"),
            subjects: vec![format!("{name}.c.*")],
            num_replicas: replicas,
            allow_direct: true,
            max_messages_per_subject: 1,
            description: Some("File contents by digest".to_owned()),
            ..stream::Config::default()
        };
        let events = Self::made(context, failed, events, patience).await?;
        Ok((events, Self::made(context, failed, contents, patience).await?))
    }

    async fn made(
        context: &Context,
        failed: &impl Fn(String) -> StoreError,
        config: stream::Config,
        patience: Duration,
    ) -> Result<Stream<()>> {
        let (name, subjects, replicas) = (config.name.clone(), config.subjects.clone(), config.num_replicas);
        let made = patiently(
            patience,
            || context.get_or_create_stream(config.clone()),
            |error| match error.kind() {
                CreateStreamErrorKind::TimedOut => true,
                // The servers have just started, and do not all see each other yet.
                CreateStreamErrorKind::JetStream(error) => {
                    matches!(error.error_code(), ErrorCode::CLUSTER_NO_PEERS | ErrorCode::CLUSTER_NOT_AVAILABLE)
                }
                _ => false,
            },
        );
        let made = made.await;
        let made = made.map_err(|error| failed(format!("has no stream {name}, and creating it failed: {error}")))?;
        let there = &made.cached_info().config;
        if there.subjects != subjects || there.num_replicas != replicas {
            return Err(failed(format!(
                "has stream {name} with {} replicas of {:?}, not {replicas} of {subjects:?}; choose another: ?stream=",
                there.num_replicas, there.subjects
            )));
        }
        context.get_stream_no_info(&name).await.map_err(|error| failed(error.to_string()))
    }

    /// Opens a key-value bucket, or creates it.
    pub(super) async fn bucket(&self, what: &str, description: &str) -> Result<kv::Store> {
        let bucket = format!("{}-{what}", self.name);
        let config = kv::Config {
            bucket: bucket.clone(),
            description: description.to_owned(),
            num_replicas: self.replicas,
            history: 1,
            ..kv::Config::default()
        };
        if let Ok(there) = self.context.get_key_value(&bucket).await {
            return Ok(there);
        }
        let made = patiently(
            self.patience,
            || self.context.create_key_value(config.clone()),
            |error| error.kind() == CreateKeyValueErrorKind::TimedOut,
        );
        made.await.map_err(|error| self.failed(format!("has no bucket {bucket}, and creating it failed: {error}")))
    }

    /// Opens an object store, or creates it.
    pub(super) async fn objects(&self, what: &str, description: &str) -> Result<ObjectStore> {
        let bucket = format!("{}-{what}", self.name);
        let config = object_store::Config {
            bucket: bucket.clone(),
            description: Some(description.to_owned()),
            num_replicas: self.replicas,
            ..object_store::Config::default()
        };
        if let Ok(there) = self.context.get_object_store(&bucket).await {
            return Ok(there);
        }
        let made = patiently(
            self.patience,
            || self.context.create_object_store(config.clone()),
            |error| error.kind() == CreateKeyValueErrorKind::TimedOut,
        );
        made.await.map_err(|error| self.failed(format!("has no objects {bucket}, and creating them failed: {error}")))
    }

    pub(super) fn subject(&self, session: SessionId) -> String {
        format!("{}.s.{session}", self.name)
    }

    /// Returns the session with a subject.
    pub(super) fn session_of(&self, subject: &str) -> Option<SessionId> {
        subject.strip_prefix(&self.name)?.strip_prefix(".s.")?.parse().ok()
    }

    pub(super) fn content_subject(&self, digest: &Digest) -> String {
        format!("{}.c.{digest}", self.name)
    }

    pub(super) fn name(&self) -> &str {
        &self.name
    }

    /// Returns the maximum bytes of a payload.
    pub(super) fn payload_max(&self) -> usize {
        self.payload_max
    }

    /// Returns true while a server is connected.
    pub(super) fn is_connected(&self) -> bool {
        self.client.connection_state() == async_nats::connection::State::Connected
    }

    /// Reconnects, to any of the servers.
    pub(super) async fn reconnect(&self) {
        // It fails only for a closed client.
        drop(self.client.force_reconnect().await);
    }

    /// Returns the time on the clock of the leader of the sessions' stream. `None` without an answer.
    pub(super) async fn time(&self) -> Option<Timestamp> {
        StreamInfo::read(&self.client, &self.name, REPLY_TIMEOUT).await?.ts
    }

    pub(super) fn failed(&self, what: String) -> StoreError {
        StoreError::Cluster { address: self.address.clone(), what }
    }

    /// Returns the stream position of a session's first message.
    pub(super) async fn begin_of(&self, session: SessionId) -> Result<u64> {
        let first = self.stream.get_first_raw_message_by_subject(self.subject(session), 1).await;
        let first = first.map_err(|error| self.failed(format!("did not return a session's first message: {error}")));
        Ok(first?.sequence)
    }

    /// Returns messages of some subjects from a stream position on, with their positions. Empty if the replica lacks
    /// them, perhaps because it is behind. Fails with the reason to retry.
    pub(super) async fn messages_from(
        &self,
        stream: &str,
        subjects: &str,
        from: u64,
    ) -> Result<Vec<(u64, Message)>, String> {
        let asked = json!({
            "seq": from, "next_by_subj": subjects, "batch": BATCH_MESSAGES, "max_bytes": BATCH_BYTES,
        });
        let position = |message: &Message| header(message, "Nats-Sequence").and_then(|at| at.parse().ok());
        let messages = self.batch(stream, &asked).await?.into_iter();
        let placed = messages.map(|message| Some((position(&message)?, message)));
        placed.collect::<Option<_>>().ok_or_else(|| "a message has no position".to_owned())
    }

    /// Returns the payloads of those contents that a replica has and that fit into one batch. Fails with the reason to
    /// retry.
    pub(super) async fn some_contents(&self, digests: &[Digest]) -> Result<Vec<(Digest, Bytes)>, String> {
        let subjects: Vec<_> = digests.iter().map(|digest| self.content_subject(digest)).collect();
        let asked = json!({ "multi_last": subjects, "batch": subjects.len(), "max_bytes": BATCH_BYTES });
        let prefix = format!("{}.c.", self.name);
        let digest = |message: &Message| subject_of(message)?.strip_prefix(&prefix)?.parse().ok();
        let messages = self.batch(&format!("{}-contents", self.name), &asked).await?.into_iter();
        Ok(messages.filter_map(|message| Some((digest(&message)?, message.payload))).collect())
    }

    /// Requests a batch of messages from any replica of a stream.
    async fn batch(&self, stream: &str, asked: &serde_json::Value) -> Result<Vec<Message>, String> {
        let inbox = self.client.new_inbox();
        let mut answers = self.client.subscribe(inbox.clone()).await.map_err(|error| error.to_string())?;
        let subject = format!("$JS.API.DIRECT.GET.{stream}");
        let sent = self.client.publish_with_reply(subject, inbox, asked.to_string().into()).await;
        sent.map_err(|error| error.to_string())?;
        let mut messages = Vec::new();
        loop {
            let next = tokio::time::timeout(REPLY_TIMEOUT, answers.next()).await;
            let Ok(Some(message)) = next else { return Err("no answer".to_owned()) };
            match message.status.map(|status| status.as_u16()) {
                None | Some(200) => {}
                // The end of the batch, or an empty batch.
                Some(204 | 404) => return Ok(messages),
                Some(status) => {
                    return Err(format!("the answer is {status} {}", message.description.unwrap_or_default()));
                }
            }
            messages.push(message);
        }
    }

    /// Returns the stream position of a session's last message, from the leader; 0 for none.
    pub(super) async fn last_of(&self, session: SessionId) -> Result<u64> {
        Ok(self.newest(&self.stream, &self.subject(session)).await?.0)
    }

    /// Returns the last message of a subject, from the leader, and its position; 0 for none.
    pub(super) async fn newest<S>(&self, stream: &Stream<S>, subject: &str) -> Result<(u64, Bytes)> {
        match stream.get_last_raw_message_by_subject(subject).await {
            Ok(message) => Ok((message.sequence, message.payload)),
            Err(error) if error.kind() == LastRawMessageErrorKind::NoMessageFound => Ok((0, Bytes::new())),
            Err(error) => Err(self.failed(format!("did not return the last message of {subject}: {error}"))),
        }
    }
}

fn header<'a>(message: &'a Message, name: &str) -> Option<&'a str> {
    Some(message.headers.as_ref()?.get(name)?.as_str())
}

/// Returns the subject of a requested message.
pub(super) fn subject_of(message: &Message) -> Option<&str> {
    header(message, "Nats-Subject")
}

/// Retries an operation until the cluster has a leader.
async fn patiently<T, E, F: Future<Output = Result<T, E>>>(
    patience: Duration,
    attempt: impl Fn() -> F,
    is_late: impl Fn(&E) -> bool,
) -> Result<T, E> {
    let begun = tokio::time::Instant::now();
    loop {
        match attempt().await {
            Err(error) if is_late(&error) && begun.elapsed() < patience => tokio::time::sleep(PAUSE).await,
            other => return other,
        }
    }
}

fn number_of(version: &str) -> Option<(u64, u64, u64)> {
    let mut parts = version.split(['.', '-', '+']).map_while(|part| part.parse().ok());
    Some((parts.next()?, parts.next()?, parts.next()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn version_of_server_is_compared_by_numbers() {
        for (version, is_enough) in [
            ("2.14.4", true),
            ("2.15.0-beta", true),
            ("3.0.0", true),
            ("2.14.3", false),
            ("2.9.10", false),
            ("x", false),
        ] {
            assert_eq!(number_of(version) >= Some(OLDEST), is_enough, "{version}");
        }
    }
}
