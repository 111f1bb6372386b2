//! Several forks of a session in one request.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use super::clone_session::{ChildDocument, child, in_mount, landing};
use super::create_session::check_create_id;
use super::{Operation, OperationContext, OperationError, OperationRoute, check_agent, policy_of_new, reading};
use crate::engine::event::{ChildLimits, Isolation};
use crate::engine::session::Session;
use crate::engine::session::children::ForkOptions;
use crate::hub::begin_once::chosen_id;
use crate::reducers::ToolPolicy;
use crate::view::Position;

const FORKS_MAX: u32 = 1000;

/// Forks a session several times at one position. All or nothing: if one fork fails, the others are removed.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[schemars(rename = "ForkRequest")]
#[serde(deny_unknown_fields)]
pub struct ForkSession {
    /// The number of forks, from 1 to 1,000; 1 by default.
    #[serde(default = "one")]
    #[schemars(range(min = 1, max = 1000))]
    pub count: u32,
    /// The position to fork at; the current state by default.
    pub at: Option<Position>,
    /// True for forks of a session on the host with their files in mounts, which share files instead of copying them. The
    /// server must be root.
    #[serde(default)]
    pub mount: bool,
    /// Name prefix; the forks are numbered from 1. Default: the session's name and free numbers.
    pub name: Option<String>,
    /// The agent who works in the forks.
    pub agent: Option<String>,
    /// Limits of each fork: `calls`, `wall_millis`, `bytes_written`, `depth`, `tools`, `deny`.
    #[serde(default)]
    #[schemars(with = "Map<String, Value>")]
    pub limits: ChildLimits,
    /// A policy for tools that binds each fork, in addition to the session's.
    pub policy: Option<ToolPolicy>,
    /// An idempotency key of at most 200 bytes. A retry with the same key returns the forks that the first request
    /// created.
    pub create_id: Option<String>,
}

fn one() -> u32 {
    1
}

/// The created forks.
#[derive(Debug, Clone, Serialize, JsonSchema)]
pub struct Forks {
    /// The forks.
    pub children: Vec<ChildDocument>,
}

impl Operation for ForkSession {
    const NAME: &'static str = "fork_session";
    const ROUTE: Option<OperationRoute> = OperationRoute::post("children", "/v1/sessions/{session}/forks", 200);
    type Output = Forks;

    async fn run(self, context: &OperationContext<'_>) -> Result<Forks, OperationError> {
        if !(1..=FORKS_MAX).contains(&self.count) {
            return Err(OperationError::invalid(format!("count is {}; it must be from 1 to {FORKS_MAX}", self.count)));
        }
        check_agent(self.agent.as_deref().unwrap_or_default())?;
        self.create_id.as_deref().map_or(Ok(()), check_create_id)?;
        let policy = policy_of_new(context.hub, self.policy.as_ref())?;
        let parent = context.session().await?;
        let (looked, at) = (parent.clone(), self.at.clone());
        let (at, asked) = reading(move || Ok(landing(at.as_ref(), &looked)?)).await?;
        let mut begun: Vec<(Session, bool)> = Vec::new();
        for number in 1..=self.count {
            let new = ForkOptions {
                // All forks are at the first fork's position.
                at: at.or_else(|| Some(begun.first()?.0.origin()?.at)),
                name: self.name.as_ref().map(|name| format!("{name}-{number}")),
                agent: self.agent.clone().unwrap_or_default(),
                limits: self.limits.clone(),
                policy: policy.clone(),
                workspace: in_mount(self.mount),
                id: self.create_id.as_deref().map(|request| chosen_id(request, Some((parent.id(), number)))),
                ..ForkOptions::new(Isolation::Fork)
            };
            match context.hub.fork_once(parent.id(), new).await {
                Ok(child) => begun.push(child),
                Err(error) => {
                    // Forks of an earlier request stay.
                    for (child, _) in begun.into_iter().filter(|(_, is_new)| *is_new) {
                        if let Err(error) = context.hub.remove(child.id()).await {
                            tracing::warn!(%error, "failed to remove a fork after another fork failed");
                        }
                    }
                    return Err(error.into());
                }
            }
        }
        reading(move || {
            let child = |child: &Session| self::child((&parent, child), Isolation::Fork, asked, true);
            Ok(Forks { children: begun.iter().map(|(begun, _)| child(begun)).collect::<Result<_, _>>()? })
        })
        .await
    }
}
