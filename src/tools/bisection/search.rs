//! Bisection of a session: the first change after which a command fails, or a predicate holds.

use std::ops::ControlFlow;
use std::path::PathBuf;
use std::sync::atomic::{AtomicUsize, Ordering};

use futures_util::future::join_all;
use tokio_util::sync::CancellationToken;

use super::algorithm::{BisectOutcome, BisectSearch, BisectVerdict};
use super::probe::Probe;
use super::probe_record::ProbeRecord;
use crate::backends::{ShellCommand, WorkspaceSpec, unwatched};
use crate::engine::event::{DeleteEntry, Event, WriteFile};
use crate::engine::id::Seq;
use crate::engine::session::Session;
use crate::engine::session::sessions::SessionError;
use crate::tools::error::WorkspaceError;
use crate::tools::policy::CommandPolicy;
use crate::tools::predicate::Predicate;
use crate::tools::workspace::limits::{denied, limits_of};

/// The exit codes of a shell for what it can't run.
const NOT_RUN: std::ops::RangeInclusive<i32> = 126..=127;
/// Bytes of each stream that are kept of a probe.
const KEEP: usize = 64 << 10;

/// What is to be bisected.
#[derive(Debug, Clone)]
pub struct Bisection {
    /// The session. It is only read.
    pub session: Session,
    /// What the probes' workspaces are like.
    pub spec: WorkspaceSpec,
    /// The directory below which they are made.
    pub home: PathBuf,
    /// The command that succeeds at the good position and fails at the bad one. 125 says that it can't tell; 128 and more
    /// ends the search. Taking too long is failing.
    pub command: ShellCommand,
    /// Which commands may run.
    pub policy: CommandPolicy,
    /// A position at which it succeeds.
    pub good: Seq,
    /// A later one at which it fails.
    pub bad: Seq,
    /// How many probes run at once.
    pub jobs: usize,
}

impl Bisection {
    /// One for a caller who is bound by a policy: what the session's limits deny is denied, and the probes' workspaces are
    /// like the session's. An end that is not given is where the session's own work begins, or its last position.
    ///
    /// # Errors
    /// What the session says, or that its backend is not known.
    pub(crate) fn of_session(
        session: Session,
        command: ShellCommand,
        mut policy: CommandPolicy,
        (good, bad): (Option<Seq>, Option<Seq>),
        home: PathBuf,
        jobs: usize,
    ) -> Result<Self, WorkspaceError> {
        let Some(started) = session.started() else {
            return Err(SessionError::Unreadable { name: session.name().to_owned() }.into());
        };
        let spec = WorkspaceSpec::of_session(started)?;
        policy.deny.extend(denied(&limits_of(&session)?));
        let good = good.map_or_else(|| first_position(&session), Ok)?;
        let bad = bad.map_or_else(|| session.head(), Ok)?;
        Ok(Self { session, spec, home, command, policy, good, bad, jobs })
    }

    /// At how many positions the command may have to run.
    ///
    /// # Errors
    /// [`WorkspaceError`] when there is nothing to search.
    pub(crate) fn positions(&self) -> Result<usize, WorkspaceError> {
        // The good end, and each change: the bad end is as the last of them.
        Ok(positions_between(&self.session, self.good, self.bad)?.len() + 1)
    }

    /// The same whose command somebody allowed: it runs unless it is denied.
    #[must_use]
    pub(crate) fn allowed(mut self) -> Self {
        self.policy.auto_confirm = true;
        self
    }
}

/// What a bisection came to.
#[derive(Debug, Clone, PartialEq)]
pub struct BisectReport {
    /// The position that was known to be good, and the one that was known to be bad.
    pub ends: (Seq, Seq),
    /// How many changes lie between them.
    pub changes: usize,
    /// What was run to be sure of the ends.
    pub checks: Vec<ProbeRecord>,
    /// What was run to search, in the order of the rounds.
    pub probes: Vec<ProbeRecord>,
    /// What was found.
    pub found: BisectFound,
    /// Whether something good was seen after something bad: then this is one of several such changes.
    pub is_odd: bool,
}

/// The change that was looked for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BisectFound {
    /// The last position that is known to be good.
    pub good: Seq,
    /// The first bad position; when others before it had to be skipped, it is one of all these.
    pub bad: Vec<Seq>,
}

/// The positions after `good`, up to `bad`, at which files were changed: the last change of what was recorded together.
///
/// # Errors
/// What the session says.
pub fn changed_positions(session: &Session, good: Seq, bad: Seq) -> Result<Vec<Seq>, SessionError> {
    let mut positions: Vec<Seq> = Vec::new();
    let mut before: Option<(Option<Seq>, crate::engine::clock::Timestamp)> = None;
    session.visit(good.saturating_add(1), &mut |event| {
        if event.seq > bad {
            return ControlFlow::Break(());
        }
        if !matches!(event.kind, WriteFile::KIND | DeleteEntry::KIND) {
            // What stands between changes may be of the same commit; a call's begin and end are not.
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

/// Where a session's own work begins: the position before its first call, so after its mounts.
///
/// # Errors
/// What the session says.
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

/// Finds the first change after which a command fails. Each probe is a run in a throw-away workspace with the files of a
/// position at which files were changed; the workspaces are used again, one for each job, and gone at the end whatever
/// that is. Both ends are checked first. `seen` is told of each run when it is done.
///
/// It takes for granted that what follows a bad position is bad. `log2` of the changes is how many probes it takes with
/// one job, rounded up, when nothing is skipped.
///
/// # Errors
/// [`WorkspaceError`].
pub async fn bisect(
    what: &Bisection,
    seen: &(dyn Fn(&ProbeRecord) + Sync),
    cancel: &CancellationToken,
) -> Result<BisectReport, WorkspaceError> {
    let Bisection { session, good, bad, jobs, .. } = what;
    let (good, bad) = (*good, *bad);
    let changes = positions_between(session, good, bad)?;
    let at = |number: usize| if number == 0 { good } else { changes.get(number - 1).copied().unwrap_or(bad) };
    let mut lanes = Lanes { what, seen, cancel, free: Vec::new() };
    let mut checks = Vec::new();
    for seqs in [good, bad].chunks((*jobs).clamp(1, 2)) {
        let records = lanes.run(seqs).await?;
        records.iter().try_for_each(|record| check_end(record, good))?;
        checks.extend(records);
    }
    let (mut search, mut probes) = (BisectSearch::new(changes.len()), Vec::new());
    loop {
        let next = search.next(*jobs);
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
    let found = BisectFound { good: at(search.good()), bad: positions_of(&search, at) };
    Ok(BisectReport { ends: (good, bad), changes: changes.len(), checks, probes, found, is_odd: search.is_odd() })
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

fn positions_of(search: &BisectSearch, at: impl Fn(usize) -> Seq) -> Vec<Seq> {
    match search.found() {
        Some(BisectOutcome::Among(numbers)) => numbers.into_iter().map(at).collect(),
        Some(BisectOutcome::First(number)) => vec![at(number)],
        None => vec![at(search.bad())],
    }
}

/// Whether an end is what it is said to be.
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

/// The probes, each of which is one run at a time.
struct Lanes<'a> {
    what: &'a Bisection,
    seen: &'a (dyn Fn(&ProbeRecord) + Sync),
    cancel: &'a CancellationToken,
    free: Vec<Probe>,
}

impl Lanes<'_> {
    /// Runs the command at all these positions at once.
    async fn run(&mut self, seqs: &[Seq]) -> Result<Vec<ProbeRecord>, WorkspaceError> {
        let round = self.cancel.child_token();
        let _ends_with_this = round.clone().drop_guard();
        let failed = AtomicUsize::new(usize::MAX);
        let mut lanes: Vec<Option<Probe>> = seqs.iter().map(|_| self.free.pop()).collect();
        // The nearest one has the least to do.
        lanes.sort_by_key(|lane| lane.as_ref().map_or(0, Probe::seq));
        let (what, seen, round, failed_at) = (self.what, self.seen, &round, &failed);
        let runs = seqs.iter().zip(lanes).enumerate().map(|(number, (seq, lane))| async move {
            let done = probe(what, lane, *seq, round).await;
            match &done {
                Ok((_, record)) if !record.aborts() => seen(record),
                _ => {
                    // What the others would say does not matter any more.
                    let _ = failed_at.compare_exchange(usize::MAX, number, Ordering::AcqRel, Ordering::Acquire);
                    round.cancel();
                }
            }
            done
        });
        let mut done = join_all(runs).await;
        if let Some(first) = done.get(failed.load(Ordering::Acquire)) {
            return Err(match first {
                Err(error) if !self.cancel.is_cancelled() => error.clone(),
                Ok((_, record)) if !self.cancel.is_cancelled() => WorkspaceError::Aborted(Box::new(record.clone())),
                _ => WorkspaceError::Cancelled,
            });
        }
        let mut records = Vec::with_capacity(done.len());
        for lane in done.drain(..) {
            let (probe, record) = lane?;
            self.free.push(probe);
            records.push(record);
        }
        Ok(records)
    }
}

/// Brings a probe to a position, or makes one there, and runs the command.
async fn probe(
    what: &Bisection,
    lane: Option<Probe>,
    seq: Seq,
    cancel: &CancellationToken,
) -> Result<(Probe, ProbeRecord), WorkspaceError> {
    let (session, spec, home) = (what.session.clone(), what.spec.clone(), what.home.clone());
    let policy = what.policy.clone();
    let made = tokio::task::spawn_blocking(move || {
        let state = session.state_at(seq).map_err(WorkspaceError::from)?;
        match lane {
            Some(mut probe) => probe.move_to(&state).map(|()| probe),
            None => Probe::open(&session, &state, &spec, &home, policy),
        }
    });
    let mut probe = made.await.map_err(|_| WorkspaceError::Stopped)??;
    let command = ShellCommand { keep: KEEP, ..what.command.clone() };
    let result = probe.run(command, unwatched(), cancel.clone()).await?;
    match result.cancelled {
        true => Err(WorkspaceError::Cancelled),
        false => {
            let record = ProbeRecord::of(probe.seq(), result, probe.left_out());
            Ok((probe, record))
        }
    }
}

/// Finds the first position at which a predicate holds that does not hold at `good` and holds at `bad`. No workspace is
/// made. It takes for granted that the predicate holds from then on.
///
/// # Errors
/// [`WorkspaceError`].
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
