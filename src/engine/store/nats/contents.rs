//! Contents by digest: in messages on the cluster, or in object storage.

use std::collections::BTreeSet;

use async_nats::jetstream::context::PublishErrorKind;
use async_nats::jetstream::message::PublishMessage;
use async_nats::jetstream::stream::LastRawMessageErrorKind;
use bytes::Bytes;
use futures_util::stream::{FuturesUnordered, TryStreamExt};

use super::cluster::Cluster;
use super::waiting::Waiting;
use crate::engine::commit::ChunkList;
use crate::engine::store::decompress::decompressed;
use crate::engine::store::{Result, StoreError};
use crate::engine::{Content, Digest};

const RAW: u8 = 0;
const ZSTD: u8 = 1;
/// The digests of pieces follow.
const PIECES: u8 = 2;
const LEVEL: i32 = 1;
const PIECE_MAX: usize = 512 << 10;
/// Minimum bytes of a content to compress it.
const COMPRESS_MIN: usize = 128;
const CONTENT_MAX: usize = 4 << 30;
/// Contents per request; the cluster returns 1,024 at most.
const CONTENTS_AT_ONCE: usize = 512;
/// Concurrent object reads.
#[cfg(feature = "replicate")]
const OBJECTS_AT_ONCE: usize = 32;

/// Stores contents; returns once the cluster has them.
pub(super) async fn put_all(cluster: &Cluster, contents: &[Content], waiting: &Waiting) -> Result<()> {
    let puts: FuturesUnordered<_> = contents.iter().map(|content| put(cluster, content, waiting)).collect();
    puts.try_collect().await
}

async fn put(cluster: &Cluster, content: &Content, waiting: &Waiting) -> Result<()> {
    let piece_max = PIECE_MAX.min(cluster.payload_max().saturating_sub(1)).max(1 << 10);
    if content.bytes.len() <= piece_max {
        return send(cluster, &content.digest, packed(&content.bytes), waiting).await;
    }
    let mut list = vec![PIECES];
    let mut at = 0;
    while at < content.bytes.len() {
        let piece = content.bytes.slice(at..content.bytes.len().min(at + piece_max));
        at += piece.len();
        let digest = Digest::of(&piece);
        list.extend_from_slice(digest.as_bytes());
        send(cluster, &digest, packed(&piece), waiting).await?;
    }
    send(cluster, &content.digest, list.into(), waiting).await
}

/// Stores a content as the list of its chunks, which the cluster has.
pub(super) async fn put_list(cluster: &Cluster, list: &ChunkList, waiting: &Waiting) -> Result<()> {
    let chunks = list.chunks.iter().flat_map(|chunk| chunk.as_bytes());
    let payload = std::iter::once(PIECES).chain(chunks.copied()).collect();
    send(cluster, &list.digest, payload, waiting).await
}

/// Stores a payload under a digest, unless the digest has one.
async fn send(cluster: &Cluster, digest: &Digest, payload: Bytes, waiting: &Waiting) -> Result<()> {
    #[cfg(feature = "replicate")]
    if let Some(bucket) = &cluster.bucket {
        return waiting.until_settled("store a content", || bucket.put(digest, payload.clone())).await;
    }
    let subject = cluster.content_subject(digest);
    waiting
        .until_settled("store a content", || async {
            let message = PublishMessage::build().payload(payload.clone()).expected_last_subject_sequence(0);
            let sent = match cluster.context.send_publish(subject.clone(), message).await {
                Ok(sent) => sent.await.map(drop),
                Err(error) => Err(error),
            };
            match sent {
                Err(error) if error.kind() == PublishErrorKind::WrongLastSequence => Ok(Some(())),
                Err(error) if error.kind() == PublishErrorKind::MaxPayloadExceeded => {
                    Err(cluster.failed(format!("can't store a content: {error}")))
                }
                Err(error) => {
                    tracing::debug!(%error, "retrying to send a content");
                    Ok(None)
                }
                Ok(()) => Ok(Some(())),
            }
        })
        .await
}

fn packed(bytes: &Bytes) -> Bytes {
    let small = if bytes.len() < COMPRESS_MIN { None } else { zstd::bulk::compress(bytes, LEVEL).ok() };
    match small.filter(|small| small.len() + 4 < bytes.len()) {
        Some(small) => {
            let length = u32::try_from(bytes.len()).unwrap_or(u32::MAX);
            [&[ZSTD][..], &length.to_le_bytes(), &small].concat().into()
        }
        None => [&[RAW][..], bytes].concat().into(),
    }
}

/// Reads a content, and checks its bytes against its digest. Fails with [`StoreError::NoContent`] if the cluster does
/// not have it.
pub(super) async fn get(cluster: &Cluster, digest: &Digest, waiting: &Waiting) -> Result<Bytes> {
    let payload = message(cluster, digest, waiting).await?;
    let damaged = || cluster.failed(format!("has a content that does not match its digest {digest}"));
    let bytes = match payload.split_first() {
        Some((&PIECES, list)) => {
            let (pieces, odd) = list.as_chunks::<32>();
            if !odd.is_empty() {
                return Err(damaged());
            }
            let mut whole = Vec::new();
            for piece in pieces {
                let piece = message(cluster, &Digest::from_bytes(*piece), waiting).await?;
                let piece = unpacked(&piece).filter(|piece| whole.len() + piece.len() <= CONTENT_MAX);
                whole.extend_from_slice(&piece.ok_or_else(damaged)?);
            }
            whole.into()
        }
        _ => unpacked(&payload).ok_or_else(damaged)?,
    };
    if digest.is_of(&bytes) { Ok(bytes) } else { Err(damaged()) }
}

/// Fetches many contents in batches; passes each complete one to `give`. Read the others with [`get`].
pub(super) async fn get_many(
    cluster: &Cluster,
    digests: &[Digest],
    mut give: impl FnMut(Content),
) -> Result<(), String> {
    #[cfg(feature = "replicate")]
    if let Some(bucket) = &cluster.bucket {
        use futures_util::stream::{self, StreamExt};
        let reads = stream::iter(digests.to_vec()).map(|digest| async move { (digest, bucket.get(&digest).await) });
        let mut reads = std::pin::pin!(reads.buffer_unordered(OBJECTS_AT_ONCE));
        while let Some((digest, payload)) = reads.next().await {
            payload?.and_then(|payload| whole(digest, &payload)).map(&mut give);
        }
        return Ok(());
    }
    let mut left: BTreeSet<Digest> = digests.iter().copied().collect();
    while !left.is_empty() {
        let asked: Vec<Digest> = left.iter().take(CONTENTS_AT_ONCE).copied().collect();
        let before = left.len();
        for (digest, payload) in cluster.some_contents(&asked).await? {
            left.remove(&digest);
            whole(digest, &payload).map(&mut give);
        }
        if left.len() == before {
            left.retain(|digest| !asked.contains(digest));
        }
    }
    Ok(())
}

fn whole(digest: Digest, payload: &Bytes) -> Option<Content> {
    let bytes = unpacked(payload).filter(|bytes| digest.is_of(bytes))?;
    Some(Content { digest, bytes })
}

pub(super) async fn has(cluster: &Cluster, digest: &Digest, waiting: &Waiting) -> Result<bool> {
    match message(cluster, digest, waiting).await {
        Ok(_) => Ok(true),
        Err(StoreError::NoContent(_)) => Ok(false),
        Err(error) => Err(error),
    }
}

async fn message(cluster: &Cluster, digest: &Digest, waiting: &Waiting) -> Result<Bytes> {
    #[cfg(feature = "replicate")]
    if let Some(bucket) = &cluster.bucket {
        let read = bucket.get(digest).await;
        let read = read.map_err(|error| cluster.failed(format!("this host can't read the object storage: {error}")));
        return read?.ok_or(StoreError::NoContent(*digest));
    }
    let subject = &cluster.content_subject(digest);
    let ask = || async move {
        match cluster.contents.direct_get_last_for_subject(subject.clone()).await {
            Ok(found) => return Ok(Some(found.payload)),
            // A replica that is behind does not have it yet; the leader does.
            Err(error) => tracing::debug!(%error, "requesting a content from the leader"),
        }
        match cluster.contents.get_last_raw_message_by_subject(subject).await {
            Ok(found) => Ok(Some(found.payload)),
            Err(error) if error.kind() == LastRawMessageErrorKind::NoMessageFound => {
                Err(StoreError::NoContent(*digest))
            }
            Err(error) => {
                tracing::debug!(%error, "retrying to request a content");
                Ok(None)
            }
        }
    };
    waiting.until_settled("return a content", ask).await
}

fn unpacked(payload: &Bytes) -> Option<Bytes> {
    match payload.split_first()? {
        (&RAW, _) => Some(payload.slice(1..)),
        (&ZSTD, rest) => {
            let (length, small) = rest.split_first_chunk::<4>()?;
            let length = usize::try_from(u32::from_le_bytes(*length)).ok().filter(|length| *length <= PIECE_MAX)?;
            decompressed(small, length).map(Bytes::from)
        }
        _ => None,
    }
}
