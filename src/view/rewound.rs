//! Rewinds.

use schemars::JsonSchema;
use serde::Serialize;
use serde_json::{Map, Value};
use utoipa::ToSchema;

use crate::engine::id::{Seq, SessionId};
use crate::engine::session::Session;
use crate::tools::Rewound;

/// What a rewind did, or would do.
#[derive(Debug, Clone, Serialize, JsonSchema, ToSchema)]
#[schemars(rename = "Rewind")]
#[schema(as = Rewind)]
pub struct RewoundDocument {
    /// The session.
    #[schemars(with = "String")]
    #[schema(value_type = String)]
    pub session: SessionId,
    /// The position whose files and slices are back.
    pub to: Seq,
    /// The position before it.
    pub from: Seq,
    /// Whether nothing was to be done.
    pub dry_run: bool,
    /// Why it was refused; null when it was not.
    pub refused: Option<String>,
    /// The positions of what was recorded; null when nothing was.
    pub recorded: Option<RewoundRange>,
    /// What changed in the files, without patches.
    #[schemars(with = "Vec<Map<String, Value>>")]
    #[schema(value_type = Vec<Object>)]
    pub changes: Vec<Value>,
    /// The names of the slices that are as they were then.
    pub slices: Vec<String>,
    /// Paths of what had been changed from outside and was recorded first.
    pub drift: Vec<String>,
    /// Paths that could not be brought back and were left.
    pub left: Vec<String>,
}

/// From one position to another, both included.
#[derive(Debug, Clone, Copy, Serialize, JsonSchema, ToSchema)]
pub struct RewoundRange {
    /// The first.
    pub first: Seq,
    /// The last.
    pub last: Seq,
}

/// A rewind as a document.
pub fn rewound(session: &Session, rewound: &Rewound, dry_run: bool) -> RewoundDocument {
    RewoundDocument {
        session: session.id(),
        to: rewound.to,
        from: rewound.from,
        dry_run,
        refused: None,
        recorded: rewound.recorded.map(|(first, last)| RewoundRange { first, last }),
        changes: rewound.changes.iter().map(|change| serde_json::to_value(change).unwrap_or_default()).collect(),
        slices: rewound.slices.clone(),
        drift: rewound.drift.iter().map(ToString::to_string).collect(),
        left: rewound.left.iter().map(ToString::to_string).collect(),
    }
}
