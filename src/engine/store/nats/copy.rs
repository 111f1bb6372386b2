//! The local copy: adding a session's messages from the cluster.

use async_nats::Message;
use futures_util::future::{BoxFuture, FutureExt};

use super::NatsInner;
use super::lane::Lane;
use super::message::{Misfit, ReadCommit, ReadMessage, behind};
use crate::engine::store::{EventStore, Result, StoreError};
use crate::engine::{CommitView, Seq, SessionId};

impl NatsInner {
    /// Updates the local copy of a session. Returns the stream position of the session's last message, 0 for none. The
    /// caller holds the lane's cursor.
    pub(super) async fn catch_up(&self, lane: &Lane, cursor: &mut Option<u64>) -> Result<u64> {
        self.catch_up_to(lane, cursor, Seq::MAX).await
    }

    /// Updates the local copy like [`catch_up`](Self::catch_up), but only up to a position of the session.
    async fn catch_up_to(&self, lane: &Lane, cursor: &mut Option<u64>, until: Seq) -> Result<u64> {
        let session = lane.session;
        let end = || async {
            match self.cluster.last_of(session).await {
                Ok(last) => Ok(Some(last)),
                Err(error) => {
                    tracing::debug!(%error, "retrying to request the end of a session");
                    Ok(None)
                }
            }
        };
        let at = self.waiting.until_settled("return the end of a session", end).await?;
        if at > 0 && cursor.is_none() && self.local.head(session).is_err() {
            self.begin_late(lane, cursor).await;
        }
        if at > 0 && *cursor != Some(at) {
            self.read_until(lane, cursor, at, until).await?;
        }
        if at == 0 || cursor.is_some_and(|cursor| cursor >= at) {
            *cursor = Some(at);
            lane.set_ours(false);
        }
        Ok(at)
    }

    /// Continues reading messages into the local copy, up to a stream position or a session position. The caller holds
    /// the lane's cursor.
    pub(super) async fn read_until(&self, lane: &Lane, cursor: &mut Option<u64>, at: u64, until: Seq) -> Result<()> {
        let progress = tokio::sync::Mutex::new(&mut *cursor);
        let read = || async {
            let mut cursor = progress.lock().await;
            match self.read_on(lane, &mut cursor, (at, until)).await {
                Ok(()) => Ok(Some(())),
                Err(ReadError::Again(why)) => {
                    tracing::debug!(why, "retrying to read a session");
                    Ok(None)
                }
                Err(ReadError::Final(error)) => Err(error),
            }
        };
        self.waiting.until_settled("return a session's events", read).await
    }

    async fn read_on(&self, lane: &Lane, cursor: &mut Option<u64>, (last, until): (u64, Seq)) -> Result<(), ReadError> {
        while cursor.is_none_or(|at| at < last) {
            let from = cursor.unwrap_or(0) + 1;
            let subject = self.cluster.subject(lane.session);
            let batch = self.cluster.messages_from(self.cluster.name(), &subject, from).await;
            let batch = batch.map_err(ReadError::Again)?;
            if batch.is_empty() {
                // The replica that answered is behind.
                return Err(ReadError::Again("the last messages are missing".to_owned()));
            }
            for (at, message) in batch {
                self.add(lane, cursor.unwrap_or(0), (at, message)).await.map_err(ReadError::Final)?;
                *cursor = Some(at);
                lane.note_place(self.local.head(lane.kept_as).unwrap_or(0), at);
                if self.local.head(lane.kept_as).is_ok_and(|head| head >= until) {
                    return Ok(());
                }
            }
        }
        Ok(())
    }

    /// Adds a message to the local copy, unless the copy has it. Skips a message that can't be a commit of the session.
    async fn add(&self, lane: &Lane, before: u64, (at, message): (u64, Message)) -> Result<()> {
        let session = lane.session;
        match self.added(lane, before, &message).await {
            Ok(()) | Err(Misfit::Known(_)) => Ok(()),
            Err(Misfit::Senseless(why)) => {
                tracing::warn!(%session, at, why, "skipping an invalid message; a check of the store lists it");
                Ok(())
            }
            Err(Misfit::Lost(what)) => {
                Err(self.cluster.failed(format!("can't return session {session} from message {at} on: {what}")))
            }
            Err(Misfit::Failed(error)) => Err(error),
        }
    }

    async fn added(&self, lane: &Lane, before: u64, message: &Message) -> Result<(), Misfit> {
        let read = match ReadMessage::of((&self.cluster, &self.waiting), lane.session, message).await? {
            ReadMessage::Commit(read) => *read,
            ReadMessage::Removal => {
                return match self.local.remove(lane.session) {
                    Err(StoreError::NoSession(_)) => Ok(()),
                    other => Ok(other?),
                };
            }
            ReadMessage::CutOff(_) => return Ok(()),
        };
        let head = self.local.head(lane.kept_as);
        let is_removed = head.is_err() && behind(message).is_some_and(|behind| behind <= before);
        if !is_removed {
            read.check_next(&self.cluster, (head.unwrap_or(0), before), message).await?;
        }
        if let Some(point) = read.fork {
            self.have(point.session, point.seq).await?;
        }
        let ReadCommit { first, fork, encoded, mut commit, .. } = read;
        commit.session = lane.kept_as;
        if lane.is_held()
            && let Ok(view) = CommitView::parse(&encoded)
        {
            self.note_taken(lane, &view);
        }
        let recorded = match self.local.submit(commit.duplicate()) {
            // An earlier commit has the same id.
            Ok(pending) if pending.first() != first => {
                commit.id = None;
                self.local.submit(commit)
            }
            recorded => recorded,
        };
        match recorded {
            // It is removed, and only its children have its remaining events.
            Err(StoreError::Buried(_) | StoreError::NoSession(_)) => return Ok(()),
            recorded => drop(recorded?),
        }
        if let Some(point) = fork {
            // The parent may have been removed since; that is applied only now that its child exists.
            self.have(point.session, Seq::MAX).await?;
        }
        Ok(())
    }

    /// Ensures that the local copy has a session up to a position.
    pub(super) fn have(&self, session: SessionId, seq: Seq) -> BoxFuture<'_, Result<()>> {
        async move {
            if !self.local.head(session).is_ok_and(|head| head >= seq) {
                let lane = self.lane(session);
                let mut cursor = lane.cursor.lock().await;
                if self.local.head(session).is_err() {
                    // It was removed, and must be read again for a child.
                    *cursor = None;
                }
                self.catch_up_to(&lane, &mut cursor, seq).await?;
            }
            self.fill(session, seq).await
        }
        .boxed()
    }
}

enum ReadError {
    Again(String),
    Final(StoreError),
}
