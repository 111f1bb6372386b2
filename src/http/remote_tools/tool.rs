//! The trait of tools that the server calls back.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use schemars::{JsonSchema, SchemaGenerator};
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::Value;
use tokio::sync::mpsc;

use super::asks::perform;
use super::context::RemoteContext;
use super::wire::{CallMessage, ToolOffer};
use crate::backends::HostCaller;
use crate::engine::error::ValueError;
use crate::tools::{Effect, Tool, ToolContext, ToolError, check_name};

/// A tool of a program that does not own the store: the owner calls it back, see
/// [`HttpClient::register_tools`](crate::http::HttpClient::register_tools).
///
/// It differs from a [`Tool`] only in its context. A [`ToolContext`] exposes the owner's whole file tree and workspace;
/// a [`RemoteContext`] requests what the tool needs. [`InProcess`] makes it a [`Tool`] for a program that owns the
/// store, so one implementation works both ways.
pub trait RemoteTool: Send + Sync + 'static {
    /// Its name: letters, digits and underscores; unique in a session.
    const NAME: &'static str;
    /// Its description for a model.
    const DESCRIPTION: &'static str;
    /// Its effect on the workspace. A tool that only reads may not write, remove or run anything.
    const EFFECT: Effect;
    /// Its parameters.
    type Params: DeserializeOwned + JsonSchema + Send;
    /// Its result.
    type Output: Serialize + JsonSchema + Send;

    /// Performs a call. The future is dropped when the call is cancelled or times out.
    ///
    /// # Errors
    /// [`ToolError`] with a message that the caller can act on. It discards all changes not made by commands.
    fn call(
        &self,
        context: &mut RemoteContext,
        params: Self::Params,
    ) -> impl Future<Output = Result<Self::Output, ToolError>> + Send;

    /// Returns the default time limit of a call; `None` for two minutes.
    fn limit(&self) -> Option<Duration> {
        None
    }

    /// Renders the result as text for a model; by default as JSON.
    fn render(&self, output: &Self::Output) -> String {
        serde_json::to_string_pretty(output).unwrap_or_default()
    }
}

pub(super) type RemoteAnswer = Result<(Value, String), String>;

pub(super) trait ErasedRemote: Send + Sync {
    fn offer(&self) -> ToolOffer;
    fn call<'a>(&'a self, context: &'a mut RemoteContext, params: Value) -> BoxFuture<'a, RemoteAnswer>;
}

impl<T: RemoteTool> ErasedRemote for T {
    fn offer(&self) -> ToolOffer {
        ToolOffer {
            name: T::NAME.to_owned(),
            description: T::DESCRIPTION.to_owned(),
            effect: T::EFFECT,
            params: SchemaGenerator::default().into_root_schema_for::<T::Params>(),
            output: SchemaGenerator::default().into_root_schema_for::<T::Output>(),
            limit_ms: self.limit().map(|limit| u64::try_from(limit.as_millis()).unwrap_or(u64::MAX)),
        }
    }

    fn call<'a>(&'a self, context: &'a mut RemoteContext, params: Value) -> BoxFuture<'a, RemoteAnswer> {
        async move {
            let params = serde_json::from_value(params)
                .map_err(|error| format!("the parameters of {} are not right: {error}", T::NAME))?;
            let output = RemoteTool::call(self, context, params).await.map_err(|error| error.to_string())?;
            let result = serde_json::to_value(&output).map_err(|error| error.to_string())?;
            Ok((result, self.render(&output)))
        }
        .boxed()
    }
}

/// The tools that a program registers.
#[derive(Clone, Default)]
pub struct RemoteTools(pub(super) BTreeMap<&'static str, Arc<dyn ErasedRemote>>);

impl RemoteTools {
    /// Creates an empty set.
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds a tool.
    ///
    /// # Errors
    /// [`ValueError`] if its name is taken or invalid.
    pub fn with<T: RemoteTool>(mut self, tool: T) -> Result<Self, ValueError> {
        check_name(T::NAME)?;
        if self.0.insert(T::NAME, Arc::new(tool)).is_some() {
            return Err(ValueError::new(format!("there is a tool called {} already", T::NAME)));
        }
        Ok(self)
    }
}

impl std::fmt::Debug for RemoteTools {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_set().entries(self.0.keys()).finish()
    }
}

/// A remote tool as a [`Tool`] of the process that owns the store.
#[derive(Debug, Clone, Copy)]
pub struct InProcess<T>(pub T);

impl<T: RemoteTool> Tool for InProcess<T> {
    const NAME: &'static str = T::NAME;
    const DESCRIPTION: &'static str = T::DESCRIPTION;
    const EFFECT: Effect = T::EFFECT;
    type Params = T::Params;
    type Output = T::Output;

    async fn call(&self, context: &mut ToolContext, params: T::Params) -> Result<T::Output, ToolError> {
        let (asks, mut asked) = mpsc::channel(1);
        let mut remote = RemoteContext::new(CallMessage::of(context), context.cancellation().clone(), asks);
        let mut work = std::pin::pin!(self.0.call(&mut remote, params));
        loop {
            tokio::select! {
                done = &mut work => return done,
                Some((ask, tell)) = asked.recv() => {
                    let done = perform(context, ask, &HostCaller::default()).await;
                    // The tool may have stopped waiting.
                    let _ = tell.send(done.map_err(|error| error.to_string()));
                }
            }
        }
    }

    fn limit(&self) -> Option<Duration> {
        self.0.limit()
    }

    fn render(&self, output: &T::Output) -> String {
        self.0.render(output)
    }
}
