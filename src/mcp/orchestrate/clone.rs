//! `session_clone`: a child of a session.

use std::collections::BTreeSet;

use rmcp::model::Tool;
use schemars::JsonSchema;
use serde::Deserialize;

use super::{OperationContext, OperationEffect, OperationError, OperationOutcome};
use crate::engine::event::{ChildLimits, Isolation};
use crate::engine::session::children::ForkOptions;
use crate::view::{self, ChildDocument, Position};

pub(super) const NAME: &str = "session_clone";

/// How much of a session its clone has.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
enum CloneDepth {
    /// The session's past up to a position, with the files as they were then.
    #[default]
    Fork,
    /// The session's mounts, copied afresh.
    Full,
    /// Everything: it is the same session, under another agent's name.
    Shared,
}

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct CloneParams {
    /// The session, by name or by the beginning of its id; this client's own by default.
    session: Option<String>,
    /// How much of the session the clone has: "fork" (the default), "full" or "shared".
    #[serde(default)]
    isolation: CloneDepth,
    /// Forks the session as it was at this position; as it is now by default.
    at: Option<Position>,
    /// The clone's name; by default the session's with a number.
    name: Option<String>,
    /// Who is to work in it; a shared clone needs one.
    agent: Option<String>,
    /// How many calls it may make.
    max_calls: Option<u64>,
    /// How many seconds its calls may take together.
    max_seconds: Option<u64>,
    /// How many bytes of files it may write.
    max_bytes: Option<u64>,
    /// How many generations of clones it may have.
    depth: Option<u32>,
    /// The only tools that it may use.
    tools: Option<BTreeSet<String>>,
    /// Programs that its commands may not run.
    #[serde(default)]
    deny: BTreeSet<String>,
}

pub(super) fn tool() -> Tool {
    let words = "Clones a session: a fork has its past and its files as they were at any position, and goes its own way; \
                 session_merge brings back what it changed. The clone never may do more than the session.";
    super::tool::<CloneParams, ChildDocument>(NAME, words, OperationEffect::Adds)
}

pub(super) async fn call(
    request: OperationContext<'_>,
    params: CloneParams,
) -> Result<OperationOutcome, OperationError> {
    let parent = request.session(params.session.as_deref()).await?;
    if params.isolation == CloneDepth::Shared && (params.agent.is_none() || params.name.is_some()) {
        let what = "a shared clone is the same session: give an agent, under whose name it works, and no name";
        return Err(OperationError(what.to_owned()));
    }
    if params.isolation != CloneDepth::Fork && params.at.is_some() {
        return Err(OperationError(
            "only a fork begins in the past: leave out at, or clone with isolation fork".to_owned(),
        ));
    }
    let known = request.client.hub().options().tools.clone();
    if let Some(unknown) = params.tools.iter().flatten().find(|tool| !known.names().any(|name| name == tool.as_str())) {
        let names = known.names().collect::<Vec<_>>().join(", ");
        return Err(OperationError(format!("there is no tool {unknown:?}; there are {names}")));
    }
    let looked = parent.clone();
    let at = super::reading(move || Ok(params.at.map(|at| at.resolve(&looked)).transpose()?)).await?;
    let isolation = match params.isolation {
        CloneDepth::Fork => Isolation::Fork,
        CloneDepth::Full => Isolation::Full,
        CloneDepth::Shared => Isolation::Shared,
    };
    let limits = ChildLimits {
        calls: params.max_calls,
        wall_millis: params.max_seconds.map(|seconds| seconds.saturating_mul(1000)),
        bytes_written: params.max_bytes,
        depth: params.depth,
        tools: params.tools,
        deny: params.deny,
    };
    let agent = params.agent.unwrap_or_default();
    let new = ForkOptions { at, name: params.name, agent, limits, ..ForkOptions::new(isolation) };
    let child = request.client.hub().start_child(parent.id(), new).await?;
    let document = view::child(&parent, child.session(), isolation, at);
    let (name, parent) = (&document.name, parent.name());
    let moved = document.moved().map(|moved| format!("; {moved}")).unwrap_or_default();
    let text = match isolation {
        Isolation::Fork => format!("session {name} is {parent} as of event {}{moved}", document.at.unwrap_or_default()),
        Isolation::Full => format!("session {name} begins afresh with the mounts of {parent}"),
        Isolation::Shared => format!("agent {} shares session {name}", document.agent),
    };
    OperationOutcome::new(text, &document)
}
