//! Rewind of a session.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use super::effects::effects_after;
use super::{Operation, OperationContext, OperationEffect, OperationError, OperationRoute, OperationTool, TooLong};
use super::{moved, reading, request_id};
use crate::backends::WorkspaceSpec;
use crate::engine::advice::Advice;
use crate::engine::id::{Seq, SessionId};
use crate::engine::path::EntryPath;
use crate::engine::session::Session;
use crate::reducers::{Change, EffectEntry};
use crate::tools::{RewindOptions, Rewound, rewound_before};
use crate::view::Position;

/// Rewinds a session's files and state to an earlier position. No history is lost: a rewind to the position before it
/// undoes it.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[schemars(rename = "RewindRequest")]
#[serde(deny_unknown_fields)]
pub struct Rewind {
    /// The position to rewind to.
    pub to: Position,
    /// True to proceed where it would refuse: external changes are recorded first, entries that can't be restored stay,
    /// and files that were in a person's own directory before the session began are removed. A model may not remove the
    /// latter; only the person can.
    #[serde(default)]
    pub force: bool,
    /// True to protect files that were in a person's own directory before the session began, even with `force`: a
    /// rewind that would remove them is refused.
    #[serde(default)]
    pub keep_earlier: bool,
    /// True to also rewind the existing `.git` of a person's own directory, and with it the commits made since. Without
    /// it, `.git` stays as it is. Only a person can do that, not a model.
    #[serde(default)]
    pub git: bool,
    /// True to only report what would happen.
    #[serde(default)]
    pub dry_run: bool,
    /// An id for retries, 1 to 200 bytes. A second request with the same id returns the recorded rewind.
    pub call_id: Option<String>,
}

impl Operation for Rewind {
    const NAME: &'static str = "rewind";
    const ROUTE: Option<OperationRoute> = OperationRoute::post("children", "/v1/sessions/{session}/rewind", 200);
    const TOOL: Option<OperationTool> = Some(
        OperationTool::new("session_rewind", OperationEffect::Changes, TooLong::Cut("session_diff shows the changes"))
            .hiding(&["keep_earlier", "git", "call_id"]),
    );
    type Output = RewoundDocument;

    async fn run(self, context: &OperationContext<'_>) -> Result<RewoundDocument, OperationError> {
        let id = request_id(self.call_id.as_deref())?.filter(|_| !self.dry_run);
        let Self { to, force, dry_run, .. } = self;
        let keep_earlier = self.keep_earlier || context.caller.is_model();
        let git = self.git && !context.caller.is_model();
        let session = context.session().await?;
        let spec = session.started().and_then(|started| WorkspaceSpec::of_session(started).ok());
        if spec.is_some_and(|spec| spec.only_watches()) {
            let detail = "others work in this session's directory, and a rewind would undo their changes";
            let advice = Advice::text("an undo to the same position undoes only the changes of agents' calls");
            return Err(OperationError::refused(detail).with_advice(advice));
        }
        let looked = session.clone();
        let (to, asked, earlier) = reading(move || {
            let at = |to: &Position| Ok::<_, OperationError>((to.resolve(&looked)?, to.inside(&looked)?));
            // A relative position has another meaning now, because the session has grown.
            let known = if to.is_relative() { None } else { Some(at(&to)?) };
            match id.map(|id| rewound_before(&looked, id, known.map(|(to, _)| to))).transpose()?.flatten() {
                Some(earlier) => Ok((earlier.to, known.and_then(|(_, asked)| asked), Some(earlier))),
                None => {
                    let (to, asked) = at(&to)?;
                    Ok((to, asked, None))
                }
            }
        })
        .await?;
        let options = RewindOptions { force, keep_earlier, git, dry_run, id };
        let rewound = match (earlier, context.caller.is_model()) {
            (Some(earlier), _) => earlier,
            (None, true) => context.open().await?.rewind(to, options).await?,
            (None, false) => context.hub.rewind(&session, to, options).await?,
        };
        let effects = {
            let session = session.clone();
            reading(move || Ok(effects_after(&session, to)?)).await?
        };
        Ok(RewoundDocument { effects, ..self::rewound(&session, rewound, asked, dry_run) })
    }

    fn text(rewound: &RewoundDocument) -> String {
        let RewoundDocument { name, to, from, .. } = rewound;
        let count = rewound.changes.len();
        let moved = rewound.moved().map(|moved| format!("; {moved}")).unwrap_or_default();
        match rewound.dry_run {
            true => format!("session {name} would be as it was at {to}, with {count} entries changed{moved}"),
            false => format!(
                "session {name} is as it was at {to}, with {count} entries changed; a rewind to {from} undoes \
                 that{moved}"
            ),
        }
    }
}

/// The changes of a rewind, done or not.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
#[schemars(rename = "Rewind")]
pub struct RewoundDocument {
    /// The session.
    #[schemars(with = "String")]
    pub session: SessionId,
    /// The session's name.
    #[serde(skip)]
    pub name: String,
    /// The position of the restored files and slices.
    pub to: Seq,
    /// The requested event, if it is inside a commit, so that the rewind goes to the commit's end; otherwise null.
    #[serde(default)]
    pub asked: Option<Seq>,
    /// The position before the rewind.
    pub from: Seq,
    /// True if it was a dry run.
    pub dry_run: bool,
    /// The reason of a refusal; null if it was not refused.
    pub refused: Option<String>,
    /// The positions of the recorded events; null if nothing was recorded.
    pub recorded: Option<RewoundRange>,
    /// The file changes, without patches.
    #[schemars(with = "Vec<Map<String, Value>>")]
    pub changes: Vec<Change>,
    /// The names of the restored slices.
    pub slices: Vec<String>,
    /// Paths of external changes that were recorded first.
    #[schemars(with = "Vec<String>")]
    pub drift: Vec<EntryPath>,
    /// Paths that could not be restored and were left unchanged, and each `.git` that stays as it is.
    #[schemars(with = "Vec<String>")]
    pub left: Vec<EntryPath>,
    /// Paths that were removed or replaced for good, since their contents were never stored.
    #[serde(default)]
    #[schemars(with = "Vec<String>")]
    pub lost: Vec<EntryPath>,
    /// Paths of hard links that became separate files: the file system can't link them.
    #[serde(default)]
    #[schemars(with = "Vec<String>")]
    pub apart: Vec<EntryPath>,
    /// Effects outside of the workspace that are not taken back.
    #[serde(default)]
    pub effects: Vec<EffectEntry>,
    /// True if an earlier request with the same `call_id` made the rewind. `drift`, `left`, `lost` and `apart` are then
    /// empty, because they are not recorded.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub repeated: bool,
}

impl RewoundDocument {
    /// Explains why the rewind goes elsewhere than requested. `None` if it goes where requested.
    pub fn moved(&self) -> Option<String> {
        moved(self.asked?, self.to)
    }
}

/// A range of positions, both ends included.
#[derive(Debug, Clone, Copy, Serialize, Deserialize, JsonSchema)]
#[schemars(rename = "PositionRange")]
pub struct RewoundRange {
    /// The first.
    pub first: Seq,
    /// The last.
    pub last: Seq,
}

/// Returns a rewind as a document.
fn rewound(session: &Session, rewound: Rewound, asked: Option<Seq>, dry_run: bool) -> RewoundDocument {
    let Rewound { to, from, recorded, changes, slices, drift, left, lost, apart, repeated } = rewound;
    let recorded = recorded.map(|(first, last)| RewoundRange { first, last });
    let (session, name) = (session.id(), session.name().to_owned());
    RewoundDocument {
        session,
        name,
        to,
        asked,
        from,
        dry_run,
        refused: None,
        recorded,
        changes,
        slices,
        drift,
        left,
        lost,
        apart,
        effects: Vec::new(),
        repeated,
    }
}
