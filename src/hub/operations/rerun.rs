//! Rerun of recorded calls in a fresh session.

use std::path::Path;
use std::sync::Arc;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use tokio::runtime::Handle;

use super::{Operation, OperationContext, OperationError, OperationRoute, reading};
use crate::backends::WorkspaceSpec;
use crate::engine::advice::Advice;
use crate::engine::counted::counted;
use crate::engine::id::{Seq, SessionId};
use crate::engine::path::EntryPath;
use crate::engine::session::Session;
use crate::engine::session::error::SessionError;
use crate::engine::session::sessions::Sessions;
use crate::reducers::EffectEntry;
use crate::tools::{
    CallReport, CallVerdict, EnvironmentDifference, MAX_COMMAND_CHARS, NormalRules, Rerun, RerunReport, RerunWorkspace,
    Scratch, ShellRules, WorkspaceError, roots_of,
};
use crate::view::{
    ChangeDocument, DivergenceDocument, Position, RerunCall, change_between, one_line, rerun_call, subject,
};

/// Limit for the returned differences.
const SHOWN: usize = 500;
/// Returned bytes of each text of a difference.
const TEXT: usize = 4096;
const SUBJECT: usize = 100;
const EFFECTS_SHOWN: usize = 10;
const ADVICE: &str = "name the program in `allow`, or set `auto_confirm` to allow every command that needs approval";

/// Reruns a session's recorded calls, in order, in a throw-away session with a fresh workspace, and reports every
/// difference. The session itself is only read. Questions about commands get their recorded answers, but for commands
/// without a sandbox a recorded yes does not count.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[schemars(rename = "RerunRequest")]
#[serde(deny_unknown_fields)]
pub struct RerunCalls {
    /// Runs only the calls that began at or before this position.
    pub until: Option<Position>,
    /// The backend of the workspace, as for a new session; by default like the recorded session's.
    pub backend: Option<String>,
    /// Options of that backend, as for a new session, except `directory`.
    #[serde(default)]
    pub options: Map<String, Value>,
    /// Keeps the fresh session under this name instead of discarding it.
    pub keep: Option<String>,
    /// Accepted differences in addition to the normal rules: `texts`, `ignore_fields`, `ignore_paths` and `text_files`.
    #[serde(default)]
    pub rules: Map<String, Value>,
    /// True to disable the normal rules, which cover times, durations, addresses and the like.
    #[serde(default)]
    pub no_default_rules: bool,
    /// Programs that commands may run without a question.
    #[serde(default)]
    pub allow: Vec<String>,
    /// True to answer every question about a command with yes.
    #[serde(default)]
    pub auto_confirm: bool,
    /// True to make effects outside of the workspace again. Without it, a rerun that may repeat some is refused.
    #[serde(default)]
    pub repeat_effects: bool,
    /// True to replay recorded HTTP responses, and to refuse all other connections. It needs a container with `record_http`.
    #[serde(default)]
    pub offline: bool,
}

/// The result of a rerun.
#[derive(Debug, Clone, Serialize, JsonSchema)]
#[schemars(rename = "Rerun")]
pub struct RerunDocument {
    /// The recorded session.
    #[schemars(with = "String")]
    pub recorded: SessionId,
    /// The fresh session, if it was kept.
    #[schemars(with = "Option<String>")]
    pub session: Option<SessionId>,
    /// Its name, if it was kept.
    pub name: Option<String>,
    /// The position of the files that it started with.
    pub start: Seq,
    /// The position of the files that its end was compared with.
    pub end: Seq,
    /// The number of calls.
    pub calls: usize,
    /// The number of calls that differed.
    pub diverged: usize,
    /// The number of calls that were skipped.
    pub skipped: usize,
    /// True if no call and no file differed.
    pub same: bool,
    /// The calls that differed or were skipped, with texts and patches cut at 4 KiB.
    pub differing: Vec<RerunCall>,
    /// Differences in the final files, likewise cut.
    pub files: Vec<ChangeDocument>,
    /// True if more differed than the 500 differences returned.
    pub more: bool,
    /// Entries that the fresh workspace lacked, since their contents were never stored.
    #[schemars(with = "Vec<String>")]
    pub missing: Vec<EntryPath>,
    /// Differences of the container, which may explain the others.
    pub environment: Vec<EnvironmentDifference>,
}

impl Operation for RerunCalls {
    const NAME: &'static str = "rerun";
    const ROUTE: Option<OperationRoute> = OperationRoute::post("states", "/v1/sessions/{session}/rerun", 200);
    type Output = RerunDocument;

    async fn run(self, context: &OperationContext<'_>) -> Result<RerunDocument, OperationError> {
        let recorded = context.session().await?;
        let mut rules = ShellRules { asker: None, advice: Some(ADVICE.into()), ..context.caller.rules().clone() };
        // Their length was allowed when they were recorded.
        rules.policy.max_chars = MAX_COMMAND_CHARS;
        rules.policy.auto_confirm |= self.auto_confirm;
        rules.policy.allow.extend(self.allow.iter().cloned());
        let options = context.hub.options();
        let (home, tools, preparing) = (options.home.clone(), Arc::clone(&options.tools), options.progress.clone());
        let (sessions, cancel) = (context.hub.sessions().clone(), context.cancel.clone());
        let (told, shown) = (context.progress.clone(), recorded.clone());
        let tell = move |call: &CallReport| {
            let Some(progress) = &told else { return };
            // If the client is gone, the rerun is cancelled.
            drop(progress.send(line(&shown, call)));
        };
        let runtime = Handle::current();
        // A dropped request cancels it; the work then ends on its own and removes the throw-away session.
        reading(move || {
            let rerun = self.rerun(&recorded, &home)?;
            let spec = self.spec(&recorded, &home)?.forked();
            rerun.check(&spec, &rules)?;
            check_effects(&rerun.repeats(&spec)?, self.repeat_effects)?;
            let place = self.place(&recorded, &sessions, &home)?;
            if let Some(preparing) = preparing {
                place.scratch.workspace().watch_progress(preparing);
            }
            let fresh = RerunWorkspace {
                session: place.scratch.session().clone(),
                workspace: Arc::clone(place.scratch.workspace()),
                tools,
                rules,
                cancel: cancel.clone(),
            };
            let report = runtime.block_on(rerun.run(fresh, &mut |call| tell(call)))?;
            // Covers a cancellation during the last call, too.
            if report.interrupted || cancel.is_cancelled() {
                return Err(WorkspaceError::Cancelled.into());
            }
            if self.keep.is_some() {
                place.scratch.put_back(&sessions)?;
                place.spec.keep_values(place.scratch.session().id(), &home)?;
            }
            Ok(document(&recorded, place.scratch.session(), &report, self.keep)?)
        })
        .await
    }

    fn is_well(rerun: &RerunDocument) -> bool {
        rerun.same
    }
}

/// The throw-away session that the calls run in, and its workspace.
struct RerunPlace {
    scratch: Scratch,
    spec: WorkspaceSpec,
}

impl RerunCalls {
    fn place(&self, recorded: &Session, sessions: &Sessions, home: &Path) -> Result<RerunPlace, OperationError> {
        let spec = self.spec(recorded, home)?.forked();
        if let Some(name) = &self.keep {
            sessions.check_free(name)?;
        }
        let name = self.keep.as_deref().unwrap_or("rerun");
        Ok(RerunPlace { scratch: Scratch::begin(Arc::clone(sessions.registry()), &spec, name)?, spec })
    }

    fn spec(&self, recorded: &Session, home: &Path) -> Result<WorkspaceSpec, OperationError> {
        let Some(backend) = &self.backend else {
            if !self.options.is_empty() {
                return Err(OperationError::invalid("options need a backend: name one"));
            }
            let unreadable = || SessionError::Unreadable { name: recorded.name().to_owned() };
            let started = recorded.started().ok_or_else(unreadable)?;
            return Ok(WorkspaceSpec::of_session(started)?.with_values_of(recorded.id(), home));
        };
        let asked = WorkspaceSpec::asked_for(backend, &Value::Object(self.options.clone()));
        let spec = asked.map_err(|error| OperationError::invalid(error.to_string()))?;
        match spec.named_directory() {
            None => Ok(spec),
            Some(_) => Err(OperationError::invalid("a rerun always uses a new directory: omit `directory`")),
        }
    }

    fn rerun(&self, recorded: &Session, home: &Path) -> Result<Rerun, OperationError> {
        let rules = if self.no_default_rules { NormalRules::bare() } else { NormalRules::default() };
        let rules = rules.with_json(&Value::Object(self.rules.clone()).to_string())?;
        let rerun = Rerun::of(recorded).with_rules(rules.with_roots(roots_of(recorded, home)?));
        let until = self.until.as_ref().map(|until| until.resolve(recorded)).transpose()?;
        let rerun = if self.offline { rerun.offline() } else { rerun };
        Ok(until.map_or(rerun.clone(), |until| rerun.until(until)))
    }
}

fn check_effects(effects: &[EffectEntry], may_repeat: bool) -> Result<(), OperationError> {
    if effects.is_empty() || may_repeat {
        return Ok(());
    }
    let shown: Vec<String> = effects.iter().take(EFFECTS_SHOWN).map(EffectEntry::words).collect();
    let detail = format!("{} would take place again: {}", counted(effects.len() as u64, "effect"), shown.join("; "));
    let advice = Advice::text("set `repeat_effects` to allow that, or rerun in a container without a network");
    Err(OperationError::refused(detail).with_advice(advice))
}

fn line(recorded: &Session, call: &CallReport) -> String {
    let word = match &call.verdict {
        CallVerdict::Same | CallVerdict::Made { .. } => "same",
        CallVerdict::Diverged { .. } => "DIVERGED",
        CallVerdict::Skipped { .. } => "skipped",
    };
    let (seq, tool) = (call.call.unwrap_or_default(), one_line(&call.tool, SUBJECT));
    format!("call {seq}: {word}, {tool} {}", subject(recorded, &call.params, SUBJECT))
}

fn document(
    was: &Session,
    is: &Session,
    report: &RerunReport,
    keep: Option<String>,
) -> Result<RerunDocument, SessionError> {
    let (mut left, mut differing, mut files) = (SHOWN, Vec::new(), Vec::new());
    let is_wanted = |call: &&CallReport| !matches!(call.verdict, CallVerdict::Same);
    for call in report.calls.iter().filter(is_wanted) {
        if left == 0 {
            break;
        }
        let mut call = rerun_call(was, is, call, left)?;
        call.divergences.iter_mut().for_each(shorten);
        left = left.saturating_sub(call.divergences.len().max(1));
        differing.push(call);
    }
    for change in report.files.iter().take(left) {
        let mut change = change_between(was, is, change)?;
        cut(&mut change.patch);
        files.push(change);
    }
    Ok(RerunDocument {
        recorded: was.id(),
        session: keep.is_some().then(|| is.id()),
        name: keep,
        start: report.start,
        end: report.end,
        calls: report.calls.len(),
        diverged: report.diverged(),
        skipped: report.skipped(),
        same: report.is_same(),
        more: left == 0 || files.len() < report.files.len(),
        differing,
        files,
        missing: report.missing.clone(),
        environment: report.environment.clone(),
    })
}

fn shorten(one: &mut DivergenceDocument) {
    if let Some(change) = &mut one.change {
        cut(&mut change.patch);
    }
    for side in [&mut one.was, &mut one.is].into_iter().flatten() {
        let mut text = side.as_str().map_or_else(|| side.to_string(), str::to_owned);
        if text.len() > TEXT {
            cut(&mut text);
            *side = Value::String(text);
        }
    }
}

fn cut(text: &mut String) {
    text.truncate(text.floor_char_boundary(TEXT));
}
