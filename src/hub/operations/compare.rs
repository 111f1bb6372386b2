//! Comparison of a group of runs as a tree.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::ControlFlow;
use std::path::Path;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use tokio_util::sync::CancellationToken;

use super::align::{AlignedCall, aligned};
use super::{Operation, OperationContext, OperationError, OperationRoute, reading};
use crate::engine::event::{Annotated, Isolation};
use crate::engine::id::{Seq, SessionId};
use crate::engine::session::Session;
use crate::engine::session::sessions::Sessions;
use crate::tools::{PathGlob, WorkspaceError, roots_of, running_calls};
use crate::view::{CallFilter, CallRow, CallRows, RunBranch, RunStep, RunTree, one_line};

/// Limit for the sessions of a comparison.
const RUNS: usize = 1000;
/// Limit for the distinct calls, which are in memory together.
const STEPS: usize = 1_000_000;
/// Limit for the scores of a run.
const SCORES: usize = 20;
const NOTE_MAX: usize = 200;

/// Compares several runs as a tree: the calls that all of them made first, then a branch for each way to continue, down
/// to the end of each run. Calls are the same if tool and parameters are; the ids and workspace roots of the sessions
/// don't count.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct CompareSessions {
    /// From 2 to 1,000 sessions, separated by commas: names, id prefixes, or globs of names (`rollout-*`).
    pub sessions: String,
}

/// Runs, compared as a tree.
#[derive(Debug, Clone, Serialize, JsonSchema)]
pub struct ComparedRuns {
    /// The number of runs.
    pub runs: usize,
    /// The branches. The first one has the calls that all runs made first; each other one follows its parent.
    pub branches: Vec<ComparedBranch>,
}

/// Calls that the same runs made.
#[derive(Debug, Clone, Serialize, JsonSchema)]
pub struct ComparedBranch {
    /// The index of the branch that it continues; null for the first branch.
    pub parent: Option<usize>,
    /// The number of runs that made these calls.
    pub runs: usize,
    /// The number of calls.
    pub calls: usize,
    /// The number of calls for which runs got different outcomes.
    pub differing: usize,
    /// The first call, as one of the runs made it: where the runs part. Null if no call is common to all runs.
    pub first: Option<AlignedCall>,
    /// The session of that call.
    #[schemars(with = "String")]
    pub session: SessionId,
    /// The scores of the runs, by name.
    pub scores: BTreeMap<String, ScoreRange>,
    /// The runs that end with this branch.
    pub ended: Vec<ComparedRun>,
}

/// Scores of several runs.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, JsonSchema)]
pub struct ScoreRange {
    /// The number of runs with this score.
    pub runs: usize,
    /// The mean.
    pub mean: f64,
    /// The lowest score.
    pub min: f64,
    /// The highest score.
    pub max: f64,
}

/// A run, and its end.
#[derive(Debug, Clone, Serialize, JsonSchema)]
pub struct ComparedRun {
    /// The session.
    #[schemars(with = "String")]
    pub session: SessionId,
    /// Its name.
    pub name: String,
    /// The number of its calls, including inherited calls.
    pub calls: usize,
    /// The number of calls that failed, or with a command that did.
    pub failed: usize,
    /// The total duration of its calls in microseconds.
    pub micros: u64,
    /// Its last call; null if it made none.
    pub last: Option<AlignedCall>,
    /// The latest annotation of each name, at most 20. A fork's annotations do not include its parent's.
    pub scores: BTreeMap<String, RunScore>,
}

/// An annotation of a run.
#[derive(Debug, Clone, PartialEq, Serialize, JsonSchema)]
pub struct RunScore {
    /// The annotated position.
    pub at: Seq,
    /// The score.
    pub score: Option<f64>,
    /// The note, in one line of at most 200 characters.
    pub note: Option<String>,
}

impl Operation for CompareSessions {
    const NAME: &'static str = "compare_sessions";
    const ROUTE: Option<OperationRoute> = OperationRoute::get("sessions", "/v1/compare");
    type Output = ComparedRuns;

    async fn run(self, context: &OperationContext<'_>) -> Result<ComparedRuns, OperationError> {
        let (sessions, home) = (context.hub.sessions().clone(), context.hub.options().home.clone());
        let cancel = context.cancel.clone();
        reading(move || {
            let wanted: Vec<&str> = self.sessions.split(',').map(str::trim).filter(|name| !name.is_empty()).collect();
            compared(&sessions, &wanted, &home, &cancel)
        })
        .await
    }
}

/// Compares sessions, which are named as in [`CompareSessions`].
pub fn compared(
    sessions: &Sessions,
    wanted: &[&str],
    home: &Path,
    cancel: &CancellationToken,
) -> Result<ComparedRuns, OperationError> {
    let runs = chosen(sessions, wanted)?;
    let (mut tree, mut ends) = (RunTree::default(), Vec::with_capacity(runs.len()));
    // An open session has a state and buffers: only one is open at a time.
    for (number, id) in runs.iter().enumerate() {
        ends.push(Some(add(&mut tree, number, &sessions.session(*id)?, home, cancel)?));
        if tree.steps() > STEPS {
            let what = format!("the runs have more than {STEPS} different calls; compare fewer of them");
            return Err(OperationError::refused(what));
        }
    }
    let order = tree.order();
    let places: BTreeMap<usize, usize> = order.iter().enumerate().map(|(place, at)| (*at, place)).collect();
    let mut branches = Vec::with_capacity(order.len());
    for at in order {
        let branch = &tree.branches()[at];
        let parent = branch.parent.and_then(|parent| places.get(&parent).copied());
        branches.push(document(branch, parent, &sessions.session(runs[branch.run])?, &mut ends)?);
    }
    sum_up(&mut branches);
    Ok(ComparedRuns { runs: runs.len(), branches })
}

/// Returns the sessions in the order in which they are named, each once.
fn chosen(sessions: &Sessions, wanted: &[&str]) -> Result<Vec<SessionId>, OperationError> {
    let (mut ids, mut seen) = (Vec::new(), BTreeSet::new());
    let is_glob = |name: &&str| name.contains(['*', '?', '[']);
    let listed = if wanted.iter().any(is_glob) { sessions.list()? } else { Vec::new() };
    let known: Vec<(String, SessionId)> = listed.iter().map(|entry| (entry.name(), entry.id)).collect();
    for name in wanted {
        if !is_glob(name) {
            ids.push(sessions.find(name)?.id);
            continue;
        }
        let glob = PathGlob::new(name)
            .map_err(|error| OperationError::invalid(format!("{name:?} is not a glob: {}", error.kind())))?;
        let before = ids.len();
        ids.extend(known.iter().filter(|(name, _)| glob.fits_bytes(name.as_bytes())).map(|(_, id)| *id));
        if ids.len() == before {
            return Err(OperationError::not_found(format!("no session has a name like {name:?}")));
        }
    }
    ids.retain(|id| seen.insert(*id));
    match ids.len() {
        0 | 1 => Err(OperationError::invalid("a comparison needs at least two sessions")),
        2..=RUNS => Ok(ids),
        more => Err(OperationError::invalid(format!("{more} sessions are too many to compare; the limit is {RUNS}"))),
    }
}

/// Adds the calls of a run to the tree, and returns the run's end. Reads the history once.
fn add(
    tree: &mut RunTree,
    number: usize,
    session: &Session,
    home: &Path,
    cancel: &CancellationToken,
) -> Result<ComparedRun, OperationError> {
    let (filter, mut place, mut last) = (CallFilter::default(), tree.begin(number), None);
    let (name, head) = (session.name().to_owned(), session.head()?);
    let mut run = ComparedRun {
        session: session.id(),
        name,
        calls: 0,
        failed: 0,
        micros: 0,
        last: None,
        scores: BTreeMap::new(),
    };
    let inherited = session.origin().filter(|origin| origin.isolation == Isolation::Fork).map_or(0, |origin| origin.at);
    let mut scores = BTreeMap::new();
    let rows = CallRows::new(&filter, running_calls(session))?.with_common_digests(session, roots_of(session, home)?);
    rows.visit_with(
        session,
        (1, head),
        &mut |event| {
            if event.seq > inherited
                && let Some(Ok(annotated)) = event.typed::<Annotated>()
            {
                note(&mut scores, annotated.event);
            }
        },
        &mut |row: CallRow| {
            tree.step(&mut place, RunStep { call: row.call, key: start_of(&row.key), outcome: start_of(&row.outcome) });
            (run.calls, run.failed) = (run.calls + 1, run.failed + usize::from(row.failed));
            run.micros = run.micros.saturating_add(row.micros);
            last = Some(row);
            if cancel.is_cancelled() || tree.steps() > STEPS {
                ControlFlow::Break(())
            } else {
                ControlFlow::Continue(())
            }
        },
    )?;
    if cancel.is_cancelled() {
        return Err(WorkspaceError::Cancelled.into());
    }
    tree.end(place);
    (run.last, run.scores) = (last.map(|row| aligned(session, &row)), scores);
    Ok(run)
}

fn note(scores: &mut BTreeMap<String, RunScore>, annotated: Annotated) {
    let Annotated { name, at, score, note, .. } = annotated;
    if scores.len() < SCORES || scores.contains_key(&name) {
        scores.insert(name, RunScore { at, score, note: note.map(|note| one_line(&note, NOTE_MAX)) });
    }
}

/// Returns the first 64 bits of a digest.
fn start_of(digest: &str) -> u64 {
    digest.get(..16).and_then(|digits| u64::from_str_radix(digits, 16).ok()).unwrap_or_default()
}

fn document(
    branch: &RunBranch,
    parent: Option<usize>,
    session: &Session,
    ends: &mut [Option<ComparedRun>],
) -> Result<ComparedBranch, OperationError> {
    let (filter, mut first) = (CallFilter::default(), None);
    if let Some((step, _)) = branch.steps.first() {
        let rows = CallRows::new(&filter, running_calls(session))?.with_digests();
        rows.visit(session, (step.call, session.head()?), &mut |row| {
            first = Some(aligned(session, &row));
            ControlFlow::Break(())
        })?;
    }
    Ok(ComparedBranch {
        parent,
        runs: branch.ended.len(),
        calls: branch.steps.len(),
        differing: branch.steps.iter().filter(|(_, differs)| *differs).count(),
        first,
        session: session.id(),
        scores: BTreeMap::new(),
        ended: branch.ended.iter().filter_map(|run| ends[*run].take()).collect(),
    })
}

/// Counts the runs of each branch with those that end further on, and their scores.
fn sum_up(branches: &mut [ComparedBranch]) {
    for at in (0..branches.len()).rev() {
        let branch = &mut branches[at];
        for run in &branch.ended {
            for (name, score) in &run.scores {
                if let Some(score) = score.score {
                    add_range(&mut branch.scores, name, ScoreRange { runs: 1, mean: score, min: score, max: score });
                }
            }
        }
        let Some(parent) = branch.parent else { continue };
        let (runs, scores) = (branch.runs, branch.scores.clone());
        branches[parent].runs += runs;
        scores.iter().for_each(|(name, range)| add_range(&mut branches[parent].scores, name, *range));
    }
}

fn add_range(scores: &mut BTreeMap<String, ScoreRange>, name: &str, more: ScoreRange) {
    let none = ScoreRange { runs: 0, mean: 0.0, min: more.min, max: more.max };
    let known = scores.entry(name.to_owned()).or_insert(none);
    known.runs += more.runs;
    known.mean += (more.mean - known.mean) * more.runs as f64 / known.runs as f64;
    (known.min, known.max) = (known.min.min(more.min), known.max.max(more.max));
}
