//! Children: how they begin, and what comes back of them.

use std::sync::Arc;

use schemars::JsonSchema;
use serde::Serialize;
use serde_json::{Map, Value};
use utoipa::ToSchema;

use crate::engine::event::{ChildLimits, Isolation};
use crate::engine::id::{Seq, SessionId};
use crate::engine::session::Session;
use crate::tools::{MergeOutcome, MergeReport};

/// A child that has begun.
#[derive(Debug, Clone, Serialize, JsonSchema, ToSchema)]
#[schemars(rename = "Child")]
#[schema(as = Child)]
pub struct ChildDocument {
    /// The child; the parent itself where it is shared.
    #[schemars(with = "String")]
    #[schema(value_type = String)]
    pub session: SessionId,
    /// Its name.
    pub name: String,
    /// `shared`, `fork` or `full`.
    #[schemars(with = "String")]
    #[schema(value_type = String)]
    pub isolation: Isolation,
    /// The last position of the parent's that its past has.
    pub at: Option<Seq>,
    /// The position that was asked for, where that is inside of what was recorded at once, and the fork begins before
    /// that; otherwise null.
    pub asked: Option<Seq>,
    /// The parent.
    #[schemars(with = "String")]
    #[schema(value_type = String)]
    pub parent: SessionId,
    /// The parent's name.
    pub parent_name: String,
    /// Who acts in it.
    #[schemars(with = "String")]
    #[schema(value_type = String)]
    pub agent: Arc<str>,
    /// The backend of its workspace.
    pub backend: String,
    /// What it may do, where that is limited: `calls`, `wall_millis`, `bytes_written`, `depth`, `tools`, `deny`.
    #[schemars(with = "Value")]
    #[schema(value_type = Object)]
    pub limits: ChildLimits,
}

impl ChildDocument {
    /// Says that a fork begins elsewhere than it was to, and why; none where it does not.
    pub fn moved(&self) -> Option<String> {
        let (asked, at) = (self.asked?, self.at?);
        Some(format!(
            "event {asked} is inside what was recorded at once, so the fork begins before that, after event {at}"
        ))
    }
}

/// A child as a document. A shared one has the position that was asked for.
pub fn child(parent: &Session, child: &Session, isolation: Isolation, asked: Option<Seq>) -> ChildDocument {
    let at = child.origin().filter(|_| isolation != Isolation::Shared).map_or(asked, |origin| Some(origin.at));
    ChildDocument {
        session: child.id(),
        name: child.name().to_owned(),
        isolation,
        at,
        asked: asked.filter(|_| isolation == Isolation::Fork && asked != at),
        parent: parent.id(),
        parent_name: parent.name().to_owned(),
        agent: Arc::clone(child.agent()),
        backend: child.backend().to_owned(),
        limits: child.limits().clone(),
    }
}

/// What came of a merge, or would come.
#[derive(Debug, Clone, Serialize, JsonSchema, ToSchema)]
#[schemars(rename = "Merge")]
#[schema(as = Merge)]
pub struct MergeDocument {
    /// The child.
    #[schemars(with = "String")]
    #[schema(value_type = String)]
    pub child: SessionId,
    /// Its name.
    pub child_name: String,
    /// The position from which its changes were counted.
    pub base: Seq,
    /// The child's last position that was looked at.
    pub child_at: Seq,
    /// `nothing`, `merged` or `conflicted`.
    #[schemars(with = "String")]
    #[schema(value_type = String)]
    pub outcome: MergeOutcome,
    /// Where it stands in the history; null when nothing was recorded.
    pub seq: Option<Seq>,
    /// What came, or would come: `path`, `from`, `both`, `change`.
    #[schemars(with = "Vec<Map<String, Value>>")]
    #[schema(value_type = Vec<Object>)]
    pub merged: Vec<Value>,
    /// What both sides changed otherwise: `path`, `kind`, `base`, `ours`, `theirs`, `resolved`.
    #[schemars(with = "Vec<Map<String, Value>>")]
    #[schema(value_type = Vec<Object>)]
    pub conflicts: Vec<Value>,
    /// Paths of what could not be made again.
    pub left_out: Vec<String>,
    /// Paths for which a side was chosen in vain.
    pub unused: Vec<String>,
    /// The session that it was merged into.
    #[schemars(with = "String")]
    #[schema(value_type = String)]
    pub into: SessionId,
    /// Its name.
    pub into_name: String,
    /// Whether nothing was to be done.
    pub dry_run: bool,
}

/// A merge as a document.
pub fn merged(report: &MergeReport, into: &Session, dry_run: bool) -> MergeDocument {
    // What derives Serialize over plain fields becomes a value.
    let value = |one: &dyn Fn() -> Result<Value, serde_json::Error>| one().unwrap_or_default();
    MergeDocument {
        child: report.child,
        child_name: report.child_name.clone(),
        base: report.base,
        child_at: report.child_at,
        outcome: report.outcome,
        seq: report.seq,
        merged: report.merged.iter().map(|one| value(&|| serde_json::to_value(one))).collect(),
        conflicts: report.conflicts.iter().map(|one| value(&|| serde_json::to_value(one))).collect(),
        left_out: report.left_out.iter().map(ToString::to_string).collect(),
        unused: report.unused.iter().map(ToString::to_string).collect(),
        into: into.id(),
        into_name: into.name().to_owned(),
        dry_run,
    }
}
