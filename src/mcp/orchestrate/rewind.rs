//! `session_rewind`: a session taken back.

use rmcp::model::Tool;
use schemars::JsonSchema;
use serde::Deserialize;

use super::shorten::Shortened;
use super::{OperationContext, OperationEffect, OperationError, OperationOutcome};
use crate::tools::RewindOptions;
use crate::view::{self, Position, RewoundDocument};

pub(super) const NAME: &str = "session_rewind";

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct RewindParams {
    /// The session, by name or by the beginning of its id; this client's own by default.
    session: Option<String>,
    /// The position to which it goes back.
    to: Position,
    /// Goes on where it would refuse: what was changed from outside is recorded first, what can't be made again stays.
    /// It never removes what was in a person's own directory before the session began: only the person can.
    #[serde(default)]
    force: bool,
    /// Only tells what would happen.
    #[serde(default)]
    dry_run: bool,
}

pub(super) fn tool() -> Tool {
    let words = "Takes a session back to an earlier position, files and state together. Nothing of its history is lost: a \
                 rewind to the position before it undoes it.";
    super::tool::<RewindParams, Shortened<RewoundDocument>>(NAME, words, OperationEffect::Changes)
}

pub(super) async fn call(
    request: OperationContext<'_>,
    params: RewindParams,
) -> Result<OperationOutcome, OperationError> {
    let open = request.client.open(params.session.as_deref(), request.context).await?;
    let session = open.session().clone();
    let to = super::reading(move || Ok(params.to.resolve(&session)?)).await?;
    let options = RewindOptions { force: params.force, keep_earlier: true, dry_run: params.dry_run };
    let rewound = open.rewind(to, options).await?;
    let document = view::rewound(open.session(), &rewound, params.dry_run);
    let name = open.session().name();
    let (count, from) = (rewound.changes.len(), rewound.from);
    let text = match params.dry_run {
        true => format!("session {name} would be as it was at {to}, with {count} entries changed"),
        false => {
            format!("session {name} is as it was at {to}, with {count} entries changed; a rewind to {from} undoes that")
        }
    };
    Ok(OperationOutcome::new(text, &document)?.shortened("session_diff shows what changed where"))
}
