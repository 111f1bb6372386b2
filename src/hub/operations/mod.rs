//! The operations of the program, one file each: parameters, output and implementation. The HTTP API and the MCP tools
//! are generated from the table of operations.

mod align;
mod annotate;
mod answer_call;
mod apply;
mod attach;
mod bisect;
mod blame_file;
mod cancel_call;
mod clone_session;
mod compare;
mod copy_mounts;
mod create_session;
mod declared_slices;
mod diff;
mod dispatch;
mod effects;
mod error;
mod family;
mod fork_session;
mod list_calls;
mod list_changes;
mod list_events;
mod list_files;
mod list_messages;
mod list_sessions;
mod list_tools;
mod log;
mod merge;
#[cfg(feature = "mount")]
mod mounts;
mod operation_forms;
mod own_events;
mod processes;
mod remove_session;
mod rerun;
mod rewind;
mod rollouts;
mod run_until;
mod search;
mod section;
mod seen_files;
mod services;
mod show_call;
mod show_session;
mod show_slice;
mod show_state;
#[cfg(feature = "sql")]
mod sql;
mod stat_entry;
mod strangers;
mod timeline;
mod tool_policy;
mod undo;
mod verify;

use std::sync::{Arc, LazyLock};

use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use schemars::{JsonSchema, Schema, SchemaGenerator};
use serde::Serialize;
use serde::de::{DeserializeOwned, Error};
use serde_json::{Map, Value};
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;

use super::{Hub, OpenSession, blocking};
use crate::backends::HostPath;
use crate::engine::commit::MAX_AGENT_BYTES;
use crate::engine::id::{CommitId, Seq};
use crate::engine::session::Session;
use crate::engine::session::error::SessionError;
use crate::tools::{AllowedRoots, Bisection, ShellRules, read_params};
use crate::view::Position;

pub use super::attached::AttachDirectory;
pub use align::{Align, AlignedCall, AlignedRow, Alignment};
pub use annotate::{Annotate, ListAnnotations, ListTags, RecordedSeq, RemoveTag, TagPosition};
pub use answer_call::{AnswerCall, CallAnswer};
pub use apply::{Apply, ApplyDocument};
pub use attach::{AttachedDocument, DetachDirectory, ListAttached, ReportDocument};
pub use bisect::{
    BadChange, Bisect, BisectDocument, BisectEnds, ProbeCommand, ProbeDocument, SliceLook, bisected, bisected_by_slice,
};
pub use blame_file::BlameFile;
pub use cancel_call::{CancelCall, CancelledCalls};
pub use clone_session::{ChildDocument, CloneSession};
pub use compare::{CompareSessions, ComparedBranch, ComparedRun, ComparedRuns, RunScore, ScoreRange, compared};
pub use copy_mounts::{CopiedMounts, CopyMounts};
pub use create_session::{CreateSession, NewMount};
pub use declared_slices::{DeclareSlice, DeclaredSliceDocument, ListDeclared, RemoveDeclared, declared};
pub use diff::{Diff, DiffDocument};
pub use dispatch::{Dispatch, Dispatched, DispatchedCall, DispatchedChild, NewSubagent, SubagentCall};
pub use effects::{ListEffects, RecordEffect};
pub use error::OperationError;
pub use family::{FamilyDocument, FamilyMember, FamilyMerge, KnownSessions, ShowFamily};
pub use fork_session::{ForkSession, Forks};
pub use list_calls::{CallsPage, ListCalls, ListedCall};
pub use list_changes::{ChangeList, ListChanges, ListedChange};
pub use list_events::{EventsPage, ListEvents};
pub use list_files::ListFiles;
pub use list_messages::{ListMessages, MessagesPage};
pub use list_sessions::{ListSessions, SessionDocument, listed};
pub use list_tools::ListTools;
pub use log::{Log, LogDocument, events};
pub use merge::{HunkDocument, HunkSide, Merge, MergeDocument, hunks_in_conflict, merged};
#[cfg(feature = "mount")]
pub use mounts::{ListMounts, MountSession, Unmount, mounted_directory};
pub use operation_forms::{OperationEffect, OperationRoute, OperationTool, TooLong};
pub use own_events::{NewEvent, RecordEvents, RecordedRange};
pub use processes::{ListProcesses, SendInput, ShowProcess, SignalProcess, WaitProcess, no_process};
pub use remove_session::RemoveSession;
pub use rerun::{RerunCalls, RerunDocument};
pub use rewind::{Rewind, RewoundDocument, RewoundRange};
pub use rollouts::{RolloutDocument, Rollouts, RolloutsDocument};
pub use run_until::{RunUntil, StopDocument};
pub use search::{SearchMatch, SearchPage, SearchPlace, SearchSession};
pub use section::{Section, SectionDocument};
pub use seen_files::SeenFiles;
pub use services::{ListServices, ServiceDocument, StopService};
pub use show_call::{ShowCall, WholeCall};
pub use show_session::ShowSession;
pub use show_slice::ShowSlice;
pub use show_state::{ShowState, ShownState, SliceDocument, StateDocument, known_slice, state, state_at};
#[cfg(feature = "sql")]
pub use sql::RunSql;
pub use stat_entry::StatEntry;
pub use strangers::{admit, check_sandbox};
pub use timeline::{ShowTimeline, TimelineBucket, TimelineDocument};
pub use tool_policy::{PolicyDocument, RemovePolicy, ShowPolicy, begin_policy, policy_of_new};
pub use undo::{ExternalChange, PassedCall, Undo, UndoDocument, UndoneCall};
pub use verify::{Verification, Verify};

/// An operation. Its fields are the parameters; its documentation is the description in the APIs.
pub trait Operation: DeserializeOwned + JsonSchema + Send + 'static {
    /// The name in the API description.
    const NAME: &'static str;
    /// The route in the HTTP API, if any.
    const ROUTE: Option<OperationRoute> = None;
    /// The form as a tool for models, if any.
    const TOOL: Option<OperationTool> = None;
    /// The result.
    type Output: Serialize + JsonSchema + Send + 'static;

    /// Runs the operation.
    fn run(self, context: &OperationContext<'_>) -> impl Future<Output = Result<Self::Output, OperationError>> + Send;

    /// Renders a result for a model.
    fn text(output: &Self::Output) -> String {
        serde_json::to_string_pretty(output).unwrap_or_default()
    }

    /// Returns true if the operation did what was requested.
    fn is_well(_output: &Self::Output) -> bool {
        true
    }
}

/// The context of an operation.
pub struct OperationContext<'a> {
    /// The open workspaces.
    pub hub: &'a Hub,
    /// The session that the caller named.
    pub session: Option<String>,
    /// The caller.
    pub caller: &'a dyn Caller,
    /// Cancels the operation.
    pub cancel: CancellationToken,
    /// Receives progress messages.
    pub progress: Option<mpsc::UnboundedSender<String>>,
    /// Receives the results of a long operation one by one.
    pub results: Option<mpsc::UnboundedSender<Value>>,
    /// Limit for the result in bytes.
    pub bytes_max: usize,
}

/// The caller of an operation: determines the accessible sessions and the rules.
pub trait Caller: Send + Sync {
    /// Finds a session; the caller's own if none is named.
    fn session<'a>(&'a self, wanted: Option<&'a str>) -> BoxFuture<'a, Result<Session, OperationError>>;

    /// Opens such a session's workspace.
    fn open<'a>(&'a self, wanted: Option<&'a str>) -> BoxFuture<'a, Result<OpenSession, OperationError>>;

    /// Returns the rules for commands.
    fn rules(&self) -> &ShellRules;

    /// Checks that the caller may choose the host directories for mounts.
    fn may_name_roots(&self) -> Result<(), OperationError> {
        Err(OperationError::refused("this client may not choose the allowed directories"))
    }

    /// Returns true if the caller is a model, which must not remove its person's files.
    fn is_model(&self) -> bool {
        false
    }

    /// Returns true if the caller may use a workspace tool.
    fn offers(&self, _tool: &str) -> bool {
        true
    }

    /// Decides if a bisection's command may run. The bisection's policy decides again for each run.
    fn allow<'a>(&'a self, bisection: Bisection) -> BoxFuture<'a, Result<Bisection, OperationError>> {
        async { Ok(bisection) }.boxed()
    }
}

impl OperationContext<'_> {
    pub(crate) async fn session(&self) -> Result<Session, OperationError> {
        self.caller.session(self.session.as_deref()).await
    }

    /// Returns the hub with the caller's allowed directories, or else the server's. A stranger may use none.
    pub(crate) async fn hub_within(&self, roots: Vec<HostPath>) -> Result<Hub, OperationError> {
        if roots.is_empty() {
            let is_stranger = check_sandbox(&self.caller.rules().caller).is_err();
            return Ok(if is_stranger { self.hub.with_roots(AllowedRoots::default()) } else { self.hub.clone() });
        }
        self.caller.may_name_roots()?;
        let roots = reading(move || Ok(AllowedRoots::new(roots.iter().map(|root| &root.0))?)).await?;
        Ok(self.hub.with_roots(roots))
    }

    /// Checks that the caller may control the session's processes.
    async fn check_commands(&self) -> Result<(), OperationError> {
        match self.open().await?.tool_runner().workspace().unrecorded_shell() {
            Some(shell) if !shell.properties().sandboxed => check_sandbox(&self.caller.rules().caller),
            _ => Ok(()),
        }
    }

    pub(crate) async fn open(&self) -> Result<OpenSession, OperationError> {
        self.caller.open(self.session.as_deref()).await
    }
}

/// Refuses to mount.
#[cfg(not(feature = "mount"))]
pub fn mounted_directory(_: &Hub, _: &Session, _: Option<Position>) -> Result<std::path::PathBuf, OperationError> {
    Err(OperationError::refused("this program was built without mounts"))
}

pub async fn reading<T: Send + 'static>(
    work: impl FnOnce() -> Result<T, OperationError> + Send + 'static,
) -> Result<T, OperationError> {
    blocking(work).await?
}

fn position(session: &Session, given: Option<Position>, otherwise: Seq) -> Result<Seq, SessionError> {
    given.map_or(Ok(otherwise), |given| given.resolve(session))
}

/// Explains an act at the end of the commit of the requested event.
fn moved(asked: Seq, to: Seq) -> Option<String> {
    (asked != to).then(|| format!("event {asked} is inside a commit; this goes to its end, {to}"))
}

/// Limit for the bytes of a request's id.
const REQUEST_ID_MAX: usize = 200;

/// Returns the id of the commit of a request with that `call_id`.
#[doc(hidden)]
pub fn request_id(call_id: Option<&str>) -> Result<Option<CommitId>, OperationError> {
    match call_id {
        Some(id) if !(1..=REQUEST_ID_MAX).contains(&id.len()) => {
            let what = format!("call_id has {} bytes; it must have 1 to {REQUEST_ID_MAX}", id.len());
            Err(OperationError::invalid(what))
        }
        id => Ok(id.map(CommitId::of_request)),
    }
}

pub fn check_agent(agent: &str) -> Result<(), OperationError> {
    match agent.len() <= MAX_AGENT_BYTES {
        true => Ok(()),
        false => Err(OperationError::invalid(format!("agent has more than {MAX_AGENT_BYTES} bytes"))),
    }
}

/// A result, which can be rendered for each API.
pub trait OperationAnswer: Send {
    /// Serializes it as JSON.
    fn json(&self) -> serde_json::Result<Vec<u8>>;
    /// Returns it as a value.
    fn value(&self) -> serde_json::Result<Value>;
    /// Renders it for a model.
    fn text(&self) -> String;
    /// Returns true if the operation did what was requested.
    fn is_well(&self) -> bool;
}

struct Answered<O: Operation>(O::Output);

impl<O: Operation> OperationAnswer for Answered<O> {
    fn json(&self) -> serde_json::Result<Vec<u8>> {
        serde_json::to_vec(&self.0)
    }

    fn value(&self) -> serde_json::Result<Value> {
        serde_json::to_value(&self.0)
    }

    fn text(&self) -> String {
        O::text(&self.0)
    }

    fn is_well(&self) -> bool {
        O::is_well(&self.0)
    }
}

type Run = for<'a> fn(Value, &'a OperationContext<'a>) -> OperationFuture<'a>;
type OperationFuture<'a> = BoxFuture<'a, Result<Box<dyn OperationAnswer>, OperationError>>;

/// A type-erased operation: a row of the table.
pub struct OperationEntry {
    /// The name.
    pub name: &'static str,
    /// The route in the HTTP API.
    pub route: Option<OperationRoute>,
    /// The form as a tool.
    pub tool: Option<OperationTool>,
    /// Generates the schema of the parameters.
    pub params: fn(&mut SchemaGenerator) -> Schema,
    /// Generates the schema of the result.
    pub output: fn(&mut SchemaGenerator) -> Schema,
    /// Runs the operation with parameters as JSON.
    pub run: Run,
    /// The parameters by name, with their schemas.
    pub fields: Arc<Map<String, Value>>,
    /// The description.
    pub about: String,
}

/// Returns the parameters with their schemas, and the description.
pub fn described<P: JsonSchema>() -> (Arc<Map<String, Value>>, String) {
    let schema = SchemaGenerator::default().into_root_schema_for::<P>();
    let about = schema.get("description").and_then(Value::as_str).unwrap_or_default().replace('\n', " ");
    (Arc::new(schema.get("properties").and_then(Value::as_object).cloned().unwrap_or_default()), about)
}

fn row<O: Operation>() -> OperationEntry {
    let (fields, about) = described::<O>();
    OperationEntry {
        name: O::NAME,
        route: O::ROUTE,
        tool: O::TOOL,
        params: SchemaGenerator::subschema_for::<O>,
        output: SchemaGenerator::subschema_for::<O::Output>,
        run: |params, context| {
            async move {
                admit(O::NAME, &context.caller.rules().caller)?;
                let wrong = |error| OperationError::Parameters(serde_json::Error::custom(error));
                let operation: O = read_params(&params).map_err(wrong)?;
                Ok(Box::new(Answered::<O>(operation.run(context).await?)) as Box<dyn OperationAnswer>)
            }
            .boxed()
        },
        fields,
        about,
    }
}

static TABLE: LazyLock<Vec<OperationEntry>> = LazyLock::new(|| {
    // An element of `vec!` can't depend on a feature.
    Vec::from([
        row::<ListTools>(),
        row::<ListSessions>(),
        row::<CreateSession>(),
        row::<CopyMounts>(),
        row::<ShowSession>(),
        row::<RemoveSession>(),
        row::<Section>(),
        row::<ShowFamily>(),
        row::<Align>(),
        row::<CompareSessions>(),
        row::<ListCalls>(),
        row::<ShowTimeline>(),
        row::<ShowCall>(),
        row::<CancelCall>(),
        row::<ListEffects>(),
        row::<RecordEffect>(),
        row::<ListProcesses>(),
        row::<ListServices>(),
        row::<StopService>(),
        row::<ShowProcess>(),
        row::<WaitProcess>(),
        row::<SendInput>(),
        row::<SignalProcess>(),
        row::<AnswerCall>(),
        row::<ShowState>(),
        row::<ShowSlice>(),
        row::<DeclareSlice>(),
        row::<ListDeclared>(),
        row::<RemoveDeclared>(),
        row::<ShowPolicy>(),
        row::<crate::reducers::ToolPolicy>(),
        row::<RemovePolicy>(),
        row::<Diff>(),
        row::<ListChanges>(),
        row::<Verify>(),
        row::<Bisect>(),
        row::<RerunCalls>(),
        row::<RunUntil>(),
        row::<ListFiles>(),
        row::<StatEntry>(),
        row::<BlameFile>(),
        row::<ListEvents>(),
        row::<RecordEvents>(),
        row::<ListMessages>(),
        row::<SearchSession>(),
        row::<Log>(),
        row::<CloneSession>(),
        row::<ForkSession>(),
        row::<Rollouts>(),
        row::<Dispatch>(),
        row::<Merge>(),
        row::<Apply>(),
        row::<Rewind>(),
        row::<Undo>(),
        row::<Annotate>(),
        row::<ListAnnotations>(),
        row::<TagPosition>(),
        row::<ListTags>(),
        row::<RemoveTag>(),
        row::<AttachDirectory>(),
        row::<DetachDirectory>(),
        row::<ListAttached>(),
        row::<super::HookMessage>(),
        #[cfg(feature = "mount")]
        row::<MountSession>(),
        #[cfg(feature = "mount")]
        row::<ListMounts>(),
        #[cfg(feature = "mount")]
        row::<Unmount>(),
        #[cfg(feature = "sql")]
        row::<RunSql>(),
    ])
});

/// Returns the table of operations.
pub fn operations() -> &'static [OperationEntry] {
    &TABLE
}
