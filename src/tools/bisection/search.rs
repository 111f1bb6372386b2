//! Bisection of a session: finds the first change that makes a command fail or a predicate hold.

use std::ops::ControlFlow;
use std::path::PathBuf;

use futures_util::future::join_all;
use tokio_util::sync::CancellationToken;

use super::algorithm::{BisectOutcome, BisectSearch, BisectVerdict};
use super::probe::{Probe, spec_of};
use super::probe_record::ProbeRecord;
use crate::backends::{ShellCommand, WorkspaceSpec, unwatched};
use crate::engine::id::Seq;
use crate::engine::session::Session;
use crate::engine::session::error::SessionError;
use crate::reducers::Predicate;
use crate::tools::environment::{EnvironmentDifference, container_in};
use crate::tools::error::WorkspaceError;
use crate::tools::off_thread::off_thread;
use crate::tools::policy::rules::ShellRules;
use crate::tools::workspace::plan::PlannedChange;

/// A shell's exit codes for a command that it can't run.
const NOT_RUN: std::ops::RangeInclusive<i32> = 126..=127;
const KEEP: usize = 64 << 10;

/// The input of a bisection.
#[derive(Debug, Clone)]
pub struct Bisection {
    /// The session to search. It is only read.
    pub session: Session,
    /// The specification of the probes' workspaces.
    pub spec: WorkspaceSpec,
    /// The directory to create the workspaces in.
    pub home: PathBuf,
    /// The command, which succeeds at the good position and fails at the bad position. Exit code 125 skips a position;
    /// 128 and above ends the search. A timeout counts as a failure.
    pub command: ShellCommand,
    /// The rules for commands.
    pub rules: ShellRules,
    /// A position where the command succeeds.
    pub good: Seq,
    /// A later position where the command fails.
    pub bad: Seq,
    /// The number of concurrent probes.
    pub jobs: usize,
}

impl Bisection {
    /// Creates a bisection with the session's limits, in workspaces like the session's. The ends default to
    /// [`first_position`] and the head.
    pub fn of_session(
        session: Session,
        command: ShellCommand,
        mut rules: ShellRules,
        (good, bad): (Option<Seq>, Option<Seq>),
        home: PathBuf,
        jobs: usize,
    ) -> Result<Self, WorkspaceError> {
        let spec = spec_of(&session, &home, &mut rules.policy)?;
        let good = good.map_or_else(|| first_position(&session), Ok)?;
        let bad = bad.map_or_else(|| session.head(), Ok)?;
        Ok(Self { session, spec, home, command, rules, good, bad, jobs })
    }

    #[doc(hidden)]
    pub fn positions(&self) -> Result<usize, WorkspaceError> {
        // The bad end has the same files as the last change.
        Ok(positions_between(&self.session, self.good, self.bad)?.len() + 1)
    }

    /// Approves the command; only denials still apply.
    #[must_use]
    #[doc(hidden)]
    pub fn allowed(mut self) -> Self {
        self.rules.policy.auto_confirm = true;
        self
    }
}

/// The report of a bisection.
#[derive(Debug, Clone, PartialEq)]
pub struct BisectReport {
    /// The good and the bad end of the search.
    pub ends: (Seq, Seq),
    /// The number of changes between the ends.
    pub changes: usize,
    /// The runs that checked the ends.
    pub checks: Vec<ProbeRecord>,
    /// The runs of the search, round by round.
    pub probes: Vec<ProbeRecord>,
    /// The result of the search.
    pub found: BisectFound,
    /// True if a good position was seen after a bad one. The result is then one of several changes.
    pub is_odd: bool,
    /// Differences between the session's container at the bad end and the probes' container.
    pub environment: Vec<EnvironmentDifference>,
}

/// The first bad change.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BisectFound {
    /// The last position known to be good.
    pub good: Seq,
    /// The first bad position, or candidates if all but the last of them were skipped.
    pub bad: Vec<Seq>,
}

/// Returns the positions of file changes after `good`, up to `bad`: the last change of each commit.
fn changed_positions(session: &Session, good: Seq, bad: Seq) -> Result<Vec<Seq>, SessionError> {
    let mut positions: Vec<Seq> = Vec::new();
    let mut before: Option<(Option<Seq>, crate::engine::clock::Timestamp)> = None;
    session.visit_between(good.saturating_add(1), bad, &mut |event| {
        if !PlannedChange::KINDS.contains(&event.kind) {
            // A commit may have other events between its changes, but no intent or outcome.
            if event.call.is_some() {
                before = None;
            }
            return ControlFlow::Continue(());
        }
        let recorded = (event.call, event.time);
        match positions.last_mut().filter(|_| before == Some(recorded)) {
            Some(last) => *last = event.seq,
            None => positions.push(event.seq),
        }
        before = Some(recorded);
        ControlFlow::Continue(())
    })?;
    Ok(positions)
}

/// Returns the position before the session's first call, after its mounts.
pub fn first_position(session: &Session) -> Result<Seq, SessionError> {
    let mut first = session.head()?;
    session.visit(1, &mut |event| match event.call {
        None => ControlFlow::Continue(()),
        Some(_) => {
            first = event.seq - 1;
            ControlFlow::Break(())
        }
    })?;
    Ok(first)
}

/// Finds the first change that makes a command fail.
///
/// Checks both ends first, then runs each probe in a throw-away workspace with the files of a position. Each job reuses
/// its workspace; all are removed at the end, also after an error. `seen` receives each finished run. The search
/// assumes that all positions after a bad one are bad. With one job and no skips, it takes `log2` of the number of
/// changes, rounded up.
pub async fn bisect(
    what: &Bisection,
    seen: &(dyn Fn(&ProbeRecord) + Sync),
    cancel: &CancellationToken,
) -> Result<BisectReport, WorkspaceError> {
    let Bisection { ref session, good, bad, jobs, .. } = *what;
    let changes = positions_between(session, good, bad)?;
    let at = |number: usize| if number == 0 { good } else { changes.get(number - 1).copied().unwrap_or(bad) };
    let mut lanes = Lanes { what, seen, cancel, free: Vec::new() };
    let mut checks = Vec::new();
    for seqs in [good, bad].chunks(jobs.clamp(1, 2)) {
        let records = lanes.run(seqs).await?;
        records.iter().try_for_each(|record| check_end(record, good))?;
        checks.extend(records);
    }
    let (mut search, mut probes) = (BisectSearch::new(changes.len()), Vec::new());
    loop {
        let next = search.next(jobs);
        if next.is_empty() {
            break;
        }
        let seqs: Vec<Seq> = next.iter().map(|number| at(*number)).collect();
        let records = lanes.run(&seqs).await?;
        for (number, record) in next.into_iter().zip(&records) {
            search.record(number, record.verdict);
        }
        probes.extend(records);
    }
    let first_bad = match search.found() {
        Some(BisectOutcome::Among(numbers)) => numbers.into_iter().map(at).collect(),
        Some(BisectOutcome::First(_)) | None => vec![at(search.bad())],
    };
    let found = BisectFound { good: at(search.good()), bad: first_bad };
    let (state, now) = (session.state_at(bad)?, lanes.free.first().and_then(Probe::container));
    let containers = container_in(&state).zip(now.as_ref());
    let environment = containers.map(|(was, is)| EnvironmentDifference::between(was, is)).unwrap_or_default();
    let (ends, changes, is_odd) = ((good, bad), changes.len(), search.is_odd());
    Ok(BisectReport { ends, changes, checks, probes, found, is_odd, environment })
}

fn positions_between(session: &Session, good: Seq, bad: Seq) -> Result<Vec<Seq>, WorkspaceError> {
    let head = session.head()?;
    if bad > head {
        return Err(SessionError::NoPosition { seq: bad, head }.into());
    }
    if good >= bad {
        return Err(WorkspaceError::Order { good, bad });
    }
    let changes = changed_positions(session, good, bad)?;
    if changes.is_empty() { Err(WorkspaceError::NothingChanged { good, bad }) } else { Ok(changes) }
}

fn check_end(record: &ProbeRecord, good: Seq) -> Result<(), WorkspaceError> {
    let is_good_end = record.seq == good;
    match record.verdict {
        BisectVerdict::Good if is_good_end => Ok(()),
        BisectVerdict::Bad if !is_good_end => Ok(()),
        _ if NOT_RUN.contains(&record.exit_code) && !record.timed_out => {
            Err(WorkspaceError::NotRun(Box::new(record.clone())))
        }
        _ if is_good_end => Err(WorkspaceError::GoodIsBad(Box::new(record.clone()))),
        _ => Err(WorkspaceError::BadIsGood(Box::new(record.clone()))),
    }
}

/// The workspaces of the probes, one for each concurrent run.
struct Lanes<'a> {
    what: &'a Bisection,
    seen: &'a (dyn Fn(&ProbeRecord) + Sync),
    cancel: &'a CancellationToken,
    free: Vec<Probe>,
}

impl Lanes<'_> {
    async fn run(&mut self, seqs: &[Seq]) -> Result<Vec<ProbeRecord>, WorkspaceError> {
        let round = self.cancel.child_token();
        let _ends_with_this = round.clone().drop_guard();
        let mut lanes: Vec<Option<Probe>> = seqs.iter().map(|_| self.free.pop()).collect();
        // In order of position, since the nearest probe has the least to change.
        lanes.sort_by_key(|lane| lane.as_ref().map_or(0, Probe::seq));
        let (what, seen, round) = (self.what, self.seen, &round);
        let runs = seqs.iter().zip(lanes).map(|(seq, lane)| async move {
            let done = probe(what, lane, *seq, round).await;
            match &done {
                Ok((_, record)) => seen(record),
                // The other results no longer matter.
                Err(_) => round.cancel(),
            }
            done
        });
        let (mut records, mut failure) = (Vec::with_capacity(seqs.len()), None);
        for lane in join_all(runs).await {
            match lane {
                Ok((probe, record)) => {
                    self.free.push(probe);
                    records.push(record);
                }
                // Another failure takes precedence over the cancellations that it caused.
                Err(WorkspaceError::Cancelled) => drop(failure.get_or_insert(WorkspaceError::Cancelled)),
                Err(error) => failure = Some(error),
            }
        }
        match failure {
            Some(_) if self.cancel.is_cancelled() => Err(WorkspaceError::Cancelled),
            Some(error) => Err(error),
            None => Ok(records),
        }
    }
}

async fn probe(
    what: &Bisection,
    lane: Option<Probe>,
    seq: Seq,
    cancel: &CancellationToken,
) -> Result<(Probe, ProbeRecord), WorkspaceError> {
    let (session, spec, home) = (what.session.clone(), what.spec.clone(), what.home.clone());
    let rules = what.rules.clone();
    let made = off_thread((), WorkspaceError::Stopped, move || {
        let state = session.state_at(seq)?;
        match lane {
            Some(mut probe) => probe.move_to(&state).map(|()| probe),
            None => Probe::open(&session, &state, &spec, &home, rules),
        }
    });
    let mut probe = made.await?;
    let command = ShellCommand { keep: KEEP, ..what.command.clone() };
    let result = probe.run(command, unwatched(), cancel.clone()).await?;
    if result.cancelled {
        return Err(WorkspaceError::Cancelled);
    }
    let record = ProbeRecord::of(probe.seq(), result, probe.left_out());
    if record.aborts() { Err(WorkspaceError::Aborted(Box::new(record))) } else { Ok((probe, record)) }
}

/// Finds the first position where a predicate holds, without a workspace. The predicate must not hold at `good` and
/// must hold at `bad`; the search assumes that it changes only once in between.
pub fn bisect_slices(
    session: &Session,
    predicate: &Predicate,
    good: Seq,
    bad: Seq,
) -> Result<(BisectFound, Vec<(Seq, bool)>), WorkspaceError> {
    if good >= bad {
        return Err(WorkspaceError::Order { good, bad });
    }
    let holds = |seq: Seq| -> Result<bool, WorkspaceError> {
        predicate.holds(&session.state_at(seq)?).map_err(|error| SessionError::from(error).into())
    };
    for (seq, expected) in [(bad, true), (good, false)] {
        let holds = holds(seq)?;
        if holds != expected {
            return Err(WorkspaceError::SameAtEnd { seq, holds });
        }
    }
    let (mut good, mut bad, mut looks) = (good, bad, Vec::new());
    while bad - good > 1 {
        let middle = good + (bad - good) / 2;
        let is_bad = holds(middle)?;
        looks.push((middle, is_bad));
        *(if is_bad { &mut bad } else { &mut good }) = middle;
    }
    Ok((BisectFound { good, bad: vec![bad] }, looks))
}
