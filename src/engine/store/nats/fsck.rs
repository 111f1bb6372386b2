//! Check of all messages of a store's stream.

use std::collections::BTreeMap;

use async_nats::Message;
use async_nats::jetstream::message::PublishMessage;
use serde::Serialize;

use super::cluster::subject_of;
use super::message::{Misfit, ReadMessage, SessionMessage};
use super::{NatsInner, NatsStore};
use crate::engine::store::{Result, StoreError};
use crate::engine::{Seq, SessionId};

/// A message of a store's stream with a problem.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct StreamProblem {
    /// The session.
    pub session: SessionId,
    /// Position in the stream.
    pub sequence: u64,
    /// Description of the problem.
    pub what: String,
    /// True if acknowledged events are lost. False if the message can't be a commit and is skipped.
    pub is_loss: bool,
}

/// The head of a session, and the position of its last message.
type ReadEnd = (Seq, u64);

impl NatsStore {
    /// Checks all messages of the stream. With `repair`, cuts off messages that can't be commits, with a later message
    /// that names them, because nothing is deleted from the stream. Returns the findings from before the repair.
    ///
    /// # Errors
    /// [`StoreError::Cluster`] if the cluster does not answer.
    pub fn fsck(&self, repair: bool) -> Result<Vec<StreamProblem>> {
        let inner = self.inner.clone();
        self.wait_for(async move {
            let problems = inner.check_stream().await?;
            if repair {
                inner.cut_off(&problems).await?;
            }
            Ok(problems)
        })
    }
}

impl NatsInner {
    async fn check_stream(&self) -> Result<Vec<StreamProblem>> {
        let (mut ends, mut problems) = (BTreeMap::new(), Vec::new());
        let all = format!("{}.s.*", self.cluster.name());
        let (last, _) = self.cluster.newest(&self.cluster.stream, &all).await?;
        let mut from = 1;
        while from <= last {
            let read = || async {
                let batch = self.cluster.messages_from(self.cluster.name(), &all, from).await;
                let batch = batch.inspect_err(|why| tracing::debug!(why, "retrying to request messages"));
                Ok(batch.ok().filter(|batch| !batch.is_empty()))
            };
            for (at, message) in self.waiting.until_settled("return its messages", read).await? {
                from = at + 1;
                // Other subjects belong to no session.
                if let Some(session) = subject_of(&message).and_then(|subject| self.cluster.session_of(subject)) {
                    let end = ends.entry(session).or_default();
                    self.check_message((session, at), &message, end, &mut problems).await?;
                }
            }
        }
        Ok(problems)
    }

    async fn check_message(
        &self,
        (session, at): (SessionId, u64),
        message: &Message,
        end: &mut ReadEnd,
        problems: &mut Vec<StreamProblem>,
    ) -> Result<()> {
        let checked = match ReadMessage::of((&self.cluster, &self.waiting), session, message).await {
            Ok(ReadMessage::Commit(read)) => {
                let checked = read.check_next(&self.cluster, *end, message).await;
                // The check continues after a loss.
                if matches!(checked, Ok(()) | Err(Misfit::Lost(_))) {
                    end.0 = read.last;
                }
                checked
            }
            Ok(ReadMessage::Removal) => {
                end.0 = 0;
                Ok(())
            }
            Ok(ReadMessage::CutOff(cut)) => {
                problems.retain(|known| known.session != session || known.is_loss || known.sequence != cut);
                Ok(())
            }
            Err(misfit) => Err(misfit),
        };
        end.1 = at;
        let (what, is_loss) = match checked {
            Ok(()) => return Ok(()),
            Err(Misfit::Known(what) | Misfit::Senseless(what)) => (what, false),
            Err(Misfit::Lost(what)) => (what, true),
            Err(Misfit::Failed(StoreError::NoContent(digest))) => (format!("its content {digest} is lost"), true),
            Err(Misfit::Failed(error)) => return Err(error),
        };
        problems.push(StreamProblem { session, sequence: at, what, is_loss });
        Ok(())
    }

    async fn cut_off(&self, problems: &[StreamProblem]) -> Result<()> {
        for StreamProblem { session, sequence, .. } in problems.iter().filter(|problem| !problem.is_loss) {
            let payload = SessionMessage::CutOff(*sequence).encode();
            let send = || async {
                let message = PublishMessage::build().payload(payload.clone()).expected_stream(self.cluster.name());
                let sent = match self.cluster.context.send_publish(self.cluster.subject(*session), message).await {
                    Ok(sent) => sent.await,
                    Err(error) => Err(error),
                };
                // Sending it twice is harmless.
                Ok(sent.inspect_err(|error| tracing::debug!(%error, "retrying to send a repair")).ok())
            };
            self.waiting.until_settled("record a repair", send).await?;
        }
        Ok(())
    }
}
