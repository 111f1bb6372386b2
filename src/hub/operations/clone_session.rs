//! Creation of a session's child.

use std::collections::BTreeSet;
use std::sync::Arc;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use super::effects::effects_after;
use super::{Operation, OperationContext, OperationEffect, OperationError, OperationRoute, OperationTool, TooLong};
use super::{check_agent, moved, policy_of_new, reading};
use crate::backends::{HostPath, WorkspaceSpec};
use crate::engine::error::{Diagnostic, ErrorKind};
use crate::engine::event::{ChildLimits, Isolation};
use crate::engine::id::{Seq, SessionId};
use crate::engine::path::EntryPath;
use crate::engine::session::Session;
use crate::engine::session::children::ForkOptions;
use crate::engine::session::error::SessionError;
use crate::reducers::{EffectEntry, ToolPolicy};
use crate::tools::{Tools, left_of_fork};
use crate::view::Position;

/// Clones a session. A fork starts with the history and files up to any position and then diverges; a merge brings its
/// changes back. The clone has its own workspace, and never more permissions than the session.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[schemars(rename = "ChildRequest")]
#[serde(deny_unknown_fields)]
pub struct CloneSession {
    /// The part of the session that the clone gets: `fork` (the default), the history and files up to a position;
    /// `full`, only fresh copies of the mounts; `shared`, everything: the same session, under another agent name.
    #[serde(default = "fork")]
    #[schemars(with = "String", extend("enum" = ["fork", "full", "shared"]))]
    pub isolation: Isolation,
    /// The position to fork at; the current state by default.
    pub at: Option<Position>,
    /// True for a fork of a session on the host with its files in a mount, which shares files with other such forks
    /// instead of copying them. The server must be root.
    #[serde(default)]
    pub mount: bool,
    /// The clone's name; by default the session's name with a number.
    pub name: Option<String>,
    /// The agent who works in it; required for a shared clone.
    pub agent: Option<String>,
    /// Limits of the clone: `calls`, `wall_millis`, `bytes_written`, `depth`, `tools`, `deny`.
    #[serde(default)]
    #[schemars(with = "Map<String, Value>")]
    pub limits: ChildLimits,
    /// A policy for tools that binds the clone, in addition to the session's. Not for a shared clone.
    pub policy: Option<ToolPolicy>,
    /// Limit for its calls.
    pub max_calls: Option<u64>,
    /// Limit for the total duration of its calls, in seconds.
    pub max_seconds: Option<u64>,
    /// Limit for the bytes that it writes to files.
    pub max_bytes: Option<u64>,
    /// Limit for generations of clones below it.
    pub depth: Option<u32>,
    /// The only tools that it may use.
    pub tools: Option<BTreeSet<String>>,
    /// Programs that its commands may not run.
    #[serde(default)]
    pub deny: BTreeSet<String>,
    /// For `full`: host directories that mounts may be copied from again, instead of the server's. Only for clients on
    /// the unix socket, from the server's sandbox.
    #[serde(default)]
    #[schemars(with = "Vec<String>")]
    pub allow_roots: Vec<HostPath>,
}

fn fork() -> Isolation {
    Isolation::Fork
}

impl Operation for CloneSession {
    const NAME: &'static str = "clone_session";
    const ROUTE: Option<OperationRoute> = OperationRoute::post("children", "/v1/sessions/{session}/children", 201);
    const TOOL: Option<OperationTool> = Some(
        OperationTool::new("session_clone", OperationEffect::Adds, TooLong::Cut("session_log shows the clone"))
            .hiding(&["limits", "allow_roots", "policy", "mount"]),
    );
    type Output = ChildDocument;

    async fn run(mut self, context: &OperationContext<'_>) -> Result<ChildDocument, OperationError> {
        let agent = self.agent.as_deref().unwrap_or_default();
        check_child(self.isolation, agent, self.name.is_some(), self.at.is_some())?;
        if self.mount && self.isolation != Isolation::Fork {
            return Err(OperationError::invalid("only a fork can be in a mount"));
        }
        let hub = context.hub_within(std::mem::take(&mut self.allow_roots)).await?;
        check_tools(&context.hub.options().tools, self.tools.iter().flatten())?;
        let parent = context.session().await?;
        let (looked, at, isolation) = (parent.clone(), self.at.take(), self.isolation);
        let (at, asked) = reading(move || Ok(landing(at.as_ref(), &looked)?)).await?;
        let policy = policy_of_new(context.hub, self.policy.as_ref())?;
        let new = ForkOptions { policy, ..self.options(at) };
        let (child, is_open) = match hub.start_child(parent.id(), new.clone()).await {
            Ok(open) => (open.session().clone(), true),
            Err(error) if isolation == Isolation::Fork && error.kind() == ErrorKind::Backend => {
                let what = format!(
                    "the session's workspace can't be opened ({error}); the fork's files come from its history"
                );
                // The receiver may be gone.
                context.progress.iter().for_each(|progress| drop(progress.send(what.clone())));
                (hub.begin_child(&parent, new).await?, false)
            }
            Err(error) => return Err(error.into()),
        };
        reading(move || Ok(self::child((&parent, &child), isolation, asked, is_open)?)).await
    }

    fn text(clone: &ChildDocument) -> String {
        let (name, parent) = (&clone.name, &clone.parent_name);
        let moved = clone.moved().map(|moved| format!("; {moved}")).unwrap_or_default();
        match clone.isolation {
            Isolation::Fork => {
                let left = match clone.left.len() {
                    0 => String::new(),
                    left => format!("; {left} past entries can't be restored and are missing, see `left`"),
                };
                format!("session {name} is {parent} as of event {}{moved}{left}", clone.at.unwrap_or_default())
            }
            Isolation::Full => format!("session {name} starts with fresh copies of the mounts of {parent}"),
            Isolation::Shared => format!("agent {} shares session {name}", clone.agent),
        }
    }
}

impl CloneSession {
    fn options(self, at: Option<Seq>) -> ForkOptions {
        let mut limits = self.limits;
        limits.calls = self.max_calls.or(limits.calls);
        limits.wall_millis = self.max_seconds.map(|seconds| seconds.saturating_mul(1000)).or(limits.wall_millis);
        limits.bytes_written = self.max_bytes.or(limits.bytes_written);
        limits.depth = self.depth.or(limits.depth);
        limits.tools = self.tools.or(limits.tools);
        limits.deny.extend(self.deny);
        let agent = self.agent.unwrap_or_default();
        let workspace = in_mount(self.mount);
        ForkOptions { at, name: self.name, agent, limits, workspace, ..ForkOptions::new(self.isolation) }
    }
}

/// Returns the workspace of a fork in a mount; `None` for the session's kind.
pub(super) fn in_mount(mount: bool) -> Option<(String, Value)> {
    mount.then(|| (WorkspaceSpec::MOUNT.to_owned(), Value::Null))
}

pub(super) fn check_child(
    isolation: Isolation,
    agent: &str,
    has_name: bool,
    has_position: bool,
) -> Result<(), OperationError> {
    check_agent(agent)?;
    let wrong = |what: &str| Err(OperationError::invalid(what));
    match isolation {
        Isolation::Shared if agent.is_empty() || has_name => {
            wrong("a shared clone is the same session: it needs an agent and takes no name")
        }
        Isolation::Shared | Isolation::Full if has_position => {
            wrong("only a fork begins in the past: omit `at`, or use isolation `fork`")
        }
        _ => Ok(()),
    }
}

pub(super) fn check_tools<'a>(
    known: &Tools,
    mut named: impl Iterator<Item = &'a String>,
) -> Result<(), OperationError> {
    let Some(unknown) = named.find(|tool| known.find(tool, None).is_none()) else { return Ok(()) };
    let names: Vec<_> = known.describe_for(None).into_iter().map(|tool| tool.name).collect();
    Err(OperationError::invalid(format!("tool {unknown:?} not found; available: {}", names.join(", "))))
}

/// A child of a session.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
#[schemars(rename = "Child")]
pub struct ChildDocument {
    /// The child; for a shared child, the parent itself.
    #[schemars(with = "String")]
    pub session: SessionId,
    /// Its name.
    pub name: String,
    /// `shared`, `fork` or `full`.
    #[schemars(with = "String")]
    pub isolation: Isolation,
    /// The last position of the parent's history that it contains.
    pub at: Option<Seq>,
    /// The requested event, if it is inside a commit, so that the fork is at the commit's end; otherwise null.
    pub asked: Option<Seq>,
    /// The parent.
    #[schemars(with = "String")]
    pub parent: SessionId,
    /// The parent's name.
    pub parent_name: String,
    /// The agent who works in it.
    #[schemars(with = "String")]
    pub agent: Arc<str>,
    /// The backend of its workspace.
    pub backend: String,
    /// Its limits, if any: `calls`, `wall_millis`, `bytes_written`, `depth`, `tools`, `deny`.
    #[schemars(with = "Value")]
    pub limits: ChildLimits,
    /// Past paths that a fork lacks: their contents were never stored, or they are sockets or devices.
    #[serde(default)]
    #[schemars(with = "Vec<String>")]
    pub left: Vec<EntryPath>,
    /// Effects of its parent outside of the workspace that a fork's history lacks.
    #[serde(default)]
    pub effects: Vec<EffectEntry>,
}

impl ChildDocument {
    /// Explains why a fork begins elsewhere than requested. `None` if it begins where requested.
    pub fn moved(&self) -> Option<String> {
        moved(self.asked?, self.at?)
    }
}

/// Returns the position of a fork, and the requested event if that is inside a commit.
pub(super) fn landing(at: Option<&Position>, session: &Session) -> Result<(Option<Seq>, Option<Seq>), SessionError> {
    let Some(at) = at else { return Ok((None, None)) };
    Ok((Some(at.resolve(session)?), at.inside(session)?))
}

/// Returns a child as a document.
pub(super) fn child(
    (parent, child): (&Session, &Session),
    isolation: Isolation,
    asked: Option<Seq>,
    is_open: bool,
) -> Result<ChildDocument, SessionError> {
    let at = child.origin().filter(|_| isolation != Isolation::Shared).map(|origin| origin.at);
    Ok(ChildDocument {
        session: child.id(),
        name: child.name().to_owned(),
        isolation,
        at,
        asked,
        parent: parent.id(),
        parent_name: parent.name().to_owned(),
        agent: Arc::clone(child.agent()),
        backend: child.backend().to_owned(),
        limits: child.limits().clone(),
        left: if isolation == Isolation::Fork { left_of_fork(child, is_open)? } else { Vec::new() },
        effects: match at {
            Some(at) if isolation == Isolation::Fork => effects_after(parent, at)?,
            _ => Vec::new(),
        },
    })
}
