//! Effects of a session outside of its workspace.

use schemars::JsonSchema;
use serde::Deserialize;

use super::annotate::RecordedSeq;
use super::{Operation, OperationContext, OperationError, OperationRoute, check_agent, reading};
use crate::engine::commit::CallLink;
use crate::engine::event::{CallStarted, EffectOutcome, EffectSource, Event, ExternalEffect};
use crate::engine::id::Seq;
use crate::engine::session::Session;
use crate::engine::session::error::SessionError;
use crate::reducers::{EffectEntry, Effects};
use crate::tools::without_secrets;

/// Limits in characters.
const WHAT_MAX: usize = 200;
const TEXT_MAX: usize = 1000;

/// Lists the effects of a session's calls outside of the workspace, which no rewind takes back: the last 1,000.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ListEffects {}

impl Operation for ListEffects {
    const NAME: &'static str = "list_effects";
    const ROUTE: Option<OperationRoute> = OperationRoute::get("events", "/v1/sessions/{session}/effects");
    type Output = Vec<EffectEntry>;

    async fn run(self, context: &OperationContext<'_>) -> Result<Vec<EffectEntry>, OperationError> {
        let session = context.session().await?;
        reading(move || Ok(session.state()?.slice::<Effects>().map(|all| all.entries.clone()).unwrap_or_default()))
            .await
    }
}

/// Records an effect outside of the workspace. With `call`, it replaces an `unknown` outcome of the same effect of that
/// call.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[schemars(rename = "NewEffect")]
#[serde(deny_unknown_fields)]
pub struct RecordEffect {
    /// The action, such as `git push`; 1 to 200 characters.
    pub what: String,
    /// The place, such as a remote or a URL; at most 1,000 characters.
    #[serde(default)]
    pub target: String,
    /// `done`, `failed`, or `unknown` if it may have taken place.
    #[schemars(with = "String")]
    pub outcome: EffectOutcome,
    /// Advice about undoing it; at most 1,000 characters.
    #[serde(default)]
    pub undo: String,
    /// The call that made it; none by default.
    pub call: Option<Seq>,
    /// The agent or program that made it; none by default.
    pub agent: Option<String>,
}

impl Operation for RecordEffect {
    const NAME: &'static str = "record_effect";
    const ROUTE: Option<OperationRoute> = OperationRoute::post("events", "/v1/sessions/{session}/effects", 200);
    type Output = RecordedSeq;

    async fn run(self, context: &OperationContext<'_>) -> Result<RecordedSeq, OperationError> {
        let Self { what, target, outcome, undo, call, agent } = self;
        let agent = agent.unwrap_or_default();
        check_agent(&agent)?;
        for (name, text, most) in [("what", &what, WHAT_MAX), ("target", &target, TEXT_MAX), ("undo", &undo, TEXT_MAX)]
        {
            let chars = text.chars().count();
            if chars > most {
                return Err(OperationError::invalid(format!("{name} has {chars} characters; the limit is {most}")));
            }
        }
        if what.is_empty() {
            return Err(OperationError::invalid("what is empty; name the action"));
        }
        let session = context.session().await?;
        reading(move || {
            session.check_own()?;
            let (mut commit, target) = (session.as_agent(agent).commit(), without_secrets(&target));
            commit
                .push(&ExternalEffect { what, target, outcome, undo, by: EffectSource::Report, of: None })
                .map_err(SessionError::from)?;
            if let Some(call) = call {
                check_call(&session, call)?;
                commit = commit.of_call(CallLink::Of(call));
            }
            Ok(RecordedSeq { seq: session.record(commit)?.last, repeated: false })
        })
        .await
    }
}

fn check_call(session: &Session, call: Seq) -> Result<(), OperationError> {
    match &*session.event(call)?.event.kind == CallStarted::KIND {
        true => Ok(()),
        false => Err(OperationError::invalid(format!("event {call} is not a call"))),
    }
}

/// Returns the effects after a position that took place, or may have: what a rewind to it does not take back.
pub(super) fn effects_after(session: &Session, seq: Seq) -> Result<Vec<EffectEntry>, SessionError> {
    let state = session.state()?;
    Ok(state.slice::<Effects>().into_iter().flat_map(|all| all.after(seq)).cloned().collect())
}
