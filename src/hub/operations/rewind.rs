//! Rewind of a session.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use super::reading;
use super::{Operation, OperationContext, OperationEffect, OperationError, OperationRoute, OperationTool, TooLong};
use crate::backends::WorkspaceSpec;
use crate::engine::error::ErrorKind;
use crate::engine::id::{Seq, SessionId};
use crate::engine::path::EntryPath;
use crate::engine::session::Session;
use crate::reducers::Change;
use crate::tools::{RewindOptions, Rewound};
use crate::view::Position;

/// Takes a session back to an earlier position, files and state together. Nothing of its history is lost: a rewind to the
/// position before it undoes it.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[schemars(rename = "RewindRequest")]
#[serde(deny_unknown_fields)]
pub struct Rewind {
    /// The position to which it goes back.
    pub to: Position,
    /// Goes on where it would refuse: what was changed from outside is recorded first, what can't be made again stays,
    /// what was in a person's own directory before the session began is removed. For a model that is refused: only the
    /// person can remove it.
    #[serde(default)]
    pub force: bool,
    /// Keeps what was in a person's own directory before the session began, whatever `force` says: where that would be
    /// removed the rewind is refused.
    #[serde(default)]
    pub keep_earlier: bool,
    /// Only tells what would happen.
    #[serde(default)]
    pub dry_run: bool,
}

impl Operation for Rewind {
    const NAME: &'static str = "rewind";
    const ROUTE: Option<OperationRoute> = OperationRoute::post("children", "/v1/sessions/{session}/rewind", 200);
    const TOOL: Option<OperationTool> = Some(
        OperationTool::new(
            "session_rewind",
            OperationEffect::Changes,
            TooLong::Cut("session_diff shows what changed where"),
        )
        .hiding(&["keep_earlier"]),
    );
    type Output = RewoundDocument;

    async fn run(self, context: &OperationContext<'_>) -> Result<RewoundDocument, OperationError> {
        let Self { to, force, dry_run, .. } = self;
        let keep_earlier = self.keep_earlier || context.caller.is_model();
        let session = context.session().await?;
        let spec = session.started().and_then(|started| WorkspaceSpec::of_session(started).ok());
        if spec.is_some_and(|spec| spec.only_watches()) {
            return Err(OperationError::Told {
                kind: ErrorKind::Refused,
                detail: "others work in this session's directory, so a rewind would take back what they changed"
                    .to_owned(),
                hint: Some("an undo to the same position takes back only what agents' calls changed".to_owned()),
            });
        }
        let looked = session.clone();
        let to = reading(move || Ok(to.resolve(&looked)?)).await?;
        let options = RewindOptions { force, keep_earlier, dry_run };
        let rewound = match context.caller.is_model() {
            true => context.open().await?.rewind(to, options).await?,
            false => context.hub.rewind(&session, to, options).await?,
        };
        Ok(self::rewound(&session, rewound, dry_run))
    }

    fn text(rewound: &RewoundDocument) -> String {
        let RewoundDocument { name, to, from, .. } = rewound;
        let count = rewound.changes.len();
        match rewound.dry_run {
            true => format!("session {name} would be as it was at {to}, with {count} entries changed"),
            false => {
                format!(
                    "session {name} is as it was at {to}, with {count} entries changed; a rewind to {from} undoes that"
                )
            }
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
    /// The position whose files and slices are back.
    pub to: Seq,
    /// The position before it.
    pub from: Seq,
    /// True where nothing was to be done.
    pub dry_run: bool,
    /// The reason of a refusal; null where it was not refused.
    pub refused: Option<String>,
    /// The positions of what was recorded; null when nothing was.
    pub recorded: Option<RewoundRange>,
    /// The changes of files, without patches.
    #[schemars(with = "Vec<Map<String, Value>>")]
    pub changes: Vec<Change>,
    /// The names of the slices that are as they were then.
    pub slices: Vec<String>,
    /// Paths of what had been changed from outside and was recorded first.
    #[schemars(with = "Vec<String>")]
    pub drift: Vec<EntryPath>,
    /// Paths that could not be brought back and were left.
    #[schemars(with = "Vec<String>")]
    pub left: Vec<EntryPath>,
    /// Paths of what was removed or replaced for good, as its contents were never kept.
    #[serde(default)]
    #[schemars(with = "Vec<String>")]
    pub lost: Vec<EntryPath>,
    /// Paths of hard links that became separate files: the file system can't link them.
    #[serde(default)]
    #[schemars(with = "Vec<String>")]
    pub apart: Vec<EntryPath>,
}

/// From one position to another, both included.
#[derive(Debug, Clone, Copy, Serialize, Deserialize, JsonSchema)]
#[schemars(rename = "PositionRange")]
pub struct RewoundRange {
    /// The first.
    pub first: Seq,
    /// The last.
    pub last: Seq,
}

/// Returns a rewind as a document.
fn rewound(session: &Session, rewound: Rewound, dry_run: bool) -> RewoundDocument {
    let Rewound { to, from, recorded, changes, slices, drift, left, lost, apart } = rewound;
    let recorded = recorded.map(|(first, last)| RewoundRange { first, last });
    let (session, name) = (session.id(), session.name().to_owned());
    RewoundDocument {
        session,
        name,
        to,
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
    }
}
