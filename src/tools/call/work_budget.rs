//! Budgets and heartbeats of custom tools.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use super::error::{LimitName, ToolError, UsedLimit};
use crate::engine::id::Seq;

/// Callback for heartbeats. It must not block.
pub type BeatWatch = Arc<dyn Fn(ToolBeat) + Send + Sync>;

/// Heartbeat of a tool during long work.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ToolBeat {
    /// The id of the call.
    pub call: Seq,
    /// The work that the tool is about to do.
    pub doing: String,
}

/// Budget that tools spend from, in a unit that the program chooses: tokens, cents, requests. Clones share it.
///
/// ```
/// # use foldspace_tools as foldspace;
/// use std::sync::{Arc, Mutex};
/// use foldspace::{MemoryWorkspace, NewSession, Registry, Sessions, Tool, ToolCall, ToolContext, ToolError, ToolRunner, Tools};
/// use foldspace::tools::{Effect, ToolBeat, WorkBudget};
///
/// /// Asks a model three times.
/// struct Ask;
///
/// #[derive(serde::Deserialize, schemars::JsonSchema)]
/// struct Params {}
///
/// impl Tool for Ask {
///     const NAME: &'static str = "ask";
///     const DESCRIPTION: &'static str = "Asks a model three times.";
///     const EFFECT: Effect = Effect::ReadOnly;
///     type Params = Params;
///     type Output = u64;
///
///     async fn call(&self, context: &mut ToolContext, _: Params) -> Result<u64, ToolError> {
///         for round in 1..=3 {
///             context.beat(format!("round {round}"));
///             context.budget().spend(40)?;
///         }
///         Ok(context.budget().left())
///     }
/// }
///
/// # let directory = tempfile::tempdir()?;
/// # let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build()?;
/// let session = Sessions::open(directory.path(), Registry::standard())?.create(NewSession::default())?;
/// let beats = Arc::new(Mutex::new(Vec::new()));
/// let told = Arc::clone(&beats);
/// let tools = ToolRunner::new(session, Tools::new().with(Ask)?, Arc::new(MemoryWorkspace))?
///     .with_budget(WorkBudget::new(200))
///     .with_beats(move |beat: ToolBeat| told.lock().unwrap().push(beat.doing));
/// let ask = || ToolCall::new("ask", serde_json::json!({}));
/// assert_eq!(runtime.block_on(tools.call(ask()))?.result, 80);
/// let second = runtime.block_on(tools.call(ask()))?;
/// assert_eq!(second.text, "the budget of 200 is spent: 0 are left, and 40 are needed");
/// assert_eq!(*beats.lock().unwrap(), ["round 1", "round 2", "round 3", "round 1", "round 2", "round 3"]);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug, Clone, Default)]
pub struct WorkBudget {
    /// `None` for an unlimited budget.
    limit: Option<u64>,
    spent: Arc<AtomicU64>,
}

impl WorkBudget {
    /// Creates a budget of `limit` units. The default is unlimited.
    pub fn new(limit: u64) -> Self {
        Self { limit: Some(limit), spent: Arc::default() }
    }

    /// Spends units, all or none.
    ///
    /// # Errors
    /// [`ToolError::OverLimit`] if fewer remain.
    pub fn spend(&self, units: u64) -> Result<(), ToolError> {
        let limit = self.limit.unwrap_or(u64::MAX);
        let taken = |spent: u64| spent.checked_add(units).filter(|spent| *spent <= limit);
        self.spent.fetch_update(Ordering::Relaxed, Ordering::Relaxed, taken).map(drop).map_err(|_| {
            let left = self.left();
            let what = format!("the budget of {limit} is spent: {left} are left, and {units} are needed");
            ToolError::OverLimit(what, UsedLimit { name: LimitName::Budget, limit, used: limit - left })
        })
    }

    /// Returns the remaining units.
    pub fn left(&self) -> u64 {
        self.limit.unwrap_or(u64::MAX).saturating_sub(self.spent())
    }

    /// Returns the spent units.
    pub fn spent(&self) -> u64 {
        self.spent.load(Ordering::Relaxed)
    }
}
