//! Events lost to damage, and the frames that replace them in a repair.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use super::frame::{self, FrameKind};
use crate::engine::event::{ChildStarted, EventsLost, Isolation, LostBytes, SessionStarted};
use crate::engine::store::Result;
use crate::engine::store::index::CatalogueRow;
use crate::engine::{Commit, CommitView, Digest, ForkPoint, Recorded, Seq, SessionId, Timestamp};

/// Acknowledged events of a session in damaged or missing bytes.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Gap {
    /// The session.
    pub session: SessionId,
    /// Its name; empty if unknown.
    pub name: String,
    /// Position of the first lost event.
    pub first: Seq,
    /// Position of the last lost event.
    pub last: Seq,
    /// Segment of the damage.
    pub segment: u32,
    /// Byte offset in the segment.
    pub offset: u64,
    /// Number of damaged bytes; 0 if they are missing.
    pub bytes: u64,
    /// Number of intact events of the session after the gap.
    pub behind: u64,
    /// Number of forks that inherit the gap.
    pub forks: u64,
}

/// A segment and a byte offset in it.
pub(super) type Place = (u32, u64);

/// Damaged or missing bytes.
#[derive(Clone, Default)]
pub(super) struct Damage {
    pub(super) at: Place,
    pub(super) bytes: u64,
    /// Group of the frame before the damage.
    pub(super) group: u64,
    /// Contents right before the damage, which a lost commit may have referred to.
    pub(super) contents: Vec<Digest>,
}

struct Filling {
    gap: Gap,
    /// Position of its first event, which is not lost if the origin is known.
    first: Seq,
    fork: Option<ForkPoint>,
    origin: Option<Recorded>,
    time: Timestamp,
    damage: Damage,
}

/// A frame that a repair adds.
pub(super) struct AddedFrame {
    pub(super) kind: FrameKind,
    pub(super) group: u64,
    pub(super) payload: Vec<u8>,
}

#[derive(Default)]
struct Seen {
    head: Seq,
    time: Timestamp,
    /// Place of its last frame.
    at: Place,
    name: String,
    is_removed: bool,
    /// True once the session starts a second time: a later frame may belong to either history.
    is_contradicted: bool,
    gaps: Vec<usize>,
    /// Number of damages before its last frame, and its head at the last damage.
    damages: usize,
    head_at_damage: Seq,
}

/// The sessions of a journal, as far as it was read.
#[derive(Default)]
pub(super) struct SeenSessions {
    sessions: BTreeMap<SessionId, Seen>,
    damages: Vec<Damage>,
    fillings: Vec<Filling>,
    /// Fork points of children, from their parents' histories.
    children: BTreeMap<SessionId, ForkPoint>,
    /// Index rows of the sessions.
    known: BTreeMap<SessionId, CatalogueRow>,
    lost: u64,
}

/// Maximum number of events that a repair replaces. If more are missing, the frames belong to another journal.
const LOST_MAX: u64 = 1 << 24;
const EVENTS_A_COMMIT: u64 = 1 << 16;

impl SeenSessions {
    pub(super) fn new(known: BTreeMap<SessionId, CatalogueRow>) -> Self {
        Self { known, ..Self::default() }
    }

    pub(super) fn count(&self) -> usize {
        self.sessions.values().filter(|seen| !seen.is_removed).count()
    }

    pub(super) fn name(&self, session: SessionId) -> &str {
        self.sessions.get(&session).map_or("", |seen| &seen.name)
    }

    pub(super) fn damaged(&mut self, damage: Damage) {
        self.damages.push(damage);
    }

    pub(super) fn removed(&mut self, session: SessionId) {
        self.sessions.entry(session).or_default().is_removed = true;
    }

    fn head(&self, session: SessionId) -> Option<Seq> {
        self.sessions.get(&session).filter(|seen| !seen.is_removed).map(|seen| seen.head)
    }

    /// Adds a session that starts after `head`.
    pub(super) fn begin(&mut self, session: SessionId, head: Seq, at: Place) -> Result<(), String> {
        if self.head(session).is_some() {
            self.sessions.entry(session).and_modify(|seen| seen.is_contradicted = true);
            return Err(contradiction(session, head + 1));
        }
        self.sessions.insert(session, Seen { head, at, damages: self.damages.len(), ..Seen::default() });
        Ok(())
    }

    /// Adds an intact commit. Fails if it contradicts earlier commits.
    pub(super) fn commit(
        &mut self,
        commit: &CommitView<'_>,
        fork: Option<ForkPoint>,
        here: &Damage,
    ) -> Result<(), String> {
        let (session, first) = (commit.session, commit.first);
        if let Some(point) = fork {
            if point.seq + 1 != first || point.session == session {
                return Err(format!("session {session}: event {first} does not follow event {}", point.seq));
            }
            self.require(point, commit.time, here)?;
        }
        if fork.is_some() || first == 1 {
            self.begin(session, first - 1, here.at)?;
        } else if self.head(session).is_none() {
            self.begin_lost(session, first - 1, commit.time, here)?;
        }
        let head = self.head(session).unwrap_or(0);
        if first <= head || self.sessions.get(&session).is_some_and(|seen| seen.is_contradicted) {
            return Err(contradiction(session, first));
        }
        if first > head + 1 {
            self.lose(session, first - 1, here)?;
        }
        if let Some(point) = fork {
            self.add_fork(point);
        }
        self.add(commit, here.at);
        Ok(())
    }

    fn add(&mut self, commit: &CommitView<'_>, at: Place) {
        let damages = self.damages.len();
        let Some(seen) = self.sessions.get_mut(&commit.session) else { return };
        if seen.damages < damages {
            (seen.damages, seen.head_at_damage) = (damages, seen.head);
        }
        (seen.head, seen.time, seen.at) = (commit.last(), commit.time, at);
        seen.gaps.iter().for_each(|gap| self.fillings[*gap].gap.behind += u64::from(commit.count));
        for event in commit.events().map_while(Result::ok) {
            if let Some(Ok(begun)) = event.typed::<SessionStarted>() {
                seen.name = begun.event.name;
            } else if let Some(Ok(Recorded { event: begun, .. })) = event.typed::<ChildStarted>()
                && begun.isolation == Isolation::Fork
            {
                self.children.insert(begun.child, ForkPoint { session: commit.session, seq: begun.at });
            }
        }
    }

    fn add_fork(&mut self, point: ForkPoint) {
        let gaps = self.sessions.get(&point.session).map(|parent| parent.gaps.clone());
        for gap in gaps.into_iter().flatten() {
            let gap = &mut self.fillings[gap].gap;
            gap.forks += u64::from(gap.first <= point.seq);
        }
    }

    /// Extends a session to a fork position, because the fork proves that the session had reached it.
    fn require(&mut self, point: ForkPoint, time: Timestamp, here: &Damage) -> Result<(), String> {
        match self.sessions.get(&point.session).map(|seen| (seen.head, seen.is_removed)) {
            None => self.begin_lost(point.session, point.seq, time, here),
            Some((head, _)) if head >= point.seq => Ok(()),
            Some((_, false)) => self.lose(point.session, point.seq, here),
            Some((head, true)) => Err(format!("session {} was removed at event {head}", point.session)),
        }
    }

    /// Starts a session that lost everything up to a position.
    fn begin_lost(&mut self, session: SessionId, last: Seq, time: Timestamp, here: &Damage) -> Result<(), String> {
        // Before its parents, so that a cycle does not recurse forever.
        self.removed(session);
        let known = self.known.remove(&session).map(|known| (known.base, known.entry.origin));
        let (base, origin) = known.map_or((None, None), |(base, origin)| (base, Some(origin)));
        let base = base.or_else(|| self.children.get(&session).copied());
        let base = base.filter(|base| base.seq < last && base.session != session);
        let mut damage = self.damages.last().cloned().unwrap_or_else(|| here.clone());
        if let Some(base) = base {
            self.require(base, time, here)?;
            let parent = self.sessions.get(&base.session);
            let there = parent.map(|p| if p.damages < self.damages.len() { p.head } else { p.head_at_damage });
            if there.is_none_or(|there| there < base.seq) {
                damage = here.clone();
            }
            self.add_fork(base);
        }
        let first = base.map_or(1, |base| base.seq + 1);
        let origin = origin.filter(|origin| origin.seq == first);
        self.begin(session, first - 1, damage.at)?;
        let time = origin.as_ref().map_or(time, |origin| origin.time);
        self.sessions.entry(session).and_modify(|seen| seen.time = time);
        self.fill(session, last, damage, (base, origin))
    }

    /// Adds lost events up to a position, at the first damage after the session's last frame.
    fn lose(&mut self, session: SessionId, last: Seq, here: &Damage) -> Result<(), String> {
        let after = self.sessions.get(&session).map_or((0, 0), |seen| seen.at);
        let at = self.damages.partition_point(|damage| damage.at < after);
        let damage = self.damages.get(at).unwrap_or(here).clone();
        self.fill(session, last, damage, (None, None))
    }

    fn fill(
        &mut self,
        session: SessionId,
        last: Seq,
        damage: Damage,
        (fork, origin): (Option<ForkPoint>, Option<Recorded>),
    ) -> Result<(), String> {
        let Some(seen) = self.sessions.get_mut(&session) else { return Ok(()) };
        let first = seen.head + 1;
        self.lost = self.lost.saturating_add(last - seen.head);
        if self.lost > LOST_MAX {
            return Err(format!("session {session}: events {first} to {last} are missing: too many to replace"));
        }
        if let Some(Ok(begun)) = origin.as_ref().and_then(|origin| origin.typed::<SessionStarted>()) {
            seen.name = begun.event.name;
        }
        let (segment, offset) = damage.at;
        let lost = first + u64::from(origin.is_some());
        let gap = Gap {
            session,
            name: String::new(),
            first: lost,
            last,
            segment,
            offset,
            bytes: damage.bytes,
            behind: 0,
            forks: 0,
        };
        seen.head = last;
        seen.at = damage.at;
        if self.damages.last().is_some_and(|latest| latest.at == damage.at) {
            (seen.damages, seen.head_at_damage) = (self.damages.len(), last);
        }
        seen.gaps.push(self.fillings.len());
        self.fillings.push(Filling { gap, first, fork, origin, time: seen.time, damage });
        Ok(())
    }

    /// Adds lost events at sessions' ends that only the index knows, at the damage after their last intact frames.
    pub(super) fn complete(&mut self) {
        for (session, known) in std::mem::take(&mut self.known) {
            let Some(damage) = self.damages.last().cloned() else { return };
            match self.sessions.get(&session) {
                Some(seen) if seen.is_removed || seen.head >= known.entry.head || seen.at > damage.at => {}
                Some(_) => drop(self.lose(session, known.entry.head, &damage)),
                None => {
                    let (head, time) = (known.entry.head, known.entry.origin.time);
                    self.known.insert(session, known);
                    drop(self.begin_lost(session, head, time, &damage));
                }
            }
        }
    }

    pub(super) fn gaps(&self) -> Vec<Gap> {
        let gaps = self.fillings.iter().map(|filling| &filling.gap).filter(|gap| gap.first <= gap.last);
        gaps.map(|gap| Gap { name: self.name(gap.session).to_owned(), ..gap.clone() }).collect()
    }

    /// Creates the frames that replace lost events, in order for each place.
    pub(super) fn frames(&self) -> Result<BTreeMap<Place, Vec<AddedFrame>>> {
        let mut frames = BTreeMap::<Place, Vec<AddedFrame>>::new();
        for filling in &self.fillings {
            filling.frames(frames.entry(filling.damage.at).or_default())?;
        }
        Ok(frames)
    }

    pub(super) fn changed_segments(&self) -> BTreeSet<u32> {
        self.fillings.iter().map(|filling| filling.damage.at.0).collect()
    }
}

fn contradiction(session: SessionId, first: Seq) -> String {
    format!("session {session}: event {first} occurs twice")
}

impl Filling {
    fn frames(&self, frames: &mut Vec<AddedFrame>) -> Result<()> {
        let Gap { session, first: lost, last, segment, .. } = self.gap;
        let mut next = self.first;
        while next <= last {
            let agent = self.origin.as_ref().map_or_else(|| "".into(), |origin| Arc::clone(&origin.agent));
            let mut commit = Commit::new(session, self.time).as_agent(&agent);
            let fork = self.fork.filter(|_| next == self.first);
            let mut payload = fork.map_or_else(Vec::new, frame::fork_head);
            let until = last.min(next + EVENTS_A_COMMIT - 1);
            for seq in next..=until {
                if let Some(origin) = self.origin.as_ref().filter(|_| seq < lost) {
                    commit.push_encoded(&origin.event.kind, origin.event.version, &origin.event.bytes)?;
                    continue;
                }
                let contents = if seq == lost { self.damage.contents.clone() } else { Vec::new() };
                let gap = LostBytes { offset: self.damage.at.1, bytes: self.damage.bytes, contents };
                commit.push(&EventsLost { first: lost, last, segment, gap: Some(gap) })?;
            }
            commit.encode(next, self.time, &mut payload);
            let kind = if fork.is_some() { FrameKind::Fork } else { FrameKind::Commit };
            frames.push(AddedFrame { kind, group: self.damage.group, payload });
            next = until + 1;
        }
        Ok(())
    }
}

impl Gap {
    /// Describes the lost and the intact events.
    pub(super) fn line(&self) -> String {
        let Self { session, name, first, last, behind, forks, .. } = self;
        let shown = if name.is_empty() { session.to_string() } else { format!("{name:?} ({session})") };
        let lost = if first == last { format!("event {first} is") } else { format!("events {first} to {last} are") };
        let forks = if *forks > 0 { format!(", forks that inherit the gap: {forks}") } else { String::new() };
        format!("session {shown}: {lost} lost; intact events after the gap: {behind}{forks}")
    }
}
