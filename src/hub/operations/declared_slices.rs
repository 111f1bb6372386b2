//! Slices that users declare for a session.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::{Operation, OperationContext, OperationError, OperationRoute, check_agent, reading};
use crate::engine::id::Seq;
use crate::engine::slice::OnRewind;
use crate::engine::state::State;
use crate::reducers::{DeclaredSlice, FoldRule, SliceDeclaration, SliceMergePolicy};
use crate::tools::{declare_slice, declared_in, remove_slice};

/// Declares a slice of your own for a session, or changes its declaration, and folds the session's past into it once.
/// From then on, each state has it beside the built-in slices: at any position, in predicates, forks and merges. The
/// same declaration again changes nothing.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct DeclareSlice {
    /// The slice's name: a letter, then up to 79 letters, digits, `_` or `-`.
    pub name: String,
    /// The rules that fold events into it, 1 to 32.
    pub rules: Vec<FoldRule>,
    /// Its value after a merge of a child: `ours` by default.
    #[serde(default)]
    pub merge: SliceMergePolicy,
    /// Its value after a rewind: `restore`, the default, or `keep`.
    #[schemars(with = "Option<String>")]
    pub on_rewind: Option<OnRewind>,
    /// The agent or program that declares it; none by default.
    pub agent: Option<String>,
}

/// A declared slice.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
#[schemars(rename = "DeclaredSlice")]
pub struct DeclaredSliceDocument {
    /// Its declaration.
    #[serde(flatten)]
    pub declaration: SliceDeclaration,
    /// The number of its declaration: 1 for the first of that name.
    pub version: u32,
    /// The position of the event that declared it, or set its value.
    pub since: Seq,
    /// The number of events since then that fitted a rule and could not be folded: a pointer found nothing, a patch
    /// failed, or the slice was full (1 MiB).
    pub skipped: u64,
    /// Its value; omitted in lists.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub value: Option<Value>,
}

impl DeclaredSliceDocument {
    fn of(slice: &DeclaredSlice) -> Self {
        let (version, since, skipped) = (slice.version(), slice.since(), slice.skipped());
        Self { declaration: slice.declaration().clone(), version, since, skipped, value: None }
    }
}

impl Operation for DeclareSlice {
    const NAME: &'static str = "declare_slice";
    const ROUTE: Option<OperationRoute> = OperationRoute::put("states", "/v1/sessions/{session}/reducers/{name}", 200);
    type Output = DeclaredSliceDocument;

    async fn run(self, context: &OperationContext<'_>) -> Result<DeclaredSliceDocument, OperationError> {
        let Self { name, rules, merge, on_rewind, agent } = self;
        let agent = agent.unwrap_or_default();
        check_agent(&agent)?;
        let session = context.session().await?.as_agent(agent);
        let on_rewind = on_rewind.unwrap_or(OnRewind::Restore);
        reading(move || {
            let slice = declare_slice(&session, SliceDeclaration { name, rules, merge, on_rewind })?;
            Ok(DeclaredSliceDocument { value: Some(slice.value()), ..DeclaredSliceDocument::of(&slice) })
        })
        .await
    }
}

/// Lists the declared slices of a session, by name.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ListDeclared {}

impl Operation for ListDeclared {
    const NAME: &'static str = "list_reducers";
    const ROUTE: Option<OperationRoute> = OperationRoute::get("states", "/v1/sessions/{session}/reducers");
    type Output = Vec<DeclaredSliceDocument>;

    async fn run(self, context: &OperationContext<'_>) -> Result<Vec<DeclaredSliceDocument>, OperationError> {
        let session = context.session().await?;
        reading(move || Ok(declared(&session.state()?))).await
    }
}

/// Returns the declared slices of a state, without their values.
pub fn declared(state: &State) -> Vec<DeclaredSliceDocument> {
    declared_in(state).iter().map(DeclaredSliceDocument::of).collect()
}

/// Removes a declared slice from a session. Earlier positions keep it.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct RemoveDeclared {
    /// The slice's name.
    pub name: String,
}

impl Operation for RemoveDeclared {
    const NAME: &'static str = "remove_reducer";
    const ROUTE: Option<OperationRoute> =
        OperationRoute::delete("states", "/v1/sessions/{session}/reducers/{name}", 204);
    type Output = ();

    async fn run(self, context: &OperationContext<'_>) -> Result<(), OperationError> {
        let session = context.session().await?;
        reading(move || match remove_slice(&session, &self.name)? {
            true => Ok(()),
            false => {
                let name: String = self.name.chars().take(80).collect();
                Err(OperationError::not_found(format!("the session has no declared slice {name:?}")))
            }
        })
        .await
    }
}
