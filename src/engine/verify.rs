//! Verification: folds everything again and compares.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::ops::ControlFlow;

use serde::Serialize;

use super::event::{EventsLost, Isolation, Node, SessionStarted, WriteFile};
use super::session::snapshot::snapshot_of;
use super::store::{EventStore, SessionEntry, Snapshot, StoreError};
use super::{Digest, Seq, Session, SessionError, SessionId, Sessions, State};

/// Findings of a verification.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct VerifyReport {
    /// Sessions folded again.
    pub sessions: u64,
    /// Events folded. The inherited events of a fork are folded with its parent, unless that was removed or not
    /// verified.
    pub events: u64,
    /// Snapshots compared.
    pub snapshots: u64,
    /// Contents read and compared with their digests.
    pub contents: u64,
    /// Events that this program can't read. They are not differences: another program may know them.
    pub unreadable: u64,
    /// Events lost in an accepted loss or in damage. States after damage lack their changes.
    pub lost: u64,
    /// Differences, in the order of their discovery.
    pub differences: Vec<VerifyDifference>,
}

/// Difference from the events.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct VerifyDifference {
    /// Session.
    pub session: SessionId,
    /// Position.
    pub seq: Seq,
    /// Slice, if the difference is in one.
    pub slice: Option<String>,
    /// Problem.
    pub what: String,
}

impl Sessions {
    /// Folds sessions again from their events, and compares them with every stored snapshot and the current state, and
    /// every file's contents with its digest. A fork is folded from its parent's state.
    pub fn verify(&self, session: Option<SessionId>) -> Result<VerifyReport, SessionError> {
        let mut forks = match session {
            Some(id) => ForkTree { roots: vec![id], forks: BTreeMap::new() },
            None => ForkTree::of(&self.list()?),
        };
        let mut report = VerifyReport::default();
        for root in std::mem::take(&mut forks.roots) {
            let begin = State::empty(self.registry(), root);
            let mut open = vec![VerifyCheck::begin(self, root, begin, &mut forks)?];
            while let Some(check) = open.last_mut() {
                match check.next_fork(&mut report)? {
                    Some((fork, state)) => open.push(VerifyCheck::begin(self, fork, state, &mut forks)?),
                    None => {
                        open.pop().map_or(Ok(()), |check| check.finish(&mut report))?;
                        report.sessions += 1;
                    }
                }
            }
        }
        Ok(report)
    }
}

/// The order of a verification. Each event is verified once, with the first session that has it.
struct ForkTree {
    roots: Vec<SessionId>,
    /// The forks to verify from each session's states, with their positions, in order.
    forks: BTreeMap<SessionId, VecDeque<(Seq, SessionId)>>,
}

impl ForkTree {
    fn of(entries: &[SessionEntry]) -> Self {
        let places: BTreeMap<SessionId, usize> = (0..).zip(entries).map(|(place, entry)| (entry.id, place)).collect();
        let points: Vec<_> = entries.iter().map(fork_point).collect();
        let (mut roots, mut by_parent) = (Vec::new(), BTreeMap::<SessionId, Vec<(Seq, SessionId)>>::new());
        for (place, entry) in entries.iter().enumerate() {
            let is_older = |parent: &SessionId| places.get(parent).is_none_or(|parent| *parent < place);
            let Some((mut parent, at)) = points[place].filter(|(parent, _)| is_older(parent)) else {
                roots.push(entry.id);
                continue;
            };
            // A position in the inherited part belongs to the grandparent.
            while let Some(place) = places.get(&parent)
                && let Some((above, above_at)) = points[*place]
                && at <= above_at
                && places.get(&above).is_none_or(|above| above < place)
            {
                parent = above;
            }
            by_parent.entry(parent).or_default().push((at, entry.id));
        }
        let mut forks = BTreeMap::<SessionId, VecDeque<(Seq, SessionId)>>::new();
        for (parent, mut children) in by_parent {
            children.sort_by_key(|(at, _)| *at);
            let is_there = |at| places.get(&parent).is_some_and(|place| at <= entries[*place].head);
            // The last fork has all inherited events of its siblings.
            let of = match children.last().copied() {
                Some((at, last)) if !is_there(at) => {
                    children.pop();
                    roots.push(last);
                    last
                }
                _ => parent,
            };
            forks.entry(of).or_default().extend(children);
        }
        for children in forks.values_mut() {
            children.make_contiguous().sort_by_key(|(at, _)| *at);
        }
        Self { roots, forks }
    }
}

/// Returns the parent of a fork, and the last position that they share.
fn fork_point(entry: &SessionEntry) -> Option<(SessionId, Seq)> {
    let origin = entry.origin.typed::<SessionStarted>()?.ok()?.event.origin?;
    // An imported fork has its inherited events as its own.
    let is_fork = origin.isolation == Isolation::Fork && origin.at > 0 && entry.origin.seq == origin.at + 1;
    is_fork.then_some((origin.parent, origin.at))
}

struct VerifyCheck<'a> {
    sessions: &'a Sessions,
    session: Session,
    head: Seq,
    /// The fold so far.
    state: State,
    /// Number of events that were verified with the parent, and how many of them were unreadable.
    past: (Seq, u64),
    /// Positions of its snapshots that are not compared yet.
    snapshots: VecDeque<Seq>,
    /// Forks that are not verified yet.
    forks: VecDeque<(Seq, SessionId)>,
    /// True if its current state may come from a cache.
    is_cached: bool,
    differences: Vec<VerifyDifference>,
}

impl<'a> VerifyCheck<'a> {
    fn begin(
        sessions: &'a Sessions,
        id: SessionId,
        mut state: State,
        tree: &mut ForkTree,
    ) -> Result<Self, SessionError> {
        let session = sessions.session(id)?;
        let head = session.head()?;
        let snapshots = snapshots_of(sessions.store().as_ref(), id, (state.seq(), head))?;
        if snapshots.front().is_some_and(|first| *first < state.seq()) {
            state = State::empty(sessions.registry(), id);
        }
        state.session = id;
        let (past, forks) = ((state.seq(), state.unreadable()), tree.forks.remove(&id).unwrap_or_default());
        let is_cached = !snapshots.is_empty() || session.has_state();
        Ok(Self { sessions, session, head, state, past, snapshots, forks, is_cached, differences: Vec::new() })
    }

    /// Folds up to the next fork; returns it with the state that it begins with.
    fn next_fork(&mut self, report: &mut VerifyReport) -> Result<Option<(SessionId, State)>, SessionError> {
        let Some((at, fork)) = self.forks.pop_front() else { return Ok(None) };
        self.fold(at, report)?;
        Ok(Some((fork, self.state.clone())))
    }

    /// Folds up to a position, and compares the snapshots before it.
    fn fold(&mut self, until: Seq, report: &mut VerifyReport) -> Result<(), SessionError> {
        while let Some(seq) = self.snapshots.pop_front_if(|seq| *seq <= until) {
            self.state = self.session.fold_from(self.state.clone(), seq)?;
            let stored = self.sessions.store().snapshot(self.session.id(), seq)?;
            if let Some(stored) = stored.filter(|stored| stored.seq == seq) {
                report.snapshots += 1;
                self.compare(&stored, snapshot_of(&self.state).as_ref(), "the stored snapshot");
            }
        }
        self.state = self.session.fold_from(self.state.clone(), until)?;
        Ok(())
    }

    /// Verifies the rest of the session.
    fn finish(mut self, report: &mut VerifyReport) -> Result<(), SessionError> {
        self.fold(self.head, report)?;
        report.events += self.head - self.past.0;
        report.unreadable += self.state.unreadable() - self.past.1;
        if self.is_cached
            && let (Some(given), folded) = (snapshot_of(&self.session.state_at(self.head)?), snapshot_of(&self.state))
        {
            self.compare(&given, folded.as_ref(), "the current state");
        }
        self.contents(report)?;
        report.differences.append(&mut self.differences);
        Ok(())
    }

    fn compare(&mut self, stored: &Snapshot, folded: Option<&Snapshot>, what: &str) {
        let Some(folded) = folded else { return };
        let pairs: Option<Vec<_>> =
            folded.slices.iter().map(|slice| Some((slice, stored.slice(&slice.name, slice.version)?))).collect();
        // A program with other slices took it; this program does not use it.
        let Some(pairs) = pairs else { return };
        if let Some((slice, _)) = pairs.iter().find(|(slice, other)| slice.digest() != other.digest()) {
            self.differs(folded.seq, Some(slice.name.to_string()), format!("{what} differs from the events"));
        } else if stored.unreadable != folded.unreadable {
            self.differs(folded.seq, None, format!("{what} counts unreadable events wrongly"));
        }
    }

    fn contents(&mut self, report: &mut VerifyReport) -> Result<(), SessionError> {
        let store = self.sessions.store();
        let mut seen = BTreeSet::<Digest>::new();
        let mut found = Vec::new();
        let (mut lost, mut in_gaps) = (0, 0);
        self.session.visit_between(self.past.0 + 1, self.head, &mut |event| {
            if EventsLost::is_gap(event) {
                in_gaps += 1;
            } else if let Some(Ok(end)) = event.typed::<EventsLost>() {
                lost += end.event.last.saturating_sub(end.event.first).saturating_add(1);
            }
            if let Some(Ok(write)) = event.typed::<WriteFile>()
                && let Node::File { content, size, incomplete: false, .. } = write.event.node
                && seen.insert(content)
            {
                found.push((event.seq, write.event.path, content, size));
            }
            ControlFlow::Continue(())
        })?;
        report.lost += lost + in_gaps;
        // The fold counted them as unreadable.
        report.unreadable -= in_gaps;
        for (seq, path, digest, size) in found {
            report.contents += 1;
            let read = match store.content(&digest) {
                Err(error @ StoreError::NoContent(_)) => store.withheld(&digest)?.ok_or(error),
                read => read,
            };
            match read {
                Ok(bytes) if bytes.len() as u64 == size && digest.is_of(&bytes) => {}
                Ok(bytes) => self.differs(seq, None, format!("{path} has {size} bytes; {} are stored", bytes.len())),
                Err(error @ (StoreError::NoContent(_) | StoreError::Damaged { .. })) => {
                    self.differs(seq, None, format!("{path}: {error}"));
                }
                Err(error) => return Err(error.into()),
            }
        }
        Ok(())
    }

    fn differs(&mut self, seq: Seq, slice: Option<String>, what: String) {
        self.differences.push(VerifyDifference { session: self.session.id(), seq, slice, what });
    }
}

/// Returns the positions of a session's snapshots up to its head, in order.
fn snapshots_of(store: &dyn EventStore, id: SessionId, (past, head): (Seq, Seq)) -> Result<VecDeque<Seq>, StoreError> {
    let mut seqs = VecDeque::from(store.snapshots(id)?);
    // The store of another process has snapshots but does not list them.
    let mut before = if seqs.is_empty() { head } else { 0 };
    while before > past
        && let Some(found) = store.snapshot(id, before)?.filter(|found| found.seq > past)
    {
        seqs.push_front(found.seq);
        before = found.seq - 1;
    }
    seqs.retain(|seq| *seq <= head);
    Ok(seqs)
}
