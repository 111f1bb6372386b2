//! Sending commits to the cluster, one at a time for each session.

use std::sync::Arc;

use async_nats::jetstream::context::PublishErrorKind;
use async_nats::jetstream::message::PublishMessage;
use bytes::Bytes;

use super::NatsInner;
use super::contents;
use super::lane::Lane;
use super::message::SessionMessage;
use crate::engine::commit::CommitError;
use crate::engine::store::local::place::CommitPlace;
use crate::engine::store::{Committed, EventStore, Result, StoreError};
use crate::engine::{Clock, Commit, CommitId, Content, Expected, SessionId};

/// The outcome of sending a message.
enum Sent {
    /// The stream has it at this position.
    At(u64),
    /// The session no longer ends at the expected message: another writer extended it, or an earlier attempt did that
    /// was not answered.
    Overtaken,
}

impl NatsInner {
    /// Sends the queued commits of a lane.
    pub(super) async fn send_all(self: Arc<Self>, lane: Arc<Lane>) {
        while let Some(commit) = lane.next() {
            let outcome = self.record(&lane, commit).await;
            lane.answers.tell(outcome);
            lane.answers.wake();
        }
    }

    pub(super) async fn record(&self, lane: &Lane, commit: Commit) -> Result<Committed> {
        if commit.keeps_only() {
            self.keep_contents(&commit).await?;
            return self.local.submit(commit)?.wait();
        }
        // Before locking the lane: a lane may wait only for an ancestor's lane.
        if let Expected::ForkOf(point) = commit.expected {
            let parent = self.lane(point.session);
            self.catch_up(&parent, &mut *parent.cursor.lock().await).await?;
            self.fill(point.session, point.seq).await?;
        }
        let mut cursor = lane.cursor.lock().await;
        let recorded = self.record_at(lane, &mut cursor, commit).await;
        if recorded.is_err() {
            // Forces a catch-up before the next commit.
            *cursor = None;
        }
        recorded
    }

    async fn record_at(&self, lane: &Lane, cursor: &mut Option<u64>, commit: Commit) -> Result<Committed> {
        let is_named = commit.id.is_some();
        // The id finds it on the cluster if an attempt was not answered.
        let id = commit.id.unwrap_or_else(|| CommitId::from_bytes(self.clock.fresh_id()));
        let mut commit = commit.with_id(id);
        loop {
            // First, because the cluster may not answer a host that has released its sessions.
            lane.check_kept()?;
            let at = match *cursor {
                Some(at) => at,
                None => self.catch_up(lane, cursor).await?,
            };
            lane.check_kept()?;
            let (first, time) = match self.local.place(&commit)? {
                CommitPlace::Taken(committed) => {
                    return Ok(Committed { repeated: committed.repeated && is_named, ..committed });
                }
                CommitPlace::Free { first, time } => (first, time),
            };
            let begins = first == 1 || matches!(commit.expected, Expected::ForkOf(_));
            let (actual, limit) = (commit.encoded_len() as u64, self.cluster.payload_max() as u64 / 2);
            if begins && actual > limit {
                // The list of sessions contains its first event.
                let what = "bytes in the first commit of a session on a cluster";
                return Err(CommitError::TooLarge { what, actual, limit }.into());
            }
            self.keep_contents(&commit).await?;
            let message = self.fitting(SessionMessage::of(&commit, first, time)).await?;
            match self.send(lane.session, at, message.encode()).await? {
                Sent::At(at) => {
                    commit.time = time;
                    let committed = self.local.submit(commit)?.wait()?;
                    *cursor = Some(at);
                    lane.note_place(committed.last, at);
                    lane.set_ours(true);
                    self.catalogue.moved(lane.session);
                    if begins {
                        let list = || self.catalogue.add(&self.local, lane.session, at);
                        self.listed(list).await?;
                    }
                    return Ok(committed);
                }
                Sent::Overtaken => drop(self.catch_up(lane, cursor).await?),
            }
        }
    }

    /// Sends a message that must be the first after a position. Retries need no message id: if an unanswered attempt
    /// succeeded, the next one finds the session extended.
    async fn send(&self, session: SessionId, at: u64, payload: Bytes) -> Result<Sent> {
        let subject = self.cluster.subject(session);
        let attempt = || async {
            let message = PublishMessage::build().payload(payload.clone());
            let message = message.expected_last_subject_sequence(at).expected_stream(self.cluster.name());
            let sent = match self.cluster.context.send_publish(subject.clone(), message).await {
                Ok(sent) => sent.await,
                Err(error) => Err(error),
            };
            match sent {
                Ok(sent) => Ok(Some(Sent::At(sent.sequence))),
                Err(error) if error.kind() == PublishErrorKind::WrongLastSequence => Ok(Some(Sent::Overtaken)),
                Err(error) if error.kind() == PublishErrorKind::MaxPayloadExceeded => {
                    Err(self.cluster.failed(format!("rejected a commit: {error}")))
                }
                // No leader yet, or no answer: it may or may not be recorded.
                Err(error) => {
                    tracing::debug!(%error, "retrying to send a commit");
                    Ok(None)
                }
            }
        };
        self.waiting.until_settled("record a commit", attempt).await
    }

    /// Removes a session on the cluster, and locally.
    pub(super) async fn end(&self, lane: &Lane) -> Result<()> {
        let mut cursor = lane.cursor.lock().await;
        loop {
            let at = self.catch_up(lane, &mut cursor).await?;
            self.local.head(lane.session)?;
            match self.send(lane.session, at, SessionMessage::Removal.encode()).await? {
                Sent::At(at) => {
                    self.local.remove(lane.session)?;
                    *cursor = Some(at);
                    lane.set_ours(true);
                    lane.let_go();
                    self.forget_owner(lane.session).await;
                    self.forget_snapshot(lane.session).await;
                    return self.listed(|| self.catalogue.remove(lane.session)).await;
                }
                // An unanswered attempt may have removed it.
                Sent::Overtaken => {
                    self.catch_up(lane, &mut cursor).await?;
                    if let Err(StoreError::NoSession(_)) = self.local.head(lane.session) {
                        return self.listed(|| self.catalogue.remove(lane.session)).await;
                    }
                }
            }
        }
    }

    /// Changes the list of sessions; retries while the list's stream lacks a leader.
    async fn listed<F: Future<Output = Result<()>>>(&self, change: impl Fn() -> F) -> Result<()> {
        let attempt = || async {
            match change().await {
                Ok(()) => Ok(Some(())),
                Err(StoreError::Cluster { what, .. }) => {
                    tracing::debug!(what, "retrying to change the list of sessions");
                    Ok(None)
                }
                Err(error) => Err(error),
            }
        };
        self.waiting.until_settled("change the list of sessions", attempt).await
    }

    /// Sends the contents of a commit that the cluster may not have.
    async fn keep_contents(&self, commit: &Commit) -> Result<()> {
        if commit.contents.is_empty() && commit.lists.is_empty() {
            return Ok(());
        }
        let is_new = |content: &&Content| self.local.has_content(&content.digest).is_ok_and(|has| !has);
        let new: Vec<Content> = commit.contents.iter().filter(is_new).cloned().collect();
        contents::put_all(&self.cluster, &new, &self.waiting).await?;
        for list in &commit.lists {
            if !self.local.has_content(&list.digest)? {
                contents::put_list(&self.cluster, list, &self.waiting).await?;
            }
        }
        Ok(())
    }

    /// Returns a message of allowed length; stores a longer commit as a content.
    async fn fitting(&self, message: SessionMessage) -> Result<SessionMessage> {
        let SessionMessage::Commit { fork, encoded } = message else { return Ok(message) };
        if encoded.len() + 64 <= self.cluster.payload_max() {
            return Ok(SessionMessage::Commit { fork, encoded });
        }
        let content = Content::of(encoded);
        let digest = content.digest;
        contents::put_all(&self.cluster, &[content], &self.waiting).await?;
        Ok(SessionMessage::Apart { fork, digest })
    }
}
