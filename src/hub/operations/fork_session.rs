//! Several forks of a session in one request.

use std::sync::Arc;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use super::clone_session::{ChildDocument, child, in_mount, landing};
use super::create_session::check_create_id;
use super::{Operation, OperationContext, OperationError, OperationRoute, check_agent, policy_of_new, reading};
use crate::engine::event::{ChildLimits, Isolation};
use crate::engine::id::Seq;
use crate::engine::session::Session;
use crate::engine::session::children::ForkOptions;
use crate::engine::session::error::SessionError;
use crate::hub::begin_once::chosen_id;
use crate::reducers::ToolPolicy;
use crate::view::Position;

const FORKS_MAX: u32 = 1000;

/// Forks a session several times at one position. Either all forks begin or none does. Forks on the host and in memory
/// get their files when they are first used.
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
    /// True for forks of a session on the host with their files in mounts, which share files instead of copying them.
    /// The server must be root.
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
        let (parent, begun, asked) = self.begin(context).await?;
        reading(move || Ok(Forks { children: documents(&parent, &begun, asked)? })).await
    }
}

impl ForkSession {
    /// Begins the forks. Returns the session, the forks, and the requested event if it is inside a commit.
    pub(super) async fn begin(
        self,
        context: &OperationContext<'_>,
    ) -> Result<(Session, Vec<Session>, Option<Seq>), OperationError> {
        if !(1..=FORKS_MAX).contains(&self.count) {
            return Err(OperationError::invalid(format!("count is {}; it must be from 1 to {FORKS_MAX}", self.count)));
        }
        check_agent(self.agent.as_deref().unwrap_or_default())?;
        self.create_id.as_deref().map_or(Ok(()), check_create_id)?;
        let policy = policy_of_new(context.hub, self.policy.as_ref())?;
        let parent = context.session().await?;
        let (looked, at) = (parent.clone(), self.at.clone());
        let (at, asked) = reading(move || Ok(landing(at.as_ref(), &looked)?)).await?;
        let id = |number| match self.create_id.as_deref() {
            Some(request) => chosen_id(request, Some((parent.id(), number))),
            None => context.hub.sessions().fresh_id(),
        };
        let name = |number| self.name.as_ref().map(|name| format!("{name}-{number}"));
        let forks = (1..=self.count).map(|number| (id(number), name(number))).collect();
        let agent = self.agent.clone().unwrap_or_default();
        let (limits, workspace) = (self.limits.clone(), in_mount(self.mount));
        let new = ForkOptions { at, agent, limits, policy, workspace, ..ForkOptions::new(Isolation::Fork) };
        let begun = context.hub.fork_group(parent.id(), new, forks).await?;
        Ok((parent, begun, asked))
    }
}

/// Describes forks of one position. They lack the same files, which are looked up once.
fn documents(parent: &Session, forks: &[Session], asked: Option<Seq>) -> Result<Vec<ChildDocument>, SessionError> {
    let Some(first) = forks.first() else { return Ok(Vec::new()) };
    let first = child((parent, first), Isolation::Fork, asked, false)?;
    let one = |fork: &Session| {
        let (limits, agent) = (fork.limits().clone(), Arc::clone(fork.agent()));
        ChildDocument { session: fork.id(), name: fork.name().to_owned(), limits, agent, ..first.clone() }
    };
    Ok(forks.iter().map(one).collect())
}
