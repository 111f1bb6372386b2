//! Trait of all tools.

use std::borrow::Cow;
use std::future::Future;
use std::pin::Pin;
use std::time::Duration;

use schemars::{JsonSchema, Schema, SchemaGenerator};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::context::ToolContext;
use super::error::ToolError;
use super::params::read_params;
use crate::backends::Workspace;
use crate::engine::error::ValueError;

/// A tool that an agent can call.
///
/// A success is recorded with all files and events that the handler wrote through its [`ToolContext`], an error with
/// none. Changes made by a command, and those put onto the disk for it before, are recorded in either case.
///
/// `C` is what the handler gets for a call. The server calls a tool of another program with an
/// `http::RemoteContext`, which requests files and commands over the connection.
///
/// ```
/// # use foldspace_tools as foldspace;
/// use foldspace::{EntryPath, Tool, ToolContext, ToolError, tools::Effect};
/// use schemars::JsonSchema;
/// use serde::{Deserialize, Serialize};
///
/// /// Counts the lines of a file.
/// struct CountLines;
///
/// #[derive(Deserialize, JsonSchema)]
/// struct Params { file_path: String }
///
/// #[derive(Serialize, JsonSchema)]
/// struct Output { lines: usize }
///
/// impl Tool for CountLines {
///     const NAME: &'static str = "count_lines";
///     const DESCRIPTION: &'static str = "Counts the lines of a text file.";
///     const EFFECT: Effect = Effect::ReadOnly;
///     type Params = Params;
///     type Output = Output;
///
///     async fn call(&self, context: &mut ToolContext, params: Params) -> Result<Output, ToolError> {
///         let path = EntryPath::lookup(&params.file_path)?;
///         let bytes = context.filesystem().read(&path)?;
///         Ok(Output { lines: bytes.split(|b| *b == b'\n').count() })
///     }
/// }
/// ```
pub trait Tool<C: Send = ToolContext>: Send + Sync + 'static {
    /// Its name: letters, digits and underscores; unique in a set of tools.
    const NAME: &'static str;
    /// Description for a model.
    const DESCRIPTION: &'static str;
    /// Effect on the workspace. Tools that change something run one at a time in a session.
    const EFFECT: Effect;
    /// True if it works only in workspaces with a shell.
    const NEEDS_SHELL: bool = false;
    /// Its parameters.
    type Params: DeserializeOwned + JsonSchema + Send;
    /// Its result.
    type Output: Serialize + JsonSchema + Send;

    /// Runs the tool.
    ///
    /// # Errors
    /// [`ToolError`] with a message that the caller can act on. It discards all changes since the last command.
    fn call(
        &self,
        context: &mut C,
        params: Self::Params,
    ) -> impl Future<Output = Result<Self::Output, ToolError>> + Send;

    /// Returns false for a tool that only acts on processes. It then runs beside calls that change files.
    fn changes_files(&self) -> bool {
        Self::EFFECT != Effect::ReadOnly
    }

    /// Returns the default time limit of a call; `None` for two minutes.
    fn limit(&self) -> Option<Duration> {
        None
    }

    /// Returns false if a call can only fail in a workspace. Its prompt section does not name the tool then.
    fn works_in(&self, workspace: &dyn Workspace) -> bool {
        !Self::NEEDS_SHELL || workspace.unrecorded_shell().is_some()
    }

    /// Returns the result as text for a model; by default its JSON.
    fn render(&self, output: &Self::Output) -> String {
        serde_json::to_string_pretty(output).unwrap_or_default()
    }
}

/// Effect that a tool may have on the workspace.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Effect {
    /// Only reads.
    ReadOnly,
    /// May add, but does not change or remove.
    Additive,
    /// May change or remove existing entries.
    Destructive,
}

/// Description of a tool.
#[derive(Debug, Clone, Serialize, JsonSchema)]
#[schemars(rename = "Tool")]
pub struct ToolDescription {
    /// Its name.
    pub name: Cow<'static, str>,
    /// Description for a model.
    pub description: Cow<'static, str>,
    /// Effect on the workspace: `read_only`, `additive` or `destructive`.
    #[schemars(with = "String")]
    pub effect: Effect,
    /// JSON Schema of its parameters.
    #[schemars(with = "serde_json::Map<String, Value>")]
    pub params: Schema,
    /// JSON Schema of its result.
    #[schemars(with = "serde_json::Map<String, Value>")]
    pub output: Schema,
}

#[doc(hidden)]
pub struct ToolAnswer {
    pub result: Value,
    pub text: String,
}

#[doc(hidden)]
pub type Answering<'a> = Pin<Box<dyn Future<Output = Result<ToolAnswer, ToolError>> + Send + 'a>>;

/// Time of a call in addition to its command: an approval, the start of a container, and the scan.
pub(crate) const BESIDE: Duration = Duration::from_secs(180);

/// A tool of any type. The defaults suit a tool that runs one command.
pub trait ErasedTool<C = ToolContext>: Send + Sync {
    #[doc(hidden)]
    fn describe(&self) -> ToolDescription;

    #[doc(hidden)]
    fn effect(&self) -> Effect {
        Effect::Destructive
    }

    #[doc(hidden)]
    fn limit(&self) -> Option<Duration> {
        Some(BESIDE)
    }

    /// Returns true if its commands may need the services of the session.
    #[doc(hidden)]
    fn runs_commands(&self) -> bool {
        false
    }

    #[doc(hidden)]
    fn works_in(&self, _workspace: &dyn Workspace) -> bool {
        true
    }

    /// Checks parameters without a call.
    #[doc(hidden)]
    fn check(&self, _params: &Value) -> Result<(), ValueError> {
        Ok(())
    }

    #[doc(hidden)]
    fn call<'a>(&'a self, context: &'a mut C, params: Value) -> Answering<'a>;
}

fn wrong_params(tool: &str, error: &str) -> ValueError {
    ValueError::new(format!("invalid parameters for {tool}: {error}"))
}

impl<C: Send, T: Tool<C>> ErasedTool<C> for T {
    fn describe(&self) -> ToolDescription {
        let schema = |make: fn(SchemaGenerator) -> Schema| make(SchemaGenerator::default());
        ToolDescription {
            name: T::NAME.into(),
            description: T::DESCRIPTION.into(),
            effect: T::EFFECT,
            params: schema(SchemaGenerator::into_root_schema_for::<T::Params>),
            output: schema(SchemaGenerator::into_root_schema_for::<T::Output>),
        }
    }

    fn effect(&self) -> Effect {
        if Tool::<C>::changes_files(self) { T::EFFECT } else { Effect::ReadOnly }
    }

    fn limit(&self) -> Option<Duration> {
        Tool::<C>::limit(self)
    }

    fn runs_commands(&self) -> bool {
        T::NEEDS_SHELL && T::EFFECT != Effect::ReadOnly
    }

    fn works_in(&self, workspace: &dyn Workspace) -> bool {
        Tool::<C>::works_in(self, workspace)
    }

    fn check(&self, params: &Value) -> Result<(), ValueError> {
        read_params::<T::Params>(params).map(drop).map_err(|error| wrong_params(T::NAME, &error))
    }

    fn call<'a>(&'a self, context: &'a mut C, params: Value) -> Answering<'a> {
        Box::pin(async move {
            let params = read_params(&params).map_err(|error| wrong_params(T::NAME, &error))?;
            let output = Tool::<C>::call(self, context, params).await?;
            let result = serde_json::to_value(&output).map_err(|e| ToolError::new(e.to_string()))?;
            Ok(ToolAnswer { result, text: self.render(&output) })
        })
    }
}
