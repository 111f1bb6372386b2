//! The messages of agents' runs in a session, page by page.

use std::ops::ControlFlow;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::log::LogPage;
use super::{Operation, OperationContext, OperationError, OperationRoute, reading};
use crate::engine::id::Seq;
use crate::view::{Conversation, Position, RunMessage};

/// Limit for the events with messages of a page.
const LIMIT: usize = 1000;
/// Limit for a page in bytes, unless its only event is larger.
const BYTES: usize = 4 << 20;
/// Limit for the events that are searched for a page.
const EVENTS: u64 = 200_000;

/// Lists the messages of agents' runs: prompts, answers and reasoning, in order, page by page. A page may be short or
/// empty before the end; `next` is where to continue.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ListMessages {
    /// The start position; 1 by default.
    pub from: Option<Position>,
    /// Limit for the events with messages, from 1 to 1000. Most have one message.
    #[serde(default = "usual")]
    #[schemars(range(min = 1, max = 1000))]
    pub limit: usize,
    /// Only messages of this run, by the agent's id of it.
    pub run: Option<String>,
    /// True for only messages of agents that speak of success after their last command failed.
    #[serde(default)]
    pub claims: bool,
    /// True to return long texts in full.
    #[serde(default)]
    pub whole: bool,
}

fn usual() -> usize {
    200
}

/// A page of messages.
#[derive(Debug, Clone, Serialize, JsonSchema)]
pub struct MessagesPage {
    /// The position of the session's last event.
    pub head: Seq,
    /// The start of the next page; null at the end.
    pub next: Option<Seq>,
    /// The messages.
    pub messages: Vec<RunMessage>,
}

impl Operation for ListMessages {
    const NAME: &'static str = "list_messages";
    const ROUTE: Option<OperationRoute> = OperationRoute::get("events", "/v1/sessions/{session}/messages");
    type Output = MessagesPage;

    async fn run(self, context: &OperationContext<'_>) -> Result<MessagesPage, OperationError> {
        let Self { from, limit, run, claims, whole } = self;
        if !(1..=LIMIT).contains(&limit) {
            return Err(OperationError::invalid(format!("limit is {limit}; it must be from 1 to {LIMIT}")));
        }
        let session = context.session().await?;
        reading(move || {
            let head = session.head()?;
            let from = from.map_or(Ok(1), |from| from.first_read(&session))?.max(1);
            let until = from.saturating_add(EVENTS - 1);
            let mut next = (until < head).then(|| until + 1);
            let mut page = LogPage::new((limit, BYTES), false);
            let is_wanted = |message: &RunMessage| {
                run.as_ref().is_none_or(|run| *run == message.run) && (!claims || message.claim.is_some())
            };
            Conversation::visit(&session, (from, until), whole, &mut |mut messages| {
                messages.retain(is_wanted);
                let Some(seq) = messages.first().map(|message| message.seq) else { return ControlFlow::Continue(()) };
                if page.take(messages) {
                    return ControlFlow::Continue(());
                }
                next = Some(seq);
                ControlFlow::Break(())
            })?;
            Ok(MessagesPage { head, next, messages: page.documents().into_iter().flatten().collect() })
        })
        .await
    }
}
