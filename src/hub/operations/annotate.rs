//! Scores and notes on a session, and tags for its positions.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::{Operation, OperationContext, OperationError, OperationRoute, check_agent, position, reading, request_id};
use crate::engine::event::{Annotated, Event, PositionTagged};
use crate::engine::id::{CommitId, Seq};
use crate::engine::session::Session;
use crate::reducers::{Annotation, Annotations};
use crate::view::Position;

const NAME_MAX: usize = 80;
/// Limit for a note, and for a value as JSON, in bytes.
const TEXT_MAX: usize = 64 << 10;

/// Records a score, a note or a value for a position of a session. At least one of them is required.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[schemars(rename = "NewAnnotation")]
#[serde(deny_unknown_fields)]
pub struct Annotate {
    /// The subject, such as `reward`: 1 to 80 letters, digits, dots, underscores or hyphens.
    pub name: String,
    /// The annotated position; the last one by default.
    pub at: Option<Position>,
    /// A number that rates the position.
    pub score: Option<f64>,
    /// Text for people, at most 64 KiB.
    pub note: Option<String>,
    /// A value for programs, at most 64 KiB as JSON.
    #[serde(default)]
    pub value: Value,
    /// The agent or program that annotates; none by default.
    pub agent: Option<String>,
    /// An id for retries, 1 to 200 bytes. A second request with the same id returns the position of the first one.
    pub call_id: Option<String>,
}

/// The position of a recorded event.
#[derive(Debug, Clone, Serialize, JsonSchema)]
pub struct RecordedSeq {
    /// The position.
    pub seq: Seq,
    /// True if an earlier request with the same `call_id` recorded it.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub repeated: bool,
}

impl Operation for Annotate {
    const NAME: &'static str = "annotate";
    const ROUTE: Option<OperationRoute> =
        OperationRoute::post("annotations", "/v1/sessions/{session}/annotations", 200);
    type Output = RecordedSeq;

    async fn run(self, context: &OperationContext<'_>) -> Result<RecordedSeq, OperationError> {
        self.check()?;
        let session = context.session().await?;
        reading(move || self.record(&session)).await
    }
}

impl Annotate {
    pub(super) fn check(&self) -> Result<(), OperationError> {
        check_name(&self.name)?;
        check_agent(self.agent.as_deref().unwrap_or_default())?;
        request_id(self.call_id.as_deref())?;
        let value = serde_json::to_vec(&self.value).map_or(usize::MAX, |value| value.len());
        if self.note.as_ref().map_or(0, String::len).max(value) > TEXT_MAX {
            return Err(OperationError::invalid(format!("note or value too long; the limit is {TEXT_MAX} bytes each")));
        }
        match self.score.is_none() && self.note.is_none() && self.value.is_null() {
            true => Err(OperationError::invalid("a score, a note or a value is required")),
            false => Ok(()),
        }
    }

    pub(super) fn record(self, session: &Session) -> Result<RecordedSeq, OperationError> {
        let Self { name, at, score, note, value, agent, call_id } = self;
        let id = request_id(call_id.as_deref())?;
        let at = match id.map(|id| session.first_with_id::<Annotated>(id)).transpose()?.flatten() {
            // The session has grown since.
            Some((_, earlier)) => position(session, at.filter(|at| !at.is_relative()), earlier.at)?,
            None => position(session, at, session.head()?)?,
        };
        record(&session.as_agent(agent.unwrap_or_default()), &Annotated { name, at, score, note, value }, id)
    }
}

/// Lists the scores and notes of a session, oldest first.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ListAnnotations {
    /// Only annotations with this subject.
    pub name: Option<String>,
}

impl Operation for ListAnnotations {
    const NAME: &'static str = "list_annotations";
    const ROUTE: Option<OperationRoute> = OperationRoute::get("annotations", "/v1/sessions/{session}/annotations");
    type Output = Vec<Annotation>;

    async fn run(self, context: &OperationContext<'_>) -> Result<Vec<Annotation>, OperationError> {
        let known = annotations(context).await?;
        let wanted = |entry: &Annotation| self.name.as_ref().is_none_or(|name| *name == entry.name);
        Ok(known.entries.into_iter().filter(wanted).collect())
    }
}

/// Tags a position with a name. From then on, `tag:NAME` is accepted wherever a position is. An existing tag moves.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[schemars(rename = "NewTag")]
#[serde(deny_unknown_fields)]
pub struct TagPosition {
    /// The name: 1 to 80 letters, digits, dots, underscores or hyphens.
    pub name: String,
    /// The position; the last one by default.
    pub at: Option<Position>,
}

impl Operation for TagPosition {
    const NAME: &'static str = "tag_position";
    const ROUTE: Option<OperationRoute> = OperationRoute::post("annotations", "/v1/sessions/{session}/tags", 200);
    type Output = RecordedSeq;

    async fn run(self, context: &OperationContext<'_>) -> Result<RecordedSeq, OperationError> {
        check_name(&self.name)?;
        let session = context.session().await?;
        reading(move || {
            let at = position(&session, self.at, session.head()?)?;
            record(&session, &PositionTagged { name: self.name, at: Some(at) }, None)
        })
        .await
    }
}

/// Lists the tags of a session's positions.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ListTags {}

impl Operation for ListTags {
    const NAME: &'static str = "list_tags";
    const ROUTE: Option<OperationRoute> = OperationRoute::get("annotations", "/v1/sessions/{session}/tags");
    type Output = BTreeMap<String, Seq>;

    async fn run(self, context: &OperationContext<'_>) -> Result<BTreeMap<String, Seq>, OperationError> {
        Ok(annotations(context).await?.tags)
    }
}

/// Removes a tag. The history still shows the position that it had.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct RemoveTag {
    /// The name.
    pub name: String,
}

impl Operation for RemoveTag {
    const NAME: &'static str = "remove_tag";
    const ROUTE: Option<OperationRoute> =
        OperationRoute::delete("annotations", "/v1/sessions/{session}/tags/{name}", 204);
    type Output = ();

    async fn run(self, context: &OperationContext<'_>) -> Result<(), OperationError> {
        let session = context.session().await?;
        reading(move || {
            // Fails with the existing names if the tag does not exist.
            Position::Tag(self.name.clone()).resolve(&session)?;
            record(&session, &PositionTagged { name: self.name, at: None }, None).map(drop)
        })
        .await
    }
}

fn check_name(name: &str) -> Result<(), OperationError> {
    let is_fit = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '_' | '-');
    match (1..=NAME_MAX).contains(&name.len()) && name.chars().all(is_fit) {
        true => Ok(()),
        false => Err(OperationError::invalid(format!(
            "invalid name; use 1 to {NAME_MAX} letters, digits, dots, underscores or hyphens"
        ))),
    }
}

async fn annotations(context: &OperationContext<'_>) -> Result<Annotations, OperationError> {
    let session = context.session().await?;
    reading(move || Ok(session.state()?.slice::<Annotations>().cloned().unwrap_or_default())).await
}

fn record<E: Event>(session: &Session, event: &E, id: Option<CommitId>) -> Result<RecordedSeq, OperationError> {
    session.check_own()?;
    let mut commit = session.commit();
    commit.push(event).map_err(crate::engine::session::error::SessionError::from)?;
    let recorded = match id {
        Some(id) => session.record_once(commit.with_id(id))?,
        None => session.record(commit)?,
    };
    Ok(RecordedSeq { seq: recorded.last, repeated: recorded.repeated })
}
