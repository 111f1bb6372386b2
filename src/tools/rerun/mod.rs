//! Reruns of recorded calls, unchanged or with other calls among them, compared with the recording.

mod answers;
mod compare;
mod course;
mod effects;
mod expect;
pub(crate) mod foreign;
pub(super) mod past;
mod roots;
mod rules;
mod scratch;
pub(crate) mod session;
mod subagents;
#[cfg(test)]
mod tests;
mod what_if;

use serde::Serialize;

pub use compare::Divergence;
pub use course::{CallReport, CallVerdict, CallWatch, RerunWorkspace};
use effects::repeated;
pub use expect::Expectation;
pub use foreign::{ForeignRun, runs_commands};
pub use past::ScriptedCall;
pub use roots::roots_of;
pub use rules::NormalRules;
pub use scratch::Scratch;
pub use subagents::subagents_of;
pub use what_if::WhatIf;

use crate::backends::WorkspaceSpec;
use crate::engine::id::Seq;
use crate::engine::path::EntryPath;
use crate::engine::session::Session;
use crate::engine::session::error::SessionError;
use crate::reducers::{Change, EffectEntry};
use crate::tools::environment::EnvironmentDifference;
use crate::tools::error::WorkspaceError;
use crate::tools::policy::rules::ShellRules;
use course::{Course, check_commands};
use past::{PastRun, RerunStep};

/// Rerun of a session's recorded calls in a fresh session, which compares outcome and files call by call.
///
/// It begins with the files, and the slices that are state, before the first call. Calls run sequentially in the order
/// of their start, each for its agent. Events outside of any call are applied at the same point, as recorded. A call
/// that was interrupted or never ended is skipped, and its changes are applied as recorded. Only the history of the
/// recorded session is read.
///
/// ```
/// # use foldspace_tools as foldspace;
/// use foldspace::{
///     MemoryWorkspace, NewSession, Registry, Sessions, ToolCall, ToolRunner, Tools, WorkspaceSpec, tools::{Rerun,
///     RerunWorkspace, Scratch},
/// };
/// # let directory = tempfile::tempdir()?;
/// # let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build()?;
/// let sessions = Sessions::open(directory.path(), Registry::standard())?;
/// let session = sessions.create(NewSession::named("first"))?;
/// let tools = ToolRunner::new(session.clone(), Tools::standard(), std::sync::Arc::new(MemoryWorkspace))?;
/// let params = serde_json::json!({ "file_path": "a.txt", "content": "hello" });
/// runtime.block_on(tools.call(ToolCall::new("write_file", params)))?;
///
/// let scratch = Scratch::begin(Registry::standard(), &WorkspaceSpec::Memory, "again")?;
/// let fresh = RerunWorkspace {
///     session: scratch.session().clone(),
///     workspace: scratch.workspace().clone(),
///     tools: Tools::standard().into(),
///     rules: Default::default(),
///     cancel: Default::default(),
/// };
/// let report = runtime.block_on(Rerun::of(&session).run(fresh, &mut |_| {}))?;
/// assert!(report.is_same());
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug, Clone)]
pub struct Rerun {
    past: PastRun,
    until: Option<Seq>,
    offline: bool,
    rules: NormalRules,
    base: Option<PastRun>,
    directory: Option<String>,
    subagents: Vec<PastRun>,
}

/// Report of a rerun.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
pub struct RerunReport {
    /// The position of the initial files.
    pub start: Seq,
    /// The position that the final files were compared with.
    pub end: Seq,
    /// The calls, in order.
    pub calls: Vec<CallReport>,
    /// Differences of the final files.
    pub files: Vec<Change>,
    /// Entries that the fresh workspace lacks, because their contents were never stored.
    pub missing: Vec<EntryPath>,
    /// Differences of the container, which may explain the others.
    pub environment: Vec<EnvironmentDifference>,
    /// True if it was cancelled; the final files are then not compared.
    pub interrupted: bool,
    /// True for the transcript of another program, which does not state all files; the final files are not compared.
    pub is_partial: bool,
}

impl RerunReport {
    /// Returns true if nothing differs. Skipped calls don't count.
    pub fn is_same(&self) -> bool {
        !self.interrupted && self.files.is_empty() && self.diverged() == 0
    }

    /// Counts the calls that differ.
    pub fn diverged(&self) -> usize {
        self.calls.iter().filter(|call| matches!(call.verdict, CallVerdict::Diverged { .. })).count()
    }

    /// Counts the skipped calls.
    pub fn skipped(&self) -> usize {
        self.calls.iter().filter(|call| matches!(call.verdict, CallVerdict::Skipped { .. })).count()
    }
}

impl Rerun {
    /// Reruns all calls of the session, with the default rules.
    pub fn of(session: &Session) -> Self {
        let (base, directory, subagents) = (None, None, Vec::new());
        let (past, rules) = (PastRun::of(session), NormalRules::default());
        Self { past, until: None, offline: false, rules, base, directory, subagents }
    }

    /// Begins with the files of that session, for the transcript of another program. Calls of that program's tools are
    /// made with equivalent tools.
    #[must_use]
    pub fn with_base(mut self, base: &Session) -> Self {
        self.base = Some(PastRun::of(base));
        self
    }

    /// Sets the directory of another program's run, if the transcript does not state it.
    #[must_use]
    pub fn was_in(mut self, directory: impl Into<String>) -> Self {
        self.directory = Some(directory.into());
        self
    }

    /// Makes the calls of these subagents, too, between the calls of their run, ordered by time. The agent of each call
    /// is the name of the subagent's session.
    #[must_use]
    pub fn with_subagents<'s>(mut self, subagents: impl IntoIterator<Item = &'s Session>) -> Self {
        self.subagents.extend(subagents.into_iter().map(PastRun::of));
        self
    }

    /// Returns the run of another program that the session is the transcript of, as of its first call.
    ///
    /// # Errors
    /// [`SessionError`] if the session can't be read.
    pub fn transcript(&self) -> Result<Option<ForeignRun>, SessionError> {
        let steps = self.past.steps(0, self.until.unwrap_or(Seq::MAX))?;
        Ok(steps.iter().find_map(RerunStep::transcript).cloned())
    }

    /// Limits the rerun to calls that began at `until` or before.
    #[must_use]
    pub fn until(mut self, until: Seq) -> Self {
        self.until = Some(until);
        self
    }

    /// Replays recorded HTTP responses, and refuses all other connections. The workspace must record HTTP.
    #[must_use]
    pub fn offline(mut self) -> Self {
        self.offline = true;
        self
    }

    /// Sets the rules of the comparison.
    #[must_use]
    pub fn with_rules(mut self, rules: NormalRules) -> Self {
        self.rules = rules;
        self
    }

    /// Reruns the calls, and passes each to `watch`.
    ///
    /// # Errors
    /// [`WorkspaceError`]. Calls that fail or diverge are not errors.
    pub async fn run(&self, fresh: RerunWorkspace, watch: CallWatch<'_>) -> Result<RerunReport, WorkspaceError> {
        self.course()?.run(fresh, watch).await
    }

    /// Checks that each recorded command can run in such a workspace: it has a shell, and the rules allow the command or
    /// have an approver.
    ///
    /// # Errors
    /// [`WorkspaceError::CantRerun`] for the first call that can't run; [`WorkspaceError::NotOffline`] if the
    /// rerun is offline and the workspace does not record HTTP.
    pub fn check(&self, spec: &WorkspaceSpec, rules: &ShellRules) -> Result<(), WorkspaceError> {
        if self.offline && !spec.records_http() {
            return Err(WorkspaceError::NotOffline);
        }
        check_commands(&self.course()?.steps, spec, rules)
    }

    /// Returns the recorded effects outside of the workspace that the calls may have again in such a workspace; empty
    /// if the rerun is offline.
    ///
    /// # Errors
    /// Failure to read the session.
    pub fn repeats(&self, spec: &WorkspaceSpec) -> Result<Vec<EffectEntry>, WorkspaceError> {
        if self.offline { Ok(Vec::new()) } else { Ok(repeated(&self.past, &self.course()?.steps, spec)?) }
    }

    fn course(&self) -> Result<Course<'_>, WorkspaceError> {
        let start = self.past.before_calls()?;
        let mut steps = self.past.steps(start, self.until.unwrap_or(Seq::MAX))?;
        let end = self.end(&steps)?;
        self.add_subagents(&mut steps)?;
        if let Some(directory) = &self.directory {
            steps.iter_mut().filter_map(RerunStep::call_mut).for_each(|call| call.was_in(directory));
        }
        let (past, rules, base, offline) = (&self.past, &self.rules, self.base.as_ref(), self.offline);
        Ok(Course { past, start, steps, offline, end, rules, base })
    }

    fn add_subagents(&self, steps: &mut Vec<RerunStep>) -> Result<(), SessionError> {
        let last = steps.last().and_then(RerunStep::at).filter(|_| self.until.is_some());
        for past in &self.subagents {
            let mut own = past.steps(past.own_from(), Seq::MAX)?;
            own.retain(|step| step.at() <= last.or(step.at()));
            own.iter_mut().filter_map(RerunStep::call_mut).for_each(|call| call.agent = past.name().into());
            steps.extend(own);
        }
        if !self.subagents.is_empty() {
            steps.sort_by_key(RerunStep::at);
        }
        Ok(())
    }

    fn end(&self, steps: &[RerunStep]) -> Result<Seq, SessionError> {
        let Some(until) = self.until else { return self.past.head() };
        let finished = steps.iter().filter_map(|step| Some(step.call()?.outcome.as_ref()?.0));
        Ok(finished.chain([until]).max().unwrap_or(until).min(self.past.head()?))
    }
}
