//! Work for sessions whose workspace another process has.

use futures_util::future::BoxFuture;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

use super::error::HubError;
use super::operations::{Merge, Operation, Rewind, RewoundDocument, Section, SectionDocument};
use crate::engine::event::MergeSide;
use crate::engine::id::Seq;
use crate::engine::session::Session;
use crate::engine::store::LeaseHolder;
use crate::reducers::MergeChoices;
use crate::tools::{MergeReport, RewindOptions, Rewound, ShellRules, ToolCall, ToolOutcome};

/// A future of a [`Forward`].
pub type Forwarding<'a, T> = BoxFuture<'a, Result<T, HubError>>;

/// Has work done by the process that has a session's workspace.
///
/// Subscribers of the session's output here get that of a call's command; the asker of `rules` gets its questions.
pub trait Forward: Send + Sync + 'static {
    /// Makes a call; `begun` gets its position once it begins. Dropping the future cancels the call.
    fn call<'a>(
        &'a self,
        holder: &'a LeaseHolder,
        session: &'a Session,
        call: ToolCall,
        rules: &'a ShellRules,
        begun: &'a (dyn Fn(Seq) + Send + Sync),
    ) -> Forwarding<'a, ToolOutcome>;

    /// Runs the [`Operation`] of that name, with parameters as JSON; returns its document.
    fn verb<'a>(
        &'a self,
        holder: &'a LeaseHolder,
        session: &'a Session,
        name: &'static str,
        params: Value,
    ) -> Forwarding<'a, Value>;
}

impl dyn Forward {
    /// Takes the session back to an earlier position.
    pub async fn rewind(
        &self,
        holder: &LeaseHolder,
        session: &Session,
        to: Seq,
        options: RewindOptions,
    ) -> Result<Rewound, HubError> {
        let RewindOptions { force, keep_earlier, dry_run } = options;
        let params = json!({ "to": to, "force": force, "keep_earlier": keep_earlier, "dry_run": dry_run });
        Ok(self.document::<RewoundDocument>(holder, session, Rewind::NAME, params).await?.into())
    }

    /// Merges a child of the session into it.
    pub async fn merge(
        &self,
        holder: &LeaseHolder,
        session: &Session,
        child: &Session,
        choices: &MergeChoices,
    ) -> Result<MergeReport, HubError> {
        let chosen = |side| choices.of(side).map(ToString::to_string).collect::<Vec<_>>();
        let agent = Some(session.agent().to_string()).filter(|agent| !agent.is_empty());
        let (ours, theirs) = (chosen(MergeSide::Ours), chosen(MergeSide::Theirs));
        let params = json!({ "child": child.id(), "ours": ours, "theirs": theirs, "agent": agent });
        self.document(holder, session, Merge::NAME, params).await
    }

    pub(super) async fn section(&self, holder: &LeaseHolder, session: &Session) -> Result<String, HubError> {
        Ok(self.document::<SectionDocument>(holder, session, Section::NAME, json!({})).await?.text)
    }

    async fn document<T: DeserializeOwned>(
        &self,
        holder: &LeaseHolder,
        session: &Session,
        name: &'static str,
        params: Value,
    ) -> Result<T, HubError> {
        let document = self.verb(holder, session, name, params).await?;
        let unread =
            |error: serde_json::Error| HubError::Lost { holder: holder.to_string(), reason: error.to_string() };
        serde_json::from_value(document).map_err(unread)
    }
}
